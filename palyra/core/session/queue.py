"""A session's queue, decided: where a message goes, what waits in which order, what a restart finds.

Pure; the session actor performs what is decided here.  Rules:

- One foreground run of a session is active.  Runs of the origins in `BESIDE` do not count.
- What waits starts in its order, except that an interrupt goes first.  Of several interrupts only
  the last one runs: whatever the timing, each ends what it found.
- A message is collected into the run at the end of the queue, and only there: none overtakes.
- The cap counts messages, not runs.  An interrupt needs no place: at most one waits at any time.

The promise: what a message becomes on the first line of its run's tape.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from palyra.core.access import Caller
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.journal.records import QueueMode, SessionRecord
from palyra.core.model.messages import UserMessage
from palyra.core.run.state import Run
from palyra.core.session.commands import ChangeQueue, StartRun
from palyra.core.tape import events as ev
from palyra.core.tape.events import RunAccepted
from palyra.core.text.visible import pluralize
from palyra.errors import Conflict, Overloaded

BESIDE = frozenset({"background", "delegated"})  # origins of runs that wait for nobody
MAX_COLLECTED = 20  # messages of one run, however large the cap is
MAX_COLLECTED_BYTES = 262_144  # of their text: a model is to read it all
RETRY_AFTER_MS = 1_000  # a hint: runs take seconds

Place = Literal["start", "wait", "merge", "steer", "interrupt"]

# --- a message arrives ---------------------------------------------------------------------------


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """How a session stands as a message arrives."""

    session_id: str
    active: str | None  # the foreground run under way
    is_paused: bool
    waiting: int  # messages
    cap: int
    can_merge: bool  # the run at the end of the queue takes this message
    is_debounced: bool  # a collected run lets a moment pass before it starts

    @property
    def is_at_rest(self) -> bool:
        """Whether a message could start at once without overtaking another."""
        return self.active is None and self.waiting == 0 and not self.is_paused


def find_place(mode: QueueMode, standing: QueueState) -> Place:
    """Where the message goes.  Raises Conflict for `reject`, Overloaded over the cap."""
    if mode == "interrupt":
        return "interrupt"
    if mode == "steer" and standing.active is not None:
        return "steer"
    if standing.is_at_rest and not (mode == "collect" and standing.is_debounced):
        return "start"
    if mode == "reject":
        raise Conflict(f"{standing.session_id} is busy: {_why(standing)}")
    if standing.waiting >= standing.cap:
        raise Overloaded(
            f"{standing.session_id} has {pluralize(standing.waiting, 'message')} waiting, the cap "
            "(runs.queue_cap)",
            retry_after_ms=RETRY_AFTER_MS,
        )
    return "merge" if mode == "collect" and standing.can_merge else "wait"


def _why(standing: QueueState) -> str:
    if standing.active is not None:
        return f"{standing.active} is active"
    return (
        "its queue is paused"
        if standing.is_paused
        else f"{pluralize(standing.waiting, 'message')} waiting"
    )


def takes(run: Run, accepted: ev.RunAccepted, text: str) -> bool:
    """Whether a run that collects takes one more message: the same promise, within its bounds.

    The promise includes the role of who sent it: no message gains authority by being merged.
    """
    if run.state != "accepted" or accepted.queue_mode != "collect" or run.accepted != accepted:
        return False
    texts = [message.text for message in run.transcript if isinstance(message, UserMessage)]
    size_bytes = sum(len(each.encode()) for each in (*texts, text))
    return run.messages < MAX_COLLECTED and size_bytes <= MAX_COLLECTED_BYTES


def count_messages(runs: Sequence[Run]) -> int:
    """Messages that wait in these runs; one that has begun before counts as one."""
    return sum(run.messages if run.state == "accepted" else 1 for run in runs)


# --- somebody rearranges -------------------------------------------------------------------------


def rearrange(waiting: Sequence[str], change: ChangeQueue) -> list[str]:
    """The queue without what is dropped, the ordered runs first.

    Raises Conflict naming a run that does not wait: it has just started, or never did.
    """
    named = (*change.drop, *change.order)
    for run_id in named:
        if run_id not in waiting:
            raise Conflict(f"{run_id} does not wait here: look at the queue again")
    if len(set(named)) != len(named):
        raise Conflict("a run is named twice in drop and order")
    rest = [run_id for run_id in waiting if run_id not in named]
    return [*change.order, *rest]


# --- the daemon restarts -------------------------------------------------------------------------


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a session's open runs after a restart."""

    beside: tuple[str, ...]  # go on at once, each for itself
    first: str | None  # had its turn: goes on before all others, paused or not
    waiting: tuple[str, ...]
    doomed: Mapping[str, str]  # run -> why: its end was ordered and did not get to the tape


