"""The WebSocket transport against raw frames."""

import struct

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage

from palyra.net.server.transport import BadFrame, PeerClosed, Transport
from palyra.net.server.websocket import WebSocketLimits, render_frames
from tests.net.server.peers import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    connected,
    frame,
)

pytestmark = pytest.mark.real

SMALL = WebSocketLimits(max_message_bytes=1_000)


class Recorder:
    """Serves one connection: what was received, and how it ended."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.end: Exception | None = None

    async def __call__(self, transport: Transport) -> None:
        try:
            while True:
                self.messages.append(await transport.receive())
        except BadFrame as bad:
            self.end = bad
            await transport.close(bad.code, bad.reason)
        except PeerClosed as gone:
            self.end = gone


async def test_handshake_answers_the_key() -> None:
    """The 101 response proves that the key was read, and names no subprotocol without a request."""
    async with connected() as peer:
        assert peer.answer.startswith(b"HTTP/1.1 101 ")
        assert ACCEPT in peer.answer
        assert b"sec-websocket-protocol" not in peer.answer.lower()


async def test_subprotocol_is_confirmed() -> None:
    """A client that offers palyra.v1 among others gets it confirmed."""
    async with connected(extra=b"Sec-WebSocket-Protocol: other, palyra.v1\r\n") as peer:
        assert b"sec-websocket-protocol: palyra.v1\r\n" in peer.answer.lower()


async def test_compression_is_never_negotiated() -> None:
    """An offer of permessage-deflate is not taken: a small frame cannot unpack to a large one."""
    async with connected(extra=b"Sec-WebSocket-Extensions: permessage-deflate\r\n") as peer:
        assert b"extensions" not in peer.answer.lower()


async def test_early_bytes_are_ordinary_frames() -> None:
    """A frame sent together with the upgrade is answered after the 101, like a later one."""
    async with connected(early=frame(TEXT, b"early")) as peer:
        assert (TEXT, b"early") == await peer.read_frame()
        await peer.send(frame(TEXT, b"later"))
        assert (TEXT, b"later") == await peer.read_frame()


async def test_fragments_make_one_message() -> None:
    """A message in fragments, empty ones and a ping between them, arrives whole."""
    async with connected() as peer:
        await peer.send(frame(TEXT, b"a\xc3", first=0) + frame(CONTINUATION, first=0))
        await peer.send(frame(PING, b"hi") + frame(CONTINUATION, b"\xa4b"))
        assert (PONG, b"hi") == await peer.read_frame()
        assert (TEXT, b"a\xc3\xa4b") == await peer.read_frame()


async def test_empty_message_is_a_message() -> None:
    """An empty text frame is delivered as an empty message."""
    async with connected() as peer:
        await peer.send(frame(TEXT))
        assert (TEXT, b"") == await peer.read_frame()


BAD_FRAMES = {
    "binary": (frame(BINARY, b"\x00"), 1003),
    "first fragment of binary": (frame(BINARY, b"\x00", first=0), 1003),
    "too big": (frame(TEXT, b"x" * 1_001), 1009),
    "too big in bytes, not in characters": (frame(TEXT, "\u20ac".encode() * 334), 1009),
    "too big in fragments": (
        frame(TEXT, b"x" * 600, first=0) + frame(CONTINUATION, b"x" * 600),
        1009,
    ),
    "invalid utf-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "lone surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "cut utf-8": (frame(TEXT, b"\xc3"), 1007),
    "reserved bit 1": (frame(TEXT, b"x", first=0xC0), 1002),
    "reserved bit 2": (frame(TEXT, b"x", first=0xA0), 1002),
    "reserved bit 3": (frame(TEXT, b"x", first=0x90), 1002),
    "reserved opcode": (frame(0x3, b"x"), 1002),
    "unmasked": (frame(TEXT, b"x", masked=False), 1002),
    "continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "text inside a fragmented text": (frame(TEXT, b"x", first=0) + frame(TEXT, b"y"), 1002),
    "fragmented ping": (frame(PING, b"x", first=0), 1002),
    "long ping": (frame(PING, b"x" * 126), 1002),
    "close with one byte": (frame(CLOSE, b"x"), 1002),
    "close with a code nobody may send": (frame(CLOSE, b"\x03\xee"), 1002),
    "length with the top bit": (b"\x81\xff" + b"\xff" * 8 + b"\x00" * 4, 1002),
}


@pytest.mark.parametrize(("bad", "code"), BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
async def test_bad_frame_is_named_to_both_sides(bad: bytes, code: int) -> None:
    """The peer gets a close frame with the fitting code, the receiver BadFrame with the same."""
    recorder = Recorder()
    async with connected(recorder, limits=SMALL) as peer:
        await peer.send(bad)
        assert code == await peer.read_close()
        assert b"" == await peer.read_to_end()
    assert isinstance(recorder.end, BadFrame)
    assert code == recorder.end.code


ANNOUNCED_TOO_BIG = {
    "16-bit length": struct.pack("!BBH", 0x81, 0xFE, 1_001),
    "64-bit length": struct.pack("!BBQ", 0x81, 0xFF, 70_000),
    "largest length": struct.pack("!BBQ", 0x81, 0xFF, 2**63 - 1),
    "binary": struct.pack("!BBH", 0x82, 0xFE, 1_001),
    "second fragment": frame(TEXT, b"x" * 600, first=0) + struct.pack("!BBH", 0x80, 0xFE, 401),
    "third fragment behind a ping": frame(TEXT, b"x" * 600, first=0)
    + frame(CONTINUATION, b"x" * 400, first=0)
    + frame(PING, b"x")
    + struct.pack("!BB", 0x80, 0x81),
}


@pytest.mark.parametrize("announced", ANNOUNCED_TOO_BIG.values(), ids=ANNOUNCED_TOO_BIG.keys())
async def test_a_message_is_too_big_from_its_header(announced: bytes) -> None:
    """Neither mask nor payload is waited for."""
    recorder = Recorder()
    async with connected(recorder, limits=SMALL) as peer:
        await peer.send(announced)
        while (found := await peer.read_frame())[0] != CLOSE:
            assert PONG == found[0]
        assert 1009 == int.from_bytes(found[1][:2], "big")
    assert isinstance(recorder.end, BadFrame)


async def test_fragments_up_to_the_limit_pass_however_they_are_cut() -> None:
    """Headers that come byte by byte, and pings between, count once and not at all."""
    parts = [
        frame(TEXT, b"x" * 500, first=0),
        frame(PING, b"p" * 100),
        frame(CONTINUATION, b"y" * 200, first=0),
        frame(CONTINUATION, b"z" * 300),
    ]
    async with connected(limits=SMALL) as peer:
        for _ in range(2):
            for byte in b"".join(parts):
                await peer.send(bytes([byte]))
            assert (PONG, b"p" * 100) == await peer.read_frame()
            assert (TEXT, b"x" * 500 + b"y" * 200 + b"z" * 300) == await peer.read_frame()


async def test_messages_before_a_bad_frame_are_received() -> None:
    """Messages before the bad frame are delivered."""
    recorder = Recorder()
    async with connected(recorder) as peer:
        await peer.send(frame(TEXT, b"one") + frame(TEXT, b"two") + frame(BINARY, b"x"))
        assert 1003 == await peer.read_close()
    assert [b"one", b"two"] == recorder.messages


async def test_largest_message_is_allowed() -> None:
    """A message of exactly the limit passes, and comes back."""
    largest = b"x" * 1_000
    async with connected(limits=SMALL) as peer:
        await peer.send(frame(TEXT, largest))
        assert (TEXT, largest) == await peer.read_frame()


async def test_peer_may_close() -> None:
    """A close frame is answered with the same code and ends `receive` with PeerClosed."""
    recorder = Recorder()
    async with connected(recorder) as peer:
        await peer.send(frame(CLOSE, b"\x03\xe9bye"))
        assert 1001 == await peer.read_close()
        assert b"" == await peer.read_to_end()
    assert isinstance(recorder.end, PeerClosed)


async def test_peer_may_vanish() -> None:
    """A connection that just ends is PeerClosed, in the middle of a frame too."""
    recorder = Recorder()
    async with connected(recorder) as peer:
        await peer.send(frame(TEXT, b"half")[:5])
    assert isinstance(recorder.end, PeerClosed)


async def test_server_closes_with_code_and_reason() -> None:
    """`close` sends code and reason and waits for the peer; a second call sends nothing."""

    async def serve(transport: Transport) -> None:
        await transport.close(4401, "no token")
        await transport.close(1000, "again")

    async with connected(serve) as peer:
        opcode, payload = await peer.read_frame()
        assert (CLOSE, b"\x11\x31no token") == (opcode, payload)
        await peer.send(frame(CLOSE, payload[:2]))
        assert b"" == await peer.read_to_end()


async def test_ping_that_crosses_our_close_is_ignored() -> None:
    """A ping the peer sent before it saw our close frame does not break the goodbye."""

    async def serve(transport: Transport) -> None:
        await transport.close(1000, "")

    async with connected(serve) as peer:
        assert 1000 == await peer.read_close()
        await peer.send(frame(PING, b"late") + frame(TEXT, b"late") + frame(CLOSE, b"\x03\xe8"))
        assert b"" == await peer.read_to_end()


async def test_goodbye_is_bounded_in_time(autojump_clock: MockClock) -> None:
    """A peer that never answers the close frame is cut off after the close timeout."""

    async def serve(transport: Transport) -> None:
        await transport.close(1000, "")

    began = autojump_clock.current_time()
    async with connected(serve) as peer:
        assert 1000 == await peer.read_close()
        assert b"" == await peer.read_to_end()
    assert pytest.approx(3, abs=0.1) == autojump_clock.current_time() - began


async def test_crash_of_the_server_side_closes_with_1011() -> None:
    """The handler's exception propagates, and the peer gets `internal error` first."""

    async def serve(transport: Transport) -> None:
        await transport.receive()
        raise KeyError(transport.name)

    with pytest.RaisesGroup(pytest.RaisesGroup(KeyError)):
        async with connected(serve) as peer:
            await peer.send(frame(TEXT, b"x"))
            assert 1011 == await peer.read_close()
            await peer.send(frame(CLOSE, b"\x03\xf3"))
            await peer.read_to_end()


