"""Durable storage: the journal on SQLite (through apsw), files, keys."""
