"""Backups of a data directory: made while a daemon writes, checked and restored without one."""
