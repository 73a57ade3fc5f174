"""Decisions: pure functions and data, no clock, chance, files, sockets or tasks."""
