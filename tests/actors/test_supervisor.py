"""The supervisor: order, restarts, budgets, stops, and what cannot be stopped."""
# ruff: noqa: ARG001 - a test gets virtual time by taking the clock as an argument

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from textwrap import dedent
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.child import ChildSnapshot, ChildSpec, Exit
from palyra.actors.mailbox import Mailbox
from palyra.actors.supervisor import Escalated, Supervisor
from palyra.core.supervision import Restart, Strategy
from palyra.errors import ActorGone, InvariantBroken
from tests.actors.puppet import Boom, Halt, Puppet, puppets, running, states

one_for_one = partial(Supervisor, "top", strategy="one_for_one")
rest_for_one = partial(Supervisor, "top", strategy="rest_for_one")


# ---- start


async def test_children_start_in_order(autojump_clock: MockClock) -> None:
    """Each child serves before the next one starts, and the supervisor is ready last."""
    notes, cast = puppets("a", "b")
    async with running(one_for_one([puppet.spec() for puppet in cast])):
        assert ["a starts", "a serves", "b starts", "b serves"] == notes


async def test_failed_first_start_surfaces_in_the_starter(autojump_clock: MockClock) -> None:
    """The very error of the start reaches the starter, and those before it were stopped."""
    notes, (a, b, c) = puppets("a", "b", "c")
    boom = Boom("no port")
    b.starts = [boom]
    with pytest.raises(Boom) as raised:
        await one_for_one([a.spec(), b.spec(), c.spec()]).run()
    assert raised.value is boom
    assert ["a starts", "a serves", "b starts", "b ends", "a ends"] == notes


async def test_start_that_returns_is_a_failed_start(autojump_clock: MockClock) -> None:
    """A child that ends before it said it can serve has failed to start."""
    puppet = Puppet("mute", starts=["return"])
    with pytest.raises(InvariantBroken, match="mute returned before it called started"):
        await one_for_one([puppet.spec("temporary")]).run()


async def test_hung_start_can_be_cancelled(autojump_clock: MockClock) -> None:
    """A cancel during a start that hangs ends it at once, and stops those before it."""
    notes, (a, b) = puppets("a", "b")
    b.starts = ["hang"]
    begun_s = trio.current_time()
    with trio.move_on_after(7):
        await one_for_one([a.spec(), b.spec()]).run()
    assert 7.0 == pytest.approx(trio.current_time() - begun_s)
    assert ["b ends", "a ends"] == notes[-2:]


async def test_hung_start_can_be_stopped(autojump_clock: MockClock) -> None:
    """An orderly stop during a start that hangs does not wait for it."""
    puppet = Puppet("hanging", starts=["hang"])
    supervisor = one_for_one([puppet.spec()])
    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        supervisor.stop("enough")
    assert begun_s == trio.current_time()


async def test_cancelled_supervisor_starts_nobody(autojump_clock: MockClock) -> None:
    """A run that was cancelled before it began leaves its children alone."""
    puppet = Puppet("unborn")
    with trio.CancelScope() as scope:
        scope.cancel("before it began")
        await one_for_one([puppet.spec()]).run()
    assert [] == puppet.notes


async def test_child_ids_are_unique() -> None:
    """Two children of one name are a bug found before anything runs."""
    await trio.lowlevel.checkpoint()
    with pytest.raises(InvariantBroken, match="child ids repeat"):
        one_for_one([Puppet("twin").spec(), Puppet("twin").spec()])


async def test_supervisor_runs_once_at_a_time(autojump_clock: MockClock) -> None:
    """A second run beside the first is a bug."""
    async with running(one_for_one([])) as supervisor:
        with pytest.raises(InvariantBroken, match="top is running already"):
            await supervisor.run()


# ---- restart


