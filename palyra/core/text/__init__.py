"""Text utilities: canonical JSON, safe display, excerpts, token estimates, JSON Schema."""
