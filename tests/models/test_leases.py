"""Leases: bounds, order, and waiters that leave."""

import random
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.models.guarded import CallSlots


async def hold(
    leases: CallSlots, log: list[str], name: str, *, is_background: bool = False
) -> None:
    """Hold a lease for a second."""
    async with leases.lease(name[0], is_background=is_background):
        log.append(name)
        await trio.sleep_until(trio.current_time() + 1)


async def test_first_come_first_served_foreground_first(autojump_clock: MockClock) -> None:
    """Slots are given in order of arrival, foreground before background."""
    leases, log = CallSlots(1, 1), list[str]()
    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "b1"):
            work = partial(hold, leases, log, name, is_background=name == "b1")
            nursery.start_soon(work)
            await wait_all_tasks_blocked()
        nursery.start_soon(hold, leases, log, "c1")
    assert ["a1", "a2", "c1", "b1"] == log
    assert (0, 0) == (leases.held, leases.waiting)


async def test_a_key_in_use_does_not_hold_up_others(autojump_clock: MockClock) -> None:
    """Two of one key, four of one provider; who waits for a key is overtaken by another key."""
    leases, log = CallSlots(), list[str]()
    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
            nursery.start_soon(hold, leases, log, name)
            await wait_all_tasks_blocked()
        assert ["a1", "a2", "b1", "b2"] == log
        assert (4, 2) == (leases.held, leases.waiting)
    assert {"a3", "b3"} == set(log[4:])


async def test_a_lease_goes_to_the_principal_that_holds_the_fewest(
    autojump_clock: MockClock,
) -> None:
    """A call of another principal passes all that wait of one with a thousand, foreground first."""
    leases, log = CallSlots(2, 2), list[str]()

    async def ask(principal: str, *, is_background: bool = False) -> None:
        async with leases.lease("key", principal, is_background=is_background):
            log.append(principal)
            await trio.sleep_until(trio.current_time() + 1)

    async with trio.open_nursery() as nursery:
        for _ in range(1_000):
            nursery.start_soon(ask, "ann")
        await wait_all_tasks_blocked()
        nursery.start_soon(partial(ask, "cat", is_background=True))
        nursery.start_soon(ask, "bob")
        nursery.start_soon(ask, "bob")
    assert ["ann", "ann"] == log[:2]
    assert 2 == log[:6].count("bob")
    assert "cat" == log[-1]
    assert (0, 0, {}) == (leases.held, leases.waiting, leases._shares)


@pytest.mark.parametrize("seed", range(20))
async def test_waiters_that_leave_leave_no_trace(seed: int, autojump_clock: MockClock) -> None:
    """The bounds hold at every moment under random cancellation, and no slot leaks."""
    rng, leases = random.Random(seed), CallSlots(3, 2)
    most = 0

    async def come_and_go() -> None:
        nonlocal most
        await trio.sleep_until(rng.random() * 5)
        with trio.move_on_after(rng.random() * 3):
            async with leases.lease(rng.choice("ab"), is_background=rng.random() < 0.5):
                most = max(most, leases.held)
                await trio.sleep_until(trio.current_time() + rng.random())

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(come_and_go)
    assert (3, 0, 0, {}) == (most, leases.held, leases.waiting, leases._held)
