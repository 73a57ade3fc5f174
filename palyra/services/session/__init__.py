"""Parts of a session: changes of files, checkpoints, artifacts."""
