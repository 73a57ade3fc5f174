"""Rows on their way to one connection: cursor, subscription, outbox, pace."""