@pytest.mark.parametrize(
    ("restart", "after_return", "after_crash"),
    [("permanent", 2, 2), ("transient", 1, 2), ("temporary", 1, 1)],
)
async def test_restart_type_decides(
    autojump_clock: MockClock, restart: Restart, after_return: int, after_crash: int
) -> None:
    """Permanent restarts on any exit, transient on a crash only, temporary never."""
    returning, crashing = Puppet("returning"), Puppet("crashing")
    async with running(one_for_one([returning.spec(restart), crashing.spec(restart)])):
        await returning.tell("return")
        await crashing.tell(Boom())
        assert (after_return, after_crash) == (returning.incarnation, crashing.incarnation)


async def test_child_that_ended_for_good_leaves_the_others_alone(
    autojump_clock: MockClock,
) -> None:
    """The supervisor goes on without a child that is not restarted, and closes its mailbox."""
    inbox = Mailbox[int]("once", 1)
    puppet, other = Puppet("once"), Puppet("other")
    spec = ChildSpec("once", puppet.start, "transient", mailbox=inbox)
    async with running(one_for_one([spec, other.spec()])) as supervisor:
        await puppet.tell("return")
        assert {"once": "ended", "other": "running"} == states(supervisor.snapshot())
        with pytest.raises(ActorGone):
            inbox.offer(1)


async def test_one_for_one_restarts_only_the_fallen(autojump_clock: MockClock) -> None:
    """Neighbours of the fallen child notice nothing."""
    _, (a, b, c) = puppets("a", "b", "c")
    async with running(one_for_one([a.spec(), b.spec(), c.spec()])):
        await b.tell(Boom())
        assert [1, 2, 1] == [a.incarnation, b.incarnation, c.incarnation]


async def test_rest_for_one_restarts_the_right_suffix(autojump_clock: MockClock) -> None:
    """Those after the fallen child stop from the right and start again from the left."""
    notes, (a, b, c, d) = puppets("a", "b", "c", "d")
    async with running(rest_for_one([a.spec(), b.spec(), c.spec(), d.spec()])):
        notes.clear()
        await b.tell(Boom())
        ends = ["b ends", "d ends", "c ends"]
        starts = [f"{name} {verb}" for name in "bcd" for verb in ("starts", "serves")]
        assert [*ends, *starts] == notes
    assert 1 == a.incarnation


async def test_rest_for_one_leaves_the_temporary_down(autojump_clock: MockClock) -> None:
    """A temporary child that goes down with a neighbour does not come back, a transient does."""
    _, (a, b, c) = puppets("a", "b", "c")
    specs = [a.spec(), b.spec("temporary"), c.spec("transient")]
    async with running(rest_for_one(specs)) as supervisor:
        await a.tell(Boom())
        assert {"a": "running", "b": "ended", "c": "running"} == states(supervisor.snapshot())


async def test_fallen_neighbour_overtakes_a_hung_restart(autojump_clock: MockClock) -> None:
    """A child that falls while one after it is starting is restarted without waiting for it."""
    _, (a, b) = puppets("a", "b")
    b.starts = ["serve", "hang"]
    async with running(rest_for_one([a.spec(), b.spec()])) as supervisor:
        await b.tell(Boom())
        assert "starting" == states(supervisor.snapshot())["b"]
        await a.tell(Boom())
        assert {"a": "running", "b": "running"} == states(supervisor.snapshot())


async def test_stale_exit_changes_nothing(autojump_clock: MockClock) -> None:
    """A child that fell together with its neighbour is restarted once, at the price of one."""
    _, (a, b) = puppets("a", "b")
    async with running(rest_for_one([a.spec(), b.spec()], intensity=1)) as supervisor:
        b._send.send_nowait(Boom())
        await a.tell(Boom())
        assert [2, 2] == [a.incarnation, b.incarnation]
        assert 1 == supervisor.snapshot().restarts


async def test_exception_group_is_a_crash_like_any_other(autojump_clock: MockClock) -> None:
    """A group restarts the child; a group of one is reported as the error in it."""
    exits: list[Exit] = []
    puppet = Puppet("grouped")
    pair = ExceptionGroup("two", [Boom(), Boom()])
    only = Boom("only")
    async with running(one_for_one([puppet.spec()], on_exit=exits.append)):
        await puppet.tell(pair)
        await puppet.tell(ExceptionGroup("one", [ExceptionGroup("inner", [only])]))
        assert 3 == puppet.incarnation
    assert [pair, only] == [end.error for end in exits[:2]]


