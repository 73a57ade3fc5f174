"""Requests made for a model: checked before they leave, bounded when they come back."""
