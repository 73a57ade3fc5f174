"""The queue of a session: where a message goes, in which order runs start, what a restart resumes.

Pure; the session actor performs what is decided here.  Rules:

- One foreground run of a session is active.  Runs of detached origins (`BESIDE`) do not count.
- Waiting runs start in their order, except that an interrupt goes first.  Of several interrupts
  only the last one runs: each cancels the active run and the interrupts before it.
- A message is merged only into a collecting run at the end of the queue, so none overtakes.
- The cap counts messages, not runs.  An interrupt needs no place: at most one waits at any time.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from palyra.core.access import Caller
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.journal.records import QueueMode, SessionRecord
from palyra.core.model.messages import UserMessage
from palyra.core.run.state import COMPACTION, Run
from palyra.core.run.step import Transition
from palyra.core.session.commands import ChangeQueue, StartRun
from palyra.core.tape import events as ev
from palyra.core.tape.events import RunAccepted
from palyra.core.text.visible import pluralize
from palyra.errors import Conflict, IllegalState, Overloaded

BESIDE = frozenset({"background", "delegated"})  # origins of detached runs, which never wait
MAX_COLLECTED = 20  # messages of one run, however large the cap is
MAX_COLLECTED_BYTES = 262_144  # of their text, which is one model input
RETRY_AFTER_MS = 1_000  # a hint: runs take seconds

Place = Literal["start", "wait", "merge", "steer", "interrupt"]

# --- a message arrives ---------------------------------------------------------------------------


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a session as a message arrives."""

    session_id: str
    active: str | None  # the foreground run
    is_paused: bool
    waiting: int  # messages
    cap: int
    can_merge: bool  # the run at the end of the queue takes this message
    is_debounced: bool  # a collecting run waits for its window before it starts

    @property
    def is_at_rest(self) -> bool:
        """True if a message could start at once without overtaking another."""
        return self.active is None and self.waiting == 0 and not self.is_paused


def find_place(mode: QueueMode, state: QueueState) -> Place:
    """Decide where the message goes.  Raises Conflict for `reject`, Overloaded over the cap."""
    if mode == "interrupt":
        return "interrupt"
    if mode == "steer" and state.active is not None:
        return "steer"
    if state.is_at_rest and not (mode == "collect" and state.is_debounced):
        return "start"
    if mode == "reject":
        raise Conflict(f"{state.session_id} is busy: {_why(state)}")
    if state.waiting >= state.cap:
        raise Overloaded(
            f"{state.session_id} has {pluralize(state.waiting, 'message')} waiting, the cap "
            "(runs.queue_cap)",
            retry_after_ms=RETRY_AFTER_MS,
        )
    return "merge" if mode == "collect" and state.can_merge else "wait"


def _why(state: QueueState) -> str:
    if state.active is not None:
        return f"{state.active} is active"
    return (
        "its queue is paused"
        if state.is_paused
        else f"{pluralize(state.waiting, 'message')} waiting"
    )


def takes(run: Run, accepted: ev.RunAccepted, text: str) -> bool:
    """True if a collecting run takes one more message: same acceptance, within its bounds.

    The acceptance includes the sender's role, so no message gains authority by being merged.
    """
    if run.state != "accepted" or accepted.queue_mode != "collect" or run.accepted != accepted:
        return False
    texts = [message.text for message in run.transcript if isinstance(message, UserMessage)]
    size_bytes = sum(len(each.encode()) for each in (*texts, text))
    return run.messages < MAX_COLLECTED and size_bytes <= MAX_COLLECTED_BYTES


def count_messages(runs: Sequence[Run]) -> int:
    """Count the messages in waiting runs; a run that has begun before counts as one."""
    return sum(run.messages if run.state == "accepted" else 1 for run in runs)


# --- a client changes the queue ------------------------------------------------------------------


def rearrange(waiting: Sequence[str], change: ChangeQueue) -> list[str]:
    """Return the queue without dropped runs, the ordered runs first.

    Raises Conflict for a run that does not wait, because it has started or is unknown.
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
    """Decision on a session's open runs after a restart."""

    beside: tuple[str, ...]  # detached runs, resumed at once
    first: str | None  # was active: resumed before all others, even if paused
    waiting: tuple[str, ...]
    doomed: Mapping[str, str]  # run -> reason: cancelled before, but not on its tape yet


