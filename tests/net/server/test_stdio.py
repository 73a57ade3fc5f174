"""The stdio transport: lines in, lines out, and nothing else on standard output."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.net.server.stdio import ReadyFile, StdioTransport, child_spec, open_stream
from palyra.net.server.transport import BadFrame, Peer, PeerClosed, Transport

pytestmark = pytest.mark.real


class Parent:
    """The other side of a transport's two pipes."""

    def __init__(self, *, max_message_bytes: int = 1_000) -> None:
        to_daemon, self.input = os.pipe()
        self.output, from_daemon = os.pipe()
        self.transport = StdioTransport(
            open_stream(to_daemon), open_stream(from_daemon), max_message_bytes=max_message_bytes
        )

    def write(self, data: bytes) -> None:
        os.write(self.input, data)

    def end_input(self) -> None:
        os.close(self.input)
        self.input = -1

    def read_lines(self) -> list[bytes]:
        """The written lines; the transport must be closed."""
        with os.fdopen(os.dup(self.output), "rb") as output:
            return output.read().splitlines()

    async def close(self) -> None:
        await self.transport.close(1000, "")
        os.close(self.output)
        if self.input >= 0:
            os.close(self.input)


@pytest.fixture
async def parent() -> AsyncIterator[Parent]:
    made = Parent()
    yield made
    await made.close()


async def test_each_line_is_a_message(parent: Parent) -> None:
    """Lines are handed out without their newline; blank ones, also with CR, are skipped."""
    parent.write(b'{"a":1}\n\n  \r\n{"b":2}\r\n{"c"')
    assert b'{"a":1}' == await parent.transport.receive()
    assert b'{"b":2}\r' == await parent.transport.receive()
    parent.write(b":3}\n")
    assert b'{"c":3}' == await parent.transport.receive()


async def test_other_line_separators_are_text(parent: Parent) -> None:
    """Only a newline ends a line: U+2028 and its kin are allowed inside JSON strings."""
    text = '"\u2028\u2029\u0085\x0b"'.encode()
    parent.write(text + b"\n")
    assert text == await parent.transport.receive()


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n", codec="utf-8"))), st.data())
def test_lines_are_the_same_however_they_are_cut(texts: list[str], data: st.DataObject) -> None:
    """Arbitrary chunks of input give the same messages."""
    lines = [text.encode() for text in texts if text.encode().strip()]
    joined = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(joined)), max_size=8)))
    places = [0, *cuts, len(joined)]
    chunks = [joined[a:b] for a, b in pairwise(places) if b > a]
    assert lines == trio.run(_receive_all, chunks)


