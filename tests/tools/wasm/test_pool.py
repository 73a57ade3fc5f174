"""The pool: who gets which worker, and when one is replaced.  No process, virtual time."""

from typing import Any

import pytest
import trio.testing

from palyra.errors import Unavailable
from palyra.tools.wasm.pool import RETRY_S, WorkerPool
from palyra.tools.wasm.worker_client import HELLO_S, WorkerClient
from tests.tools.wasm.fake_worker import FakeLaunch
from tests.tools.wasm.kit import open_pool

Clock = trio.testing.MockClock


def number_of(peer: WorkerClient) -> int:
    process: Any = peer._process
    number: int = process.number
    return number


async def use(pool: WorkerPool, purpose: str, *, is_last: bool = False) -> int:
    """Borrow a worker and give it back; which one it was."""
    async with pool.borrow(purpose, is_last=is_last) as peer:
        return number_of(peer)


async def test_no_worker_starts_before_it_is_wanted(autojump_clock: Clock) -> None:
    """A daemon without skills has none."""
    launch = FakeLaunch()
    async with open_pool(launch) as pool:
        await trio.testing.wait_all_tasks_blocked()
        assert ([], False) == (launch.started, pool.is_available)
        pool.want()
        await trio.testing.wait_all_tasks_blocked()
        assert ([1, 2], True) == (launch.alive, pool.is_available)


async def test_a_worker_is_used_again_for_the_same_module_only(autojump_clock: Clock) -> None:
    """The third module gets a fresh one, made in the place of the one that rested longest."""
    launch = FakeLaunch()
    async with open_pool(launch) as pool:
        one, two = await use(pool, "a"), await use(pool, "b")
        assert (one, two) == (await use(pool, "a"), await use(pool, "b"))
        assert 3 == await use(pool, "c")
        assert [two, 3] == sorted(launch.alive)


async def test_a_busy_pool_makes_callers_wait(autojump_clock: Clock) -> None:
    """In the order they came; each other module gets a worker of its own."""
    launch = FakeLaunch()
    order: list[tuple[str, int]] = []

    async def call(purpose: str) -> None:
        async with pool.borrow(purpose) as peer:
            order.append((purpose, number_of(peer)))
            await trio.sleep(len(purpose))

    async with open_pool(launch, size=1) as pool, trio.open_nursery() as nursery:
        for purpose in ("a", "bb", "a", "a"):
            nursery.start_soon(call, purpose)
            await trio.testing.wait_all_tasks_blocked()
    assert [("a", 1), ("bb", 2), ("a", 3), ("a", 3)] == order


async def test_a_worker_that_failed_is_never_used_again(autojump_clock: Clock) -> None:
    """Nor is one that is for one purpose only."""
    launch = FakeLaunch()
    async with open_pool(launch, size=1) as pool:
        with pytest.raises(ValueError, match="broken"):
            async with pool.borrow("a"):
                raise ValueError("broken")
        assert 2 == await use(pool, "a")
        assert 2 == await use(pool, "a", is_last=True)
        assert 3 == await use(pool, "a")


async def test_a_cancelled_call_kills_its_worker(autojump_clock: Clock) -> None:
    """Its guest may still run, and can only be ended with the worker."""
    launch = FakeLaunch()
    async with open_pool(launch, size=1) as pool:
        with trio.move_on_after(1.0):
            async with pool.borrow("a"):
                await trio.sleep_forever()
        await trio.testing.wait_all_tasks_blocked()
        assert [2] == launch.alive


async def test_a_worker_that_dies_at_rest_is_replaced(autojump_clock: Clock) -> None:
    """Before anybody asks for it."""
    launch = FakeLaunch()
    async with open_pool(launch, size=1) as pool:
        await use(pool, "a")
        launch.started[0].died.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [2] == launch.alive
        assert 2 == await use(pool, "a")


async def test_without_workers_calls_fail_with_the_reason(autojump_clock: Clock) -> None:
    """They fail at once, and the pool tries again later."""
    launch = FakeLaunch()
    told: list[bool] = []
    launch.obstacle = "no jail"
    pool = WorkerPool(launch, lambda: told.append(pool.is_available))
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.keep_worker)
        for _ in range(2):
            with pytest.raises(Unavailable, match="no jail"):
                await use(pool, "a")
        launch.obstacle = ""
        await trio.sleep(RETRY_S * 1.5)
        assert ([True], "") == (told, pool.obstacle)
        assert 1 == await use(pool, "a")
        launch.obstacle = "the jail is gone"
        launch.started[0].died.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [True, False] == told
        nursery.cancel_scope.cancel()


async def test_a_disabled_pool_has_a_reason(autojump_clock: Clock) -> None:
    """WASM is switched off."""
    pool = WorkerPool(FakeLaunch(), obstacle="it is off")
    with pytest.raises(Unavailable, match="it is off"):
        await use(pool, "a")


async def test_a_leak_ends_every_worker(autojump_clock: Clock) -> None:
    """Idle ones as well."""
    launch, leaks, told = FakeLaunch(), [""], list[bool]()
    pool = WorkerPool(launch, lambda: told.append(pool.is_available), find_leak=lambda: leaks[-1])
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.keep_worker)
        await use(pool, "a")
        leaks.append("the jail leaks")
        launch.obstacle = "the jail leaks"
        with pytest.raises(Unavailable, match="the jail leaks"):
            await use(pool, "a")
        await trio.testing.wait_all_tasks_blocked()
        assert ([], [True, False]) == (launch.alive, told)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("said", [b"", b"\0\0\0\x01\xc1", b"\xff\xff\xff\xff"])
async def test_a_worker_that_says_no_hello_is_no_worker(autojump_clock: Clock, said: bytes) -> None:
    """Silence, nonsense, and a frame without end."""
    launch = FakeLaunch()
    launch.say = lambda: said or b"\0"
    async with open_pool(launch, size=1) as pool:
        pool.want()
        await trio.sleep(HELLO_S * 1.1)
        assert not pool.is_available
        assert "no WASM worker can be started" in pool.obstacle
