"""The restart budget: how often is too often, alone and nested."""

from dataclasses import dataclass

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from palyra.actors.kernel.supervisor import Escalated, Supervisor
from palyra.core.supervision import INTENSITY, Strategy
from tests.actors.kernel.puppet import (
    Boom,
    Puppet,
    one_for_one,
    puppets,
    rest_for_one,
    running,
    states,
)


async def test_intensity_allows_n_and_escalates_at_n_plus_one(autojump_clock: MockClock) -> None:
    """Two restarts are allowed; the third crash ends the supervisor, with the crash as cause."""
    puppet, last = Puppet("falling"), Boom("third")
    with pytest.RaisesGroup(Escalated) as raised:
        async with running(one_for_one([puppet.spec()], intensity=2, period_s=5.0)):
            for crash in (Boom("first"), Boom("second"), last):
                await puppet.tell(crash)
    assert 3 == puppet.incarnation
    (escalated,) = raised.value.exceptions
    assert escalated.__cause__ is last
    expected = "top: falling failed again after 2 restarts within 5 s: Boom: third"
    assert expected == str(escalated)


@pytest.mark.parametrize(("gap_s", "expected"), [(2.5, "escalates"), (2.6, "lives")])
async def test_intensity_window_is_exact(
    autojump_clock: MockClock, gap_s: float, expected: str
) -> None:
    """A third crash exactly one period after the first is too many; a little later it is not."""
    puppet = Puppet("falling")
    supervisor = one_for_one([puppet.spec()], intensity=2, period_s=5.0)
    try:
        async with running(supervisor):
            for _ in range(3):
                await puppet.tell(Boom())
                autojump_clock.jump(gap_s)
            assert "lives" == expected
    except* Escalated:
        assert "escalates" == expected


async def test_escalation_without_a_crash_says_so(autojump_clock: MockClock) -> None:
    """A permanent child that keeps returning escalates too; there is no cause to name."""
    puppet = Puppet("leaving")
    with pytest.RaisesGroup(pytest.RaisesExc(Escalated, match="it returned$")) as raised:
        async with running(one_for_one([puppet.spec()], intensity=0)):
            await puppet.tell("return")
    assert raised.value.exceptions[0].__cause__ is None


async def test_failed_restart_counts(autojump_clock: MockClock) -> None:
    """A crash and two failed restarts use up three of three; the next failure escalates."""
    puppet = Puppet("failing", starts=["serve", Boom("a"), Boom("b"), Boom("c")])
    with pytest.RaisesGroup(pytest.RaisesExc(Escalated, match="Boom: c")):
        async with running(one_for_one([puppet.spec()], intensity=3)):
            await puppet.tell(Boom())
    assert 4 == puppet.incarnation


async def test_failed_restart_is_tried_again(autojump_clock: MockClock) -> None:
    """After a failed restart the next one may succeed, and its neighbours follow."""
    notes, (a, b) = puppets("a", "b")
    a.starts = ["serve", Boom()]
    async with running(rest_for_one([a.spec(), b.spec()])) as supervisor:
        await a.tell(Boom())
        assert "b serves" == notes[-1]
        assert 2 == supervisor.snapshot().restarts


async def test_nested_budgets_multiply(autojump_clock: MockClock) -> None:
    """One restart inside and one outside let a child that always falls live four times."""
    puppet = Puppet("falling")
    inner = Supervisor("inner", [puppet.spec()], strategy="one_for_one", intensity=1)
    with pytest.RaisesGroup(Escalated) as raised:
        async with running(one_for_one([inner.child_spec()], intensity=1)):
            for _ in range(4):
                await puppet.tell(Boom())
    assert 4 == puppet.incarnation
    assert isinstance(raised.value.exceptions[0].__cause__, Escalated)


