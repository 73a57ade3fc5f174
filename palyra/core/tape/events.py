"""The events of a tape: all facts of a run, one struct per kind.

`KIND` is the name on tape and wire.  Stored payloads are the JSON of these structs, hashed and
signed, so a field may be added with a default but never renamed or removed.

A run:  accepted, message received; started; then turns (route, context, turn started, turn completed
or failed), each followed by the tool calls of the turn; at last done, failed or cancelled.

A tool call:  proposed < (approval.requested < approval.resolved) < decided < started < completed
< attested.  A malformed call is rejected instead of decided, a denied one is attested without a
start.  `tool.started` is committed before the tool runs: after a crash, a started call without an
outcome may have run.  A call that delegates has two events more: delegation.started after started,
delegation.ended after completed.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from palyra.core.audience import Audience
from palyra.core.journal import damaged_row
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    ApprovalScope,
    BudgetAction,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
    ChannelAudience,
    Charge,
    MemoryScope,
    QueueMode,
    SessionMode,
    Usage,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.images import Picture
from palyra.core.model.messages import (
    FailureClass,
    FinishReason,
    Message,
    ProposedCall,
    Thought,
    ToolMessage,
)
from palyra.core.model.request_options import RequestOptions
from palyra.core.model.route_plan import ModelChoice, RouteChange, RoutePlan
from palyra.core.model.sources import ContextSource, SourceLayer
from palyra.core.model.summary import Summary
from palyra.core.tool.spec import OutcomeStatus
from palyra.core.trust.labels import Trust
from palyra.errors import Damaged, Purged, Unreadable

ProgressKind = Literal["text", "reasoning", "tool_output", "status"]  # between events, not recorded
CompactionTrigger = Literal["auto", "manual"]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all events."""

    KIND: ClassVar[str]
    MAY_CONTAIN_USER_TEXT: ClassVar[bool] = True  # False: skip redaction
    COMPUTED: ClassVar[
        tuple[str, ...]
    ] = ()  # fields the daemon derives from hashes: never redacted


class ToolProposed(Event, frozen=True, kw_only=True, gc=False):
    """A tool call that the model wants."""

    KIND = "tool.proposed"
    call_id: str
    tool: str
    arguments: Any
    digest: str  # SHA-256 of the canonical arguments
    tool_class: str = msgspec.field(name="class")
    coercions: tuple[str, ...] = ()
    may_rerun: bool = (
        False  # after a crash without an outcome: run again, else the outcome is unknown
    )
    path_key: str | None = None  # calls with equal keys never overlap
    executor: str = "none"
    enforcement: str = "none"
    inspects: bool = False  # a preflight runs before a person is asked


class ToolRejected(Event, frozen=True, kw_only=True, gc=False):
    """The call was malformed; the model may repair it."""

    KIND = "tool.rejected"
    call_id: str
    reason: str
    repair_hint: str


class ToolDecided(Event, frozen=True, kw_only=True, gc=False):
    """The final verdict of the gate."""

    KIND = "tool.decided"
    call_id: str
    verdict: Literal["allow", "deny"]
    reason_code: str
    reason: str
    policies: tuple[str, ...]
    policy_version: str
    taint: bool = False
    approval_id: str | None = None  # of an identical earlier call that the answer also covers
    grant_id: str | None = None  # the grant that allowed it


class ApprovalRequested(Event, frozen=True, kw_only=True, gc=False):
    """A question to a person."""

    KIND = "approval.requested"
    approval_id: str
    call_id: str
    tool: str
    risk: str
    summary: str
    arguments: Any
    digest: str  # SHA-256 of the canonical execution object
    scopes: tuple[ApprovalScope, ...]
    default: Literal["deny"] = "deny"
    expires_ms: int
    policy_reason: str
    policy_version: str = ""
    grant_key: str = ""  # scope of an answer beyond once
    covers: tuple[str, ...] = ()  # the call and its duplicates in the turn; the answer is for all
    inspection: Any = None  # preflight of the call
    once_because: str = ""  # why no wider scope is offered; "": one is


class ApprovalResolved(Event, frozen=True, kw_only=True, gc=False):
    """The answer: by a person, a deadline, changed policies or the end of the run."""

    KIND = "approval.resolved"
    approval_id: str
    call_id: str
    decision: Literal["allow", "deny", "abort"]
    scope: ApprovalScope
    by: str
    reason: str
    grant_id: str | None = None  # the grant that the answer creates, with its expiry
    grant_expires_ms: int | None = None


