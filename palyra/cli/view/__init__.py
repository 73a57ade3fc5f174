"""Runs and conversations as text: events, cards, prose."""
