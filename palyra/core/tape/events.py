"""The base of all events; the kinds are in `core.events`.

Event kinds of the tape: exactly the facts a run consists of.

One struct per kind; `KIND` is its wire name.  Stored payloads are the JSON of these structs, so a
field may be added with a default but never renamed or removed.  Order within a call: proposed <
(approval.requested < approval.resolved) < decided < started < completed < attested.

Event kinds about one tool call: proposal, verdict, question, execution, attestation.

What is left out of a run's prompts since one was too large; decided by `core.overflow`.
"""

from typing import Any, ClassVar, Literal

import msgspec

from palyra.core.journal.records import (
    ApprovalScope,
    BudgetAction,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
    Charge,
    QueueMode,
    Usage,
)
from palyra.core.model.messages import (
    FailureClass,
    FinishReason,
    Message,
    ProposedCall,
    ToolMessage,
)
from palyra.core.model.request_options import RequestOptions
from palyra.core.model.route_plan import ModelChoice, RouteChange, RoutePlan
from palyra.core.tool.spec import OutcomeStatus
from palyra.core.trust.labels import Trust
from palyra.errors import InvariantBroken


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all events."""

    KIND: ClassVar[str]
    HAS_FOREIGN_TEXT: ClassVar[bool] = True  # False: ids, numbers and the daemon's words only


class ToolProposed(Event, frozen=True, kw_only=True, gc=False):
    """Preparation of one call began."""

    KIND = "tool.proposed"
    call_id: str
    tool: str
    arguments: Any
    digest: str  # SHA-256 of the canonical arguments
    tool_class: str = msgspec.field(name="class")
    coercions: tuple[str, ...] = ()
    may_rerun: bool = False  # without an outcome after a crash: start again, or outcome unknown
    path_key: str | None = None  # calls with equal keys never overlap
    executor: str = "none"
    enforcement: str = "none"
    inspects: bool = False  # what the call would meet is looked at before a person is asked


class ToolRejected(Event, frozen=True, kw_only=True, gc=False):
    """The call was malformed; the model may repair it."""

    KIND = "tool.rejected"
    call_id: str
    reason: str
    repair_hint: str


class ToolDecided(Event, frozen=True, kw_only=True, gc=False):
    """The gate's last word."""

    KIND = "tool.decided"
    call_id: str
    verdict: Literal["allow", "deny"]
    reason_code: str
    reason: str
    policies: tuple[str, ...]
    policy_version: str
    taint: bool = False
    approval_id: str | None = None  # of an identical call before it, whose answer was for both
    grant_id: str | None = None  # the person's earlier word it rests on


class ApprovalRequested(Event, frozen=True, kw_only=True, gc=False):
    """A person is asked."""

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
    grant_key: str = ""  # what an answer beyond once would hold for
    covers: tuple[str, ...] = ()  # the call and its twins in the turn; the answer is for all
    inspection: Any = None  # what the call would meet
    once_because: str = ""  # why no wider scope is offered; "": one is


class ApprovalResolved(Event, frozen=True, kw_only=True, gc=False):
    """The question is settled, by a person, a deadline, other rules or the end of the run."""

    KIND = "approval.resolved"
    approval_id: str
    call_id: str
    decision: Literal["allow", "deny", "abort"]
    scope: ApprovalScope
    by: str
    reason: str
    grant_id: str | None = None  # the grant that the answer makes, with its end
    grant_expires_ms: int | None = None


class ToolStarted(Event, frozen=True, kw_only=True, gc=False):
    """The call is about to take effect; committed before it does."""

    KIND = "tool.started"
    HAS_FOREIGN_TEXT = False
    call_id: str
    executor: str
    enforcement: str
    batch: int
    approval_id: str | None = None


class ToolCompleted(Event, frozen=True, kw_only=True, gc=False):
    """What came of it."""

    KIND = "tool.completed"
    call_id: str
    status: OutcomeStatus
    output: str
    truncated: bool = False
    duration_ms: int = 0
    artifact: str | None = None
    error: str | None = None
    trust: Trust = "workspace"
    findings: tuple[str, ...] = ()  # of the scanner for injected instructions


class ToolAttested(Event, frozen=True, kw_only=True, gc=False):
    """The signed digest that ends every call."""

    KIND = "tool.attested"
    call_id: str
    attestation: dict[str, Any]
    digest: str  # SHA-256 of the canonical attestation, hex; the next one's `prev`
    signature: str  # Ed25519 over that digest's bytes, base64


