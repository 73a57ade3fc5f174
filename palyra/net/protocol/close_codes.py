"""Close codes of protocol v1, and how a connection is told to end.

Below 4000 they are those of RFC 6455 section 7.4.1; stdio, which has no close frame, says the same.
"""

from typing import Protocol

DONE = 1000
GOING_AWAY = 1001
UNSUPPORTED = 1003
INVALID_TEXT = 1007
TOO_BIG = 1009
BUG = 1011
SLOW_CONSUMER = 1013
PROTOCOL_ERROR = 4400
UNAUTHENTICATED = 4401
REVOKED = 4403
FLOOD = 4429

MAX_REASON_BYTES = 123  # RFC 6455 section 5.5: a control frame has 125, two are the code


class HangUp(Protocol):
    """Ends the connection, soon and without waiting; the first reason given counts."""

    def __call__(self, code: int, reason: str) -> None: ...


def cut_reason(reason: str) -> str:
    """As much of the reason as fits into a close frame."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
