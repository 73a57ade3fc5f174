"""The dynamic supervisor: starts on demand, cap, cancels, and a stop of all at once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.child import Child, ChildSnapshot, ChildSpec, Exit
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.supervisor import Supervisor
from palyra.core.supervision import Restart
from palyra.errors import ActorGone, Conflict, InvariantBroken, Overloaded
from tests.actors.kernel.puppet import Boom, Halt, Puppet, running, states

pool = partial(DynamicSupervisor, "pool", max_children=3)


# ---- start


async def test_start_returns_what_the_child_hands_over(autojump_clock: MockClock) -> None:
    """The starter gets the value of started(), when the child can serve."""
    puppet = Puppet("one")
    async with running(pool()) as supervisor:
        assert "one serves" == await supervisor.start_child(puppet.spec("temporary"))
        assert ["one starts", "one serves"] == puppet.notes


async def test_spawn_waits_for_nothing(autojump_clock: MockClock) -> None:
    """A spawned child counts at once and runs later, even if it never says it can serve."""
    served: list[int] = []

    async def work(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep_until(trio.current_time() + 1)
        served.append(1)

    exits: list[Exit] = []
    async with running(pool(on_exit=exits.append)) as supervisor:
        supervisor.spawn_child(ChildSpec("work", work, "temporary"))
        assert "work" in supervisor
        assert {"work": "running"} == states(supervisor.snapshot())
        await trio.sleep_until(trio.current_time() + 2)
        assert "work" not in supervisor
    assert [1] == served
    assert [Exit("pool", "work", 1, "returned")] == exits


@pytest.mark.parametrize("restart", ["temporary", "transient"])
async def test_failed_start_surfaces_in_the_starter(
    autojump_clock: MockClock, restart: Restart
) -> None:
    """The very error of the start reaches the starter; the child is gone and not tried again."""
    boom = Boom("no")
    puppet = Puppet("failing", starts=[boom])
    async with running(pool()) as supervisor:
        with pytest.raises(Boom) as raised:
            await supervisor.start_child(puppet.spec(restart))
        assert raised.value is boom
        assert 0 == len(supervisor)
    assert 1 == puppet.incarnation


async def test_hung_start_ends_with_its_starter(autojump_clock: MockClock) -> None:
    """When the starter is cancelled the child it was waiting for is cancelled too."""
    puppet = Puppet("hanging", starts=["hang"])
    async with running(pool()) as supervisor:
        with trio.move_on_after(2):
            await supervisor.start_child(puppet.spec("temporary"))
        await wait_all_tasks_blocked()
        assert ["hanging starts", "hanging ends"] == puppet.notes
        assert 0 == len(supervisor)


async def test_stop_during_a_start_fails_the_start(autojump_clock: MockClock) -> None:
    """The starter of a child that is stopped before it is ready gets an error."""
    puppet = Puppet("hanging", starts=["hang"])
    gone = pytest.RaisesExc(ActorGone, match="stopped before it was ready")
    with pytest.RaisesGroup(gone, flatten_subgroups=True):
        async with running(pool()) as supervisor, trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.start_child, puppet.spec("temporary"))
            await wait_all_tasks_blocked()
            supervisor.stop("enough")


async def test_cap_answers_overloaded_with_a_hint(autojump_clock: MockClock) -> None:
    """One child too many is refused at once; when one has ended there is room again."""
    cast = [Puppet(name) for name in "abcd"]
    async with running(pool()) as supervisor:
        for puppet in cast[:3]:
            supervisor.spawn_child(puppet.spec("temporary"))
        with pytest.raises(Overloaded, match="pool: all 3 children") as refused:
            supervisor.spawn_child(cast[3].spec("temporary"))
        assert refused.value.retry_after_ms > 0
        with pytest.raises(Overloaded):
            await supervisor.start_child(cast[3].spec("temporary"))
        await cast[0].tell("return")
        supervisor.spawn_child(cast[3].spec("temporary"))
        assert {"b": "running", "c": "running", "d": "running"} == states(supervisor.snapshot())


async def test_ids_are_unique_among_the_living(autojump_clock: MockClock) -> None:
    """An id is refused while its child lives, and free again after."""
    puppet = Puppet("one")
    async with running(pool()) as supervisor:
        supervisor.spawn_child(puppet.spec("temporary"))
        with pytest.raises(Conflict, match="one is already running"):
            supervisor.spawn_child(puppet.spec("temporary"))
        await puppet.tell("return")
        supervisor.spawn_child(puppet.spec("temporary"))


async def test_permanent_children_are_refused(autojump_clock: MockClock) -> None:
    """A child that must always run belongs to a supervisor with a fixed list."""
    async with running(pool()) as supervisor:
        with pytest.raises(InvariantBroken, match="one must be temporary or transient"):
            supervisor.spawn_child(Puppet("one").spec("permanent"))


async def test_nothing_starts_outside_the_run(autojump_clock: MockClock) -> None:
    """Before the run and after it a start is refused as gone."""
    supervisor, spec = pool(), Puppet("one").spec("temporary")
    with pytest.raises(ActorGone, match="pool is not running: one was not started"):
        supervisor.spawn_child(spec)
    async with running(supervisor):
        pass
    with pytest.raises(ActorGone):
        await supervisor.start_child(spec)


async def test_supervisor_runs_once_at_a_time(autojump_clock: MockClock) -> None:
    """A concurrent second run is a bug; a later one is not."""
    supervisor = pool()
    async with running(supervisor):
        with pytest.raises(InvariantBroken, match="pool is already running"):
            await supervisor.run()
    async with running(supervisor):
        assert 2 == supervisor.snapshot().incarnation


async def test_pool_with_a_stuck_child_does_not_run_again(autojump_clock: MockClock) -> None:
    """A stopped supervisor cannot run again before its last child has ended."""
    supervisor, stuck = pool(), Puppet("stuck", cleanup_s=60.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.spawn_child(stuck.spec("temporary"))
        await wait_all_tasks_blocked()
        supervisor.stop("enough")
        await trio.sleep_until(trio.current_time() + 30)
        with pytest.raises(InvariantBroken, match="pool is already running"):
            await supervisor.run()


async def test_budget_is_fresh_in_every_run(autojump_clock: MockClock) -> None:
    """Restarts of one run do not count in the next."""
    supervisor, puppet = pool(intensity=1), Puppet("one")
    for _ in range(2):
        async with running(supervisor):
            supervisor.spawn_child(puppet.spec("transient"))
            await puppet.tell(Boom())
    assert 4 == puppet.incarnation


def test_child_must_be_begun_before_it_lives() -> None:
    """A child without an incarnation has no scope to live in: nothing could cancel it."""
    with pytest.raises(InvariantBroken, match="early was not started"):
        Child(Puppet("early").spec(), "pool", None).scope.cancel()


# ---- exits


async def test_temporary_child_is_forgotten_after_a_crash(autojump_clock: MockClock) -> None:
    """A crash of one child costs no budget and leaves the others alone."""
    puppet, other = Puppet("one"), Puppet("other")
    async with running(pool(intensity=0)) as supervisor:
        for spec in (puppet.spec("temporary"), other.spec("temporary")):
            supervisor.spawn_child(spec)
        await puppet.tell(Boom())
        assert {"other": "running"} == states(supervisor.snapshot())


async def test_transient_child_restarts_after_a_crash(autojump_clock: MockClock) -> None:
    """It comes back after a crash, also if a restart fails, but not after it returned."""
    puppet = Puppet("one", starts=["serve", Boom()])
    async with running(pool()) as supervisor:
        await supervisor.start_child(puppet.spec("transient"))
        await puppet.tell(Boom())
        await trio.sleep_until(trio.current_time() + 1)
        assert (3, 2) == (puppet.incarnation, supervisor.snapshot().restarts)
        await puppet.tell("return")
        assert 0 == len(supervisor)


async def test_a_child_that_crashes_too_often_is_set_aside(autojump_clock: MockClock) -> None:
    """Its last exit says so, its mailbox is closed, and its siblings have their own counts."""
    first, second = Puppet("first"), Puppet("second")
    exits: list[Exit] = []
    inbox: Mailbox[int] = Mailbox("first", 9)
    async with running(pool(intensity=2, on_exit=exits.append)) as supervisor:
        spec = first.spec("transient")
        supervisor.spawn_child(ChildSpec(spec.id, spec.start, "transient", mailbox=inbox))
        supervisor.spawn_child(second.spec("transient"))
        for puppet in (first, second, first, second, first):
            await puppet.tell(Boom())
            await trio.sleep_until(trio.current_time() + 1)
        assert {"second": "running"} == states(supervisor.snapshot())
        assert [("first", True)] == [(each.id, True) for each in exits if each.is_set_aside]
        with pytest.raises(ActorGone):
            inbox.offer(1)
        supervisor.spawn_child(first.spec("transient"))  # whoever starts it again begins anew
        for _ in range(2):
            await first.tell(Boom())
            await trio.sleep_until(trio.current_time() + 1)
        assert {"first": "running", "second": "running"} == states(supervisor.snapshot())


async def test_the_count_belongs_to_the_id(autojump_clock: MockClock) -> None:
    """A child that ends well between two crashes does not begin with none."""
    exits: list[Exit] = []
    async with running(pool(intensity=1, on_exit=exits.append)) as supervisor:
        for _ in range(2):
            puppet = Puppet("one")
            supervisor.spawn_child(puppet.spec("transient"))
            await puppet.tell(Boom())
            await puppet.tell("return")
        assert [False, False, True] == [each.is_set_aside for each in exits]


async def test_crashes_that_are_rare_never_add_up(autojump_clock: MockClock) -> None:
    """A child lives for ever with one crash a period."""
    puppet = Puppet("one")
    async with running(pool(intensity=1)) as supervisor:
        supervisor.spawn_child(puppet.spec("transient"))
        for _ in range(20):
            await puppet.tell(Boom())
            await trio.sleep_until(trio.current_time() + 61)
        assert {"one": "running"} == states(supervisor.snapshot())


@pytest.mark.parametrize("way", ["cancel", "stop"])
async def test_a_pausing_child_can_be_ended(autojump_clock: MockClock, way: str) -> None:
    """It starts no more, and holds nothing up."""
    puppet = Puppet("one", starts=["serve", Boom(), Boom()])
    async with running(pool()) as supervisor:
        supervisor.spawn_child(puppet.spec("transient"))
        await puppet.tell(Boom())
        assert ({"one": "down"}, 2) == (states(supervisor.snapshot()), puppet.incarnation)
        before_s = trio.current_time()
        if way == "cancel":
            supervisor.cancel_child("one", "enough")
            await wait_all_tasks_blocked()
            assert 0 == len(supervisor)
    assert (before_s, 2) == (trio.current_time(), puppet.incarnation)


async def test_crash_at_the_moment_of_the_stop_is_not_restarted(autojump_clock: MockClock) -> None:
    """A stop goes before a restart."""
    puppet = Puppet("one", cleanup_s=1.0)
    async with running(pool()) as supervisor:
        supervisor.spawn_child(puppet.spec("transient"))
        await puppet.tell(Boom())
        supervisor.stop("enough")
    assert 1 == puppet.incarnation


async def test_base_exception_passes_through(autojump_clock: MockClock) -> None:
    """An exception that is not an Exception ends the supervisor after its other children."""
    puppet, other = Puppet("one"), Puppet("other")
    with pytest.RaisesGroup(Halt, flatten_subgroups=True):
        async with running(pool()) as supervisor:
            supervisor.spawn_child(puppet.spec("transient"))
            supervisor.spawn_child(other.spec("temporary"))
            await puppet.tell(Halt())
    assert "other ends" == other.notes[-1]


async def test_mailbox_of_a_child_that_ended_is_closed(autojump_clock: MockClock) -> None:
    """A message to a child that has ended for good raises ActorGone."""
    inbox, puppet = Mailbox[int]("one", 1), Puppet("one")
    async with running(pool()) as supervisor:
        supervisor.spawn_child(ChildSpec("one", puppet.start, "temporary", mailbox=inbox))
        await puppet.tell("return")
        with pytest.raises(ActorGone):
            inbox.offer(1)


# ---- cancel and stop


async def test_cancel_ends_one_child_now(autojump_clock: MockClock) -> None:
    """A cancelled child ends without a drain and is not restarted; the others live on."""
    inbox = Mailbox[int]("one", 1)
    exits: list[Exit] = []

    async def read(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            async for _ in messages:
                await trio.sleep_forever()

    async with running(pool(on_exit=exits.append)) as supervisor:
        supervisor.spawn_child(ChildSpec("one", read, "transient", mailbox=inbox))
        supervisor.spawn_child(Puppet("other").spec("temporary"))
        await wait_all_tasks_blocked()
        begun_s = trio.current_time()
        supervisor.cancel_child("one", "no longer wanted")
        await wait_all_tasks_blocked()
        assert begun_s == trio.current_time()
        assert {"other": "running"} == states(supervisor.snapshot())
    assert Exit("pool", "one", 1, "stopped", was_asked=True) == exits[0]


async def test_child_that_fails_while_being_cancelled_stays_down(
    autojump_clock: MockClock,
) -> None:
    """A crash during a cancellation is reported as a crash, and the child is not restarted."""
    exits: list[Exit] = []

    async def fail_on_exit(*, task_status: trio.TaskStatus[None]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("in cleanup")

    async with running(pool(on_exit=exits.append)) as supervisor:
        supervisor.spawn_child(ChildSpec("clumsy", fail_on_exit, "transient"))
        await wait_all_tasks_blocked()
        supervisor.cancel_child("clumsy", "no longer wanted")
        await wait_all_tasks_blocked()
        assert 0 == len(supervisor)
    assert [("crashed", True)] == [(end.outcome, end.was_asked) for end in exits]


async def test_cancel_of_an_unknown_child_is_ignored(autojump_clock: MockClock) -> None:
    """The child may have ended in the meantime."""
    async with running(pool()) as supervisor:
        supervisor.cancel_child("nobody", "no longer wanted")
        assert 0 == len(supervisor)


async def test_cancel_before_the_first_step(autojump_clock: MockClock) -> None:
    """A child cancelled before its task ran ends at its first wait."""
    puppet = Puppet("unborn")
    async with running(pool()) as supervisor:
        supervisor.spawn_child(puppet.spec("temporary"))
        supervisor.cancel_child("unborn", "no longer wanted")
        await wait_all_tasks_blocked()
        assert "unborn ends" == puppet.notes[-1]
        assert 0 == len(supervisor)


async def test_child_that_gets_ready_while_being_cancelled(autojump_clock: MockClock) -> None:
    """A child that is ready only after its cancellation is returned to its starter and ends."""
    release, exits = trio.Event(), list[Exit]()

    async def start_slowly(*, task_status: trio.TaskStatus[str]) -> None:
        with trio.CancelScope(shield=True):
            await release.wait()
        task_status.started("late")
        await trio.sleep_forever()

    async def cancel_it() -> None:
        await wait_all_tasks_blocked()
        supervisor.cancel_child("slow", "no longer wanted")
        await wait_all_tasks_blocked()
        release.set()

    async with running(pool(on_exit=exits.append)) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(cancel_it)
        assert "late" == await supervisor.start_child(ChildSpec("slow", start_slowly, "transient"))
        await wait_all_tasks_blocked()
        assert 0 == len(supervisor)
    assert [Exit("pool", "slow", 1, "stopped", was_asked=True)] == exits


async def test_cancelled_child_that_outlives_its_grace_is_reported(
    autojump_clock: MockClock,
) -> None:
    """A child that ignores its cancel is named when its grace is over, and still counts."""
    puppet = Puppet("stuck", cleanup_s=60.0)
    exits: list[Exit] = []
    async with running(pool(on_exit=exits.append)) as supervisor:
        supervisor.spawn_child(puppet.spec("temporary", grace_s=2.0))
        await wait_all_tasks_blocked()
        supervisor.cancel_child("stuck", "no longer wanted")
        await trio.sleep_until(trio.current_time() + 2.1)
        assert [("stuck", "stuck")] == [(end.id, end.outcome) for end in exits]
        assert "stuck" in supervisor


async def test_all_children_stop_at_once(autojump_clock: MockClock) -> None:
    """The stop takes as long as the slowest child, not as all together."""
    cast = [Puppet(name, cleanup_s=1.0) for name in "abc"]
    async with running(pool()) as supervisor:
        for puppet in cast:
            supervisor.spawn_child(puppet.spec("temporary"))
        await wait_all_tasks_blocked()
        begun_s = trio.current_time()
    assert 1.0 == pytest.approx(trio.current_time() - begun_s)
    assert [3, 3, 3] == [len(puppet.notes) for puppet in cast]


async def test_cancel_during_the_stop_cuts_the_drain_short(autojump_clock: MockClock) -> None:
    """A child that drains for its grace ends at once when it is cancelled meanwhile."""
    inbox = Mailbox[int]("slow", 1)

    async def drain_slowly(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            async for _ in messages:
                pass
            await trio.sleep_forever()

    async with running(pool()) as supervisor:
        supervisor.spawn_child(ChildSpec("slow", drain_slowly, "temporary", mailbox=inbox))
        await wait_all_tasks_blocked()
        begun_s = trio.current_time()
        supervisor.stop("enough")
        await wait_all_tasks_blocked()
        supervisor.cancel_child("slow", "hurry")
    assert begun_s == trio.current_time()


async def test_stop_outside_the_run_does_nothing(autojump_clock: MockClock) -> None:
    """A stop that comes too early has no effect on the next run."""
    supervisor = pool()
    supervisor.stop("too early")
    async with running(supervisor):
        assert "running" == supervisor.snapshot().state
    assert "down" == supervisor.snapshot().state


async def test_pool_nests_in_a_supervisor(autojump_clock: MockClock) -> None:
    """The children of a nested dynamic supervisor show in the tree and stop with it."""
    puppet, supervisor = Puppet("one"), pool()
    top = Supervisor("top", [supervisor.child_spec()], strategy="one_for_one")
    async with running(top):
        await supervisor.start_child(puppet.spec("temporary"))
        one = ChildSnapshot(id="one", state="running", incarnation=1, restarts=0)
        expected = ChildSnapshot(
            id="pool", state="running", incarnation=1, restarts=0, children=(one,)
        )
        assert (expected,) == top.snapshot().children
    assert "one ends" == puppet.notes[-1]


def busy(clock: MockClock, work_s: float, inbox: Mailbox[int]) -> Callable[..., Awaitable[None]]:
    """An actor whose cleanup keeps the loop busy through several nurseries."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            task_status.started()
            with suppress(trio.EndOfChannel):
                await messages.receive()
            with trio.CancelScope(shield=True):
                for _ in range(20):
                    clock.jump(work_s)
                    await trio.lowlevel.checkpoint()

    return start


