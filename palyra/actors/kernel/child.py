"""A supervisor's view of one child: its spec, its current incarnation, its exits.

A `Child` has a supervisor, which may restart it.  A `ChildTask` is the lighter kind: a task in the
nursery of an actor, without mailbox or restart, which is listed below that actor in the tree.

Owns: state and counters of one child.  Written by: the child's own task (`begin`, `started`,
`end`) and its supervisor.  Never: restarts anything; the supervisors do.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import trio

from palyra.actors.kernel.mailbox import Mailbox
from palyra.core.supervision import Outcome, Restart, wants_restart
from palyra.errors import InvariantBroken

# `down` waits for a (re)start; `ended` is final, unless the restart of a sibling revives the child.
State = Literal["down", "starting", "running", "stopping", "ended"]

# Characters; far more than is shown, because a text must be complete when it is redacted.
CRASH_TEXT_LIMIT = 4_000


class ChildSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the observable tree, ready for the wire."""

    id: str
    state: State
    incarnation: int  # 0 before the first start
    restarts: int  # charged to the restart window; restarts with a failed sibling are not
    mailbox_depth: int | None = None
    mailbox_peak: int | None = None
    mailbox_capacity: int | None = None
    last_message_age_ms: int | None = None
    last_crash: str | None = None
    last_crash_age_ms: int | None = None
    age_ms: int | None = None  # of a task, since its parent started it
    waits_for: str | None = None  # of a task: commit, model, tool, person, …
    children: tuple["ChildSnapshot", ...] = ()


class ChildSpec(msgspec.Struct, frozen=True):  # a Struct: built ten times as fast
    """The start function of a child, its restart rule, and the time it may take to end.

    `start` is `async def start(*, task_status)`: it calls `task_status.started()` when it can
    serve.  `grace_s` bounds the drain after a Stop, and once more the cleanup after the cancel.
    `snapshot` and `close` belong to nested supervisors, whose `child_spec` fills them in.
    """

    id: str
    start: Callable[..., Awaitable[None]]
    restart: Restart = "permanent"
    grace_s: float = 5.0
    mailbox: Mailbox[Any] | None = None
    snapshot: Callable[[], ChildSnapshot] | None = None
    close: Callable[[], None] | None = None  # called once the child has ended for good


class Exit(msgspec.Struct, frozen=True):
    """The end of one incarnation, or with outcome "stuck" the report that it does not end."""

    supervisor: str
    id: str
    incarnation: int
    outcome: Outcome
    error: Exception | None = None
    was_asked: bool = False  # its supervisor requested the end
    is_set_aside: bool = False  # it crashed too often to be restarted; its siblings live


ExitListener = Callable[[Exit], None]


