"""Subscriptions: fan-out of events, progress and notices to connections."""
