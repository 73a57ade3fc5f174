"""`palyra` as a process of its own, forked from one in which everything is imported already.

The same program with the same arguments, in a session of its own; only the half second that an
interpreter needs for its imports is saved, which is most of what a short command costs.  Tests
whose subject is the start itself start an interpreter.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self, TextIO

import trio

ROOT = Path(__file__).parents[1]
PRELOADED = [
    "pytest",
    "palyra.__main__",
    "palyra.process",
    "palyra.harness.bench",
    "palyra.client",
    "palyra.net.http.pages",  # by the first request over HTTP, which took it half a second
    *(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "palyra/cli").rglob("[a-z]*.py")
    ),
]
_PR_SET_PDEATHSIG = 1  # prctl(2); the parent is the server, which ends with the tests
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([*PRELOADED, __name__, "tests.forked_ready"])


class Setting(NamedTuple):
    """What a process begins with, beside its arguments; `streams` are 0, 1 and 2."""

    environment: Mapping[str, str]
    streams: tuple[int, int, int]
    before: Callable[[], None] | None = None  # called in it, before the program


@contextmanager
def reading_pipe() -> Generator[tuple[IO[bytes], int]]:
    """A file to read, and the end to write to, which the block hands on."""
    read, write = os.pipe()
    try:
        yield os.fdopen(read, "rb"), write
    finally:
        os.close(write)


class ForkedProcess:
    """What is used of a `subprocess.Popen`; `stdout` is for who needs it."""

    stdout: IO[bytes] | None = None

    def __init__(self, arguments: Sequence[str], setting: Setting) -> None:
        streams = [_Stream(number) for number in setting.streams]
        arguments_there = (list(arguments), setting._replace(streams=(0, 1, 2)), streams)
        self._process = _SERVER.Process(target=_become, args=arguments_there, daemon=False)
        self._process.start()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def is_alive(self) -> bool:
        return self._process.exitcode is None

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code; blocks."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return code

    async def ended(self) -> int:
        """Its exit code, while this task waits and others go on."""
        while self.is_alive:
            await trio.lowlevel.wait_readable(self._process.sentinel)
        return self.wait()

    @contextmanager
    def until_killed(self) -> Generator[Self]:
        """It is killed at the end of the block, unless it has ended."""
        with self:
            try:
                yield self
            finally:
                self.kill()
                self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stdout is not None:
            self.stdout.close()
        self._process.close()


class Ended(NamedTuple):
    """What a process left behind."""

    code: int
    out: bytes
    err: bytes


async def run_forked(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes = b"",
    before: Callable[[], None] | None = None,
) -> Ended:
    """Run `palyra` to its end; a cancellation kills it."""
    given, giving = os.pipe()
    with reading_pipe() as (out, out_end), reading_pipe() as (err, err_end):
        setting = Setting(environment, (given, out_end, err_end), before=before)
        process = ForkedProcess(arguments, setting)
    os.close(given)
    heard: dict[IO[bytes], bytes] = {}
    with process.until_killed(), out, err:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hear, out, heard)
            nursery.start_soon(_hear, err, heard)
            nursery.start_soon(_say, giving, stdin)
        return Ended(await process.ended(), heard[out], heard[err])


async def _hear(stream: IO[bytes], heard: dict[IO[bytes], bytes]) -> None:
    async with trio.lowlevel.FdStream(os.dup(stream.fileno())) as reading:
        heard[stream] = b"".join([chunk async for chunk in reading])


async def _say(giving: int, stdin: bytes) -> None:
    async with trio.lowlevel.FdStream(giving) as writing:
        with suppress(trio.BrokenResourceError):  # it did not want to know
            await writing.send_all(stdin)


class _Stream:
    """A descriptor on its way to the child, where it arrives as a number of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (DupFd(self._number),)


def _arrive(stream: Any) -> int:
    number: int = stream.detach()
    return number


def call_forked(function: Callable[..., object], *arguments: object) -> tuple[int, str]:
    """Call a function of a module in a process of its own; exit code and all it wrote.  Blocks.

    The code is 0 after a return and, as everywhere, a negative number after a signal.
    """
    with reading_pipe() as (output, write):
        there = (function, arguments, _Stream(write))
        process = _SERVER.Process(target=_call, args=there, daemon=False)
        process.start()
    with output:
        written = output.read().decode()
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code, written


def _call(function: Callable[..., object], arguments: Sequence[object], stream: int) -> None:
    """The child of `call_forked`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (1, 2):
        os.dup2(stream, number)
    os.close(stream)
    sys.stdout, sys.stderr = _open_standard(1), _open_standard(2)
    function(*arguments)
    sys.stdout.flush()


def _become(arguments: list[str], setting: Setting, streams: Sequence[int]) -> None:
    """The child: become what `python -m palyra …` is."""
    from palyra.__main__ import main  # noqa: PLC0415 - preloaded in the server

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing outlives the tests
    os.setsid()
    os.environ.clear()
    os.environ.update(setting.environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = map(_open_standard, range(3))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background
    sys.argv = ["palyra", *arguments]
    if setting.before is not None:
        setting.before()
    main()


def _open_standard(number: int) -> TextIO:
    errors = ("strict", "strict", "backslashreplace")[number]
    return open(number, "w" if number else "r", encoding="utf-8", errors=errors, closefd=False)