class Child:
    """One child, from its first start to its last exit.  It is the `task_status` of its start."""

    __slots__ = (
        "_ended",
        "_pause",
        "_scope",
        "crash_text",
        "crashed_s",
        "exit",
        "incarnation",
        "is_ready",
        "not_before_s",
        "on_change",
        "owes_restart",
        "restarts",
        "spec",
        "state",
        "supervisor",
        "value",
    )

    def __init__(
        self, spec: ChildSpec, supervisor: str, on_change: Callable[[], None] | None
    ) -> None:
        self.spec = spec
        self.supervisor = supervisor
        self.on_change = on_change  # called at readiness and at the end
        self.state: State = "down"
        self.incarnation = 0
        self.restarts = 0
        self.is_ready = False
        self.owes_restart = False  # it ended by itself, and its spec asks for a restart
        self.value: Any = None  # the argument of `started`
        self.exit: Exit | None = None
        self.crash_text: str | None = None
        self.crashed_s = 0.0
        self.not_before_s = 0.0  # of its next start
        self._pause: trio.CancelScope | None = None  # before a restart
        self._scope: trio.CancelScope | None = None
        self._ended: trio.Event | None = None

    @property
    def scope(self) -> trio.CancelScope:
        """The cancel scope of the incarnation; nothing else can cancel it."""
        if self._scope is None:
            raise InvariantBroken(f"{self.spec.id} was not started")
        return self._scope

    @property
    def is_alive(self) -> bool:
        """True while an incarnation runs."""
        return self._scope is not None

    @property
    def has_failed_start(self) -> bool:
        """True if the last incarnation was awaited and ended before it was ready."""
        return self.on_change is not None and not self.is_ready

    def begin(self) -> None:
        """Begin an incarnation before its task starts: from here on it can be cancelled."""
        self._scope = trio.CancelScope(shield=True)
        self.incarnation += 1
        self.state = "running" if self.on_change is None else "starting"
        self.is_ready = self.owes_restart = False
        self.value = self.exit = None

    def revive(self) -> None:
        """Make a child that has ended startable again."""
        self.state = "down"
        self.owes_restart = False
        self.not_before_s = 0.0

    def started(self, value: Any = None) -> None:  # noqa: ANN401 - passed through untouched
        """The child can serve."""
        if self.is_ready:
            raise InvariantBroken(f"{self.spec.id} called started() twice")
        self.is_ready = True
        self.value = value
        if self.state == "starting":
            self.state = "running"
        self._notify()

    def end(self, error: Exception | None) -> Exit:
        """End the incarnation and decide whether there will be another."""
        if error is None and self.state == "starting":
            error = InvariantBroken(f"{self.spec.id} returned before it called started()")
        was_asked = self.state == "stopping"
        outcome = _name_outcome(error, was_asked=was_asked)
        self.exit = Exit(self.supervisor, self.spec.id, self.incarnation, outcome, error, was_asked)
        self.owes_restart = not was_asked and wants_restart(self.spec.restart, outcome)
        comes_back = self.owes_restart or (was_asked and self.spec.restart != "temporary")
        self.state = "down" if comes_back else "ended"
        self._note_crash(error)
        self._announce_end()
        return self.exit

    def describe_stuck(self) -> Exit:
        """Return the exit of an incarnation that ignores its cancel."""
        return Exit(self.supervisor, self.spec.id, self.incarnation, "stuck", was_asked=True)

    def cancel(self, reason: str) -> None:
        """Cancel the incarnation, if there is one; its exit then counts as requested.

        A child that pauses before its restart ends for good.
        """
        if self._scope is not None:
            self.state = "stopping"
            self._scope.cancel(reason)
        elif self._pause is not None:
            self.state = "ended"
            self._pause.cancel(reason)

    async def pause(self, seconds: float) -> bool:
        """Wait before a restart; return False if the child was cancelled meanwhile."""
        if seconds <= 0:
            return True
        with trio.move_on_after(seconds) as self._pause:
            await trio.sleep_forever()
        self._pause = None
        return self.state != "ended"

    async def wait_ended(self) -> None:
        """Wait until no incarnation runs."""
        while self._scope is not None:
            if self._ended is None:
                self._ended = trio.Event()  # created on demand: most children are never waited for
            await self._ended.wait()

    def close(self) -> None:
        """Mark the child as ended for good and fail its waiting askers."""
        self.state = "ended"
        if self.spec.mailbox is not None:
            self.spec.mailbox.close()
        if self.spec.close is not None:
            self.spec.close()

    def snapshot(self) -> ChildSnapshot:
        """Return the current state of the child and of the tree below it."""
        mailbox, nested = self.spec.mailbox, self.spec.snapshot
        age_s = None if mailbox is None else mailbox.last_message_age_s
        crash_age_s = None if self.crash_text is None else trio.current_time() - self.crashed_s
        return ChildSnapshot(
            id=self.spec.id,
            state=self.state,
            incarnation=self.incarnation,
            restarts=self.restarts,
            mailbox_depth=None if mailbox is None else mailbox.depth,
            mailbox_peak=None if mailbox is None else mailbox.peak,
            mailbox_capacity=None if mailbox is None else mailbox.capacity,
            last_message_age_ms=_to_ms(age_s),
            last_crash=self.crash_text,
            last_crash_age_ms=_to_ms(crash_age_s),
            children=() if nested is None else nested().children,
        )

    def _note_crash(self, error: Exception | None) -> None:
        if error is not None:
            self.crash_text = f"{type(error).__name__}: {error}"[:CRASH_TEXT_LIMIT]
            self.crashed_s = trio.current_time()

    def _announce_end(self) -> None:
        self._scope = None
        if self._ended is not None:
            self._ended.set()
            self._ended = None
        self._notify()

    def _notify(self) -> None:
        if self.on_change is not None:
            self.on_change()


@dataclass(slots=True, kw_only=True)
class ChildTask:
    """A child that is one task of its parent's nursery: started and cancelled with it.

    The parent keeps its tasks in a dictionary by id; a snapshot is made only when the tree is read.
    """

    id: str
    started_ms: int  # by the clock that `snapshot` is given
    waits_for: str = "commit"  # what the task awaits now, in one or two words

    def snapshot(self, now_ms: int) -> ChildSnapshot:
        """The task as a leaf of the tree."""
        return ChildSnapshot(
            id=self.id,
            state="running",
            incarnation=1,
            restarts=0,
            age_ms=max(0, now_ms - self.started_ms),
            waits_for=self.waits_for,
        )


def _name_outcome(error: Exception | None, *, was_asked: bool) -> Outcome:
    if error is not None:
        return "crashed"
    return "stopped" if was_asked else "returned"


def _to_ms(age_s: float | None) -> int | None:
    return None if age_s is None else round(age_s * 1000)
