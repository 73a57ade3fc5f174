"""Registries: agents, channels, models."""
