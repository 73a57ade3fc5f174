"""What the client needs of an event loop and a socket: the only way for its core to wait.

`connection`, `reconnecting` and `subscription` are written against these protocols and import no
event loop.  A driver implements them: `dial` for trio, `asyncio_driver` for asyncio.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class SocketClosed(Exception):
    """The socket is closed; `code` is None without a close frame."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Event(Protocol):
    """A flag that tasks wait for; never cleared."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Waits:
    """Primitives of one event loop."""

    make_event: Callable[[], Event]
    make_slots: Callable[[int], AbstractAsyncContextManager[object]]  # a semaphore
    now_s: Callable[[], float]  # monotonic
    sleep: Callable[[float], Awaitable[object]]
    checkpoint: Callable[[], Awaitable[object]]  # lets other tasks run and takes a cancellation


class Socket(Protocol):
    """An open WebSocket.

    All but `close` raise SocketClosed once it is closed.  Time that has run out raises TimeoutError.
    """

    async def receive(self) -> str | bytes: ...
    async def send(self, text: str, within_s: float, /) -> None: ...
    async def ping(self, within_s: float, /) -> None: ...
    async def close(self, within_s: float, /) -> None: ...
