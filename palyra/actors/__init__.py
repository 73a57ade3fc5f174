"""Actors: one task, one mailbox, one loop per actor, and the supervisors that own them."""
