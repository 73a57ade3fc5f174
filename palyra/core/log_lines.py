"""Lines of the daemon's log as readers get them."""

from typing import Literal, get_args

import msgspec

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line, redacted; tracebacks make it several lines of text."""

    number: int
    at_ms: int
    level: LogLevel
    text: str
