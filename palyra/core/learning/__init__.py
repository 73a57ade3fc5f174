"""Learning: which statements of a run are worth keeping, and the states of a candidate."""
