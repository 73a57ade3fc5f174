"""Observation of a tree: exits, log lines, snapshots."""

import msgspec
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.child import ChildSnapshot, ChildSpec, Exit
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.supervisor import Supervisor
from palyra.errors import Unavailable
from tests.actors.kernel.puppet import Boom, Puppet, one_for_one, running, server


async def test_listener_gets_every_exit(autojump_clock: MockClock) -> None:
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


async def test_a_dependency_that_is_down_is_one_line(autojump_clock: MockClock) -> None:
    """A fault that is not ours is logged with reason and cause, without a traceback of ours."""
    puppet, down = Puppet("child"), Unavailable("journal: open: no room")
    down.__cause__ = OSError("disk full")
    with capture_logs() as logs:
        async with running(one_for_one([puppet.spec()])):
            await puppet.tell(down)
    expected = {
        "event": "child crashed",
        "log_level": "error",
        "supervisor": "top",
        "child": "child",
        "incarnation": 1,
        "reason": "journal: open: no room",
        "cause": "disk full",
    }
    assert [expected] == logs


async def test_tree_is_observable(autojump_clock: MockClock) -> None:
    """The snapshot shows every child below, with mailbox and last crash, and fits the wire."""
    inbox = Mailbox[float]("server", 9)
    puppet = Puppet("below")
    inner = Supervisor("inner", [puppet.spec()], strategy="one_for_one")
    spec = ChildSpec("server", server(inbox, []), mailbox=inbox)
    async with running(one_for_one([spec, inner.child_spec()])) as supervisor:
        await puppet.tell(Boom("x" * 10_000))
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
        last_crash=f"Boom: {'x' * 3994}",
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
