"""The inside of a worker, run in this process: WASI, memory, the worker's loop."""

import struct
from collections.abc import Iterator

import pytest
import wasmtime

from palyra.tools.wasm import protocol, wasi
from palyra.tools.wasm.engine import GuestMemory, make_engine
from palyra.tools.wasm.guest import GuestCall, run_guest
from palyra.tools.wasm.limits import GuestFailure, GuestLimits
from palyra.tools.wasm.wasi import FUNCTIONS, GuestExit, Streams
from palyra.tools.wasm.worker import Worker, WorkerPipes
from tests.rows import every_row
from tests.tools.wasm import guests
from tests.tools.wasm.kit import module_of
from tests.tools.wasm.test_guests import FAILURES


def a_memory() -> GuestMemory:
    """One page."""
    store = wasmtime.Store()
    limits = wasmtime.Limits(1, 1)
    return GuestMemory(wasmtime.Memory(store, wasmtime.MemoryType(limits)), store)


def refuse(function: str, _argument: bytes) -> bytes:
    raise GuestFailure("capability_denied", f"no {function}")


def run(text: str, limits: GuestLimits | None = None, given: bytes = b"{}") -> bytes:
    """A guest's output, without a worker."""
    engine = make_engine()
    module = wasmtime.Module(engine, module_of(text))
    guest = GuestCall(given, frozenset({"log"}), refuse)
    return run_guest(engine, module, guest, limits or GuestLimits())


@every_row("case", [case for case in FAILURES if case != "call of the host"])
def test_a_guest_fails_as_documented(case: str) -> None:
    """The same words as through a worker."""
    text, limits, problem, said = FAILURES[case]
    if case == "no exports":
        said = "_start"  # the daemon's own parser is not in the way here
    with pytest.raises(GuestFailure) as caught:
        run(text, limits)
    assert (problem, True) == (caught.value.problem, said in caught.value.message)


def test_a_denied_call_of_the_host_ends_the_guest() -> None:
    """The error has the denial's text."""
    with pytest.raises(GuestFailure, match="capability_denied: no log"):
        run(guests.LOGS)


def test_a_reactor_is_initialized_first() -> None:
    """Where the guest exports `_initialize`."""
    text = guests.call_guest(
        guests.packed("(i32.const 16)", "(i32.load8_u (i32.const 0))"),
        extra='(data (i32.const 16) "{\\"result\\":1}")'
        '(func (export "_initialize") (i32.store8 (i32.const 0) (i32.const 12)))',
    )
    assert b'{"result":1}' == run(text)


def test_the_standard_error_of_a_failed_guest_is_passed_on() -> None:
    """Only its beginning."""
    text = guests.command_guest(
        "(i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 4))"
        "(drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))"
        "(call $exit (i32.const 7))",
        imports='(data (i32.const 64) "help")',
    )
    with pytest.raises(GuestFailure, match="exit code 7; it said: help"):
        run(text)


def test_memory_is_checked_at_every_address() -> None:
    """Up to its last byte and not one further, whatever the sign."""
    memory = a_memory()
    memory.write(65_535, b"x")
    assert b"x" == memory.read(65_535, 1)
    assert b"" == memory.read(65_536, 0)
    for start, length in ((65_536, 1), (-1, 1), (0, -1), (65_535, 2)):
        with pytest.raises(GuestFailure, match="its memory has 65536"):
            memory.read(start, length)
    with pytest.raises(GuestFailure, match="does not export a memory"):
        GuestMemory(None, wasmtime.Store())


def test_there_is_no_world() -> None:
    """No arguments, no environment, no directories, streams that cannot be sought."""
    memory, streams = a_memory(), Streams(b"")
    memory.write(0, b"\xff" * 16)

    def call(name: str, *arguments: int) -> int | None:
        return FUNCTIONS[name](streams, memory, *arguments)

    for name in ("args", "environ"):
        assert wasi.SUCCESS == call(f"{name}_sizes_get", 0, 4) == call(f"{name}_get", 0, 4)
        assert b"\0" * 8 == memory.read(0, 8)
    assert wasi.BADF == call("fd_prestat_get", 3, 0) == call("fd_prestat_dir_name", 3, 0, 1)
    assert wasi.BADF == call("fd_fdstat_get", 3, 0) == call("fd_close", 3)
    assert wasi.BADF == call("fd_seek", 3, 0, 0, 0) == call("fd_fdstat_set_flags", 3, 0)
    assert wasi.BADF == call("fd_read", 1, 0, 0, 0) == call("fd_write", 0, 0, 0, 0)
    assert wasi.SPIPE == call("fd_seek", 0, 0, 0, 0)
    for name, arguments in (("fd_fdstat_get", (1, 0)), ("fd_close", (1,)), ("sched_yield", ()),
                            ("fd_fdstat_set_flags", (1, 0))):  # fmt: skip
        assert wasi.SUCCESS == call(name, *arguments)
    with pytest.raises(GuestExit):
        call("proc_exit", 0)
    memory.write(0, struct.pack("<II", 0, 0))
    with pytest.raises(GuestFailure, match="with 5000 vectors"):
        call("fd_read", 0, 0, 5_000, 0)


