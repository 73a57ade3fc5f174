"""Patches: two formats, one plan."""