@given(
    crashes=st.integers(0, INTENSITY), position=st.integers(0, 2),
    strategy=st.sampled_from(["one_for_one", "rest_for_one"]), chance=st.floats(0, 1, exclude_max=True),
)  # fmt: skip
def test_a_hot_loop_is_slowed_down(
    crashes: int, position: int, strategy: Strategy, chance: float
) -> None:
    """Restarts but the first come after pauses that double; children to the left live on meanwhile."""
    _, cast = puppets("a", "b", "c")
    cast[position].starts = ["serve", *[Boom()] * (crashes - 1)] if crashes else []

    async def main() -> float:
        supervisor = Supervisor(
            "top", [each.spec() for each in cast], strategy=strategy, rng=lambda: chance
        )
        async with running(supervisor):
            for _ in range(min(1, crashes)):
                await cast[position].tell(Boom())
            while any(each != "running" for each in states(supervisor.snapshot()).values()):
                left = cast[:position] if strategy == "rest_for_one" else []
                assert all(each.incarnation == 1 for each in left)
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep_until(trio.current_time() + 0.01)  # virtual
            assert 1 + crashes == cast[position].incarnation
            return trio.current_time()

    took_s = trio.run(main, clock=MockClock(autojump_threshold=0))
    ceilings = [0.25 * 2**each for each in range(crashes - 1)]
    assert took_s == pytest.approx(sum(ceilings) * (1 + chance) / 2, abs=0.02 * (1 + crashes))


async def test_four_crashes_in_a_moment_end_nothing(autojump_clock: MockClock) -> None:
    """The intensity cannot be spent within a second, whatever the chance."""
    puppet = Puppet("queue", starts=["serve", Boom(), Boom(), Boom(), Boom()])
    other = Puppet("other")
    specs = [other.spec(), puppet.spec()]
    async with running(Supervisor("top", specs, strategy="rest_for_one", rng=lambda: 0.0)) as top:
        await puppet.tell(Boom())
        await trio.sleep_until(trio.current_time() + 60)
        assert {"queue": "running", "other": "running"} == states(top.snapshot())
        assert (6, 1) == (puppet.incarnation, other.incarnation)


async def test_a_pause_ends_with_a_stop(autojump_clock: MockClock) -> None:
    """Without a further start, and at once."""
    puppet = Puppet("queue", starts=["serve", Boom(), Boom(), Boom()])
    async with running(Supervisor("top", [puppet.spec()], strategy="one_for_one")):
        await puppet.tell(Boom())
        before_s = trio.current_time()
    assert (before_s, 2) == (trio.current_time(), puppet.incarnation)


async def test_a_pause_holds_up_no_sibling(autojump_clock: MockClock) -> None:
    """Under one_for_one another child that crashes comes back at once."""
    slow, quick = Puppet("slow", starts=["serve", Boom(), Boom(), Boom()]), Puppet("quick")
    specs = [slow.spec(), quick.spec()]
    top = Supervisor("top", specs, strategy="one_for_one", rng=lambda: 0.0)
    async with running(top):
        await slow.tell(Boom())
        assert "down" == states(top.snapshot())["slow"]
        await quick.tell(Boom())
        await trio.sleep_until(trio.current_time() + 1.5)
        assert "running" == states(top.snapshot())["quick"]


Script = list[tuple[int, int]]  # (tenths of a second to wait, position of the child to crash)
SCRIPTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=12)
STRATEGIES = st.sampled_from(["one_for_one", "rest_for_one"])


@dataclass
class Model:
    """Restart arithmetic counted by hand."""

    strategy: Strategy
    intensity: int
    now: int = 0

    def __post_init__(self) -> None:
        self.incarnations = [1, 1, 1]
        self.restarts: list[int] = []

    def crash(self, wait: int, index: int) -> bool:
        """Crash a child; True if the supervisor survives."""
        self.now += wait
        self.restarts.append(self.now)
        if sum(self.now - at <= 50 for at in self.restarts) > self.intensity:
            return False
        for child in range(index, 3 if self.strategy == "rest_for_one" else index + 1):
            self.incarnations[child] += 1
        return True


@given(script=SCRIPTS, strategy=STRATEGIES, intensity=st.integers(0, 4))
def test_restarts_agree_with_counting_by_hand(
    script: Script, strategy: Strategy, intensity: int
) -> None:
    """Under any script of crashes the children live as often as the model says."""
    clock = MockClock(autojump_threshold=0)
    model = Model(strategy, intensity)

    async def main() -> list[int]:
        _, cast = puppets("a", "b", "c")
        specs = [puppet.spec() for puppet in cast]
        # Eighths of a second instead of tenths, so that sums of floats stay exact.
        supervisor = Supervisor(
            "top", specs, strategy=strategy, intensity=intensity, period_s=50 / 8, backoff=None
        )
        try:
            async with running(supervisor):
                for wait, index in script:
                    clock.jump(wait / 8)
                    survives = model.crash(wait, index)
                    await cast[index].tell(Boom())
                    assert survives == (supervisor.snapshot().state == "running")
        except* Escalated:
            pass
        return [puppet.incarnation for puppet in cast]

    assert model.incarnations == trio.run(main, clock=clock) or not script