class ToolStarted(Event, frozen=True, kw_only=True, gc=False):
    """The call is about to run; committed before the tool runs."""

    KIND = "tool.started"
    MAY_CONTAIN_USER_TEXT = False
    call_id: str
    executor: str
    enforcement: str
    batch: int
    approval_id: str | None = None


class ToolCompleted(Event, frozen=True, kw_only=True, gc=False):
    """The outcome of the call."""

    KIND = "tool.completed"
    call_id: str
    status: OutcomeStatus
    output: str
    truncated: bool = False
    duration_ms: int = 0
    artifact: str | None = None
    error: str | None = None
    trust: Trust = "workspace"
    findings: tuple[str, ...] = ()  # of the injection scanner
    pictures: tuple[Picture, ...] = ()  # artifacts of the session; `output` names each


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Limits of one run; None means the daemon's default."""

    tokens: int | None = None
    usd_micros: int | None = None
    wall_ms: int | None = None


class DelegationStarted(Event, frozen=True, kw_only=True, gc=False):
    """A call delegates its task to a run of its own; committed before that run exists."""

    KIND = "delegation.started"
    call_id: str
    run_id: str  # of the delegated run
    depth: int
    agent: str
    budget: Budget  # its share of what the delegating run has left


DelegationState = Literal["done", "partial", "failed", "cancelled", "refused"]


class DelegationEnded(Event, frozen=True, kw_only=True, gc=False):
    """The end of a delegated run, exactly once for each `delegation.started`.

    `refused`: the run was never accepted.
    """

    KIND = "delegation.ended"
    call_id: str
    run_id: str
    state: DelegationState
    reason: str
    session_id: str = ""
    usage: Usage = Usage()  # with that of the runs below it
    cost_usd_micros: int = 0
    turns: int = 0
    tool_calls: int = 0
    people_ms: int = 0  # the clock of this run was paused since its last event, as such runs asked


class ToolAttested(Event, frozen=True, kw_only=True, gc=False):
    """The signed digest that ends every call."""

    KIND = "tool.attested"
    COMPUTED = ("digest", "signature")
    call_id: str
    attestation: dict[str, Any]
    digest: str  # SHA-256 of the canonical attestation, hex; `prev` of the next one
    signature: str  # Ed25519 over that digest's bytes, base64


Rule = Literal["failing_effect", "denial", "failure", "same_read", "alternation"]


class Compaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The parts of the conversation that later prompts omit; the tape keeps them."""

    turn: int  # with the prompt that was too large
    history_runs: int = 0  # omitted: the oldest that `run.started` names
    inherited_messages: int = 0  # omitted: the oldest of the inherited conversation
    output_bytes: int = 0  # limit of each shown tool output; 0: none
    through: int = 0  # number of messages, from the start, that this limit applies to
    before_tokens: int = 0  # of the prompt, estimated
    after_tokens: int = 0


ApprovalMode = Literal["ask", "deny"]


class Delegation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Facts of the delegating run that hold for the delegated one, as they were at the call."""

    call_id: str  # of the call of `delegate`
    agents: tuple[str, ...]  # of all delegating runs, the outermost first
    origin: str = "interactive"  # of the outermost
    is_tainted: bool = False
    input_trust: Trust = "trusted_local"  # lowest label of the texts that wrote the task
    is_confined: bool = False  # to its session, as the run that delegated


class RunAccepted(Event, frozen=True, kw_only=True, gc=False):
    """The daemon accepted the run; committed before the client is answered."""

    KIND = "run.accepted"
    principal: str
    session_id: str
    agent: str
    model: str
    origin: str = "interactive"
    queue_mode: QueueMode = "followup"
    approval_mode: ApprovalMode = "ask"
    json_mode: bool = False
    budget: Budget = Budget()
    role: str = "client"  # of the token that started it; policy sees it
    tools: tuple[str, ...] | None = None  # limit set by the delegating run; None: not delegated
    depth: int = 0  # number of delegating runs above it
    parent_run_id: str | None = None
    epoch: int | None = None  # of the session at acceptance; None on older tapes
    agent_version: int = 0  # of `agent`; 0 is embedded in the program
    channel: str | None = None  # origin of the message, with the next two
    conversation_id: str | None = None
    sender: str | None = None
    reach: ChannelAudience = "conversation"  # of a run of a channel
    brief: RequestOptions | None = None  # request options of the caller
    model_choice: ModelChoice = "pinned"  # how `model` was chosen; older tapes are pinned
    delegation: Delegation | None = None  # None: not delegated
    workspace: str = DEFAULT_WORKSPACE  # of the session

    @property
    def is_confined(self) -> bool:
        """True if the run reaches only its own session (`core.audience`)."""
        if self.delegation is not None and self.delegation.is_confined:
            return True
        return self.channel is not None and self.reach == "conversation"

    def audience(self, memory_scope: MemoryScope) -> Audience:
        """Return what a run of an agent with this scope reaches."""
        return Audience(
            principal=self.principal,
            session_id=self.session_id,
            channel=self.channel,
            memory_scope=memory_scope,
            is_confined=self.is_confined,
        )

    @property
    def asks_as(self) -> str:
        """Whose number of open questions is bounded: a conversation's own, or the principal's."""
        return self.session_id if self.is_confined else self.principal

    @property
    def owner_of_tools(self) -> str:
        """Principal whose own tools, procedures, the run may call; "" for none."""
        return "" if self.is_confined else self.principal


