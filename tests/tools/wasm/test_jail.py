"""Workers in the jail: every hostile guest in turn, with the daemon's loop measured."""

import pytest
import trio

from palyra.actors.kernel.threads import DedicatedThread
from palyra.core.text.canonical_json import sha256_hex
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.wasm.launch import JailedWorkers
from palyra.tools.wasm.limits import GuestLimits
from tests.optional import needs
from tests.tools.wasm import guests
from tests.tools.wasm.kit import failure, module_of, open_runtime, run
from tests.tools.wasm.test_guests import FAILURES, HELLO

pytestmark = [
    pytest.mark.real,
    needs("bubblewrap"),
]
WITHIN_S = 120.0
TICK_S = 0.01
# A guest in the daemon, or one that the daemon waits for, would hold the loop for the length of its
# call.  Both grow on a busy machine; their ratio does not.
MOST_LAG = 0.5  # of the longest call


async def measure_lag(lags: list[float]) -> None:
    """Measure the delay of a short pause repeatedly."""
    while True:
        before = trio.current_time()
        await trio.sleep(TICK_S)
        lags.append(trio.current_time() - before - TICK_S)


@pytest.mark.slow
async def test_hostile_guests_do_not_delay_the_loop() -> None:
    """Each gets its error, and each worker is replaced."""
    lags: list[float] = []
    taken: list[float] = []
    bomb = (guests.compile_bomb(), GuestLimits(), "quota_exceeded", "compiling")
    hostile = [
        (module_of(text), limits, problem, said)
        for text, limits, problem, said in (*FAILURES.values(), bomb)
    ]
    thread = DedicatedThread("jail")
    async with open_runtime(JailedWorkers(Sandbox(thread))) as runtime, trio.open_nursery() as n:
        n.start_soon(measure_lag, lags)
        with trio.fail_after(WITHIN_S):
            assert HELLO == await run(runtime, module_of(guests.HELLO))
            lags.clear()  # wasmtime's first import is not what is asked here
            for module, limits, problem, said in hostile:
                began_s = trio.current_time()
                failed = await failure(runtime, module, limits=limits)
                taken.append(trio.current_time() - began_s)
                assert (problem, True) == (failed.problem, said in failed.message)
            assert HELLO == await run(runtime, module_of(guests.HELLO))
        n.cancel_scope.cancel()
    thread.close()
    assert max(lags) < MOST_LAG * max(taken)


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    """The guest loops, its caller leaves: the process is gone, the next call is served."""
    thread = DedicatedThread("jail")
    async with open_runtime(JailedWorkers(Sandbox(thread)), size=1) as runtime:
        with trio.fail_after(WITHIN_S):
            module = module_of(guests.LOOP)
            await runtime.compile(sha256_hex(module), lambda: module)
            with trio.move_on_after(0.5):
                await run(runtime, module, limits=GuestLimits(deadline_s=60, fuel=10**15))
            assert HELLO == await run(runtime, module_of(guests.HELLO))
    thread.close()
