"""Incidents and the kinds there are."""