class ConversationInherited(Event, frozen=True, kw_only=True, gc=False):
    """The conversation of the run that this run was forked from; a long one takes several events.

    Without a run id it is a conversation that the caller supplied, without the proof of a tape.
    """

    KIND = "conversation.inherited"
    run_id: str  # the forked run; "": supplied by the caller
    at_seq: int  # its last inherited event
    link: str  # chain hash of that event, hex
    messages: tuple[Message, ...]
    summary: Summary | None = None  # in force there, of messages before these
    is_tainted: bool = False  # a text before that event had injection findings


class MessageReceived(Event, frozen=True, kw_only=True, gc=False):
    """A user message; a collected run has one event for each message."""

    KIND = "message.received"
    text: str
    attachments: tuple[dict[str, Any], ...] = ()
    references: tuple[dict[str, Any], ...] = ()
    by: str = ""  # the principal that sent it
    results: tuple[ToolMessage, ...] = ()  # of client-side tool calls


TodoState = Literal["pending", "in_progress", "done"]


class Todo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One item of the model's to-do list."""

    text: str
    state: TodoState


class TodosChanged(Event, frozen=True, kw_only=True, gc=False):
    """The model replaced its to-do list, by the tool `update_todos`."""

    KIND = "todos.changed"
    todos: tuple[Todo, ...]  # the whole list


class RunStarted(Event, frozen=True, kw_only=True, gc=False):
    """The run left the queue."""

    KIND = "run.started"
    MAY_CONTAIN_USER_TEXT = False
    instance_id: str
    history: tuple[str, ...] = ()  # earlier runs of the session in the prompt, in order
    history_is_cut: bool = False  # an older one did not fit
    is_tainted: bool = False  # by one of these runs
    # Measured ratio of real to estimated tokens by model, in basis points; absent: 10 000.
    token_bps: dict[str, int] = {}
    refused: tuple[str, ...] = ()  # items that a provider refused in these runs, with their kinds
    mode: SessionMode = "ask"  # of the session; in `plan` the model is shown `propose_plan`
    todos: tuple[Todo, ...] = ()  # the list of the run before in the session


class RoutePlanned(RoutePlan, Event, frozen=True, kw_only=True, gc=False):
    """The requested model and the selected one."""

    KIND = "route.planned"
    MAY_CONTAIN_USER_TEXT = False


class RouteChanged(RouteChange, Event, frozen=True, kw_only=True, gc=False):
    """Another model is used from here on."""

    KIND = "route.changed"
    MAY_CONTAIN_USER_TEXT = False


class ContextCompacted(Compaction, Event, frozen=True, kw_only=True, gc=False):
    """The prompt was too large; later prompts omit a part of the conversation."""

    KIND = "context.compacted"
    MAY_CONTAIN_USER_TEXT = False


class CompactionApplied(Event, frozen=True, kw_only=True, gc=False):
    """A summary replaces the older part of the session in later prompts; the tape keeps it all."""

    KIND = "compaction.applied"
    compaction_id: str
    algorithm: str
    trigger: CompactionTrigger
    summary: Summary
    input_tokens: int  # of the prompt before
    model: str = ""  # that was asked for a draft; "": none


class CompactionSkipped(Event, frozen=True, kw_only=True, gc=False):
    """A compaction was due and changed nothing."""

    KIND = "compaction.skipped"
    trigger: CompactionTrigger
    reason: str
    input_tokens: int