async def test_cancelled_connection_closes_with_1001(autojump_clock: MockClock) -> None:
    """Cancelling the connection closes it with 1001, and ends when the peer agrees."""
    scope = trio.CancelScope()
    began = autojump_clock.current_time()
    async with connected(scope=scope) as peer:
        scope.cancel(reason="the test says so")
        assert 1001 == await peer.read_close()
        await peer.send(frame(CLOSE, b"\x03\xe9"))
        assert b"" == await peer.read_to_end()
    assert began == autojump_clock.current_time()


async def test_cancelled_connection_ends_without_a_receiver(autojump_clock: MockClock) -> None:
    """An unread message does not hold a cancelled connection whose peer has left."""
    scope = trio.CancelScope()

    async def serve(_transport: Transport) -> None:
        await trio.sleep_forever()

    async with connected(serve, scope=scope) as peer:
        await peer.send(b"".join(frame(TEXT, b"%d" % number) for number in range(4)))
        await trio.sleep_until(autojump_clock.current_time() + 50)  # pings are not answered
        scope.cancel(reason="the test says so")
    assert pytest.approx(50, abs=0.1) == autojump_clock.current_time()


async def test_stalled_peer_ends_the_send(autojump_clock: MockClock) -> None:
    """When the peer takes nothing, `send` raises PeerClosed: 30 s of patience, 3 s of goodbye."""
    waited_s: list[float] = []

    async def serve(transport: Transport) -> None:
        began = autojump_clock.current_time()
        with pytest.raises(PeerClosed):
            await transport.send([b"x" * 1_000_000] * 8)
        waited_s.append(autojump_clock.current_time() - began)
        done.set()

    done = trio.Event()
    async with connected(serve):
        await done.wait()
    assert [pytest.approx(33, abs=0.1)] == waited_s


