"""The newest lines of the daemon's own log, for operators.

Owns: a bounded history.  Talked to by: the log, from any thread; readers, on the event loop.
Never: keeps a line that was not redacted.  A reader asks for the lines after a number, so a slow one
costs no memory: the lines that it misses are counted.
"""

from collections import deque
from collections.abc import Iterator

import trio

from palyra.core.access import Caller
from palyra.core.log_lines import LEVELS, LogLevel, LogLine

MAX_LINES = 2_000
MAX_LINE_CHARS = 4_096
PAGE_BYTES = 262_144
POLL_S = 0.2  # of a waiting reader: lines come from threads, and many at a time


class LogHistory:
    """The newest `MAX_LINES` lines, numbered from 1 in each instance of the daemon."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)

    def add(self, at_ms: int, level: str, text: str) -> None:
        """Keep one redacted line.  Thread-safe below the lock of a log handler."""
        number = self._lines[-1].number + 1 if self._lines else 1
        known: LogLevel = level if level in LEVELS else "info"
        self._lines.append(
            LogLine(number=number, at_ms=at_ms, level=known, text=text[:MAX_LINE_CHARS])
        )

    async def read(
        self, caller: Caller, *, after: int | None, level: LogLevel, limit: int, wait_s: float
    ) -> tuple[list[LogLine], int, int]:
        """Return lines of that level or above, the number to continue after, and how many were missed.

        Without `after` these are the newest lines; with it the first ones after that number, for which
        an empty page waits at most `wait_s`.  Raises Forbidden.
        """
        caller.require("logs:read")
        least = LEVELS.index(level)
        lines = self._select(after, least, limit)
        with trio.move_on_after(wait_s):
            while after is not None and not lines:
                await trio.sleep(POLL_S)
                lines = self._select(after, least, limit)
        kept = list(self._lines)
        newest = kept[-1].number if kept else 0
        is_whole = len(lines) < limit
        through = newest if is_whole or after is None else lines[-1].number
        oldest = kept[0].number if kept else 1
        missed = 0 if after is None or after > newest else max(0, oldest - 1 - after)
        return lines, through, missed

    def _select(self, after: int | None, least: int, limit: int) -> list[LogLine]:
        kept = list(self._lines)
        if after is None:
            wanted = [each for each in kept if LEVELS.index(each.level) >= least][-limit:]
            return list(_page(reversed(wanted)))[::-1]
        if kept and after > kept[-1].number:  # of an earlier instance
            after = 0
        return list(
            _page(
                each for each in kept if each.number > after and LEVELS.index(each.level) >= least
            )
        )[:limit]


def _page(lines: Iterator[LogLine]) -> Iterator[LogLine]:
    """Yield lines up to the size of a page, at least one."""
    size = 0
    for each in lines:
        size += len(each.text)
        if size > PAGE_BYTES:
            return
        yield each
