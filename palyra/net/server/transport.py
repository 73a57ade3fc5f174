"""What a connection needs from a transport: whole messages in, batches of messages out.

Implemented over WebSocket, over standard input and output, and in memory for tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palyra.core.access import Caller


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as far as the transport can tell."""

    address: str
    bearer: str | None = None  # the token of the upgrade's Authorization header
    caller: Caller | None = None  # known already: the parent process on stdio

    def __repr__(self) -> str:
        """Without the token."""
        return f"Peer({self.address})"


class PeerClosed(Exception):
    """The peer is gone, politely or not."""


class NoMoreInput(PeerClosed):
    """The peer asks nothing more, but may still read."""


class Transport(Protocol):
    """A duplex of text messages.  One task receives, one task sends."""

    name: str  # ws:127.0.0.1:51422, stdio, …

    async def receive(self) -> bytes:
        """The next whole message, at most the configured size.

        Raises PeerClosed or NoMoreInput at the end, BadFrame for what is not a text message (the transport is
        then closed with the fitting code).  Cancellation: no message is lost.
        """

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write all messages, each as its own frame, in as few writes as possible.

        Raises PeerClosed.  Cancellation: the transport must not be used for sending afterwards.
        """

    async def close(self, code: int, reason: str) -> None:
        """Say why and close; bounded in time, never raises."""


class BadFrame(Exception):
    """A frame that is no text message; carries the close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