Rule = Literal["failing_effect", "denial", "failure", "same_read", "alternation"]


class Compaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cut: what the model is not shown any more.  The tape keeps it."""

    turn: int  # that was too large
    history_runs: int = 0  # the oldest of those that `run.started` names
    inherited_messages: int = 0  # the oldest of the conversation that the run goes on from
    output_bytes: int = 0  # what of an output is shown at most; 0: all of it
    through: int = 0  # messages of the conversation, from its start, whose outputs that holds for
    before_tokens: int = 0  # of the prompt, estimated
    after_tokens: int = 0


ApprovalMode = Literal["ask", "deny"]


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Limits of one run; None means the daemon's default."""

    tokens: int | None = None
    usd_micros: int | None = None
    wall_ms: int | None = None


class RunAccepted(Event, frozen=True, kw_only=True, gc=False):
    """The daemon promised to do this run."""

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
    tools: tuple[str, ...] | None = None  # handed down by the run that delegated; None: nobody did
    depth: int = 0  # how many runs delegated down to this one
    parent_run_id: str | None = None
    epoch: int | None = None  # of the session as it was accepted; None: not recorded yet then
    agent_version: int = 0  # of `agent`; 0 is embedded in the program
    channel: str | None = None  # where the message came in, with the two that follow
    conversation_id: str | None = None
    sender: str | None = None
    brief: RequestOptions | None = None  # what the caller told it beside the message
    model_choice: ModelChoice = "pinned"  # how it came by `model`; older tapes never switched


class ConversationInherited(Event, frozen=True, kw_only=True, gc=False):
    """What was said in the run that this one was forked from; a long one takes several events.

    Without a run it is what the caller says was said: its word, and no tape's.
    """

    KIND = "conversation.inherited"
    run_id: str  # the other run; "": the caller gave the messages
    at_seq: int  # its last event that counts
    link: str  # of that event in the journal's chain, hex
    messages: tuple[Message, ...]


class MessageReceived(Event, frozen=True, kw_only=True, gc=False):
    """The text the run is about; a collected run has one for each message, as it came."""

    KIND = "message.received"
    text: str
    attachments: tuple[dict[str, Any], ...] = ()
    references: tuple[dict[str, Any], ...] = ()
    by: str = ""  # the principal who sent it
    results: tuple[ToolMessage, ...] = ()  # of calls that were handed over to the client


class RunStarted(Event, frozen=True, kw_only=True, gc=False):
    """The run left the queue."""

    KIND = "run.started"
    HAS_FOREIGN_TEXT = False
    instance_id: str
    history: tuple[str, ...] = ()  # earlier runs of the session that the model is shown, in order
    history_is_cut: bool = False  # an older one did not fit
    is_tainted: bool = False  # by one of them


class RoutePlanned(RoutePlan, Event, frozen=True, kw_only=True, gc=False):
    """Which model should answer, and which one does."""

    KIND = "route.planned"
    HAS_FOREIGN_TEXT = False


class RouteChanged(RouteChange, Event, frozen=True, kw_only=True, gc=False):
    """Another model takes over, from here on."""

    KIND = "route.changed"
    HAS_FOREIGN_TEXT = False


class ContextCompacted(Compaction, Event, frozen=True, kw_only=True, gc=False):
    """The prompt was too large: from here on the model is shown less."""

    KIND = "context.compacted"
    HAS_FOREIGN_TEXT = False


class ContextAssembled(Event, frozen=True, kw_only=True, gc=False):
    """What the model is about to see."""

    KIND = "context.assembled"
    HAS_FOREIGN_TEXT = False
    turn: int
    segments: tuple[dict[str, Any], ...]
    input_tokens: int
    prefix_hash: str
    catalogue_hash: str
    memories: tuple[str, ...] = ()


class TurnStarted(Event, frozen=True, kw_only=True, gc=False):
    """A model request was sent."""

    KIND = "turn.started"
    HAS_FOREIGN_TEXT = False
    turn: int
    attempt: int
    provider: str
    model: str
    continues: bool = False  # the text of the turn before, which was cut off


