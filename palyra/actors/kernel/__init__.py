"""Mailboxes, supervisors, threads: the actor model itself; knows no noun of the domain."""
