"""A run decided again from its tape."""
