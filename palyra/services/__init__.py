"""Objects with state but no task: called by actors, restarted with nothing."""