class ContextGathered(Event, frozen=True, kw_only=True, gc=False):
    """Texts gathered for the prompt from outside the run; later prompts use them unchanged."""

    KIND = "context.gathered"
    layer: SourceLayer
    message: int | None = None  # number of the user message, from 0, whose references they are
    sources: tuple[ContextSource, ...] = ()
    absent: str = ""  # why there are none
    following: int = 0  # number of further events of the same step


class ContextBudget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The numbers behind the prompt of a turn, in tokens."""

    window: int  # of the model, or of the smallest one that may take over; 0: not known
    reserved: int  # for the answer
    tools: int  # descriptions of the tools
    margin: int  # for the error of the estimate
    available: int  # for everything else; 0: not limited
    needed: int = 0  # by all segments, before any is dropped
    factor_bps: int = 10_000  # measured ratio of real to estimated tokens, included in all figures
    omitted: int = 0  # leading messages of history and conversation that the prompt leaves out
    pruned: int = 0  # leading messages of the conversation whose outputs may be stubs
    is_exhausted: bool = False  # the protected segments alone do not fit


class ContextAssembled(Event, frozen=True, kw_only=True, gc=False):
    """Description of the prompt of a turn."""

    KIND = "context.assembled"
    MAY_CONTAIN_USER_TEXT = False
    turn: int
    segments: tuple[dict[str, Any], ...]
    input_tokens: int
    prefix_hash: str
    catalogue_hash: str
    memories: tuple[str, ...] = ()
    budget: ContextBudget | None = None  # None: no window is known, nothing measured or pruned


class TurnStarted(Event, frozen=True, kw_only=True, gc=False):
    """A model request was sent."""

    KIND = "turn.started"
    MAY_CONTAIN_USER_TEXT = False
    turn: int
    attempt: int
    provider: str
    model: str
    continues: bool = False  # the truncated text of the previous turn


class TurnCompleted(Event, frozen=True, kw_only=True, gc=False):
    """The complete answer of the model."""

    KIND = "turn.completed"
    turn: int
    text: str
    calls: tuple[ProposedCall, ...]
    finish_reason: FinishReason
    usage: Usage
    cost_usd_micros: int = 0
    trace_ref: str | None = None
    is_unpriced: bool = False  # the model has no price: the cost is unknown
    thought: Thought | None = None  # reasoning that the provider wants back with the results


class TurnFailed(Event, frozen=True, kw_only=True, gc=False):
    """A model request failed; text that it streamed is withdrawn."""

    KIND = "turn.failed"
    turn: int
    attempt: int
    failure_class: FailureClass = msgspec.field(name="class")
    retry: bool
    detail: str
    delay_ms: int = 0
    charge: Charge | None = None  # usage of the failed request
    was_asked: bool = True  # False: no request was sent, so the ledger has no line


def turn_item(turn: int, attempt: int) -> str:
    """Return the name of the streamed text of one attempt at a turn."""
    return f"turn:{turn}" if attempt == 1 else f"turn:{turn}:{attempt}"


RefusedKind = Literal["picture", "reasoning", "tool"]


class ItemRefused(Event, frozen=True, kw_only=True, gc=False):
    """A provider refused a prompt for this item: later prompts of the session leave it out."""

    KIND = "item.refused"
    turn: int
    item: RefusedKind
    name: str  # of the artifact, or of the tool
    detail: str  # what the provider said
    also: tuple[str, ...] = ()  # further ones of the kind, found by the same search


class BudgetExceeded(Event, frozen=True, kw_only=True, gc=False):
    """A budget does not allow the model request."""

    KIND = "budget.exceeded"
    turn: int
    attempt: int
    budget_id: str
    scope: BudgetScope
    subject: str  # the account
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None = None
    spent: int
    limit: int
    rolls_ms: int | None = None  # when a part of it is available again; None: never
    action: BudgetAction
    model: str
    is_unpriced: bool = False  # the budget is in money and the model has no price
    needs: int = 0  # the least that the request takes
    is_damaged: bool = False  # the record of the budget cannot be read, so it admits nothing


class SteerReceived(Event, frozen=True, kw_only=True, gc=False):
    """A steering message to a running run; reaches the model at the next boundary."""

    KIND = "steer.received"
    text: str
    by: str
    attachments: tuple[dict[str, Any], ...] = ()


class AnswerRejected(Event, frozen=True, kw_only=True, gc=False):
    """The model's last text is not an answer; the model is prompted again, once per run."""

    KIND = "answer.rejected"
    reason: str  # a code (core.run.answer)
    guidance: str = ""  # text for the model


