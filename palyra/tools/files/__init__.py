"""The workspace: confined access, reading, searching, changing, checkpoints."""