async def test_failure_beside_a_cancelled_task_is_a_crash(autojump_clock: MockClock) -> None:
    """A failure in one task of a child, which cancels its other task, is one crash."""
    exits: list[Exit] = []
    puppet, boom = Puppet("inner"), Boom()

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await nursery.start(puppet.start)
            task_status.started()

    async with running(one_for_one([ChildSpec("pair", start)], on_exit=exits.append)):
        await puppet.tell(boom)
        assert [("crashed", boom)] == [(end.outcome, end.error) for end in exits]
        assert 2 == puppet.incarnation


async def test_base_exception_in_a_group_passes_without_the_crash(
    autojump_clock: MockClock,
) -> None:
    """Of a group that holds both, the Exception is noted as a crash and the rest goes on."""
    puppet = Puppet("mixed")
    supervisor = one_for_one([puppet.spec()])
    with pytest.RaisesGroup(Halt, flatten_subgroups=True):
        async with running(supervisor):
            await puppet.tell(BaseExceptionGroup("both", [Boom("half"), Halt()]))
    (child,) = supervisor.snapshot().children
    assert "Boom: half" == child.last_crash


async def test_crash_during_a_requested_stop_is_reported(autojump_clock: MockClock) -> None:
    """A child that fails while being cancelled is a crash to the listener, and stays down."""
    exits: list[Exit] = []

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                raise Boom("in cleanup")

    async with running(one_for_one([ChildSpec("clumsy", start)], on_exit=exits.append)):
        pass
    assert [("crashed", True)] == [(end.outcome, end.was_asked) for end in exits]
    assert isinstance(exits[0].error, Boom)


async def test_base_exception_passes_through(autojump_clock: MockClock) -> None:
    """What is not an Exception ends the supervisor, after its other children were stopped."""
    notes, (a, b) = puppets("a", "b")
    with pytest.RaisesGroup(Halt, flatten_subgroups=True):
        async with running(one_for_one([a.spec(), b.spec()])):
            await a.tell(Halt())
    assert "b ends" == notes[-1]


async def test_queued_messages_survive_a_restart(autojump_clock: MockClock) -> None:
    """The next incarnation reads what the last one left in the mailbox."""
    inbox = Mailbox[int]("adder", 9)
    taken: list[int] = []

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            task_status.started()
            async for number in messages:
                taken.append(number)
                if number == 2:
                    raise Boom

    async with running(one_for_one([ChildSpec("adder", start, mailbox=inbox)])):
        for number in range(5):
            inbox.offer(number)
        await wait_all_tasks_blocked()
    assert [0, 1, 2, 3, 4] == taken


# ---- intensity


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
    expected = "top: falling fell again after 2 restarts within 5 s: Boom: third"
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
        """Whether the supervisor survives it."""
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
            "top", specs, strategy=strategy, intensity=intensity, period_s=50 / 8
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


# ---- stop


async def test_children_stop_in_reverse_order(autojump_clock: MockClock) -> None:
    """Each child has ended before the one before it is stopped."""
    notes, cast = puppets("a", "b", "c")
    for puppet in cast:
        puppet.cleanup_s = 1.0
    async with running(one_for_one([puppet.spec() for puppet in cast])):
        notes.clear()
        begun_s = trio.current_time()
    assert ["c ends", "b ends", "a ends"] == notes
    assert 3.0 == pytest.approx(trio.current_time() - begun_s)


async def test_cancel_stops_in_order_too(autojump_clock: MockClock) -> None:
    """A cancelled supervisor takes its children down as an orderly stop does."""
    notes, cast = puppets("a", "b")
    with trio.move_on_after(1):
        await one_for_one([puppet.spec() for puppet in cast]).run()
    assert ["b ends", "a ends"] == notes[-2:]