async def test_peer_that_wakes_up_reads_whole_frames_and_the_reason(
    autojump_clock: MockClock,
) -> None:
    """After a send that timed out the stream is still in order: the batch, then close 1013."""
    batch = [b"%07d" % number * 1_000 for number in range(400)]

    async def serve(transport: Transport) -> None:
        with pytest.raises(PeerClosed):
            await transport.send(batch)

    async with connected(serve) as peer:
        await wait_all_tasks_blocked()  # the send has begun
        autojump_clock.jump(31)
        await wait_all_tasks_blocked()
        assert batch == [(await peer.read_frame())[1] for _ in batch]
        assert 1013 == await peer.read_close()
        await peer.send(frame(CLOSE, b"\x03\xf5"))


async def test_send_that_was_cancelled_does_not_cut_a_frame() -> None:
    """A close after a cancelled send comes behind whole frames."""
    batch = [b"%07d" % number * 1_000 for number in range(400)]

    async def serve(transport: Transport) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.send, batch)
                await wait_all_tasks_blocked()
                scope.cancel(reason="the test says so")
        await transport.close(1013, "slow consumer")

    async with connected(serve) as peer:
        assert batch == [(await peer.read_frame())[1] for _ in batch]
        assert 1013 == await peer.read_close()
        await peer.send(frame(CLOSE, b"\x03\xf5"))


