"""Files beside the journal, and how bytes reach the disk: artifacts, checkpoints, skills, compiled modules, the data directory."""
