"""Protocol between daemon and WASM worker: length-prefixed MessagePack over two pipes.

A frame is a four-byte big-endian length followed by one message of that many bytes.

    worker  WorkerHello                                  once, after the start
    daemon  Compile     ->  worker  Compiled | Failed
    daemon  LoadModule  ->  worker  Loaded | Failed
    daemon  RunGuest    ->  worker  (HostCall -> daemon HostReply)*, then Done | Failed

Each request has exactly one final answer, and the daemon sends one request at a time.  During a
`RunGuest` the worker may send any number of `HostCall`s; the daemon enforces a limit.  Both sides
check the length of a frame before they receive its body.  This module contains framing only, no I/O.
"""

import struct
from typing import TypeVar

import msgspec

from palyra.tools.wasm.limits import (
    MAX_COMPILED_BYTES,
    MAX_INPUT_BYTES,
    MIB,
    GuestLimits,
    GuestProblem,
)

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = MAX_COMPILED_BYTES + 64 * 1024  # the largest message is a compiled module
MAX_RUN_BYTES = MAX_INPUT_BYTES + 64 * 1024


class BadWorkerFrame(Exception):
    """The peer violated the protocol."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", array_like=True):
    """Base of all messages."""


class Compile(Message, frozen=True, kw_only=True, tag="compile"):
    """Compile a module to machine code within `cpu_s` seconds of CPU time."""

    module: bytes
    cpu_s: float


class LoadModule(Message, frozen=True, kw_only=True, tag="load"):
    """Load machine code from the daemon's cache or from a compilation."""

    compiled: bytes


class RunGuest(Message, frozen=True, kw_only=True, tag="run"):
    """Run the loaded module once."""

    input: bytes
    limits: GuestLimits
    granted: tuple[str, ...] = ()  # kinds of granted capabilities


class HostReply(Message, frozen=True, kw_only=True, tag="reply"):
    """The answer to a host call; `denied` ends the guest."""

    reply: bytes = b""
    denied: str = ""


Request = Compile | LoadModule | RunGuest | HostReply


class WorkerHello(Message, frozen=True, kw_only=True, tag="hello"):
    """The worker is ready for requests."""


class Compiled(Message, frozen=True, kw_only=True, tag="compiled"):
    """The machine code of the module."""

    compiled: bytes


class Loaded(Message, frozen=True, kw_only=True, tag="loaded"):
    """The module is loaded and can be run."""


class HostCall(Message, frozen=True, kw_only=True, tag="host"):
    """The guest calls a host function."""

    function: str
    argument: bytes


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """The output of the guest, not validated."""

    output: bytes


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """The request failed; the daemon replaces the worker."""

    problem: GuestProblem
    text: str


Answer = WorkerHello | Compiled | Loaded | HostCall | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
T = TypeVar("T")


def encode(message: Message) -> bytes:
    """Encode one message as a frame.  Raises BadWorkerFrame if it is too large."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise BadWorkerFrame(f"a message of {len(body) / MIB:.1f} MiB is too large to send")
    return _LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> Request:
    """Decode a message of the daemon.  Raises BadWorkerFrame."""
    return _decode(_requests, body)


def decode_answer(body: bytes) -> Answer:
    """Decode a message of the worker.  Raises BadWorkerFrame."""
    return _decode(_answers, body)


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadWorkerFrame(f"not a message: {error}") from None


class Deframer:
    """Splits a byte stream into the bodies of complete frames."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next_body(self) -> bytes | None:
        """Return the next frame's body, None if incomplete.  Raises BadWorkerFrame if too long."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._max_bytes:
            raise BadWorkerFrame(f"a frame of {length} bytes; the limit is {self._max_bytes}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body