def server(inbox: Mailbox[float], served: list[float]) -> Callable[..., Any]:
    """An actor whose messages are the seconds it takes to serve them."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            task_status.started()
            async for work_s in messages:
                await trio.sleep(work_s)
                served.append(work_s)

    return start


async def test_stop_drains_the_mailbox_first(autojump_clock: MockClock) -> None:
    """An actor finishes what was queued when the stop came, if its grace allows."""
    inbox, served = Mailbox[float]("server", 9), list[float]()
    exits: list[Exit] = []
    spec = ChildSpec("server", server(inbox, served), "transient", mailbox=inbox)
    async with running(one_for_one([spec], on_exit=exits.append)) as supervisor:
        for work_s in (1.0, 2.0):
            inbox.offer(work_s)
    assert [1.0, 2.0] == served
    assert [Exit("top", "server", 1, "stopped", was_asked=True)] == exits
    assert "down" == states(supervisor.snapshot())["server"]


async def test_stop_cancels_after_the_grace(autojump_clock: MockClock) -> None:
    """An actor with more work than its grace is cancelled when that is over."""
    inbox, served = Mailbox[float]("server", 9), list[float]()
    exits: list[Exit] = []
    spec = ChildSpec("server", server(inbox, served), grace_s=5.0, mailbox=inbox)
    async with running(one_for_one([spec], on_exit=exits.append)):
        begun_s = trio.current_time()
        for work_s in (3.0, 3.0):
            inbox.offer(work_s)
    assert [3.0] == served
    assert 5.0 == pytest.approx(trio.current_time() - begun_s)
    assert [("stopped", True)] == [(end.outcome, end.was_asked) for end in exits]


async def test_stop_of_a_full_mailbox_stays_within_the_grace(autojump_clock: MockClock) -> None:
    """When there is no room even for the Stop the actor is cancelled after its grace."""
    inbox = Mailbox[float]("full", 1)
    spec = ChildSpec("full", server(inbox, []), grace_s=5.0, mailbox=inbox)
    async with running(one_for_one([spec])):
        inbox.offer(100.0)
        await wait_all_tasks_blocked()
        inbox.offer(100.0)
        begun_s = trio.current_time()
    assert 5.0 == pytest.approx(trio.current_time() - begun_s)


async def test_child_that_does_not_listen_is_cancelled_at_once(autojump_clock: MockClock) -> None:
    """A child with a mailbox it does not read is not given a grace to drain it."""
    puppet = Puppet("deaf")
    spec = ChildSpec("deaf", puppet.start, mailbox=Mailbox[int]("deaf", 1))
    async with running(one_for_one([spec])):
        begun_s = trio.current_time()
    assert begun_s == trio.current_time()


async def test_stop_of_a_stopped_supervisor_does_nothing(autojump_clock: MockClock) -> None:
    """A stop before or after the run is without effect on the next run."""
    supervisor = one_for_one([Puppet("a").spec()])
    supervisor.stop("too early")
    async with running(supervisor):
        assert "running" == supervisor.snapshot().state
    supervisor.stop("too late")
    async with running(supervisor):
        assert 2 == supervisor.snapshot().incarnation


async def test_final_stop_fails_every_queued_asker_at_once(autojump_clock: MockClock) -> None:
    """Whoever asks an actor that never comes back hears it from the close of the tree."""
    inbox = Mailbox[Any]("below", 9)
    puppet = Puppet("below")  # does not read its mailbox
    inner = Supervisor(
        "inner", [ChildSpec("below", puppet.start, mailbox=inbox)], strategy="one_for_one"
    )
    supervisor = one_for_one([inner.child_spec()])
    begun_s = trio.current_time()
    with pytest.RaisesGroup(ActorGone):
        async with trio.open_nursery() as nursery:
            async with running(supervisor):
                nursery.start_soon(partial(inbox.ask, lambda reply: reply, timeout_s=60))
                await wait_all_tasks_blocked()
            assert 1 == inbox.depth  # a stopped supervisor may run again
            supervisor.close()
    assert begun_s == trio.current_time()


async def test_nested_restart_keeps_the_mailboxes_below(autojump_clock: MockClock) -> None:
    """What was queued below a supervisor survives its restart by the one above."""
    inbox, served = Mailbox[float]("server", 9), list[float]()
    first = Puppet("first")
    inner = Supervisor(
        "inner",
        [ChildSpec("server", server(inbox, served), mailbox=inbox, grace_s=0.0)],
        strategy="one_for_one",
    )
    async with running(rest_for_one([first.spec(), inner.child_spec()])):
        for work_s in (1.0, 2.0):
            inbox.offer(work_s)
        await first.tell(Boom())
        await trio.sleep_until(trio.current_time() + 3)
        assert [2.0] == served  # the first was taken, and lost with its taker


# ---- what cannot be stopped


async def test_child_that_outlives_its_grace_is_reported_by_name(
    autojump_clock: MockClock,
) -> None:
    """A shielded child is reported when its grace is over, its neighbours are stopped anyway."""
    notes, (a, stuck) = puppets("a", "stuck")
    stuck.cleanup_s = 60.0
    exits: list[tuple[str, str, float]] = []

    def note(end: Exit) -> None:
        exits.append((end.id, end.outcome, round(trio.current_time() - begun_s, 3)))

    with capture_logs() as logs:
        async with running(one_for_one([a.spec(), stuck.spec(grace_s=2.0)], on_exit=note)):
            begun_s = trio.current_time()
    expected = [("stuck", "stuck", 2.0), ("a", "stopped", 2.0), ("stuck", "stopped", 60.0)]
    assert expected == exits
    assert [("critical", "stuck")] == [(line["log_level"], line["child"]) for line in logs]
    assert "a ends" == notes[-1]


async def test_stuck_child_is_never_alive_twice(autojump_clock: MockClock) -> None:
    """A restart waits for an incarnation that ignores its cancel."""
    _, (a, stuck) = puppets("a", "stuck")
    stuck.cleanup_s = 60.0
    async with running(rest_for_one([a.spec(), stuck.spec(grace_s=2.0)])) as supervisor:
        await a.tell(Boom())
        await trio.sleep_until(trio.current_time() + 59)
        assert {"a": "down", "stuck": "stopping"} == states(supervisor.snapshot())
        await trio.sleep_until(trio.current_time() + 2)
        assert {"a": "running", "stuck": "running"} == states(supervisor.snapshot())
        stuck.cleanup_s = 0.0
    assert 2 == stuck.incarnation


async def test_supervisor_with_a_stuck_child_is_still_stopping(autojump_clock: MockClock) -> None:
    """Until the last child has ended the supervisor says so, and does not run again."""
    stuck = Puppet("stuck", cleanup_s=60.0)
    supervisor = one_for_one([stuck.spec()])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.stop("enough")
        await trio.sleep_until(trio.current_time() + 30)
        assert "stopping" == supervisor.snapshot().state
        with pytest.raises(InvariantBroken, match="running already"):
            await supervisor.run()


@pytest.mark.real
def test_process_with_a_stuck_child_still_ends() -> None:
    """A process can name the child that ignores its cancel and exit all the same."""
    program = """
        import os, trio
        from palyra.actors.child import ChildSpec
        from palyra.actors.supervisor import Supervisor

        async def stuck(*, task_status):
            task_status.started()
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()

        def leave(end):
            if end.outcome == "stuck":
                print("stuck:", end.id, flush=True)
                os._exit(70)

        top = Supervisor(
            "top",
            [ChildSpec("mule", stuck, grace_s=0.01)],
            strategy="one_for_one",
            on_exit=leave,
        )

        async def main():
            async with trio.open_nursery() as nursery:
                await nursery.start(top.run)
                top.stop("enough")

        trio.run(main)
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (70, "stuck: mule") == (ended.returncode, ended.stdout.splitlines()[-1])


