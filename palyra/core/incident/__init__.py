"""Incidents and their kinds."""