async def test_a_busy_loop_makes_no_child_stuck(mock_clock: MockClock) -> None:
    """A turn of a thousand takes longer than the grace of each; one that never ends is named."""
    clock, stuck = mock_clock, Puppet("stuck", cleanup_s=600.0)
    exits: list[Exit] = []
    with capture_logs() as logs:
        async with running(pool(max_children=1_001, on_exit=exits.append)) as supervisor:
            for number in range(1_000):
                inbox = Mailbox[int](f"run:{number}", 1)
                start = busy(clock, 0.005, inbox)
                supervisor.spawn_child(ChildSpec(inbox.name, start, "temporary", 2.0, inbox))
            supervisor.spawn_child(stuck.spec("temporary", grace_s=2.0))
            await wait_all_tasks_blocked()
            begun_s = trio.current_time()
            supervisor.stop("test")
            await wait_all_tasks_blocked()
            while len(supervisor) > 1 or "stuck" not in {end.outcome for end in exits}:
                clock.jump(1.0)
                await wait_all_tasks_blocked()
            assert trio.current_time() - begun_s < 20 * 5.0 + 2 * 2.0 + 2
            clock.jump(600.0)
    outcomes = Counter(end.outcome for end in exits)
    assert {"stopped": 1_001, "stuck": 1} == outcomes
    assert [("critical", "stuck")] == [(line["log_level"], line["child"]) for line in logs]


async def test_many_stuck_children_are_one_line(autojump_clock: MockClock) -> None:
    """The line has their number and the first names; the listener gets each exit."""
    exits: list[Exit] = []
    with capture_logs() as logs:
        async with running(pool(max_children=50, on_exit=exits.append)) as supervisor:
            for number in range(50):
                puppet = Puppet(f"stuck:{number}", cleanup_s=60.0)
                supervisor.spawn_child(puppet.spec("temporary", grace_s=2.0))
            await wait_all_tasks_blocked()
    (line,) = logs
    assert ("critical", 50, 5) == (line["log_level"], line["count"], len(line["first"]))
    assert 50 == sum(end.outcome == "stuck" for end in exits)