# ---- reports


async def test_listener_hears_every_exit(autojump_clock: MockClock) -> None:
    """Each exit is reported once, with supervisor, incarnation, outcome and error."""
    exits: list[Exit] = []
    puppet, boom = Puppet("child"), Boom("x")
    async with running(one_for_one([puppet.spec()], on_exit=exits.append)):
        await puppet.tell(boom)
        await puppet.tell("return")
    expected = [
        Exit("top", "child", 1, "crashed", boom),
        Exit("top", "child", 2, "returned"),
        Exit("top", "child", 3, "stopped", was_asked=True),
    ]
    assert expected == exits


async def test_crash_is_logged_with_its_traceback(autojump_clock: MockClock) -> None:
    """One error line names supervisor, child and incarnation and carries the exception."""
    puppet, boom = Puppet("child"), Boom("x")
    with capture_logs() as logs:
        async with running(one_for_one([puppet.spec()])):
            await puppet.tell(boom)
    expected = {
        "event": "child crashed",
        "log_level": "error",
        "supervisor": "top",
        "child": "child",
        "incarnation": 1,
        "exc_info": boom,
    }
    assert [expected] == logs


async def test_tree_is_observable(autojump_clock: MockClock) -> None:
    """The snapshot shows every child below, with mailbox and last crash, and fits the wire."""
    inbox = Mailbox[float]("server", 9)
    puppet = Puppet("below")
    inner = Supervisor("inner", [puppet.spec()], strategy="one_for_one")
    spec = ChildSpec("server", server(inbox, []), mailbox=inbox)
    async with running(one_for_one([spec, inner.child_spec()])) as supervisor:
        await puppet.tell(Boom("x" * 1000))
        for work_s in (9.0, 9.0, 9.0):
            inbox.offer(work_s)
        await wait_all_tasks_blocked()
        autojump_clock.jump(1.5)
        snapshot = supervisor.snapshot()
    below = ChildSnapshot(
        id="below",
        state="running",
        incarnation=2,
        restarts=1,
        last_crash=f"Boom: {'x' * 494}",
        last_crash_age_ms=1500,
    )
    of_server = ChildSnapshot(
        id="server",
        state="running",
        incarnation=1,
        restarts=0,
        mailbox_depth=2,
        mailbox_peak=2,
        mailbox_capacity=9,
        last_message_age_ms=1500,
    )
    of_inner = ChildSnapshot(
        id="inner", state="running", incarnation=1, restarts=0, children=(below,)
    )
    expected = ChildSnapshot(
        id="top", state="running", incarnation=1, restarts=0, children=(of_server, of_inner)
    )
    assert expected == snapshot
    assert expected == msgspec.json.decode(msgspec.json.encode(snapshot), type=ChildSnapshot)