class GuardWarned(Event, frozen=True, kw_only=True, gc=False):
    """The loop guard found a repetition; the model gets a hint."""

    KIND = "guard.warned"
    rule: Rule
    call: str  # the repeated call, for display
    count: int
    guidance: str  # text for the model


class GuardBlocked(Event, frozen=True, kw_only=True, gc=False):
    """The loop guard ends the run because of a repetition."""

    KIND = "guard.blocked"
    rule: Rule
    call: str
    count: int


class MessageCompleted(Event, frozen=True, kw_only=True, gc=False):
    """The answer, complete or partial: the terminal event says which."""

    KIND = "message.completed"
    text: str
    calls: tuple[ProposedCall, ...] = ()  # client-side tool calls, after the text


class RunRecovered(Event, frozen=True, kw_only=True, gc=False):
    """The run resumed after a restart; counted before anything is dispatched."""

    KIND = "run.recovered"
    MAY_CONTAIN_USER_TEXT = False
    attempt: int
    from_seq: int
    abandoned: Charge | None = None  # the model call that the restart interrupted, estimated


class RunDone(Event, frozen=True, kw_only=True, gc=False):
    """Ended with an answer: `answered`, or `partial` with the cause and what is missing."""

    KIND = "run.done"
    reason: str
    cause: str = ""  # a code
    missing: str = ""  # the cause as a sentence


class RunFailed(Event, frozen=True, kw_only=True, gc=False):
    """Ended without an answer; `action` names a remedy."""

    KIND = "run.failed"
    failure_class: str = msgspec.field(name="class")
    reason: str
    action: str
    abandoned: Charge | None = None  # the model call that the failure interrupted


class RunCancelled(Event, frozen=True, kw_only=True, gc=False):
    """Ended on request."""

    KIND = "run.cancelled"
    reason: str
    by: str
    abandoned: Charge | None = None  # the model call that the cancel interrupted


class RunUndone(Event, frozen=True, kw_only=True, gc=False):
    """Files that the run had changed were put back; follows the terminal event."""

    KIND = "run.undone"
    checkpoint_id: str  # that undoes it
    by: str  # principal
    files: tuple[str, ...]
    forced: bool = False  # also files that had been changed since by other means


class RunPurged(Event, frozen=True, kw_only=True, gc=False):
    """The payloads of all earlier events were removed; follows the terminal event, and is the last.

    `core.tape.purge` defines the digest and the signature.
    """

    KIND = "run.purged"
    MAY_CONTAIN_USER_TEXT = False
    COMPUTED = ("digest", "signature")
    purge_id: str
    by: str  # principal
    events: int  # whose payloads were removed: all before this one
    digest: str  # hex
    signature: str  # Ed25519, hex


def _kinds() -> dict[str, type[Event]]:
    return {cls.KIND: cls for cls in Event.__subclasses__()}


KINDS: dict[str, type[Event]] = _kinds()
TERMINAL_KINDS: frozenset[str] = frozenset({"run.done", "run.failed", "run.cancelled"})
E = TypeVar("E", bound=Event)
_ENCODER = msgspec.json.Encoder()
_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}


def encode_event(event: Event) -> bytes:
    """Encode the payload as JSON; field order is fixed."""
    return _ENCODER.encode(event)


def decode_event(kind: str, data: bytes) -> Event:
    """Decode the payload of a stored row.

    Raises Damaged for a payload that is none of its kind, also of a kind that only a newer version
    knows, and Purged for one that was removed.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise Damaged(
            f"unknown event kind {kind!r}: the tape is damaged, or from a newer version of Palyra"
        )
    if data.startswith(damaged_row.PREFIX):
        raise Damaged(f"an event {kind} of the tape is damaged: it is no JSON")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        purged = read_tombstone(data)
        if purged is None:
            raise Damaged(f"an event {kind} of the tape is damaged: {error}") from None
        raise Purged(f"the content of the run was purged on {purged.day}") from None


def decode_row(row: TapeRow, kind: type[E]) -> E:
    """Decode the payload of a row of this kind of event.  Raises Damaged, Purged."""
    event = decode_event(row.kind, row.data)
    if not isinstance(event, kind):
        raise Damaged(f"event {row.seq} of {row.run_id} is {row.kind}, not {kind.KIND}")
    return event


def read_events(rows: Iterable[TapeRow]) -> Iterator[tuple[TapeRow, Event]]:
    """Yield the rows with their events; those that are damaged or purged are left out."""
    for row in rows:
        with suppress(Unreadable):
            yield row, decode_event(row.kind, row.data)
