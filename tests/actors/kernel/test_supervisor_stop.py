"""The stop of a supervisor: order, drain, grace, and what cannot be stopped."""

import subprocess
import sys
from functools import partial
from textwrap import dedent
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.child import ChildSpec, Exit
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.supervisor import Supervisor
from palyra.errors import ActorGone, InvariantBroken
from tests.actors.kernel.puppet import (
    Boom,
    Puppet,
    one_for_one,
    puppets,
    rest_for_one,
    running,
    server,
    states,
)

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


async def test_final_stop_fails_every_queued_request_at_once(autojump_clock: MockClock) -> None:
    """A request to an actor that does not come back fails when the tree closes."""
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
    """Queued messages below a supervisor survive its restart by the one above."""
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
        with pytest.raises(InvariantBroken, match="already running"):
            await supervisor.run()


@pytest.mark.real
def test_process_with_a_stuck_child_still_ends() -> None:
    """A process can name the child that ignores its cancel and exit all the same."""
    program = """
        import os, trio
        from palyra.actors.kernel.child import ChildSpec
        from palyra.actors.kernel.supervisor import Supervisor

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
        timeout=120,
        check=False,
    )
    assert (70, "stuck: mule") == (ended.returncode, ended.stdout.splitlines()[-1])
