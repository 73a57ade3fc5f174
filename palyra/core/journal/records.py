"""Records: one row per object, committed in the transaction of the events that change it.

A record is a projection that a fold of the tape can rebuild (runs, approvals, usage), or a small
durable fact of its own (sessions, session checkpoints, idempotency records, tokens, agents,
channels, pairings, grants, budgets, incidents, memories, tasks, schedules).  The wire shows them as
they are.
"""

from typing import Annotated, Any, Literal

import msgspec

from palyra.core.journal.procedure import Procedure
from palyra.core.trust.labels import Trust

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
DEFAULT_WORKSPACE = "default"  # name of `tools.workspace`


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens used; `source` says whether the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    source: Literal["provider", "estimate"] = "estimate"
    cached_tokens: int = 0  # of the input: read from the provider's cache, usually cheaper
    cache_write_tokens: int = 0  # of the input: written to that cache, sometimes at a higher price
    reasoning_tokens: int = 0  # of the output: reasoning, as far as the provider reports it

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum, with the source of `other`."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            source=other.source,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class Charge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Usage of a model call without a complete turn; without a price the cost is None."""

    usage: Usage = Usage()
    cost_usd_micros: int | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run as `run.get` shows it, except the derived phase."""

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
    unpriced_calls: int = 0  # model calls with unknown cost, which that sum leaves out
    turns: int = 0
    tool_calls: int = 0
    pending_approvals: int = 0
    reason: str | None = None
    parent_run_id: str | None = None
    attempts: int = 0
    purged_ms: int | None = None  # when its content was removed for good
    depth: int = 0  # number of delegating runs above it
    is_tainted: bool = False  # text with injection findings reached it; unknown of older runs

    @property
    def is_terminal(self) -> bool:
        """True if the run has ended."""
        return self.state in TERMINAL


class Pin(msgspec.Struct, frozen=True, gc=False):
    """A pinned message or tool result: the event of the tape that brought it."""

    run_id: str
    seq: int


Role = Literal["operator", "client", "person", "approver", "observer"]
SessionMode = Literal["ask", "accept_edits", "plan"]  # `core.policy.modes` has their meaning


class ModeChange(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The last change of a session's mode, by a principal who may answer approvals."""

    by: str  # principal
    role: Role  # of the token; the rules decide about it as about an answer
    at_ms: int
    before: SessionMode = "ask"  # the mode that an accepted plan returns to
    earlier: "ModeChange | None" = None  # the change to it: who chose `accept_edits` answers for it


