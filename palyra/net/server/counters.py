"""Counters of the edge, read by the metrics page."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class EdgeCounters:
    """Counts since the process started; written from one thread."""

    accepted: int = 0
    accept_errors: int = 0  # EMFILE and similar
    turned_away: int = 0  # the connection cap was reached
    websockets: int = 0
    http_connections: int = 0
    silent: int = 0  # disconnected before a whole request was read
    refused: Counter[int] = field(default_factory=Counter)  # by HTTP status