async def test_child_says_once_that_it_serves(autojump_clock: MockClock) -> None:
    """A second call of started() is a bug of the child, and its crash."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.lowlevel.checkpoint()
        task_status.started()
        task_status.started()

    spec = ChildSpec("eager", start, "temporary")
    async with running(one_for_one([spec])) as supervisor:
        await wait_all_tasks_blocked()
        (child,) = supervisor.snapshot().children
    assert "InvariantBroken: eager called started() twice" == child.last_crash


async def test_start_that_fails_because_it_is_taken_down_does_not_count(
    autojump_clock: MockClock,
) -> None:
    """A first start that breaks while a fallen neighbour takes it down is tried again."""
    _, (a, b) = puppets("a", "b")
    is_second = False

    async def start_clumsily(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal is_second
        if is_second:
            await b.start(task_status=task_status)
        is_second = True
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("in cleanup")

    supervisor = rest_for_one([a.spec(), ChildSpec("b", start_clumsily)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        await a.tell(Boom())
        assert {"a": "running", "b": "running"} == states(supervisor.snapshot())
        supervisor.stop("the test ends")


async def test_fall_before_everyone_is_ready_is_made_good(autojump_clock: MockClock) -> None:
    """A child that served and falls while others still start is restarted like any other."""
    _, (a, b) = puppets("a", "b")
    b.starts = ["hang", "serve"]
    supervisor = rest_for_one([a.spec(), b.spec()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        await a.tell(Boom())
        assert {"a": "running", "b": "running"} == states(supervisor.snapshot())
        supervisor.stop("the test ends")
