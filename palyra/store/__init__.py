"""What is remembered: SQLite through apsw, files, keys."""
