"""Commands of clients and the daemon's replies, whatever the transport."""

from typing import Annotated, Any, Literal, cast

import msgspec

from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import (
    TERMINAL,
    ChannelAudience,
    Pin,
    QueueMode,
    RunPhase,
    RunRecord,
    RunState,
    SessionCheckpointRecord,
    SessionMode,
    Usage,
)
from palyra.core.model.messages import Message, ToolMessage
from palyra.core.model.request_options import RequestOptions
from palyra.core.model.route_plan import ModelChoice
from palyra.core.model.summary import Entry, Summary
from palyra.core.tape.events import ApprovalMode, Budget, Delegation

Disposition = Literal["started", "queued", "merged", "steered", "interrupted"]

WEEK_MS = 604_800_000
ANSWER_BYTES = 65_536  # of an answer in a reply; a reply of many runs has none

# Values that a client names for a run, over the wire and in the payload of a task.
Amount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000_000)]
WallMs = Annotated[int, msgspec.Meta(ge=1, le=WEEK_MS)]
AgentName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
SessionId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
SessionKey = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class InheritedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to continue, and its origin."""

    run_id: str  # "": the conversation was sent by the caller
    at_seq: int
    link: str  # of that event in the journal's chain, hex
    messages: tuple[Message, ...]
    summary: Summary | None = None  # of the conversation before the messages
    is_tainted: bool = False  # a text of the conversation had injection findings
    session_id: str = ""  # of that run
    pins: tuple[Pin, ...] = ()  # of messages in the conversation or its summary
    artifacts: tuple[str, ...] = ()  # that hold whole outputs of calls in the messages

    @property
    def is_given(self) -> bool:
        """True if the conversation was sent by the caller, not read from a tape."""
        return not self.run_id


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the daemon."""

    text: str
    session_id: str | None = None
    session_key: str | None = None
    agent: str | None = None
    agent_version: int = 0
    channel: str | None = None
    conversation_id: str | None = None
    sender: str | None = None
    reach: ChannelAudience = "conversation"  # of the channel
    model: str | None = None
    model_choice: ModelChoice | None = None  # None: decided once the agent is known
    queue_mode: QueueMode | None = None  # None: the session's
    approval_mode: ApprovalMode = "ask"
    json_mode: bool = False
    budget: Budget = Budget()
    attachments: tuple[dict[str, Any], ...] = ()
    origin: str = "interactive"
    branch: InheritedConversation | None = (
        None  # the conversation to continue; then the text may be empty
    )
    run_id: str | None = None  # a fresh id made by the daemon; None: the session makes one
    brief: RequestOptions | None = None
    results: tuple[ToolMessage, ...] = ()  # of client-side tool calls; the text may be empty
    delegated: "DelegatedTask | None" = None  # the text is the task of a delegating run
    restored: "SessionRestored | None" = None  # the answer to a restore, but for the branch's ids
    workspace: str | None = None  # None: the session's, the default one for a new session
    mode: SessionMode | None = None  # to put the session into before the message; None: as it is


class DelegatedTask(msgspec.Struct, frozen=True, kw_only=True):
    """The parent of a delegated run, and what it hands down."""

    parent_run_id: str
    depth: int
    tools: tuple[str, ...]
    delegation: Delegation


