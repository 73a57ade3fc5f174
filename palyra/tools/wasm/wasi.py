"""Subset of WASI preview 1 for guests: three streams and an exit; no arguments, files or network.

The functions are implemented here, because wasmtime's WASI always provides a clock and random
numbers.  Guests get these two only with the capabilities `clock` and `random`.
Source: WASI preview 1 (`wasi_snapshot_preview1`), typenames and function docs.
"""

import secrets
import struct
import time
from collections.abc import Callable, Mapping

from palyra.tools.wasm.engine import GuestMemory, unsigned
from palyra.tools.wasm.limits import MAX_OUTPUT_BYTES, GuestFailure

SUCCESS, BADF, INVAL, SPIPE = 0, 8, 28, 70
STDIN, STDOUT, STDERR = 0, 1, 2
REALTIME, MONOTONIC = 0, 1
MAX_VECTORS = 1_024
STDERR_BYTES = 2_048  # of standard error, kept for failure messages
MAX_RANDOM_BYTES = 65_536
_RIGHTS = {STDIN: 1 << 1, STDOUT: 1 << 6, STDERR: 1 << 6}  # fd_read, fd_write


class GuestExit(Exception):
    """The guest called proc_exit."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Streams:
    """Standard input, output and error of one call."""

    def __init__(self, given: bytes) -> None:
        self._input = memoryview(given)
        self.output = bytearray()
        self.errors = bytearray()

    def read(self, at_most: int) -> bytes:
        """Return the next bytes of the input, b"" at its end."""
        part = self._input[:at_most]
        self._input = self._input[len(part) :]
        return bytes(part)

    def write(self, fd: int, part: bytes) -> None:
        """Append output; excess standard error is dropped.  Raises GuestFailure (`quota_exceeded`)."""
        if fd == STDERR:
            self.errors += part[: STDERR_BYTES - len(self.errors)]
            return
        self.output += part
        if len(self.output) > MAX_OUTPUT_BYTES:
            raise GuestFailure(
                "quota_exceeded", f"the output has more than {MAX_OUTPUT_BYTES} bytes"
            )


# --- WASI functions, under their WASI names --------------------------------------------------------


def fd_read(  # noqa: PLR0917 - as WASI has them
    streams: Streams, memory: GuestMemory, fd: int, vectors: int, count: int, result: int
) -> int:
    if fd != STDIN:
        return BADF
    size = 0
    for start, length in _vectors(memory, vectors, count):
        part = streams.read(length)
        memory.write(start, part)
        size += len(part)
    memory.write(result, struct.pack("<I", size))
    return SUCCESS


def fd_write(  # noqa: PLR0917 - as WASI has them
    streams: Streams, memory: GuestMemory, fd: int, vectors: int, count: int, result: int
) -> int:
    if fd not in {STDOUT, STDERR}:
        return BADF
    size = 0
    for start, length in _vectors(memory, vectors, count):
        streams.write(fd, memory.read(start, length))
        size += length
    memory.write(result, struct.pack("<I", size))
    return SUCCESS


def fd_fdstat_get(_streams: Streams, memory: GuestMemory, fd: int, result: int) -> int:
    if fd not in _RIGHTS:
        return BADF
    memory.write(result, struct.pack("<BxHxxxxQQ", 0, 0, _RIGHTS[fd], 0))
    return SUCCESS


def fd_fdstat_set_flags(_streams: Streams, _memory: GuestMemory, fd: int, _flags: int) -> int:
    return SUCCESS if fd in _RIGHTS else BADF


def fd_close(_streams: Streams, _memory: GuestMemory, fd: int) -> int:
    return SUCCESS if fd in _RIGHTS else BADF


def fd_seek(_streams: Streams, _memory: GuestMemory, fd: int, *_where: int) -> int:
    return SPIPE if fd in _RIGHTS else BADF


def fd_prestat_get(_streams: Streams, _memory: GuestMemory, *_arguments: int) -> int:
    """Return BADF: no directory is preopened."""
    return BADF


def fd_prestat_dir_name(_streams: Streams, _memory: GuestMemory, *_arguments: int) -> int:
    return BADF


def args_sizes_get(_streams: Streams, memory: GuestMemory, count: int, size: int) -> int:
    """Write zero counts; also used for the environment."""
    for place in (count, size):
        memory.write(place, struct.pack("<I", 0))
    return SUCCESS


def args_get(_streams: Streams, _memory: GuestMemory, *_arguments: int) -> int:
    return SUCCESS


def proc_exit(_streams: Streams, _memory: GuestMemory, code: int) -> None:
    raise GuestExit(unsigned(code))


def sched_yield(_streams: Streams, _memory: GuestMemory) -> int:
    return SUCCESS


def clock_time_get(
    _streams: Streams, memory: GuestMemory, clock: int, _precision: int, result: int
) -> int:
    if clock not in {REALTIME, MONOTONIC}:
        return INVAL
    now = time.time_ns() if clock == REALTIME else time.monotonic_ns()
    memory.write(result, struct.pack("<Q", now))
    return SUCCESS


def clock_res_get(_streams: Streams, memory: GuestMemory, clock: int, result: int) -> int:
    if clock not in {REALTIME, MONOTONIC}:
        return INVAL
    memory.write(result, struct.pack("<Q", 1))
    return SUCCESS


def random_get(_streams: Streams, memory: GuestMemory, start: int, length: int) -> int:
    if unsigned(length) > MAX_RANDOM_BYTES:
        return INVAL
    memory.write(start, secrets.token_bytes(unsigned(length)))
    return SUCCESS


def _vectors(memory: GuestMemory, start: int, count: int) -> list[tuple[int, int]]:
    if unsigned(count) > MAX_VECTORS:
        raise GuestFailure("trapped", f"a read or write with {unsigned(count)} vectors")
    return list(struct.iter_unpack("<II", memory.read(start, 8 * unsigned(count))))


FUNCTIONS: Mapping[str, Callable[..., int | None]] = {
    function.__name__: function
    for function in (
        args_get,
        args_sizes_get,
        clock_res_get,
        clock_time_get,
        fd_close,
        fd_fdstat_get,
        fd_fdstat_set_flags,
        fd_prestat_dir_name,
        fd_prestat_get,
        fd_read,
        fd_seek,
        fd_write,
        proc_exit,
        random_get,
        sched_yield,
    )
} | {"environ_get": args_get, "environ_sizes_get": args_sizes_get}
