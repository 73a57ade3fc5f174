"""Guests in real workers: what goes well, and the documented error for everything that does not."""

import pytest
import trio

from palyra.core.text.canonical_json import sha256_hex
from palyra.tools.wasm import protocol
from palyra.tools.wasm.limits import MAX_INPUT_BYTES, MIB, GuestFailure, GuestLimits
from tests.tools.wasm import guests
from tests.tools.wasm.kit import failure, module_of, open_runtime, run

pytestmark = pytest.mark.real

HELLO = b'{"result":"hello"}'
SHORT = GuestLimits(deadline_s=0.2)
WITHIN_S = 120.0  # a bound against hanging, not a promise

# What a guest does -> (how it is limited, what is said of it).
FAILURES: dict[str, tuple[str, GuestLimits, str, str]] = {
    "endless loop": (guests.LOOP, SHORT, "timed_out", "longer than 0.2 s"),
    "no fuel left": (guests.LOOP, GuestLimits(fuel=100_000), "quota_exceeded", "fuel of 100000"),
    "memory growth": (guests.GROW_UNTIL_REFUSED, GuestLimits(), "quota_exceeded", "'memory'"),
    "memory at once": (guests.MEMORY_TOO_LARGE, GuestLimits(), "quota_exceeded", "memory"),
    "table growth": (guests.TABLE_UNTIL_REFUSED, GuestLimits(), "quota_exceeded", "'table'"),
    "table at once": (guests.TABLE_TOO_LARGE, GuestLimits(), "quota_exceeded", "table"),
    "deep recursion": (guests.RECURSE, GuestLimits(), "quota_exceeded", "deep recursion"),
    "trap": (guests.TRAP, GuestLimits(), "trapped", "unreachable"),
    "division by zero": (guests.DIVIDE, GuestLimits(), "trapped", "divide by zero"),
    "output outside": (guests.OUTSIDE, GuestLimits(), "trapped", "its memory has"),
    "huge output": (guests.HUGE_OUTPUT, GuestLimits(), "quota_exceeded", "at most 1 MiB"),
    "flood": (guests.COMMAND_FLOOD_FAST, GuestLimits(), "quota_exceeded", "1048576 bytes"),
    "exit code": (guests.COMMAND_EXIT, GuestLimits(), "trapped", "exit code 3"),
    "wrong signature": (guests.WRONG_SIGNATURE, GuestLimits(), "invalid_module", "palyra_call"),
    "wrong import": (guests.WRONG_IMPORT_TYPE, GuestLimits(), "invalid_module", "type"),
    "forbidden import": (guests.FORBIDDEN_IMPORT, GuestLimits(), "capability_denied", "path_open"),
    "no exports": (guests.NO_EXPORTS, GuestLimits(), "invalid_module", "memory"),
    "call of the host": (guests.LOGS, GuestLimits(), "capability_denied", "'log'"),
    "clock": (guests.CLOCK, GuestLimits(), "capability_denied", "'clock'"),
}


# One for each guarantee; every case runs in this process in `test_inside`.
SAMPLE = (
    "endless loop", "memory growth", "table growth", "deep recursion", "trap", "flood",
    "wrong signature", "forbidden import",
)  # fmt: skip


@pytest.mark.parametrize("cases", [SAMPLE, pytest.param(tuple(FAILURES), marks=pytest.mark.slow)])
async def test_a_failing_guest_gets_its_documented_error(cases: tuple[str, ...]) -> None:
    """The next call of the same runtime is served."""
    async with open_runtime() as runtime:
        for case in cases:
            text, limits, problem, said = FAILURES[case]
            with trio.fail_after(WITHIN_S):
                failed = await failure(runtime, module_of(text), limits=limits)
                found = (failed.problem, said in failed.message)
                assert (problem, True) == found, (case, failed.message)
                assert HELLO == await run(runtime, module_of(guests.HELLO)), case


async def test_json_goes_in_and_comes_out() -> None:
    """Through both kinds of guests, byte by byte, up to the limit."""
    texts = [b"{}", '{"text":"ä 🌍 \\u0000"}'.encode(), b'"' + b"x" * (MAX_INPUT_BYTES - 2) + b'"']
    async with open_runtime() as runtime:
        for text in texts[:2]:
            for guest in (guests.ECHO, guests.COMMAND_ECHO):
                assert text == await run(runtime, module_of(guest), text)
        assert texts[2] == await run(runtime, module_of(guests.call_guest(
            guests.packed("(local.get $ptr)", "(local.get $size)"), memory="20")), texts[2])  # fmt: skip
        too_long = await failure(runtime, module_of(guests.ECHO), given=texts[2] + b" ")
        assert "quota_exceeded" == too_long.problem


