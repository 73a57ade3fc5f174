"""What daemon and worker say to each other: length-prefixed MessagePack over two pipes.

Pure framing.  A frame is four bytes of length, big-endian, and that many bytes of one message.
The worker answers each `Load`, `Compile` and `Run` with exactly one `Loaded`, `Compiled` or `Done`,
or with `Failed`; during a `Run` it may ask any number of `HostCall`s, each answered by a
`HostReply`.  Neither side believes the other's lengths.
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
    """The other side does not keep the protocol."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", array_like=True):
    """Base of all messages."""


class Compile(Message, frozen=True, kw_only=True, tag="compile"):
    """Make machine code of a module, within a limit of CPU time."""

    module: bytes
    cpu_s: float


class LoadModule(Message, frozen=True, kw_only=True, tag="load"):
    """Take machine code that the daemon vouches for."""

    compiled: bytes


class RunGuest(Message, frozen=True, kw_only=True, tag="run"):
    """Run the loaded module once."""

    input: bytes
    limits: GuestLimits
    granted: tuple[str, ...] = ()  # names of host functions that may be called


class HostReply(Message, frozen=True, kw_only=True, tag="reply"):
    """The answer to a host call; `denied` ends the guest."""

    reply: bytes = b""
    denied: str = ""


Request = Compile | LoadModule | RunGuest | HostReply


class WorkerHello(Message, frozen=True, kw_only=True, tag="hello"):
    """The worker is ready."""


class Compiled(Message, frozen=True, kw_only=True, tag="compiled"):
    """Machine code."""

    compiled: bytes


class Loaded(Message, frozen=True, kw_only=True, tag="loaded"):
    """The module can be run."""


class HostCall(Message, frozen=True, kw_only=True, tag="host"):
    """The guest asks for something outside."""

    function: str
    argument: bytes


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """The guest's output, unchecked."""

    output: bytes


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """What was asked did not work; the daemon replaces the worker."""

    problem: GuestProblem
    text: str


Answer = WorkerHello | Compiled | Loaded | HostCall | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
T = TypeVar("T")


def encode(message: Message) -> bytes:
    """The frame of one message."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise BadWorkerFrame(f"a message of {len(body) / MIB:.1f} MiB is too large to send")
    return _LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> Request:
    """What the daemon said.  Raises BadFrame."""
    return _decode(_requests, body)


def decode_answer(body: bytes) -> Answer:
    """What the worker said.  Raises BadFrame."""
    return _decode(_answers, body)


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadWorkerFrame(f"not a message: {error}") from None


class Deframer:
    """Bytes as they come in, out as the bodies of whole frames."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """More bytes; any number."""
        self._buffer += data

    def next_body(self) -> bytes | None:
        """The body of the next frame, None until it is whole.  Raises BadFrame for a long one."""
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
