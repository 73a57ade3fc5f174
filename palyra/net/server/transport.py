"""The transport of a connection: whole messages in, batches of messages out.

Implemented over WebSocket, over standard input and output, and in memory for tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palyra.core.access import Caller


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end, as far as the transport knows it."""

    address: str
    bearer: str | None = None  # the token of the upgrade's Authorization header
    caller: Caller | None = None  # known already: the parent process on stdio
    cookie_halves: tuple[str, ...] = ()  # of the upgrade's cookies: each may be half of a login

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Peer({self.address})"


class PeerClosed(Exception):
    """The connection was closed, or is broken."""


class NoMoreInput(PeerClosed):
    """The peer sends no more, but may still read."""


class Transport(Protocol):
    """A duplex of text messages.  One task receives, one task sends."""

    name: str  # ws:127.0.0.1:51422, stdio, …

    async def receive(self) -> bytes:
        """Return the next whole message, at most of the configured size.

        Raises PeerClosed or NoMoreInput at the end, BadFrame for a frame that breaks the protocol; it
        carries the code to close the transport with.  Cancellation: no message is lost.
        """

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write all messages, each as its own frame, in as few writes as possible.

        Raises PeerClosed.  Cancellation: the transport must not be used for sending afterwards.
        """

    async def close(self, code: int, reason: str) -> None:
        """Send code and reason, then close; bounded in time, never raises."""


class BadFrame(Exception):
    """A frame that breaks the protocol; carries the close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