def test_clock_and_random_functions() -> None:
    """Two clocks, and a bounded number of bytes."""
    memory, streams = a_memory(), Streams(b"")
    for clock in (0, 1):
        assert wasi.SUCCESS == FUNCTIONS["clock_time_get"](streams, memory, clock, 1, 0)
        assert 0 != struct.unpack("<Q", memory.read(0, 8))[0]
        assert wasi.SUCCESS == FUNCTIONS["clock_res_get"](streams, memory, clock, 0)
    assert wasi.INVAL == FUNCTIONS["clock_time_get"](streams, memory, 2, 1, 0)
    assert wasi.INVAL == FUNCTIONS["clock_res_get"](streams, memory, 2, 0)
    assert wasi.SUCCESS == FUNCTIONS["random_get"](streams, memory, 0, 32)
    assert b"\0" * 32 != memory.read(0, 32)
    assert wasi.INVAL == FUNCTIONS["random_get"](streams, memory, 0, 1 << 20)


def test_input_is_read_in_pieces_and_errors_are_kept_in_part() -> None:
    """To its end, and then nothing; of standard error the beginning."""
    streams = Streams(b"abcdef")
    assert [b"abcd", b"ef", b""] == [streams.read(4), streams.read(4), streams.read(4)]
    for _ in range(3):
        streams.write(wasi.STDERR, b"e" * 1_500)
    assert wasi.STDERR_BYTES == len(streams.errors)


class ScriptedPipes(WorkerPipes):
    """A daemon that says these things."""

    def __init__(self, *requests: protocol.Request) -> None:
        self.script = requests
        self.said: list[protocol.Message] = []

    def send(self, message: protocol.Message) -> None:
        self.said.append(message)

    def requests(self) -> Iterator[protocol.Request]:
        return iter(self.script)


def serve(*requests: protocol.Request) -> list[protocol.Message]:
    """The worker's answers to all those messages, after its hello."""
    pipes = ScriptedPipes(*requests)
    Worker(pipes).serve()
    assert isinstance(pipes.said[0], protocol.WorkerHello)
    return pipes.said[1:]


def test_a_worker_answers_everything_once() -> None:
    """Compile, load, run; an impossible request gets an error."""
    module = module_of(guests.LOGS)
    (compiled,) = serve(protocol.Compile(module=module, cpu_s=2.0))
    assert isinstance(compiled, protocol.Compiled)
    run_it = protocol.RunGuest(input=b"{}", limits=GuestLimits(), granted=("log",))
    code = protocol.LoadModule(compiled=compiled.compiled)
    said = serve(
        code, run_it, protocol.HostReply(), code, run_it, protocol.HostReply(denied="no log")
    )
    assert [
        protocol.Loaded(),
        protocol.HostCall(function="log", argument=b"hello"),
        protocol.Done(output=b'{"result":"1"}'),
        protocol.Loaded(),
        protocol.HostCall(function="log", argument=b"hello"),
        protocol.Failed(problem="capability_denied", text="no log"),
    ] == said
    problems = [answer.problem for answer in serve(
        protocol.Compile(module=b"none", cpu_s=2.0), protocol.LoadModule(compiled=b"none"), run_it,
    ) if isinstance(answer, protocol.Failed)]  # fmt: skip
    assert ["invalid_module"] * 3 == problems


def test_a_worker_whose_daemon_is_gone_ends() -> None:
    """It ends within a call, and at an unexpected reply."""
    (compiled,) = serve(protocol.Compile(module=module_of(guests.LOGS), cpu_s=2.0))
    assert isinstance(compiled, protocol.Compiled)
    run_it = protocol.RunGuest(input=b"{}", limits=GuestLimits(), granted=("log",))
    with pytest.raises(SystemExit):
        serve(protocol.LoadModule(compiled=compiled.compiled), run_it)
    with pytest.raises(protocol.BadWorkerFrame):
        serve(protocol.HostReply())
