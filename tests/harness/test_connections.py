"""Lanes: paced, patient with a busy daemon, and never asking for ever."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from palyra.client import Client
from palyra.errors import InvalidParams, Overloaded, PalyraError, RateLimited, Unavailable
from palyra.harness.connections import COST_BYTES, PATIENCE_S, SHARE, PacedConnection, count_lanes
from tests.rows import every_row

RATE = 100


class FakeClient:
    """A client that answers from a plan and counts its calls."""

    def __init__(self, answers: Callable[[int], object]) -> None:
        self.hello = SimpleNamespace(limits=SimpleNamespace(requests_per_s=RATE))
        self.asked = 0
        self._answers = answers

    async def wait_connected(self) -> None:
        await trio.lowlevel.checkpoint()

    async def ask(self) -> object:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        answer = self._answers(self.asked)
        if isinstance(answer, PalyraError):
            raise answer
        return answer


def lane(answers: Callable[[int], object]) -> tuple[PacedConnection, FakeClient]:
    fake = FakeClient(answers)
    return PacedConnection(cast("Client", fake)), fake


async def ask(client: Client) -> Any:
    return await cast("FakeClient", client).ask()


async def test_pace_stays_below_the_limit(autojump_clock: MockClock) -> None:
    """After a second's worth at once, requests go at nine tenths of what the daemon allows."""
    paced, fake = lane(lambda _: "ok")
    began_s = trio.current_time()
    for _ in range(RATE * 11):
        await paced.ask(ask)
    took_s = trio.current_time() - began_s
    allowed = 2 * RATE + RATE * took_s  # the daemon's burst and rate
    assert fake.asked <= allowed
    assert fake.asked == pytest.approx(SHARE * RATE * (took_s + 1), rel=0.02)


async def test_large_requests_cost_more(autojump_clock: MockClock) -> None:
    """A request pays for its size, as the daemon counts it."""
    paced, _ = lane(lambda _: "ok")
    began_s = trio.current_time()
    for _ in range(20):
        await paced.ask(ask, 9 * COST_BYTES)
    assert trio.current_time() - began_s == pytest.approx(200 / (SHARE * RATE) - 1, abs=0.1)


async def test_refusal_for_load_is_waited_out(autojump_clock: MockClock) -> None:
    """`rate_limited` and `overloaded` are retried after the daemon's delay, without a limit."""
    paced, fake = lane(
        lambda n: (
            RateLimited("slow", retry_after_ms=5_000)
            if n < 30
            else Overloaded("full", retry_after_ms=1_000)
            if n < 60
            else "ok"
        )
    )
    began_s = trio.current_time()
    assert "ok" == await paced.ask(ask)
    assert 60 == fake.asked
    assert trio.current_time() - began_s >= 29 * 5 + 30


async def test_outage_is_waited_out_with_growing_pauses(autojump_clock: MockClock) -> None:
    """A dependency that is down is asked for again, and given up after two minutes."""
    paced, fake = lane(lambda n: Unavailable("disk") if n < 5 else "ok")
    assert "ok" == await paced.ask(ask)
    paced, fake = lane(lambda _: Unavailable("disk"))
    began_s = trio.current_time()
    with pytest.raises(Unavailable):
        await paced.ask(ask)
    assert PATIENCE_S < trio.current_time() - began_s < PATIENCE_S + 10
    assert fake.asked < 500


async def test_other_refusals_are_not_repeated(autojump_clock: MockClock) -> None:
    """An error of the request itself is raised at once."""
    paced, fake = lane(lambda _: InvalidParams("no"))
    with pytest.raises(InvalidParams):
        await paced.ask(ask)
    assert 1 == fake.asked


@every_row(("concurrency", "lanes"), [(1, 1), (8, 1), (9, 2), (50, 7), (2_000, 64)])
def test_lanes_grow_with_concurrency(concurrency: int, lanes: int) -> None:
    """A lane for eight cases, and never more than 64."""
    assert lanes == count_lanes(concurrency)