class SessionPurge(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The request to remove the content of a session for good, on record before anything goes."""

    purge_id: str
    by: str  # principal
    requested_ms: int
    done_ms: int | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A conversation; (principal, key) is unique if a key was given."""

    session_id: str
    principal: str
    key: str | None
    created_ms: int
    updated_ms: int
    archived_ms: int | None = None
    epoch: int = 0  # raised by `session.reset`, which invalidates earlier grants and history
    queue_mode: QueueMode = "followup"  # of messages that name none
    paused_ms: int | None = None  # since when the queue is paused
    waiting: tuple[str, ...] = ()  # queued runs, next one first
    # With a channel: (principal, agent, channel, conversation) is unique until it is archived.
    agent: str | None = None
    channel: str | None = None
    conversation_id: str | None = None
    pins: tuple[Pin, ...] = ()  # messages that compactions keep verbatim
    purge: SessionPurge | None = None
    workspace: str = DEFAULT_WORKSPACE  # by name; a session keeps it
    title: str = ""  # the first words of its first message, as they are on the tape, or a given one
    mode: SessionMode = "ask"
    mode_set: ModeChange | None = None  # None: the mode was never changed

    @property
    def is_purging(self) -> bool:
        """True if a purge was requested and is not complete."""
        return self.purge is not None and self.purge.done_ms is None

    @property
    def place(self) -> "Place | None":
        """Origin of its messages; None without a channel, or once it is archived."""
        if self.agent is None or self.channel is None or self.conversation_id is None:
            return None
        if self.archived_ms is not None:
            return None
        return self.principal, self.agent, self.channel, self.conversation_id


Place = tuple[str, str, str, str]  # principal, agent, channel, conversation


class SessionCheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A point of a session that a branch can start from.

    A compaction is such a point by itself, just before it was applied; its id is the checkpoint's.
    """

    checkpoint_id: str
    principal: str
    session_id: str
    run_id: str
    seq: int  # last event of that run that belongs to it
    created_ms: int
    name: str = ""
    cause: Literal["request", "compaction"] = "request"
    compaction_ids: tuple[str, ...] = ()  # applied before it, newest first
    file_checkpoint_ids: tuple[str, ...] = ()  # of the session's changes before it, newest first


ApprovalState = Literal["pending", "allowed", "denied", "aborted"]
ApprovalScope = Literal["once", "session", "timeboxed"]


LISTED_BYTES = 16_384  # of an approval's arguments in a list of 500


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
    grant_key: str = ""  # scope of an answer beyond once; "": none is possible
    covers: tuple[str, ...] = ()  # further identical calls of the turn that the answer covers
    inspection: Any = None  # preflight of the call, redacted
    uses: int = 0  # calls that have started on it: each at most once
    once_because: str = ""  # why no wider scope is offered; "": one is
    parent_run_id: str | None = None  # the run that delegated to the asking one
    workspace: str = DEFAULT_WORKSPACE  # of the session
    left_out_bytes: int = 0  # in a list: size of arguments that only the approval itself has

    def in_list(self) -> "ApprovalRecord":
        """Return the record for a list, which has no long arguments: a reply has a bound."""
        size_bytes = len(self.arguments)
        if size_bytes + len(self.reason or "") <= LISTED_BYTES:
            return self
        empty = msgspec.Raw(b"{}")
        return msgspec.structs.replace(self, arguments=empty, left_out_bytes=size_bytes)

    @property
    def is_open(self) -> bool:
        """True if a call may still start on this approval."""
        return self.state == "allowed" and self.uses <= len(self.covers)


GrantScope = Literal["session", "timeboxed"]


class GrantRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer for more than one call: the calls of one tool by one agent, with one key.

    With the scope `session` it is valid in that session until the session is reset; `timeboxed` is
    valid for the principal until it expires.  Neither holds in another workspace.
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
    approval_id: str  # the approval that created it
    by: str
    granted_ms: int
    expires_ms: int | None = None
    reason: str = ""
    ended_ms: int | None = None  # before it expired
    ended_by: str | None = None
    workspace: str = DEFAULT_WORKSPACE  # that it holds in

    def is_live(self, at_ms: int) -> bool:
        """True if it is in force at that time."""
        if self.expires_ms is None:
            return self.ended_ms is None
        # One that was granted in the future, by a clock that was ahead, would last too long.
        is_past = self.granted_ms <= at_ms + AHEAD_MS
        return self.ended_ms is None and is_past and at_ms < self.expires_ms


class IdempotencyRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first result for (principal, idempotency key); kept 24 h."""

    principal: str
    key: str
    body_sha256: str
    result: msgspec.Raw  # the JSON result of the first request
    created_ms: int


ConsoleRole = Literal["operator", "approver", "person", "observer"]  # of a person at a page


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A bearer token, stored as its SHA-256 only."""

    token_id: str
    sha256: str
    principal: str
    role: Role
    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    slide_ms: int | None = None  # a login of the console: each use lasts so long
    push: str = ""  # where a browser of it rings when a question waits; "": nowhere


MemoryScope = Literal["principal", "session", "none"]


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One version of an agent.  A version never changes: a change is the next version."""

    name: str
    version: int  # from 1; 0 is embedded in the program
    instructions: str
    model: str | None = None  # None: the daemon's default
    tools: tuple[str, ...] | None = None  # names; None: all there are
    labels: tuple[str, ...] = ()  # policies match agents by name and labels
    memory_scope: MemoryScope = "principal"  # what its runs recall
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None


PairingMode = Literal["open", "required"]


# How far memory, references, learning and procedures of a channel's runs go.
ChannelAudience = Literal["conversation", "principal"]


class ChannelRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The agent that answers a channel, or one conversation of it.

    Channels belong to a principal.  `revision` grows by one with each change.
    """

    principal: str
    channel: str
    conversation_id: str = ""  # "": every conversation without its own record
    agent: str
    pairing: PairingMode = "required"
    audience: ChannelAudience = msgspec.field(default="conversation", name="reach")  # stored so
    revision: int = 1
    created_ms: int
    updated_ms: int
    deleted_ms: int | None = None


PairingState = Literal["pending", "paired", "revoked"]


class PairingRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Permission of a sender to use a channel; its code is stored as SHA-256 only."""

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
    by: str | None = None  # principal that approved or revoked
    decided_ms: int | None = None


CallOutcome = Literal["completed", "failed", "abandoned"]


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Usage of one model call: a line of the ledger, which never changes."""

    run_id: str
    turn: int
    attempt: int
    session_id: str
    principal: str
    agent: str
    provider: str
    model: str
    outcome: CallOutcome  # abandoned: the run was cancelled or the daemon ended during the call
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of the input
    is_estimate: bool = False  # counted by the daemon, not by the provider
    cost_usd_micros: int | None = None  # None: there was no price
    at_ms: int

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


BudgetScope = Literal["global", "principal", "agent", "session", "run"]
BudgetMetric = Literal["tokens", "usd_micros"]
BudgetWindow = Literal["run", "hour", "day", "month", "sliding"]
BudgetAction = Literal["warn", "ask", "block"]


DAMAGED_BUDGET = "its record is damaged, so what it may limit is refused"


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A limit on tokens or cost in a time window, and the action at the limit.

    `subject` names one principal, agent, session or run; * means each of them, with a separate
    account.  `revision` grows by one with each change; 0 is a budget of the configuration.
    """

    budget_id: str
    scope: BudgetScope
    subject: str = "*"
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None = None  # length of a sliding window
    soft: int | None = None  # notify from here on
    hard: int | None = None  # take `action` from here on
    action: BudgetAction = "block"
    revision: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None
    by: str = ""  # principal that set or deleted it
    is_damaged: bool = False  # never stored: the row cannot be read, so the budget admits nothing


IncidentDomain = Literal[
    "run", "task", "approval", "provider", "store", "memory", "artifact", "tool_runtime", "edge"
]
IncidentSeverity = Literal["warning", "error", "critical"]  # the worst last
IncidentState = Literal["open", "remediating", "resolved", "escalated"]


class IncidentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A recorded problem and its resolution; see `core.incident.incident`."""

    incident_id: str
    domain: IncidentDomain
    key: str  # until it is resolved, reports with the same key are counted here
    severity: IncidentSeverity  # the worst so far
    summary: str
    evidence: dict[str, str | int] = {}  # of the last report
    state: IncidentState = "open"
    count: int = 1
    attempts: int = 0  # of remediation
    remedy: str = ""  # last attempted, or that healing in mode auto would attempt next
    remedied: str = ""  # outcome of the last attempt, or the reason of an escalation
    resolves_itself: bool = False  # the reporter also clears it
    opened_ms: int
    last_ms: int  # of the last report
    resolved_ms: int | None = None
    by: str | None = None  # principal that resolved it
    reason: str = ""  # of the resolution


MemoryKind = Literal["fact", "preference", "procedure", "decision", "note", "turn"]
ItemScope = Literal["principal", "channel", "session"]  # where an item of memory is recalled
MemorySource = Literal["client", "import", "tool", "learning", "conversation", "document"]
MemoryAction = Literal[
    "added",
    "imported",
    "updated",
    "edited",
    "superseded",
    "pinned",
    "unpinned",
    "hidden",
    "shown",
    "undone",
    "forgotten",
    "expired",
    "purged",
]


EventSeq = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]  # exact in every JSON parser


class Lineage(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Events that an item of memory was taken from."""

    run_id: str
    first_seq: EventSeq = 0
    last_seq: EventSeq | None = None  # None: to the end of the run


class MemoryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One item of memory; see `core.memory.items`.

    Its place is (principal, scope, channel, session_id): a search of another place never sees it.
    `revision` grows by one with each change, and the store keeps the earlier revisions.
    """

    memory_id: str
    principal: str
    kind: MemoryKind = "note"
    text: str
    scope: ItemScope = "principal"
    channel: str | None = None
    session_id: str | None = None  # the conversation it is from; with scope "session" its place
    author: str | None = None
    at_ms: int  # of the statement, which an import may have from long ago
    tags: tuple[str, ...] = ()
    confidence_bps: int = 10_000
    source: MemorySource = "client"
    lineage: tuple[Lineage, ...] = ()
    trust: Trust = "trusted_local"  # lowest label of the texts it was made from
    pinned: bool = False
    never_recall: bool = False
    valid_from_ms: int
    expires_ms: int | None = None
    superseded_by: str | None = None
    superseded_ms: int | None = None
    text_hash: str  # of the text without case, punctuation and space
    revision: int = 1
    created_ms: int
    changed_ms: int
    changed_by: str  # principal
    action: MemoryAction = "added"  # that made this revision

    def is_live(self, at_ms: int) -> bool:
        """True if a search at that time may return the item."""
        is_current = self.superseded_by is None and not self.never_recall
        return is_current and (self.expires_ms is None or at_ms < self.expires_ms)


class MemoryRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deletion of items with their index entries, vectors and earlier revisions.

    Only the log keeps a line about each: the id and the time, no text.
    """

    principal: str
    memory_ids: tuple[str, ...] | None  # None: every item and every use of the principal
    at_ms: int
    by: str
    action: MemoryAction = "forgotten"


FROM_THE_START = -1  # an index is made again


class IndexedItem(msgspec.Struct, frozen=True, gc=False):
    """Entry of an item of memory in the text index, of that revision."""

    row: int
    revision: int
    text: str
    when: str


class MemoryReindex(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Entries of the text index for the rows `after_row` + 1 to `through_row`.

    It has no effect unless the index is made again up to `after_row`.  `FROM_THE_START` empties the
    index, to be made again for all rows.
    """

    after_row: int
    through_row: int = 0
    entries: tuple[IndexedItem, ...] = ()


class MemoryVector(msgspec.Struct, frozen=True, gc=False):
    """Vector of one row: component i is `scale` times byte i, read as a signed number."""

    row: int
    text_hash: str  # of the text that was embedded; another text needs another vector
    scale: float
    values: bytes


class MemoryVectors(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Vectors for rows that have none of this embedder."""

    embedder: str
    vectors: tuple[MemoryVector, ...]
    of: Literal["items", "turns"] = "items"


class IndexedTurn(msgspec.Struct, frozen=True, gc=False):
    """Entry of a message, an answer or an output in the search index, made from its event."""

    run_id: str
    seq: int
    session_id: str
    is_user: bool
    chars: int
    text: str  # columns of the text index
    when: str
    is_output: bool = False  # of a tool


class TurnIndexing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Entries of the tapes up to a position.

    It has no effect unless the tapes are indexed up to `after_position`, or that is `FROM_THE_START`.
    """

    after_position: int
    through_position: int
    turns: tuple[IndexedTurn, ...] = ()
    is_last: bool = False  # the tapes end at that position


class RunRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Replacement of the payloads of an ended run, and deletion of its approvals.

    It belongs to the change that appends `run.purged`.
    """

    run_id: str
    events: int  # from the first on
    at_ms: int
    keeps_accepted: bool = False  # procedures that a person accepted outlive the age of their tapes


class LineageTrim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Remaining lineage of an item, whose earlier revisions are deleted."""

    memory_id: str
    lineage: tuple[Lineage, ...]


class SessionRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deletion of the traces of a session outside of its tapes: marks, uses, grants, receipts, incidents.

    A receipt holds the reply to a request: of one about the session also its key, or an approval.
    """

    session_id: str
    trims: tuple[LineageTrim, ...] = ()


class WorkRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deletion of the tasks and schedules of a session, with their receipts and incidents.

    They are those of the principal that name the session, its key or a run of it, and the tasks of
    such schedules.  Without a session it is all of the principal.
    """

    principal: str
    session_id: str | None
    key: str | None = None


class IncidentRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deletion of the oldest incidents that were resolved up to a time."""

    until_ms: int
    limit: int


class TaskRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Deletion of the oldest tasks that ended up to a time, with their results."""

    until_ms: int
    limit: int


class PageRelease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Return of free pages of the database file to the file system."""

    pages: int


MemoryWay = Literal["auto", "standing", "tool", "reference"]


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One item that a run was given, with the parts of its score."""

    memory_id: str
    score: float
    parts: dict[str, float] = {}


class MemoryUseRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Items that one recall gave a run, with the question."""

    use_id: str
    run_id: str
    session_id: str
    principal: str
    way: MemoryWay
    question: str  # its start, redacted
    at_ms: int
    items: tuple[MemoryUse, ...] = ()


CandidateKind = Literal["fact", "preference", "procedure"]
CandidateState = Literal["proposed", "suppressed", "applied", "rejected", "undone", "superseded"]
CandidateAction = Literal[
    "proposed",
    "suppressed",
    "seen",
    "edited",
    "applied",
    "rejected",
    "undone",
    "superseded",
    "restored",
    "withdrawn",
]
CandidateSource = Literal["rules", "model", "both"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Words of an event that a candidate was taken from."""

    run_id: str
    seq: EventSeq
    quote: str  # verbatim


class CandidateChange(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One line of the history of a candidate."""

    action: CandidateAction
    state: CandidateState  # after it
    by: str  # principal; "": the daemon
    at_ms: int
    text: str | None = None  # before an edit


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that a run may teach; see `core.learning.candidates`.

    `revision` grows by one with each change.
    """

    candidate_id: str
    principal: str
    session_id: str
    kind: CandidateKind
    text: str
    score_bps: int
    signals: dict[str, int]  # summands of the score
    evidence: tuple[Evidence, ...]
    trust: Trust  # lowest label of the run's texts
    key: str  # equal for the same statement
    is_confined: bool = False  # to the conversation of a channel: recalled in its session alone
    source: CandidateSource = "rules"
    state: CandidateState
    memory_id: str | None = None  # the item that shows it while it is applied
    memory_revision: int | None = None  # of that item, after the last change of the candidate
    revision_before: int | None = None  # of that item, before it was applied; 0: it was added
    superseded_id: str | None = None  # the item, or the procedure, that this one corrected
    corrects: str = ""  # id of the item that it is to supersede
    procedure: Procedure | None = None  # of that kind
    revision: int = 1
    created_ms: int
    changed_ms: int
    changes: tuple[CandidateChange, ...] = ()


class ReflectionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Proof that a run was read for learning; without any text of it."""

    run_id: str
    session_id: str
    principal: str
    at_ms: int
    is_tainted: bool = False
    candidate_ids: tuple[str, ...] = ()
    refused: dict[str, int] = {}  # number of statements by the reason why they are none


DocumentCause = Literal["apply", "sync", "restore", "forget"]


class DocumentEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a managed block, as a version of a workspace document has it."""

    entry_id: str  # of the memory item that it shows, or ent_… of one typed by hand
    text: str  # in the file; "" once it was forgotten
    asked: str | None = None  # the text that the daemon last asked for; None: only a person did
    trust: Trust = "trusted_local"
    by: str = ""  # principal that wrote or confirmed the text; "": the daemon
    has_conflict: bool = False  # a person edited an entry that the daemon also changed
    pending: str | None = None  # then: the text that was not written; None: a removal


class DocumentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One version of a workspace document: its managed blocks, and the digest of the whole file.

    It is committed before the file is written (`is_pending`), and again afterwards, so that after a
    crash the next reader knows both states that the file may have.
    """

    workspace: str  # absolute
    document: str
    version: int  # from 1
    sha256: str  # hex, of the whole file
    size_bytes: int
    cause: DocumentCause
    by: str  # principal; "": the daemon
    at_ms: int
    blocks: dict[str, tuple[DocumentEntry, ...]]
    removed: tuple[str, ...] = ()  # entries that a person deleted: not written again
    forgotten: tuple[str, ...] = ()  # entries that are removed wherever they are found
    checkpoint_id: str | None = None  # of the change of the file; None: the file was not changed
    is_pending: bool = False
    scrubs: int = 0  # how often texts of this version were forgotten later


TaskKind = Literal[
    "reflection",
    "compaction",
    "embed",
    "prompt",
    "delegation",
    "cleanup",
    "maintenance",
    "memory_rebuild",
]
TaskState = Literal["queued", "running", "paused", "succeeded", "failed", "cancelled", "expired"]


class TaskLease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right of one worker to a running task: the owner epoch of its process, and its attempt."""

    epoch: int
    attempt: int  # from 1
    until_ms: int


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One revision of a background task; see `core.task.life`."""

    task_id: str
    kind: TaskKind
    principal: str
    payload: dict[str, Any] = {}
    priority: int = 5
    rank_ms: int  # the order: the lowest is claimed first
    state: TaskState = "queued"
    created_ms: int
    not_before_ms: int
    expires_ms: int | None = None
    attempts: int = 0
    max_attempts: int = 3
    lease: TaskLease | None = None  # while it is running
    progress_ms: int | None = None  # of the last sign of real progress
    finished_ms: int | None = None
    run_id: str | None = None  # of the run that does the work; every attempt continues it
    result: dict[str, Any] = {}
    error: str = ""  # of the last attempt, or the reason of the end
    firing: str | None = None  # key of the firing of a schedule that submitted it
    retry_of: str | None = None  # the ended task that this one repeats
    revision: int = 1

    @property
    def is_final(self) -> bool:
        """True if the task has ended."""
        return self.state in {"succeeded", "failed", "cancelled", "expired"}


SkillState = Literal["enabled", "quarantined"]
MissedPolicy = Literal["skip", "once", "all"]
OverlapPolicy = Literal["forbid", "queue", "replace"]


class Cron(msgspec.Struct, frozen=True, kw_only=True, tag="cron", tag_field="timing", gc=False):
    """Instants of a cron expression of five fields in a time zone."""

    expression: str
    zone: str = "UTC"  # IANA name


class Every(msgspec.Struct, frozen=True, kw_only=True, tag="every", tag_field="timing", gc=False):
    """Instants `anchor_ms` + n · `period_ms`, n ≥ 1."""

    period_ms: int
    anchor_ms: int


class At(msgspec.Struct, frozen=True, kw_only=True, tag="at", tag_field="timing", gc=False):
    """One instant."""

    at_ms: int


Timing = Cron | Every | At


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One revision of a schedule: when it fires, and the task that a firing submits."""

    schedule_id: str
    principal: str
    name: str
    timing: Timing
    kind: TaskKind
    payload: dict[str, Any] = {}
    priority: int = 5
    max_attempts: int = 3
    expires_after_ms: int | None = None  # after its instant, a task that has not ended expires
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "forbid"
    is_paused: bool = False
    handled_ms: int  # the newest instant that was decided about
    next_ms: int | None = None  # the next instant to decide about; None: there is none, or paused
    fired: int = 0  # tasks submitted
    left_out: int = 0  # instants without a task because an earlier one had not ended
    created_ms: int
    revision: int = 1
    removed_ms: int | None = None
    believed_ms: int | None = None  # `handled_ms` before it was set back, since the clock was ahead


Record = (
    RunRecord
    | SessionRecord
    | SessionCheckpointRecord
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
    | MemoryRecord
    | MemoryRemoval
    | MemoryReindex
    | MemoryVectors
    | TurnIndexing
    | MemoryUseRecord
    | DocumentRecord
    | CandidateRecord
    | ReflectionRecord
    | TaskRecord
    | ScheduleRecord
    | RunRemoval
    | SessionRemoval
    | WorkRemoval
    | IncidentRemoval
    | TaskRemoval
    | PageRelease
)
RECEIPT_TTL_MS = 86_400_000
TASK_KEPT_MS = 604_800_000  # ended tasks: a week
AHEAD_MS = 60_000  # a time that is further in the future was written by a clock that was ahead