async def test_silent_peer_is_found_by_ping(autojump_clock: MockClock) -> None:
    """A peer that answers no ping is closed 40 s after its last message."""
    recorder = Recorder()
    began = autojump_clock.current_time()
    async with connected(recorder) as peer:
        opcode, _ = await peer.read_frame()
        assert PING == opcode
        await peer.read_to_end()
    assert isinstance(recorder.end, PeerClosed)
    assert pytest.approx(40, abs=0.1) == autojump_clock.current_time() - began


async def test_peer_that_answers_pings_stays(autojump_clock: MockClock) -> None:
    """Pongs keep an otherwise silent connection open."""
    began = autojump_clock.current_time()
    async with connected() as peer:
        for _ in range(5):
            opcode, payload = await peer.read_frame()
            assert PING == opcode
            await peer.send(frame(PONG, payload))
        await peer.send(frame(TEXT, b"still here"))
        assert (TEXT, b"still here") == await peer.read_frame()
    assert pytest.approx(100, abs=0.1) == autojump_clock.current_time() - began


async def test_slow_upload_is_not_taken_for_a_dead_peer(autojump_clock: MockClock) -> None:
    """A peer in the middle of a long message cannot send a pong, but its bytes show that it lives."""
    message = frame(TEXT, b"x" * 100)
    async with connected() as peer:
        for byte in message:
            await peer.send(bytes((byte,)))
            await trio.sleep_until(autojump_clock.current_time() + 5)
        opcode = PING
        while opcode == PING:
            opcode, payload = await peer.read_frame()
        assert (TEXT, b"x" * 100) == (opcode, payload)


async def test_busy_receiver_is_not_taken_for_a_dead_peer(autojump_clock: MockClock) -> None:
    """While unread messages wait, a pong behind them cannot be seen, and the peer stays."""
    received: list[bytes] = []

    async def serve(transport: Transport) -> None:
        await trio.sleep_until(autojump_clock.current_time() + 300)
        received.extend([await transport.receive() for _ in range(4)])

    async with connected(serve) as peer:
        await peer.send(b"".join(frame(TEXT, b"%d" % number) for number in range(4)))
        opcode, _ = await peer.read_frame()
        while opcode == PING:
            opcode, _ = await peer.read_frame()
        assert CLOSE == opcode
    assert [b"0", b"1", b"2", b"3"] == received


@given(st.lists(st.binary(max_size=300) | st.sampled_from([b"x" * 65_535, b"y" * 65_536])))
def test_batches_are_rendered_like_wsproto_renders(payloads: list[bytes]) -> None:
    """A batch is byte for byte what wsproto would have written message by message."""
    messages = [payload.hex().encode() for payload in payloads]
    oracle = Connection(ConnectionType.SERVER)
    expected = b"".join(oracle.send(TextMessage(data=text.decode())) for text in messages)
    assert expected == render_frames(messages)
