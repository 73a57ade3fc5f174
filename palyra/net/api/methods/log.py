"""log.*: the daemon's own log."""

from typing import Annotated

import msgspec

from palyra.core.log_lines import LogLevel
from palyra.net.api.method import Limit, Method, MethodCall
from palyra.net.protocol.params import MAX_INTEGER, Params
from palyra.net.protocol.results import LogPage

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_WaitMs = Annotated[int, msgspec.Meta(ge=0, le=120_000)]


class LogTail(Params, frozen=True, kw_only=True):
    """The newest lines, or those after a number; an empty page waits for the next line."""

    after: _Number | None = None
    level: LogLevel = "debug"
    limit: Limit = 200
    wait_ms: _WaitMs = 0


async def tail(call: MethodCall, params: LogTail) -> LogPage:
    lines, through, missed = await call.backend.log_history.read(
        call.caller,
        after=params.after,
        level=params.level,
        limit=params.limit,
        wait_s=params.wait_ms / 1000,
    )
    return LogPage(
        lines=lines, next_after=through, dropped=missed, instance_id=call.backend.instance_id
    )


METHODS = (Method("log.tail", LogTail, LogPage, "logs:read", tail),)
