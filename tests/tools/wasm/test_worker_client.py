"""The daemon's end of the pipe, against workers that were taken over: whatever comes, it copes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio.testing

from palyra.tools.wasm import protocol
from palyra.tools.wasm.limits import (
    COMPILE_WALL_S,
    HOST_CALLS,
    MAX_COMPILED_BYTES,
    MAX_OUTPUT_BYTES,
    GuestFailure,
    GuestLimits,
)
from palyra.tools.wasm.worker_client import GRACE_S, WorkerClient, WorkerGone
from tests.tools.wasm.fake_worker import FakeProcess

Clock = trio.testing.MockClock
RUN = protocol.RunGuest(input=b"{}", limits=GuestLimits(deadline_s=2.0))


async def grant(_call: protocol.HostCall) -> protocol.HostReply:
    await trio.lowlevel.checkpoint()
    return protocol.HostReply(reply=b"r")


@asynccontextmanager
async def worker(*says: bytes, ends: bool = False) -> AsyncGenerator[WorkerClient]:
    """A worker that says all that at once."""
    process = FakeProcess(1)
    async with trio.open_nursery() as nursery:

        async def speak() -> None:
            for each in says:
                await process.inside.send_all(each)
            if ends:
                await process.inside.aclose()

        async def listen() -> None:
            while not ends:
                await process.inside.receive_some(65_536)

        nursery.start_soon(speak)
        nursery.start_soon(listen)
        try:
            yield WorkerClient(process)
        finally:
            nursery.cancel_scope.cancel()


async def run_failure(*says: bytes, ends: bool = False) -> GuestFailure:
    """The failure of a call."""
    async with worker(*says, ends=ends) as peer:
        try:
            output = await peer.run(RUN, grant)
        except GuestFailure as failure:
            return failure
    raise AssertionError(f"it gave {output!r}")


ENCODE: Callable[[protocol.Message], bytes] = protocol.encode
CALL = ENCODE(protocol.HostCall(function="log", argument=b""))


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (ENCODE(protocol.Done(output=b"x" * (MAX_OUTPUT_BYTES + 1))), "quota_exceeded"),
        (CALL * (HOST_CALLS + 2), "quota_exceeded"),
        (ENCODE(protocol.Loaded()), "trapped"),
        (ENCODE(protocol.WorkerHello()), "trapped"),
        (b"\0\0\0\x01\xc1", "trapped"),
        (b"\xff\xff\xff\xff", "trapped"),
        (ENCODE(protocol.Failed(problem="bad_output", text="why")), "bad_output"),
    ],
)
async def test_a_workers_messages_are_checked(
    autojump_clock: Clock, says: bytes, problem: str
) -> None:
    """Too many, too large, out of order or invalid: an error of the call."""
    assert problem == (await run_failure(says)).problem


async def test_a_worker_that_ends_is_a_guest_that_broke_down(autojump_clock: Clock) -> None:
    """In the middle of a frame or between two."""
    for says in (b"", b"\0\0"):
        failed = await run_failure(says, ends=True)
        assert ("trapped", True) == (failed.problem, "broke down" in failed.message)


async def test_a_worker_that_says_nothing_has_its_deadline(autojump_clock: Clock) -> None:
    """The guest's, and a little for a worker that ends it by itself."""
    began = trio.current_time()
    assert "timed_out" == (await run_failure()).problem
    assert 2.0 + GRACE_S == pytest.approx(trio.current_time() - began)


async def test_calls_of_the_host_are_answered_in_between(autojump_clock: Clock) -> None:
    """And the output is what comes at last."""
    async with worker(CALL, CALL, ENCODE(protocol.Done(output=b"out"))) as peer:
        assert b"out" == await peer.run(RUN, grant)


async def test_compiling_has_its_own_limits(autojump_clock: Clock) -> None:
    """Of time, of size, and of the worker's life."""
    async with worker() as peer:
        with pytest.raises(GuestFailure, match=f"more than {COMPILE_WALL_S:g} s"):
            await peer.compile(b"m")
    async with worker(ends=True) as peer:
        with pytest.raises(GuestFailure, match="quota_exceeded: compiling"):
            await peer.compile(b"m")
    async with worker(ENCODE(protocol.Compiled(compiled=b"x" * (MAX_COMPILED_BYTES + 1)))) as peer:
        with pytest.raises(GuestFailure, match="machine code"):
            await peer.compile(b"m")
    async with worker(ENCODE(protocol.Failed(problem="invalid_module", text="no"))) as peer:
        with pytest.raises(GuestFailure, match="invalid_module: no"):
            await peer.compile(b"m")


async def test_a_worker_without_pipes_or_manners_is_gone(autojump_clock: Clock) -> None:
    """Before it served anything."""
    async with worker(ENCODE(protocol.Loaded())) as peer:
        with pytest.raises(WorkerGone, match="did not say hello"):
            await peer.greet()
    async with worker(ends=True) as peer:
        with pytest.raises(WorkerGone):
            await peer.load("d", b"code")
