"""The supervisor: who starts when, and who is restarted with whom."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.child import ChildSpec, Exit
from palyra.actors.kernel.mailbox import Mailbox
from palyra.core.supervision import Restart
from palyra.errors import ActorGone, InvariantBroken
from tests.actors.kernel.puppet import (
    Boom,
    Halt,
    Puppet,
    one_for_one,
    puppets,
    rest_for_one,
    running,
    states,
)

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
    """A child that ends before it is ready has failed to start."""
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


async def test_cancelled_supervisor_starts_no_child(autojump_clock: MockClock) -> None:
    """A run that is cancelled before it starts leaves its children alone."""
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
    """A concurrent second run is a bug."""
    async with running(one_for_one([])) as supervisor:
        with pytest.raises(InvariantBroken, match="top is already running"):
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
    """A child that is not restarted has its mailbox closed, and the others continue."""
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


async def test_rest_for_one_repeats_what_had_returned(autojump_clock: MockClock) -> None:
    """A transient child that was done before its neighbour fell is started again."""
    _, (a, b) = puppets("a", "b")
    inbox = Mailbox[int]("b", 1)
    spec = ChildSpec("b", b.start, "transient", mailbox=inbox)
    async with running(rest_for_one([a.spec(), spec])) as supervisor:
        await b.tell("return")
        assert "ended" == states(supervisor.snapshot())["b"]
        await a.tell(Boom())
        assert {"a": "running", "b": "running"} == states(supervisor.snapshot())


async def test_supervisor_that_runs_again_starts_everybody(autojump_clock: MockClock) -> None:
    """Even a temporary child that had ended is started by the next run."""
    puppet = Puppet("once")
    supervisor = one_for_one([puppet.spec("temporary")])
    for _ in range(2):
        async with running(supervisor):
            await puppet.tell("return")
            assert "ended" == states(supervisor.snapshot())["once"]
    assert 2 == puppet.incarnation


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


async def test_failure_with_a_cancelled_task_is_a_crash(autojump_clock: MockClock) -> None:
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
    """The Exception of a mixed group is recorded as a crash and the rest propagates."""
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
    """An exception that is not an Exception ends the supervisor after its other children."""
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


async def test_a_child_can_be_restarted_by_id(autojump_clock: MockClock) -> None:
    """It and its dependants have another incarnation, no restart is charged, others are untouched."""
    _, cast = puppets("a", "b", "c")
    tree = rest_for_one([puppet.spec() for puppet in cast])
    async with running(tree):
        assert tree.restart_child("b", "it is stuck")
        await wait_all_tasks_blocked()
        shown = tree.snapshot()
        assert [("a", 1), ("b", 2), ("c", 2)] == [
            (each.id, each.incarnation) for each in shown.children
        ]
        assert 0 == shown.restarts
        assert not tree.restart_child("d", "it is stuck")
