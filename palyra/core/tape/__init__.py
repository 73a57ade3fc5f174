"""The events of a run, and the proof of a tape outside the daemon."""
