"""Throughput of writes to one WebSocket: batches of the transport against single messages.

Both ends run on one TCP connection over loopback.  The reader, a raw socket in a thread, only
counts bytes, so that the writer is measured.  Messages of 200 bytes, batches of 64.
"""

import argparse
import json
import socket
import statistics
import threading
import time
from collections.abc import Awaitable, Callable

import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

from palyra.net.server.request_head import HeadParser
from palyra.net.server.stream import PrefixedStream
from palyra.net.server.websocket import WebSocketLimits, WebSocketTransport, render_frames

MESSAGE = b"x" * 200
BATCH = [MESSAGE] * 64
FRAME_BYTES = len(render_frames([MESSAGE]))
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

Writer = Callable[[PrefixedStream, WebSocketTransport, int], Awaitable[None]]


async def write_batches(_stream: PrefixedStream, transport: WebSocketTransport, count: int) -> None:
    """Write with `Transport.send`, 64 messages at a time."""
    for _ in range(count // len(BATCH)):
        await transport.send(BATCH)


async def write_singly(_stream: PrefixedStream, transport: WebSocketTransport, count: int) -> None:
    """Write with `Transport.send`, one message at a time."""
    for _ in range(count):
        await transport.send([MESSAGE])


async def write_by_library(
    stream: PrefixedStream, _transport: WebSocketTransport, count: int
) -> None:
    """Write one message at a time, framed by wsproto."""
    frames, text = Connection(ConnectionType.SERVER), MESSAGE.decode()
    for _ in range(count):
        await stream.send_all(frames.send(TextMessage(text)))


class ByteCounter:
    """Thread that reads one connection until the expected number of bytes has arrived."""

    def __init__(self, sock: socket.socket, expected_bytes: int) -> None:
        self._sock = sock
        self._missing = expected_bytes
        self.ended_s = 0.0
        self.thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        buffer = bytearray(1 << 20)
        while self._missing > 0:
            self._missing -= self._sock.recv_into(buffer)
        self.ended_s = time.perf_counter()


async def measure(write: Writer, count: int) -> float:
    """Return the messages per second until the last byte has arrived."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    client = socket.create_connection(listener.socket.getsockname())
    stream = PrefixedStream(await listener.accept())
    transport = await open_transport(stream)
    client.recv(65_536)  # the answer to the upgrade
    counter = ByteCounter(client, count * FRAME_BYTES)
    counter.thread.start()
    began_s = time.perf_counter()
    await write(stream, transport, count)
    await trio.to_thread.run_sync(counter.thread.join)
    stream.abort()
    client.close()
    await listener.aclose()
    return count / (counter.ended_s - began_s)


async def open_transport(stream: PrefixedStream) -> WebSocketTransport:
    head = HeadParser().feed(UPGRADE)
    assert head is not None
    transport = WebSocketTransport(stream, WebSocketLimits(), name="bench")
    await transport.accept(head, None)
    return transport


def median_rate(write: Writer, count: int, rounds: int) -> int:
    """Return the median of several rounds."""
    return round(statistics.median(trio.run(measure, write, count) for _ in range(rounds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=64_000, help="per round, batched")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count, rounds = options.messages, options.rounds
    batched = median_rate(write_batches, count, rounds)
    library = median_rate(write_by_library, count // 4, rounds)
    result = {
        "bench": "transport",
        "message_bytes": len(MESSAGE),
        "batch": len(BATCH),
        "batched_per_s": batched,
        "single_per_s": median_rate(write_singly, count // 4, rounds),
        "send_message_per_s": library,
        "ratio": round(batched / library, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
