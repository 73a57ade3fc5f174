"""Notifications of an MCP server that people see: progress of a call, and log messages.

A server may send any number of them, so both are bounded in number and length.
"""

import math
from typing import Any

import msgspec
import structlog
import trio

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.trust.external_descriptions import RedactText
from palyra.tools.toolbox import OnOutput

log = structlog.get_logger("palyra.mcp")

MAX_PROGRESS = 200  # pieces of progress of one call
MAX_PROGRESS_CHARS = 300
MAX_LOGGED = 30  # log messages of the server in LOG_PERIOD_S
LOG_PERIOD_S = 60.0
MAX_LOGGED_CHARS = 500


class CallProgress:
    """Progress notifications of one call, as output of the tool.

    The package `mcp` delivers each in a task of its own, in no order and even after the answer.
    Progress has to increase (the protocol says so), so a piece that does not is dropped.
    """

    def __init__(self, on_output: OnOutput) -> None:
        self._on_output = on_output
        self._left = MAX_PROGRESS
        self._highest = -math.inf

    def close(self) -> None:
        """Drop what arrives from now on."""
        self._left = 0

    async def take(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass one piece on if it is news."""
        if self._left and progress > self._highest:  # false for NaN as well
            self._left, self._highest = self._left - 1, progress
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            shown = visible(truncate_safely(message or "", MAX_PROGRESS_CHARS))
            self._on_output(f"[{share}] {shown}".rstrip() + "\n")
        await trio.lowlevel.checkpoint()


class ServerLog:
    """Log messages of a server, in the daemon's log: redacted, cut, and few."""

    def __init__(self, server: str, redact: RedactText) -> None:
        self._server = server
        self._redact = redact
        self._began_s = -math.inf
        self._count = 0

    async def take(self, params: Any) -> None:  # noqa: ANN401 - mcp's
        """Log one message; those over the bound are counted."""
        self._take(params)
        await trio.lowlevel.checkpoint()

    def _take(self, params: Any) -> None:  # noqa: ANN401 - mcp's
        now_s = trio.current_time()
        if now_s - self._began_s >= LOG_PERIOD_S:
            self.report_dropped()
            self._began_s, self._count = now_s, 0
        self._count += 1
        if self._count > MAX_LOGGED:
            return
        log.info(
            "an MCP server logs",
            server=self._server,
            server_level=params.level,
            server_logger=self._clean(params.logger or ""),
            text=self._clean(params.data),
        )

    def report_dropped(self) -> None:
        """Log the number of messages that were not logged."""
        if self._count > MAX_LOGGED:
            dropped = self._count - MAX_LOGGED
            log.warning("an MCP server logs too much", server=self._server, dropped=dropped)

    def _clean(self, data: Any) -> str:  # noqa: ANN401 - any JSON
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        # The redactor gets more than is shown, so that a cut does not hide a secret from it.
        redacted, _ = self._redact(text[: 4 * MAX_LOGGED_CHARS])
        return visible(truncate_safely(redacted, MAX_LOGGED_CHARS))
