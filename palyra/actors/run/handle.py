"""The handle of an open run: its life cycle, its mailbox and the facts its session keeps about it.

Owned by: the actor registry and the run's session.  Written by: the run's actor while there is one,
by the session's actor before and after.  Both are tasks of one event loop, and a handle has one
writer at a time.

A run is a tape first and an actor second.  The session appends a run's acceptance (and merged or
steering messages) while the run waits in its queue, without an actor; the actor is started when it
is the run's turn, and ends when the terminal event is committed.  An actor may end before that, by
a crash or because the journal refused a write.  Then the session starts another one from the tape,
under a new handle: the mailbox of the old one is closed, and the state in memory may hold events
that were never committed.

The life cycle is one state, `RunHandle.lifecycle`; `TRANSITIONS` below has every event that moves
it.  The usual way is queued, starting, live, ended.

- `queued`: waiting in its session, or about to start; the actor has not been started.
- `starting`: the actor exists and has taken no step.
- `live`: the actor steps.
- `lost`: the actor crashed, or the daemon ended, after the run had begun; restarted from the tape.
- `suspended`: the journal refused an append, so memory is ahead of the tape.  Like `lost`, but it
  does not count as a crash.  A queued run gets here when one of the session's early appends to its
  tape was refused.
- `ended`: the terminal event is committed.  Final.
- `acceptance_failed`: the acceptance was never committed, so there is no such run.  Final.  The
  client that sent the message got the error of that commit.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import ChildSnapshot, ChildTask
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.reply import Reply
from palyra.core.journal.records import ApprovalRecord, GrantRecord, IdempotencyRecord
from palyra.core.ports import NowMs
from palyra.core.run.inputs import Cancel, Input
from palyra.core.run.state import Run
from palyra.errors import InvariantBroken, Overloaded
from palyra.services.usage.budgets import Reservation

INBOX_CAPACITY = 256  # a run's senders are its own few children, and now and then a client

# --- life cycle ----------------------------------------------------------------------------------

RunLifecycle = Literal[
    "queued", "starting", "live", "lost", "suspended", "ended", "acceptance_failed"
]
LifecycleEvent = Literal[
    "actor_started",  # the session spawned an actor
    "first_step",  # of that actor
    "actor_crashed",  # before the terminal event was committed
    "append_refused",  # by the journal; the actor, if there was one, has ended
    "end_committed",
    "acceptance_refused",  # or the tape turned out to have no event at all
]

_STARTING: dict[LifecycleEvent, RunLifecycle] = {  # while an actor is on its way
    "first_step": "live",
    "actor_crashed": "lost",
    "append_refused": "suspended",
    "end_committed": "ended",
    "acceptance_refused": "acceptance_failed",
}
TRANSITIONS: dict[RunLifecycle, dict[LifecycleEvent, RunLifecycle]] = {
    "queued": {"actor_started": "starting", "append_refused": "suspended"},
    "starting": _STARTING,
    "live": {"actor_crashed": "lost", "append_refused": "suspended", "end_committed": "ended"},
    "lost": {"actor_started": "lost", **_STARTING},
    "suspended": {"actor_started": "suspended", **_STARTING},
    "ended": {},
    "acceptance_failed": {},
}

# --- messages ------------------------------------------------------------------------------------


class AcceptedInput(msgspec.Struct, frozen=True):
    """An input that was appended: the seq of its own event, and the commit to wait for."""

    seq: int
    ticket: PendingCommit


class RunMessage(msgspec.Struct, frozen=True):
    """An input whose sender waits for the reply; without a reply nothing of it is on the tape."""

    input: Input
    reply: Reply[AcceptedInput]
    receipt: Callable[[int], IdempotencyRecord] | None = None  # of the seq; committed with it


Message = Input | RunMessage

# --- handle --------------------------------------------------------------------------------------


class RunHandle:
    """An open run, queued or with an actor."""

    __slots__ = (
        "_changed",
        "acceptance_commit",
        "approved",
        "asking_children",
        "crash_count",
        "ending",
        "granted",
        "has_history",
        "idle_s",
        "inbox",
        "last_commit",
        "lifecycle",
        "on_asking",
        "prompts",
        "refusals",
        "reservation",
        "run",
        "silent_since_s",
        "tasks",
    )

    def __init__(
        self,
        run: Run,
        prompts: Sequence[ApprovalRecord] = (),
        *,
        lifecycle: RunLifecycle = "queued",
        crash_count: int = 0,
    ) -> None:
        self.inbox: Mailbox[Message] = Mailbox(run.run_id, INBOX_CAPACITY)
        self.run = run  # the latest state, possibly ahead of the committed one
        self.lifecycle: RunLifecycle = lifecycle
        self.crash_count = crash_count  # of earlier actors in this life of the daemon
        self.refusals = 0  # of the journal before its actor was started, to tell crash from refusal
        self.ending: Cancel | None = None  # decided already: the next actor begins with it
        # Approvals that are open on the tape, those that calls may still start on, and grants made
        # by answers whose commit is pending; by approval id.
        self.prompts = {prompt.approval_id: prompt for prompt in prompts}
        self.approved: dict[str, ApprovalRecord] = {}
        self.granted: dict[str, GrantRecord] = {}
        self.has_history = True  # False: known to be the first run of its session
        self.acceptance_commit: PendingCommit | None = None
        self.last_commit: PendingCommit | None = None  # of the session's last append to its tape
        self.asking_children: set[str] = set()  # calls whose delegated run `is_asking`
        self.on_asking: Callable[[], None] = no_clock  # of the actor, after a change of that set
        self.idle_s = 0.0  # paused for these children, not yet on the tape
        self.reservation: Reservation | None = None  # of the model call in progress
        self.tasks: dict[str, ChildTask] = {}  # of its actor: turn, tool calls, questions
        # Set by the watchdog where it is None; each sign of progress makes it None (`core.healing`).
        self.silent_since_s: float | None = None
        self._changed: trio.Event | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def is_ended(self) -> bool:
        """True once the terminal event is committed; `run` then is the committed state."""
        return self.lifecycle == "ended"

    @property
    def is_over(self) -> bool:
        """True if no actor of this run will follow."""
        return self.lifecycle in {"ended", "acceptance_failed"}

    @property
    def is_recovering(self) -> bool:
        """True from the loss of an actor to the first step of the next one."""
        return self.lifecycle in {"lost", "suspended"}

    @property
    def is_asking(self) -> bool:
        """True while a person is asked, by this run or by one that it has delegated to."""
        return bool(self.prompts or self.asking_children)

    def note_child(self, call_id: str, *, is_asking: bool) -> None:
        """Note whether the run that the call delegates to asks a person."""
        if is_asking != (call_id in self.asking_children):
            self.asking_children ^= {call_id}
            self.on_asking()

    def take_idle_ms(self) -> int:
        """Return how long the clock was paused for children since this was last taken."""
        self.on_asking()  # counts a pause in progress up to now
        idle_ms = round(self.idle_s * 1000)
        self.idle_s = 0.0
        return idle_ms

    def advance(self, event: LifecycleEvent) -> None:
        """Move to the next life-cycle state.  Raises InvariantBroken, with the state unchanged."""
        following = TRANSITIONS[self.lifecycle].get(event)
        if following is None:
            raise InvariantBroken(f"{self.run_id}: {event} is not possible while {self.lifecycle}")
        self.lifecycle = following
        self.silent_since_s = None

    def find_refused_append(self) -> bool:
        """True if a run without an actor is ahead of its tape; refused early appends are noted.

        An actor for such a run must begin from the tape.
        """
        commits = (self.acceptance_commit, self.last_commit)
        if self.lifecycle in {"queued", "lost"} and any(map(_was_refused, commits)):
            self.advance("append_refused")
        return self.lifecycle == "suspended"

    def find_refused_acceptance(self) -> bool:
        """True if a run without an actor does not exist, because its acceptance was refused."""
        if self.find_refused_append() and _was_refused(self.acceptance_commit):
            self.advance("acceptance_refused")
        return self.lifecycle == "acceptance_failed"

    def snapshot(self, now_ms: NowMs) -> ChildSnapshot:
        """The node of the run's actor in the tree, for the tasks below it."""
        shown_ms = now_ms()
        return ChildSnapshot(
            id=f"run:{self.run_id}",
            state="running",
            incarnation=1,
            restarts=0,
            children=tuple(task.snapshot(shown_ms) for task in self.tasks.values()),
        )

    async def report(self, outcome: Input) -> None:
        """Send the outcome of a child to the run; no checkpoint while the mailbox has room."""
        try:
            self.inbox.offer(outcome)
        except Overloaded:
            await self.inbox.tell(outcome)

    async def send(
        self,
        message: Input,
        *,
        receipt: Callable[[int], IdempotencyRecord] | None = None,
        timeout_s: float,
    ) -> AcceptedInput:
        """Send an input from outside the run; return where it was appended.

        Raises IllegalState if the run does not take it any more, and ActorGone if the actor ended
        first: in both cases nothing of it is on the tape.  Raises TooSlow.
        Cancellation: the input may still take effect.
        """
        return await self.inbox.ask(
            lambda reply: RunMessage(message, reply, receipt), timeout_s=timeout_s
        )

    def wake(self) -> None:
        """Wake every task in `wait_change`."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_change(self) -> None:
        """Wait until the run or one below it asks a person or has its answer, ends, or loses its actor."""
        if self._changed is None:  # an event has no truth value
            self._changed = trio.Event()
        await self._changed.wait()


def no_clock() -> None:
    """There is no actor, so no deadline either."""


def _was_refused(commit: PendingCommit | None) -> bool:
    return commit is not None and commit.is_settled and not commit.is_committed