async def test_a_call_of_the_host_that_is_granted_is_served() -> None:
    """Control for the denials: the same guests, with the grant."""
    heard: list[protocol.HostCall] = []

    async def host(call: protocol.HostCall) -> protocol.HostReply:
        await trio.lowlevel.checkpoint()
        heard.append(call)
        return protocol.HostReply(reply=b'"reply"')

    async with open_runtime() as runtime:
        logs, asks = module_of(guests.LOGS), module_of(guests.asks("secret", "name"))
        assert b'{"result":"1"}' == await run(runtime, logs, granted=("log",), host=host)
        assert b'{"result":"reply"}' == await run(runtime, asks, granted=("secret",), host=host)
        assert b"{}" == await run(runtime, module_of(guests.CLOCK), granted=("clock",))
    assert [("log", b"hello"), ("secret", b"name")] == [(c.function, c.argument) for c in heard]


async def test_the_daemon_has_the_last_word_on_a_call_of_the_host() -> None:
    """The worker lets it through, the daemon denies: the guest ends."""
    async with open_runtime() as runtime:
        failed = await failure(
            runtime, module_of(guests.asks("fetch", '{"url":"http://a"}')), granted=("fetch",)
        )
    assert ("capability_denied", "capability_denied: not granted") == (
        failed.problem, failed.message,
    )  # fmt: skip


async def test_too_many_calls_of_the_host_end_the_guest() -> None:
    """A guest cannot keep the daemon busy for ever."""

    async def host(_call: protocol.HostCall) -> protocol.HostReply:
        await trio.lowlevel.checkpoint()
        return protocol.HostReply()

    async with open_runtime() as runtime:
        failed = await failure(runtime, module_of(guests.LOG_LOOP), granted=("log",), host=host)
    assert ("quota_exceeded", True) == (failed.problem, "256" in failed.message)


async def test_every_call_has_a_memory_of_its_own() -> None:
    """Data of one call is not visible in the next."""
    async with open_runtime() as runtime:
        module = module_of(guests.REMEMBERS)
        assert [b"0", b"0"] == [await run(runtime, module), await run(runtime, module)]


async def test_a_module_that_does_not_validate_is_invalid() -> None:
    """Also those that use what is switched off: threads, several memories, 64 bits, exceptions."""
    async with open_runtime() as runtime:
        for text in guests.SWITCHED_OFF:
            failed = await failure(runtime, module_of(text))
            assert "invalid_module" == failed.problem, text


async def test_a_compile_bomb_is_stopped() -> None:
    """Two seconds of CPU, in a worker that does nothing else; the next module compiles."""
    bomb = module_of(guests.compile_bomb())
    assert len(bomb) <= MIB
    async with open_runtime() as runtime:
        with trio.fail_after(WITHIN_S):
            failed = await failure(runtime, bomb)
            assert ("quota_exceeded", True) == (failed.problem, "compiling" in failed.message)
            assert HELLO == await run(runtime, module_of(guests.HELLO))


async def test_without_the_limit_a_guest_takes_more_memory() -> None:
    """Control: it is the limit that keeps a guest below 64 MiB."""
    module = module_of(guests.reaches(96))
    unlimited = GuestLimits(memory_bytes=-1)
    async with open_runtime() as runtime:
        assert b'{"result":"no "}' == await run(runtime, module)
        assert b'{"result":"yes"}' == await run(runtime, module, limits=unlimited)


async def test_code_is_compiled_where_nothing_runs() -> None:
    """The worker that compiles ends with that; the one that runs gets what was cached."""
    async with open_runtime(size=1) as runtime:
        module = module_of(guests.HELLO)
        code = await runtime.compile(sha256_hex(module), lambda: module)
        assert code == await runtime.compile(sha256_hex(module), lambda: b"not needed any more")
        assert HELLO == await run(runtime, module)


async def test_a_module_that_is_another_one_is_not_compiled() -> None:
    """A compiled module has the digest that it is stored under."""
    async with open_runtime() as runtime:
        module = module_of(guests.HELLO)
        with pytest.raises(GuestFailure, match="is not the one that was installed"):
            await runtime.compile("0" * 64, lambda: module)


async def test_one_worker_is_enough() -> None:
    """A call that must compile first does not hold the worker that should compile."""
    async with open_runtime(size=1) as runtime:
        with trio.fail_after(WITHIN_S):
            for guest in (guests.HELLO, guests.ECHO, guests.HELLO):
                await run(runtime, module_of(guest))
