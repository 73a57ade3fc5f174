"""Decisions about tool calls: gate, grants, previews, refused tools."""
