"""Messages of a process: lines however they are cut, and at most so many in a time."""

from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from palyra.tools.mcp.stdio import MAX_BAD_LINES, MAX_LINE_BYTES, LineReader
from palyra.tools.mcp.transport import MAX_MESSAGES, WINDOW_S, PacedMessages, ServerGone


class Pieces(trio.abc.ReceiveStream):
    """A stream of these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces[::-1]

    async def receive_some(self, _max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._pieces.pop() if self._pieces else b""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def parse(line: bytes) -> bytes:
    """A line that begins with `bad` is no message."""
    if line.startswith(b"bad"):
        raise ValueError
    return line


async def read(*pieces: bytes) -> tuple[list[bytes], list[str]]:
    """The messages, and what was reported meanwhile."""
    told: list[str] = []
    reader = LineReader(
        Pieces(list(pieces)), parse, lambda: told.append("end"), lambda _text: told.append("bad")
    )
    return [line async for line in reader], told


@given(
    lines=st.lists(
        st.sampled_from([b"", b" ", b"\r", b"{}", b"[1]\r", b"{\xc3\xa4}"]), max_size=20
    ),
    cuts=st.sets(st.integers(0, 100)),
)
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], cuts: set[int]) -> None:
    """Blank lines are skipped, the others arrive whole and in order; an unfinished one does not."""
    whole = b"".join(line + b"\n" for line in lines) + b"unfinished"
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(whole)), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(places)]

    async def both() -> tuple[list[bytes], list[str]]:
        return await read(*pieces)

    assert ([line for line in lines if line.strip()], ["end"]) == trio.run(both)


async def test_a_stream_ends_at_its_bounds() -> None:
    """A line without end and too many lines that are no messages end it, and nothing is kept."""
    assert ([], ["end"]) == await read(
        *[b"x" * 65_536] * (MAX_LINE_BYTES // 65_536 + 2), b"\nlate\n"
    )
    messages, told = await read(b"first\n", b"bad\n" * (MAX_BAD_LINES + 1), b"late\n")
    assert ([b"first"], [*["bad"] * (MAX_BAD_LINES + 1), "end"]) == (messages, told)


async def test_a_flood_is_paced(autojump_clock: MockClock) -> None:
    """However many messages wait, few pass in a time; a few pass at once."""
    del autojump_clock
    lines = b"{}\n" * (3 * MAX_MESSAGES)
    paced = PacedMessages(LineReader(Pieces([lines]), parse, lambda: None, lambda _text: None))
    began_s = trio.current_time()
    times = [trio.current_time() - began_s async for _message in paced]
    assert {0.0} == {*times[: MAX_MESSAGES - 1]}
    for begin in range(len(times) - MAX_MESSAGES):
        assert times[begin + MAX_MESSAGES] - times[begin] >= WINDOW_S
    with pytest.raises(ServerGone):
        await paced.receive()


async def test_other_tasks_run_between_the_messages_of_one_piece() -> None:
    """A full pipe does not keep the event loop."""
    paced = PacedMessages(
        LineReader(Pieces([b"{}\n" * 50]), parse, lambda: None, lambda _text: None)
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        async for _message in paced:
            pass
        nursery.cancel_scope.cancel()
    assert turns >= 50
