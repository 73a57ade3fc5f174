"""Text as bytes, lines and JSON: canonical form, safe display, excerpts, token estimate, JSON Schema."""