class Chunks:
    """A source that gives the chunks it was made of; a sink that takes nothing."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def receive_some(self, _max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._chunks.pop(0) if self._chunks else b""

    async def send_all(self, data: bytes) -> None:
        raise AssertionError(data)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def _receive_all(chunks: list[bytes]) -> list[bytes]:
    source = Chunks(chunks)
    transport = StdioTransport(source, source, max_message_bytes=10_000)
    received = []
    try:
        while True:
            received.append(await transport.receive())
    except PeerClosed:
        return received


async def test_end_of_input_is_the_end_of_the_peer(parent: Parent) -> None:
    """A last line without newline still counts; after it `receive` raises PeerClosed."""
    parent.write(b'{"a":1}\n{"b":2}')
    parent.end_input()
    assert b'{"a":1}' == await parent.transport.receive()
    assert b'{"b":2}' == await parent.transport.receive()
    with pytest.raises(PeerClosed):
        await parent.transport.receive()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (1009, b"x" * 1_001 + b"\n"),
        (1009, b"x" * 1_001),
        (1007, b"\xff\n"),
        (1007, b"\xed\xa0\x80\n"),
    ],
)
async def test_bad_line(parent: Parent, code: int, line: bytes) -> None:
    """A line over the limit, ended or not, and one that is no UTF-8 are BadFrame."""
    parent.write(line)
    with pytest.raises(BadFrame) as caught:
        await parent.transport.receive()
    assert code == caught.value.code


async def test_longest_line(parent: Parent) -> None:
    """A line of exactly the limit passes."""
    parent.write(b"x" * 1_000 + b"\n")
    assert b"x" * 1_000 == await parent.transport.receive()


async def test_batch_is_written_as_lines_and_closed_with_the_reason(parent: Parent) -> None:
    """Each message is one line, a newline between tokens included; the last line says why."""
    await parent.transport.send([b'{"a":1}', b'{\n"b":2\n}'])
    await parent.transport.close(1001, "going away")
    await parent.transport.close(1000, "again")
    lines = [json.loads(line) for line in parent.read_lines()]
    goodbye = {"code": 1001, "reason": "going away"}
    notice = {"jsonrpc": "2.0", "method": "connection.closed", "params": goodbye}
    assert [{"a": 1}, {"b": 2}, notice] == lines


async def test_vanished_reader_is_peer_closed() -> None:
    """Writing to a parent that is gone raises PeerClosed, and closing is no error."""
    made = Parent()
    os.close(made.output)
    made.end_input()
    with pytest.raises(PeerClosed):
        await made.transport.send([b"{}"])
    await made.transport.close(1000, "")


async def test_close_after_a_cut_write_adds_nothing(autojump_clock: MockClock) -> None:
    """When a write was cut off in the middle of a line, no other line is glued to it."""
    made = Parent()
    with trio.move_on_at(autojump_clock.current_time() + 1):
        await made.transport.send([b"x" * 1_000_000])
    await made.transport.close(1013, "slow")
    assert b"closed" not in made.read_lines()[-1]
    await made.close()


async def test_cancelled_receive_loses_nothing(parent: Parent) -> None:
    """A receive that was cancelled in the middle of a line leaves it for the next one."""
    parent.write(b'{"a"')
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent.transport.receive)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="the test says so")
    parent.write(b":1}\n")
    assert b'{"a":1}' == await parent.transport.receive()


async def test_file_and_null_can_be_used_too(tmp_path: Path) -> None:
    """Input from a file and output to one or to nothing need no pipe."""
    (tmp_path / "in").write_bytes(b'{"a":1}\n{"b":2}\n')
    source = open_stream(os.open(tmp_path / "in", os.O_RDONLY))
    sink = open_stream(os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT))
    null = open_stream(os.open(os.devnull, os.O_RDONLY))
    assert isinstance(source, ReadyFile)
    assert isinstance(null, ReadyFile)
    transport = StdioTransport(source, sink, max_message_bytes=1_000)
    await transport.send([await transport.receive(), await transport.receive()])
    await transport.close(1000, "")
    assert b"" == await null.receive_some()
    await null.aclose()
    assert [b'{"a":1}', b'{"b":2}'] == (tmp_path / "out").read_bytes().splitlines()[:2]


@pytest.mark.parametrize("is_crash", [False, True])
async def test_every_end_is_reported(parent: Parent, *, is_crash: bool) -> None:
    """The composition root learns that the parent is gone, or that serving it crashed."""
    ended = trio.Event()

    async def serve(transport: Transport, peer: Peer) -> None:
        assert "stdio" == peer.address
        with pytest.raises(PeerClosed):
            await transport.receive()
        if is_crash:
            raise KeyError

    supervisor = DynamicSupervisor("test", max_children=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        spec = child_spec(parent.transport, serve, Peer("stdio"), ended.set)
        supervisor.spawn_child(spec)
        parent.end_input()
        await ended.wait()
        supervisor.stop("the test is over")


PROGRAM = """
import os, subprocess, sys, trio
from palyra.net.server.stdio import take_stdio
from palyra.net.server.transport import PeerClosed

async def main():
    transport = take_stdio(max_message_bytes=1000)
    print("stray print")
    os.write(1, b"stray write\\n")
    subprocess.run(["sh", "-c", "cat; echo from a child"], check=True)
    try:
        while True:
            await transport.send([await transport.receive()])
    except PeerClosed:
        await transport.close(1000, "")

trio.run(main)
"""


def test_standard_output_carries_only_protocol_lines() -> None:
    """Prints, raw writes and child processes end on standard error, and take no input."""
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(
        command, input=b'{"a":1}\n{"b":2}\n', capture_output=True, check=True, timeout=120
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [{"a": 1}, {"b": 2}] == lines[:2]
    assert ["connection.closed"] == [line["method"] for line in lines[2:]]
    for stray in (b"stray print", b"stray write", b"from a child"):
        assert stray in run.stderr


def test_shared_terminal_stays_blocking() -> None:
    """Taking stdio leaves the mode of a pipe that others share as it was."""
    with shared_pipe() as (reading, writing):
        code = (
            "import trio\nfrom palyra.net.server.stdio import take_stdio\n"
            "async def main():\n    await take_stdio(max_message_bytes=9).send([b'x'])\n"
            "trio.run(main)"
        )
        subprocess.run(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=writing, check=True
        )
        assert os.get_blocking(writing)
        assert b"x\n" == os.read(reading, 100)


@contextmanager
def shared_pipe() -> Generator[tuple[int, int], None, None]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)
