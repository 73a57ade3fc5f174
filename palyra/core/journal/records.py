"""Records: one row per thing, written in the transaction of the events they follow from.

A record is a projection (a fold of the tape gives it again) or, for sessions, receipts, tokens,
agents, channels, pairings, grants and incidents, a small durable fact of its own.  The wire shows
them as they are.
"""

from typing import Any, Literal

import msgspec

RunState = Literal["accepted", "in_progress", "done", "failed", "cancelled"]
RunPhase = Literal[
    "queued",
    "in_progress",
    "awaiting_approval",
    "recovering",
    "stranded",
    "done",
    "failed",
    "cancelled",
]
QueueMode = Literal["followup", "collect", "steer", "interrupt", "reject"]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens spent; `source` tells who counted."""

    input_tokens: int = 0
    output_tokens: int = 0
    source: Literal["provider", "estimate"] = "estimate"
    cached_tokens: int = 0  # of the input: read from the provider's cache, mostly cheaper
    cache_write_tokens: int = 0  # of the input: written to that cache, sometimes dearer
    reasoning_tokens: int = 0  # of the output: what the model thought, as far as it was told

    def plus(self, other: "Usage") -> "Usage":
        """Both together, counted by whoever counted the other one."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            source=other.source,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class Charge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a model call took that gave no whole turn; without a price the cost is not known."""

    usage: Usage = Usage()
    cost_usd_micros: int | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What `run.get` shows of one run, except the derived phase."""

    run_id: str
    session_id: str
    state: RunState
    principal: str
    agent: str
    model: str
    created_ms: int
    head_seq: int
    started_ms: int | None = None
    finished_ms: int | None = None
    usage: Usage = Usage()
    cost_usd_micros: int = 0
    unpriced_calls: int = 0  # model calls whose cost is not known, and not in that sum
    turns: int = 0
    tool_calls: int = 0
    pending_approvals: int = 0
    reason: str | None = None
    parent_run_id: str | None = None
    attempts: int = 0

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for good."""
        return self.state in TERMINAL


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A conversation: (principal, key) is unique when a key was given."""

    session_id: str
    principal: str
    key: str | None
    created_ms: int
    updated_ms: int
    archived_ms: int | None = None
    epoch: int = 0  # raised by `session.reset`: grants and history before it no longer count
    queue_mode: QueueMode = "followup"  # of messages that name none
    paused_ms: int | None = None  # since when nothing leaves the queue
    waiting: tuple[str, ...] = ()  # runs that have not had their turn, next one first
    # With a channel: (principal, agent, channel, conversation) is unique until it is archived.
    agent: str | None = None
    channel: str | None = None
    conversation_id: str | None = None

    @property
    def place(self) -> "Place | None":
        """Where its messages come from; None without a channel, or once it is archived."""
        if self.agent is None or self.channel is None or self.conversation_id is None:
            return None
        if self.archived_ms is not None:
            return None
        return self.principal, self.agent, self.channel, self.conversation_id


Place = tuple[str, str, str, str]  # principal, agent, channel, conversation


ApprovalState = Literal["pending", "allowed", "denied", "aborted"]
ApprovalScope = Literal["once", "session", "timeboxed"]


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One question to a person and, once resolved, its answer."""

    approval_id: str
    run_id: str
    session_id: str
    call_id: str
    principal: str
    tool: str
    risk: str
    summary: str
    arguments: msgspec.Raw  # JSON object, exact and redacted
    digest: str
    scopes: tuple[ApprovalScope, ...]
    policy_reason: str
    requested_ms: int
    expires_ms: int
    state: ApprovalState = "pending"
    scope: ApprovalScope | None = None
    by: str | None = None
    reason: str | None = None
    resolved_ms: int | None = None
    agent: str = ""
    grant_key: str = ""  # what an answer beyond once would hold for; "": it cannot
    covers: tuple[str, ...] = ()  # further calls of the turn, identical, that the answer is for
    inspection: Any = None  # what the call would meet, redacted
    uses: int = 0  # calls that have started on it: each at most once
    once_because: str = ""  # why no wider scope is offered; "": one is

    @property
    def is_open(self) -> bool:
        """Whether a call may still start on it."""
        return self.state == "allowed" and self.uses <= len(self.covers)


GrantScope = Literal["session", "timeboxed"]


class GrantRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer that holds for more than one call: of one agent's calls of one tool with one key.

    One with the scope `session` holds in that session until it is reset; one that is timeboxed
    holds for the principal until it expires.
    """

    grant_id: str
    principal: str
    agent: str
    tool: str
    key: str
    decision: Literal["allow", "deny"]
    scope: GrantScope
    session_id: str
    epoch: int  # of the session
    approval_id: str  # the question that was answered so
    by: str
    granted_ms: int
    expires_ms: int | None = None
    reason: str = ""
    ended_ms: int | None = None  # before it expired
    ended_by: str | None = None

    def is_live(self, at_ms: int) -> bool:
        """Whether it holds then."""
        return self.ended_ms is None and (self.expires_ms is None or at_ms < self.expires_ms)


class IdempotencyRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first answer to (principal, idempotency key); kept 24 h."""

    principal: str
    key: str
    body_sha256: str
    result: msgspec.Raw  # the JSON result that was or will be replied
    created_ms: int


Role = Literal["operator", "client", "approver", "observer"]


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A bearer token as the daemon knows it: never the token, only its SHA-256."""

    token_id: str
    sha256: str
    principal: str
    role: Role
    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


MemoryScope = Literal["principal", "session", "none"]


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who answers, in one version.  A version never changes: a change is the next version."""

    name: str
    version: int  # from 1; 0 is embedded in the program
    instructions: str
    model: str | None = None  # None: the daemon's default
    tools: tuple[str, ...] | None = None  # names; None: all there are
    labels: tuple[str, ...] = ()  # what policies know the agent by, besides its name
    memory_scope: MemoryScope = "principal"  # kept for recall, which nothing does yet
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None


PairingMode = Literal["open", "required"]


class ChannelRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who answers what comes in through a channel, or through one conversation of it.

    Channels are a principal's own.  `revision` grows by one with each change.
    """

    principal: str
    channel: str
    conversation_id: str = ""  # "": every conversation without a record of its own
    agent: str
    pairing: PairingMode = "required"
    revision: int = 1
    created_ms: int
    updated_ms: int
    deleted_ms: int | None = None


PairingState = Literal["pending", "paired", "revoked"]


class PairingRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whether a sender may speak in a channel; the code itself is nowhere, only its SHA-256."""

    pairing_id: str
    principal: str
    channel: str
    sender: str
    state: PairingState
    code_sha256: str
    requested_ms: int
    expires_ms: int  # of the code
    attempts: int = 0  # wrong codes
    revision: int = 1
    by: str | None = None  # who approved or revoked
    decided_ms: int | None = None


CallOutcome = Literal["completed", "failed", "abandoned"]


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one model call took: a line of the ledger, which is never changed."""

    run_id: str
    turn: int
    attempt: int
    session_id: str
    principal: str
    agent: str
    provider: str
    model: str
    outcome: CallOutcome  # abandoned: the run was cancelled, or the daemon ended, under way
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of the input
    is_estimate: bool = False  # nobody but the daemon counted
    cost_usd_micros: int | None = None  # None: there was no price
    at_ms: int

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


BudgetScope = Literal["global", "principal", "agent", "session", "run"]
BudgetMetric = Literal["tokens", "usd_micros"]
BudgetWindow = Literal["run", "hour", "day", "month", "sliding"]
BudgetAction = Literal["warn", "ask", "block"]


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much may be spent: by whom, of what, in which time, and what happens then.

    `subject` names one principal, agent, session or run; * stands for each of them, with an
    account of its own.  `revision` grows by one with each change; 0 is one of the configuration.
    """

    budget_id: str
    scope: BudgetScope
    subject: str = "*"
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None = None  # how long a sliding one is
    soft: int | None = None  # from here on somebody is told
    hard: int | None = None  # from here on `action` counts
    action: BudgetAction = "block"
    revision: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None
    by: str = ""  # who set or deleted it


IncidentDomain = Literal[
    "run", "task", "approval", "provider", "store", "memory", "tool_runtime", "edge"
]
IncidentSeverity = Literal["warning", "error", "critical"]  # the worst last
IncidentState = Literal["open", "remediating", "resolved", "escalated"]


class IncidentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that was found to be wrong, until it is resolved; see `core.incident.incident`."""

    incident_id: str
    domain: IncidentDomain
    key: str  # while this is not resolved, an alarm with the same one is counted here
    severity: IncidentSeverity  # the worst so far
    summary: str
    evidence: dict[str, str | int] = {}  # of the last time
    state: IncidentState = "open"
    count: int = 1
    attempts: int = 0  # to do something about it
    resolves_itself: bool = False  # when what raised the alarm says that it is over
    opened_ms: int
    last_ms: int  # when it was found last
    resolved_ms: int | None = None
    by: str | None = None  # who resolved it
    reason: str = ""  # why it is


Record = (
    RunRecord
    | SessionRecord
    | ApprovalRecord
    | IdempotencyRecord
    | TokenRecord
    | AgentRecord
    | ChannelRecord
    | PairingRecord
    | GrantRecord
    | UsageRecord
    | BudgetRecord
    | IncidentRecord
)
RECEIPT_TTL_MS = 86_400_000
