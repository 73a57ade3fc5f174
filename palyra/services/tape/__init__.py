"""Readers of tapes."""
