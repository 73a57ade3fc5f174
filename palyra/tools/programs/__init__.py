"""Programs for a model: shell, background programs, their output."""
