"""Close codes of protocol v1, and the callback that ends a connection.

Below 4000 they are those of RFC 6455 section 7.4.1; the stdio transport, which has no
close frame, reports the same codes.
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
    """Callback that requests the end of the connection without waiting; the first reason wins."""

    def __call__(self, code: int, reason: str) -> None: ...


def cut_reason(reason: str) -> str:
    """Truncate the reason to the size of a close frame."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