class Started(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message is committed and belongs to this run."""

    run_id: str
    session_id: str
    seq: int  # last committed seq that belongs to the acceptance
    disposition: Disposition
    position: int | None = None  # place in the session's queue, from 1


class Forked(Started, frozen=True, kw_only=True, omit_defaults=True):
    """A run that continues the conversation of another one."""

    parent_run_id: str
    at_seq: int  # last event of the other run that is inherited


class ChangeQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a session's queue, applied as a whole; None and () change nothing."""

    mode: QueueMode | None = None
    paused: bool | None = None
    drop: tuple[str, ...] = ()  # waiting runs to cancel
    order: tuple[str, ...] = ()  # waiting runs that come first, in this order

    @property
    def is_look(self) -> bool:
        """True if the command only reads the queue."""
        return self == ChangeQueue()


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queue of a session."""

    session_id: str
    mode: QueueMode
    paused: bool
    waiting: list[str]  # run ids, next one first
    messages: int  # in those runs; a collecting run has several
    cap: int  # messages that may wait
    active: str | None = None  # the foreground run


class SessionCompacted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A compaction that was started, or the preview of one."""

    session_id: str
    run_id: str | None = None  # of the compaction; None: a preview, or nothing to do
    before_tokens: int = 0
    after_tokens: int = 0
    messages: int = 0  # that the summary would stand for
    text: str = ""  # of the summary
    facts: tuple[Entry, ...] = ()  # durable statements in it, with run and message as evidence
    reason: str = ""  # why there is nothing to summarise


class SessionCheckpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints of a session, newest first."""

    checkpoints: list[SessionCheckpointRecord]


class RestoreSession(msgspec.Struct, frozen=True, kw_only=True):
    """A request to continue a session from a checkpoint in a new session."""

    session_id: str
    checkpoint_id: str | None = None  # None: that of the last compaction
    files: bool = False  # undo changes that calls of the session have made to files since
    force: bool = False  # also of files that another program has changed since
    documents: bool = False  # give workspace documents the entries that they had
    dry_run: bool = False


class SessionRestored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A branch that continues a session from a checkpoint, or the preview of one."""

    session_id: str = ""  # the branch; "": a preview
    run_id: str = ""  # its first run, which holds the inherited conversation
    parent_run_id: str
    at_seq: int  # last event of that run in the branch
    checkpoint_id: str = ""
    messages: int = 0  # in the branch
    summary_tokens: int = 0  # of the summary before them
    files: tuple[str, ...] = ()  # that were put back, or would be
    conflicts: tuple[str, ...] = ()  # of these, changed by another writer since
    file_checkpoint_id: str | None = None  # that undoes the change of the files
    documents: dict[str, int] = {}  # whose entries were put back, or would be, to this version


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a steering message on the tape."""

    seq: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The run's state after the cancel took effect."""

    state: RunState
    applied_seq: int


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text that a run ended with, complete or partial; of a long one the beginning."""

    text: str
    seq: int  # of its `message.completed`, which has the whole text
    bytes: int  # of the whole text, in UTF-8
    is_cut: bool = False

    @staticmethod
    def of(text: str, seq: int) -> "RunAnswer":
        """Return the answer with at most ANSWER_BYTES of its text."""
        whole = text.encode(errors="replace")
        shown = whole[:ANSWER_BYTES].decode(errors="ignore")
        return RunAnswer(text=shown, seq=seq, bytes=len(whole), is_cut=len(whole) > ANSWER_BYTES)


class QueuedBehind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cause that keeps a run in its session's queue."""

    run_id: str | None = None  # the session's active run
    phase: RunPhase | None = None  # of that run
    approval_id: str | None = None  # a pending approval of that run
    paused: bool = False  # the queue is paused, see `session.queue`

    @property
    def needs_person(self) -> bool:
        """True if the queue does not move before a person acts."""
        return self.approval_id is not None or (self.paused and self.run_id is None)


class RunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as clients see it."""

    run_id: str
    session_id: str
    state: RunState
    phase: RunPhase
    principal: str
    agent: str
    model: str
    created_ms: int
    usage: Usage
    cost_usd_micros: int
    turns: int
    tool_calls: int
    pending_approvals: int
    head_seq: int
    attempts: int
    unpriced_calls: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None
    reason: str | None = None
    parent_run_id: str | None = None
    purged_ms: int | None = None  # when its content was removed for good
    depth: int = 0  # number of delegating runs above it
    is_tainted: bool = False  # text with injection findings reached it; unknown of older runs
    latest_kind: str | None = None  # of its last event, in lists and watches
    latest_ms: int | None = None
    title: str = ""  # of its session, in lists and watches
    answer: RunAnswer | None = None  # of `run.get`, once the run has ended with one
    behind: QueuedBehind | None = None  # of a run in its session's queue

    @property
    def is_terminal(self) -> bool:
        """True if the run has ended."""
        return self.state in TERMINAL

    def fits(self, wanted: RunFilter) -> bool:
        """True if the run passes the filter; its page counts for nothing."""
        exact = (
            (wanted.principal, self.principal),
            (wanted.session_id, self.session_id),
            (wanted.parent_run_id, self.parent_run_id),
            (wanted.agent, self.agent),
            (wanted.tainted, self.is_tainted),
        )
        return (
            all(asked in {None, own} for asked, own in exact)
            and (not wanted.states or self.state in wanted.states)
            and (not wanted.phases or self.phase in wanted.phases)
            and wanted.text.casefold() in self.title.casefold()
        )

    @staticmethod
    def of(
        record: RunRecord,
        *,
        is_recovering: bool = False,
        is_stranded: bool = False,
        behind: QueuedBehind | None = None,
    ) -> "RunView":
        """Return the view of a stored run, with phase and queue, which are never stored."""
        phase = _phase(record, is_recovering=is_recovering, is_stranded=is_stranded)
        return RunView(phase=phase, behind=behind, **msgspec.structs.asdict(record))


def _phase(run: RunRecord, *, is_recovering: bool = False, is_stranded: bool = False) -> RunPhase:
    """Derive the public phase; it is never stored."""
    if run.is_terminal:
        return cast("RunPhase", run.state)
    if is_stranded:
        return "stranded"
    if is_recovering:
        return "recovering"
    if run.state == "accepted":
        return "queued"
    return "awaiting_approval" if run.pending_approvals else "in_progress"