def plan_adoption(session: SessionRecord, runs: Sequence[Run]) -> Adoption:
    """From the session's record and its open runs in the order of their acceptance.

    An accepted run that the record does not list as waiting had its turn, though it did not get
    as far as `run.started`.
    """
    places = {run_id: place for place, run_id in enumerate(session.waiting)}
    queue = sorted(
        (run for run in runs if run.accepted.origin not in BESIDE),
        key=lambda run: (run.state == "accepted", places.get(run.run_id, -1)),
    )
    first = queue[0] if queue and _had_its_turn(queue[0], places) else None
    doomed = {**_interrupted(queue, first), **_reset(session, queue)}
    return Adoption(
        beside=tuple(run.run_id for run in runs if run.accepted.origin in BESIDE),
        first=first.run_id if first is not None else None,
        waiting=tuple(run.run_id for run in queue if run is not first),
        doomed=doomed,
    )


def _had_its_turn(run: Run, places: Mapping[str, int]) -> bool:
    return run.state != "accepted" or run.run_id not in places


def _interrupted(queue: Sequence[Run], first: Run | None) -> dict[str, str]:
    """The runs that a waiting interrupt was to end: the active one and every earlier interrupt."""
    interrupts = sorted(
        (run for run in queue if is_interrupt(run)), key=lambda run: (run.created_ms, run.run_id)
    )
    if not interrupts:
        return {}
    ended = [*interrupts[:-1], *([first] if first is not None else [])]
    return {run.run_id: INTERRUPTED for run in ended if run is not interrupts[-1]}


def _reset(session: SessionRecord, queue: Sequence[Run]) -> dict[str, str]:
    return {
        run.run_id: RESET
        for run in queue
        if run.accepted.epoch is not None and run.accepted.epoch < session.epoch
    }


def is_interrupt(run: Run) -> bool:
    """Whether the run is an interrupt that has not begun."""
    return run.state == "accepted" and run.accepted.queue_mode == "interrupt"


# Reasons of `run.cancelled`.
INTERRUPTED = "interrupted by a new message"
DROPPED = "dropped from the queue"
RESET = "the session was reset"


def make_acceptance(
    command: StartRun, caller: Caller, session: SessionRecord, default_model: str
) -> RunAccepted:
    """What the daemon accepts, from the command, who gave it and where it goes."""
    return RunAccepted(
        principal=caller.principal,
        role=caller.role,
        session_id=session.session_id,
        agent=command.agent or DEFAULT_AGENT.name,
        agent_version=command.agent_version,
        model=command.model or default_model,
        model_choice=command.model_choice or "default",
        origin=command.origin,
        queue_mode=command.queue_mode or session.queue_mode,
        approval_mode=command.approval_mode,
        json_mode=command.json_mode,
        budget=command.budget,
        parent_run_id=command.branch.run_id or None if command.branch is not None else None,
        epoch=session.epoch,
        channel=command.channel,
        conversation_id=command.conversation_id,
        sender=command.sender,
        brief=command.brief,
    )
