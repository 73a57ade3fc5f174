"""Rules of self-healing."""