def plan_adoption(session: SessionRecord, runs: Sequence[Run]) -> Adoption:
    """Decide from the session's record and its open runs, in the order of their acceptance.

    An accepted run that the record does not list as waiting was active, although its tape has no
    `run.started`.
    """
    places = {run_id: place for place, run_id in enumerate(session.waiting)}
    queue = sorted(
        (run for run in runs if run.accepted.origin not in BESIDE),
        key=lambda run: (run.state == "accepted", places.get(run.run_id, -1)),
    )
    was_active = queue and (queue[0].state != "accepted" or queue[0].run_id not in places)
    first = queue[0] if was_active else None
    reset = {
        run.run_id: RESET
        for run in queue
        if run.accepted.epoch is not None and run.accepted.epoch < session.epoch
    }
    return Adoption(
        beside=tuple(run.run_id for run in runs if run.accepted.origin in BESIDE),
        first=first.run_id if first is not None else None,
        waiting=tuple(run.run_id for run in queue if run is not first),
        doomed={**_interrupted(queue, first), **reset},
    )


def _interrupted(queue: Sequence[Run], first: Run | None) -> dict[str, str]:
    """Return the runs that a waiting interrupt cancels: the active one and earlier interrupts."""
    interrupts = sorted(
        (run for run in queue if is_interrupt(run)),
        key=lambda run: (run.clock.created_ms, run.run_id),
    )
    if not interrupts:
        return {}
    ended = [*interrupts[:-1], *([first] if first is not None else [])]
    return {run.run_id: INTERRUPTED for run in ended if run is not interrupts[-1]}


def is_interrupt(run: Run) -> bool:
    """True if the run is an interrupt that has not begun."""
    return run.state == "accepted" and run.accepted.queue_mode == "interrupt"


# Reasons of `run.cancelled`.
INTERRUPTED = "interrupted by a new message"
DROPPED = "dropped from the queue"
RESET = "the session was reset"


TITLE_CHARS = 60
TITLE_READ_CHARS = 1_000  # of a message; blanks in it do not count


def with_title(record: SessionRecord, step: Transition) -> SessionRecord:
    """Give a session without a title the first words of a message of the step, which is redacted.

    No model is asked for a title.
    """
    if record.title or record.purge is not None:
        return record
    said = step.run.transcript[-1] if step.run.transcript else None
    is_new = any(draft.kind == ev.MessageReceived.KIND for draft in step.drafts)
    if not (is_new and isinstance(said, UserMessage)) or step.run.accepted.origin == COMPACTION:
        return record
    words = " ".join(said.text[:TITLE_READ_CHARS].split())
    cut = words if len(words) <= TITLE_CHARS else f"{words[: TITLE_CHARS - 1]}…"
    return msgspec.structs.replace(record, title=cut)


def rename(record: SessionRecord, title: str, now_ms: int) -> SessionRecord:
    """Return the session with a title of one line.  Raises IllegalState for a purged one."""
    if record.purge is not None:
        raise IllegalState(f"{record.session_id} is purged: it keeps no title")
    return msgspec.structs.replace(record, title=" ".join(title.split()), updated_ms=now_ms)


def make_acceptance(
    command: StartRun, caller: Caller, session: SessionRecord, default_model: str
) -> RunAccepted:
    """Return the first event of a new run's tape, from command, caller and session."""
    delegated = command.delegated
    parent_run_id = command.branch.run_id or None if command.branch is not None else None
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
        parent_run_id=parent_run_id if delegated is None else delegated.parent_run_id,
        tools=None if delegated is None else delegated.tools,
        depth=0 if delegated is None else delegated.depth,
        delegation=None if delegated is None else delegated.delegation,
        epoch=session.epoch,
        channel=command.channel,
        conversation_id=command.conversation_id,
        sender=command.sender,
        reach=command.reach,
        brief=command.brief,
        workspace=session.workspace,
    )
