"""A stream as its client sees it: comments while idle, and failures."""

from typing import Any

import pytest
import trio

from palyra.errors import PalyraError, Unavailable
from palyra.net.http.compat import http_exchange, serving
from palyra.net.http.compat.answer import Part, Text


class Told:
    """An answer in steps, and everything that was sent of it."""

    def __init__(self, *steps: list[Part] | PalyraError) -> None:
        self.steps = list(steps)
        self.sent: list[bytes] = []
        self.has_begun = False

    @property
    def is_over(self) -> bool:
        return not self.steps

    async def next_parts(self) -> list[Part]:
        await trio.lowlevel.checkpoint()
        step = self.steps.pop(0)
        if isinstance(step, PalyraError):
            raise step
        return step

    def check(self) -> None:
        pass

    async def begin_stream(self) -> None:
        await trio.lowlevel.checkpoint()
        self.has_begun = True

    async def send(self, piece: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(piece)

    async def end_stream(self) -> None:
        await self.send(b"<end>")

    def begin(self) -> bytes:
        return b"<begin>"

    def take(self, part: Part) -> bytes:
        return part.delta.encode() if isinstance(part, Text) else b"?"

    def fail(self, error: PalyraError) -> bytes:
        return f"<{error.message}>".encode()


async def serve(told: Any) -> list[bytes]:
    await serving.send_stream(told, told, told)
    sent: list[bytes] = told.sent
    return sent


async def test_an_idle_stream_sends_comments() -> None:
    """Proxies close idle connections."""
    parts: list[Part] = [Text("a"), Text("b")]
    assert [b"<begin>ab", http_exchange.HEARTBEAT, b"c", b"<end>"] == await serve(
        Told(parts, [], [Text("c")])
    )


async def test_a_failure_is_a_status_or_an_event() -> None:
    """It is a status as long as nothing was sent."""
    with pytest.raises(Unavailable):
        await serve(Told(Unavailable("gone")))
    assert [b"<begin>a", b"<gone>", b"<end>"] == await serve(Told([Text("a")], Unavailable("gone")))
