"""Requests that cross actors and own no task: each takes the authenticated caller first."""
