"""Suspension of a daemon: it refuses new runs and starts no task until it is resumed."""

from datetime import UTC, datetime

import msgspec


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """Principal, time and reason of a suspension."""

    by: str
    since_ms: int
    reason: str = ""

    def describe(self) -> str:
        """Return the suspension as a phrase, with the time in UTC."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        why = f": {self.reason}" if self.reason else ""
        return f"suspended by {self.by} since {since:%Y-%m-%d %H:%M:%S} UTC{why}"