class TurnCompleted(Event, frozen=True, kw_only=True, gc=False):
    """The model's whole answer."""

    KIND = "turn.completed"
    turn: int
    text: str
    calls: tuple[ProposedCall, ...]
    finish_reason: FinishReason
    usage: Usage
    cost_usd_micros: int = 0
    trace_ref: str | None = None
    is_unpriced: bool = False  # its model has no price: the cost is not known


class TurnFailed(Event, frozen=True, kw_only=True, gc=False):
    """The provider did not deliver."""

    KIND = "turn.failed"
    turn: int
    attempt: int
    failure_class: FailureClass = msgspec.field(name="class")
    retry: bool
    detail: str
    delay_ms: int = 0
    charge: Charge | None = None  # what it took all the same
    was_asked: bool = True  # False: there was no call, so the ledger has none


class BudgetExceeded(Event, frozen=True, kw_only=True, gc=False):
    """The model was not called: a budget does not allow it."""

    KIND = "budget.exceeded"
    turn: int
    attempt: int
    budget_id: str
    scope: BudgetScope
    subject: str  # whose account it is
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None = None
    spent: int
    limit: int
    rolls_ms: int | None = None  # when something of it is free again; None: never
    action: BudgetAction
    model: str
    is_unpriced: bool = False  # the budget is money, and nobody knows what the model costs


class SteerReceived(Event, frozen=True, kw_only=True, gc=False):
    """A word to a run under way; reaches the model at the next boundary."""

    KIND = "steer.received"
    text: str
    by: str
    attachments: tuple[dict[str, Any], ...] = ()


class AnswerRejected(Event, frozen=True, kw_only=True, gc=False):
    """The model's last text is not an answer; it is told so, once in a run."""

    KIND = "answer.rejected"
    reason: str  # a code (core.answer)
    guidance: str = ""  # what the model is told


class GuardWarned(Event, frozen=True, kw_only=True, gc=False):
    """The run repeats itself; the model is told."""

    KIND = "guard.warned"
    rule: Rule
    call: str  # which, as a person may read it
    count: int
    guidance: str  # what the model is told


class GuardBlocked(Event, frozen=True, kw_only=True, gc=False):
    """The run repeats itself and ends for that."""

    KIND = "guard.blocked"
    rule: Rule
    call: str
    count: int


class MessageCompleted(Event, frozen=True, kw_only=True, gc=False):
    """The answer, whole or partial: the run's last event says which."""

    KIND = "message.completed"
    text: str
    calls: tuple[ProposedCall, ...] = ()  # handed over to the client, with the text before them


class RunRecovered(Event, frozen=True, kw_only=True, gc=False):
    """The daemon restarted and goes on; charged before anything is dispatched."""

    KIND = "run.recovered"
    HAS_FOREIGN_TEXT = False
    attempt: int
    from_seq: int
    abandoned: Charge | None = None  # the model call under way when the daemon ended, estimated


class RunDone(Event, frozen=True, kw_only=True, gc=False):
    """Ended with an answer: `answered`, or `partial` with the cause and what is missing."""

    KIND = "run.done"
    reason: str
    cause: str = ""  # a code
    missing: str = ""  # the same as a sentence


class RunFailed(Event, frozen=True, kw_only=True, gc=False):
    """Ended without; `action` says what somebody can do about it."""

    KIND = "run.failed"
    failure_class: str = msgspec.field(name="class")
    reason: str
    action: str
    abandoned: Charge | None = None  # the model call that its end stopped


class RunCancelled(Event, frozen=True, kw_only=True, gc=False):
    """Ended because somebody said so."""

    KIND = "run.cancelled"
    reason: str
    by: str
    abandoned: Charge | None = None  # the model call that it stopped


def _kinds() -> dict[str, type[Event]]:
    return {cls.KIND: cls for cls in Event.__subclasses__()}


KINDS: dict[str, type[Event]] = _kinds()
TERMINAL_KINDS: frozenset[str] = frozenset({"run.done", "run.failed", "run.cancelled"})
_ENCODER = msgspec.json.Encoder()
_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}


def encode_event(event: Event) -> bytes:
    """The event's JSON payload; field order is fixed."""
    return _ENCODER.encode(event)


def decode_event(kind: str, data: bytes) -> Event:
    """The event behind a stored row.  Raises InvariantBroken for a kind this version lacks."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise InvariantBroken(f"unknown event kind {kind!r}: the tape is from a newer version")
    return decoder.decode(data)
