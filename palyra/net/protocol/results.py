"""Results of methods, as the daemon encodes them and the client decodes them.

Each result is defined once.  A method whose result is missing here answers with a struct of `core`:
a record that is sent as it is stored (SessionRecord, ApprovalRecord, GrantRecord) or a view
(RunView, UsageView, AccountsView, ModelList).  The other records have a struct of their own here
because the wire hides a field of theirs (a digest, a revision) or leaves out what is null.

Compatibility: the client ignores members it does not know, and takes any string where the values
are `known`.  A field that is added needs a default, since an older daemon does not send it.
"""

from typing import Annotated

import msgspec

from palyra.core.configuration import StoredSecret
from palyra.core.healing.rules import HealingMode
from palyra.core.journal.changes import MemoryLogLine
from palyra.core.journal.procedure import Procedure
from palyra.core.journal.records import (
    ApprovalRecord,
    BudgetAction,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
    CandidateChange,
    CandidateKind,
    CandidateSource,
    CandidateState,
    ChannelAudience,
    Evidence,
    GrantRecord,
    IncidentDomain,
    IncidentSeverity,
    IncidentState,
    ItemScope,
    Lineage,
    MemoryAction,
    MemoryKind,
    MemoryScope,
    MemorySource,
    MemoryUseRecord,
    PairingMode,
    PairingState,
    Role,
    SessionRecord,
    SkillState,
)
from palyra.core.log_lines import LogLine
from palyra.core.memory.items import SearchMode
from palyra.core.memory.vectors import EmbedderView
from palyra.core.notice import NoticeSent
from palyra.core.session.commands import RunView, Started
from palyra.core.suspension import Suspension
from palyra.core.task.views import ScheduleView, TaskView
from palyra.core.tool.mcp import McpPrompt, McpResource, McpServerView
from palyra.core.tool.spec import Risk, ToolClass, ToolSpec
from palyra.core.trust.labels import Trust
from palyra.net.protocol.notifications import State, TapeItem
from palyra.net.protocol.open_values import known
from palyra.net.protocol.params import Integer


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of results: members that have their default value are left out."""


# --- connection and daemon


class Declined(Result, frozen=True, kw_only=True):
    """A wanted feature this daemon does not have."""

    feature: str
    reason: str


class Welcome(Result, frozen=True, kw_only=True):
    """Identity of the client as authenticated, and the features granted to it."""

    principal: str
    role: Annotated[str, known(Role)]
    scopes: tuple[str, ...]
    granted: tuple[str, ...]
    declined: tuple[Declined, ...]
    state: Annotated[str, known(State)]


class Pong(Result, frozen=True, kw_only=True):
    """The daemon's clock."""

    now_ms: int


class Status(Result, frozen=True, kw_only=True):
    """Health and version; figures over all principals only for those who see all."""

    state: Annotated[str, known(State)]
    version: str
    instance_id: str
    protocol: str
    now_ms: int
    is_writable: bool
    journal_backlog: int | None = None
    connections: int | None = None
    stranded_runs: int | None = None  # open, and cannot be resumed: see the log
    open_incidents: int | None = None  # not resolved yet: `incident.list`
    problems: tuple[str, ...] = ()  # what has to be repaired: broken policies, for example
    absent: tuple[
        str, ...
    ] = ()  # optional programs and parts this machine lacks, each with its remedy
    embedder: EmbedderView | None = None  # of the memory
    suspension: Suspension | None = None  # new runs are refused until `system.resume`


class SuspensionState(Result, frozen=True, kw_only=True):
    """The suspension in force, None without one."""

    suspension: Suspension | None = None


class DrainBegun(Result, frozen=True, kw_only=True):
    """The daemon ends when no run can make progress, or after `close_after_ms`."""

    close_after_ms: int


class SecretList(Result, frozen=True, kw_only=True):
    """The secrets of the vault by name, without values."""

    secrets: list[StoredSecret]


class NoticesTried(Result, frozen=True, kw_only=True):
    """The test of each address that gets notices of questions."""

    sent: list[NoticeSent]


class SecretRemoved(Result, frozen=True, kw_only=True):
    """The secret that was removed."""

    name: str


class LogPage(Result, frozen=True, kw_only=True):
    """Lines of the daemon's log; the next request continues after `next_after`."""

    lines: list[LogLine]
    next_after: int
    dropped: int = 0  # lines after `after` that are no longer kept
    instance_id: str  # numbers begin at 1 in each instance


class Token(Result, frozen=True, kw_only=True):
    """A token record; the secret, `token`, is in the first reply to its creation only."""

    token_id: str
    principal: str
    role: Annotated[str, known(Role)]
    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    slide_ms: int | None = None  # a login of the console: each use extends it by this
    token: str | None = None


class ConsoleLink(Result, frozen=True, kw_only=True):
    """A link that logs a browser in once; the secret is in its fragment."""

    url: str
    principal: str
    role: Annotated[str, known(Role)]
    expires_ms: int  # of the link


class TokenList(Result, frozen=True, kw_only=True):
    """All tokens, without their secrets."""

    tokens: list[Token]


# --- runs and tapes


class StartedRun(Started, frozen=True, kw_only=True):
    """The run that the message belongs to; committed."""

    subscription: str | None = None  # with `subscribe`: what `tape.unsubscribe` takes


class RunWaited(RunView, frozen=True, kw_only=True):
    """The run, and whether the wait timed out."""

    timed_out: bool


class RunList(Result, frozen=True, kw_only=True):
    """A page of runs."""

    runs: list[RunView]
    next_cursor: str | None = None


class TapeItems(Result, frozen=True, kw_only=True):
    """A page of events and the cursor of the next one; `bytes` is the size of the payloads."""

    events: list[TapeItem]
    head_seq: int
    floor_seq: int
    bytes: int
    next_after_seq: int | None = None


class Subscribed(Result, frozen=True, kw_only=True):
    """A subscription sends rows from `from` on; events that the client has above `through` are void."""

    subscription: str
    from_: int = msgspec.field(name="from")
    through: int  # committed head now
    floor: int  # oldest seq still kept
    ended: bool = False  # the event at `through` is the run's last: nothing follows it


class Unsubscribed(Result, frozen=True, kw_only=True):
    """The subscription has ended: none of its frames follows this reply."""


class RunsWatched(Result, frozen=True, kw_only=True):
    """A watch sends `run.updated`: the open runs, then those that change."""

    subscription: str


class ExportPage(Result, frozen=True, kw_only=True):
    """A page of NDJSON; `signature` (hex) covers the chain hash of its last line."""

    run_id: str
    ndjson: str
    public_key: str  # hex
    signature: str
    next_after_seq: int | None = None
    former_keys: tuple[str, ...] = ()  # hex: keys that signed before a restore without them


# --- sessions and approvals


class SessionList(Result, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: list[SessionRecord]
    next_cursor: str | None = None


class ApprovalList(Result, frozen=True, kw_only=True):
    """The approvals the caller may see."""

    approvals: list[ApprovalRecord]


class GrantList(Result, frozen=True, kw_only=True):
    """The grants the caller may see."""

    grants: list[GrantRecord]


# --- files


class ArtifactPiece(Result, frozen=True, kw_only=True):
    """A page of an artifact, in whole lines where possible; the last one has no `next_offset`."""

    artifact: str
    run_id: str
    call_id: str
    tool: str
    trust: Trust
    created_ms: int
    size_bytes: int
    offset: int
    line: int
    text: str
    next_offset: int | None = None


class CheckpointFile(Result, frozen=True, kw_only=True):
    """One file of a checkpoint; without a digest there was no file."""

    path: str
    before_sha256: str | None = None
    after_sha256: str | None = None


class CheckpointView(Result, frozen=True, kw_only=True):
    """One change of files, and the call that made it."""

    checkpoint_id: str
    principal: str
    session_id: str
    run_id: str
    call_id: str
    tool: str
    workspace: str
    created_ms: int
    files: list[CheckpointFile]


class CheckpointList(Result, frozen=True, kw_only=True):
    """A page of checkpoints."""

    checkpoints: list[CheckpointView]
    next_cursor: str | None = None


# --- agents, channels, tools and skills


class Agent(Result, frozen=True, kw_only=True):
    """An agent; without `model` it uses the daemon's default, without `tools` it has every tool."""

    name: str
    version: int
    memory_scope: Annotated[str, known(MemoryScope)]
    created_ms: int
    updated_ms: int
    instructions: str | None = None  # left out of lists
    model: str | None = None
    tools: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    deleted_ms: int | None = None


class AgentList(Result, frozen=True, kw_only=True):
    """All agents, the default one first, without their instructions."""

    agents: list[Agent]


class Channel(Result, frozen=True, kw_only=True):
    """The agent of a channel; without `conversation_id`, of all conversations not listed separately."""

    principal: str
    channel: str
    agent: str
    pairing: Annotated[str, known(PairingMode)]
    audience: Annotated[str, known(ChannelAudience)] = "conversation"
    created_ms: int
    updated_ms: int
    conversation_id: str = ""
    deleted_ms: int | None = None


class ChannelList(Result, frozen=True, kw_only=True):
    """Channels, ordered by principal, name and conversation."""

    channels: list[Channel]


class Pairing(Result, frozen=True, kw_only=True):
    """A sender and whether it is admitted; the pairing code is hidden."""

    pairing_id: str
    principal: str
    channel: str
    sender: str
    state: Annotated[str, known(PairingState)]
    requested_ms: int
    expires_ms: int
    attempts: int
    by: str | None = None
    decided_ms: int | None = None


class PairingPage(Result, frozen=True, kw_only=True):
    """A page of pairings."""

    pairings: list[Pairing]
    next_cursor: str | None = None


class ToolList(Result, frozen=True, kw_only=True):
    """The catalogue; `hash` is the hash that a turn records.

    `risk` is that of an approval in an untainted run.
    """

    tools: list[ToolSpec]
    hash: str


class WorkspaceView(Result, frozen=True, kw_only=True):
    """A folder that sessions can work in."""

    name: str
    path: str
    problem: str = ""  # why it cannot be used now, with the remedy


class WorkspaceList(Result, frozen=True, kw_only=True):
    """The configured workspaces, the default one first."""

    workspaces: list[WorkspaceView]


class McpServerList(Result, frozen=True, kw_only=True):
    """The configured MCP servers."""

    servers: list[McpServerView]


class McpResourceList(Result, frozen=True, kw_only=True):
    """Resources and templates of one server; none while it is not connected."""

    resources: list[McpResource]


class McpPromptList(Result, frozen=True, kw_only=True):
    """Prompts of one or all servers."""

    prompts: list[McpPrompt]


class SkillToolView(Result, frozen=True, kw_only=True):
    """One tool of a skill, as in the catalogue."""

    name: str
    description: str
    tool_class: Annotated[str, known(ToolClass)]
    risk: Annotated[str, known(Risk)]


class Skill(Result, frozen=True, kw_only=True):
    """An installed skill."""

    id: str
    version: str
    publisher: str
    public_key: str  # hex
    package_sha256: str
    description: str
    state: Annotated[str, known(SkillState)]
    tools: list[SkillToolView]
    capabilities: tuple[str, ...]  # declared
    granted: tuple[str, ...]
    installed_ms: int
    changed_ms: int
    changed_by: str
    reason: str = ""  # of the quarantine


class TextSkillView(Result, frozen=True, kw_only=True):
    """A folder with SKILL.md, or one that is meant as one; with a `problem` no run knows it."""

    name: str
    workspace: str  # "": of the home
    folder: str  # below the workspace or the home
    description: str
    problem: str = ""


class SkillList(Result, frozen=True, kw_only=True):
    """All skills by id, and text skills; `obstacle` is the reason why no skill can be called, or ""."""

    skills: list[Skill]
    obstacle: str
    texts: list[TextSkillView] = []


class SkillAudit(Result, frozen=True, kw_only=True):
    """Audit of the package on disk; without problems it is unchanged and matches its manifest."""

    skill: Skill
    problems: tuple[str, ...]
    imports: tuple[str, ...]
    functions: int
    module_bytes: int


class Uploaded(Result, frozen=True, kw_only=True):
    """Bytes of the package received so far."""

    size: int


# --- budgets and incidents


class BudgetView(Result, frozen=True, kw_only=True):
    """A budget; one of the configuration has revision 0."""

    budget_id: str
    scope: BudgetScope
    subject: str
    metric: BudgetMetric
    window: BudgetWindow
    action: BudgetAction
    revision: int
    window_ms: int | None = None
    soft: int | None = None
    hard: int | None = None
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None
    by: str = ""
    is_damaged: bool = False  # its record cannot be read: it refuses what it may limit


class BudgetList(Result, frozen=True, kw_only=True):
    """The budgets in force, by id."""

    budgets: list[BudgetView]


class IncidentView(Result, frozen=True, kw_only=True):
    """A recorded defect: evidence, number of occurrences, state."""

    incident_id: str
    domain: IncidentDomain
    key: str
    severity: IncidentSeverity
    state: IncidentState
    summary: str
    evidence: dict[str, str | int]
    count: int
    opened_ms: int
    last_ms: int
    attempts: int = 0
    remedy: str = ""
    remedied: str = ""
    remedies: list[str] = []  # of each attempt in mode `auto`, in their order
    may_change: str = ""  # all that an attempt may change
    resolves_itself: bool = False
    resolved_ms: int | None = None
    by: str | None = None
    reason: str = ""


class TaskPage(Result, frozen=True, kw_only=True):
    """Background tasks, newest first."""

    tasks: list[TaskView]
    next_cursor: str | None = None


class ScheduleList(Result, frozen=True, kw_only=True):
    """Schedules, by creation."""

    schedules: list[ScheduleView]


class ScheduleInstants(Result, frozen=True, kw_only=True):
    """The coming instants of a schedule, oldest first."""

    schedule_id: str
    instants: list[int]  # Unix milliseconds
    zone: str = "UTC"


class HealingModesView(Result, frozen=True, kw_only=True):
    """The mode of self-healing by domain."""

    modes: dict[IncidentDomain, HealingMode]


class IncidentPage(Result, frozen=True, kw_only=True):
    """A page of incidents."""

    incidents: list[IncidentView]
    next_cursor: str | None = None


# --- learning


class LearningCandidate(Result, frozen=True, kw_only=True):
    """Something that a run may teach, with its evidence and its history."""

    candidate_id: str
    principal: str
    session_id: str
    kind: Annotated[str, known(CandidateKind)]
    text: str
    score_bps: int
    signals: dict[str, int]  # summands of the score
    evidence: tuple[Evidence, ...]
    trust: Annotated[str, known(Trust)]
    is_confined: bool = False  # to the conversation of a channel, whose sender said it
    source: Annotated[str, known(CandidateSource)]
    state: Annotated[str, known(CandidateState)]
    memory_id: str | None = None
    corrects: str = ""  # id of the item that it is to supersede
    procedure: Procedure | None = None  # of that kind
    revision: int
    created_ms: int
    changed_ms: int
    changes: tuple[CandidateChange, ...] = ()


class CandidatePage(Result, frozen=True, kw_only=True):
    """A page of candidates, newest first."""

    candidates: list[LearningCandidate]
    next_cursor: str | None = None


# --- memory


class MemoryItem(Result, frozen=True, kw_only=True):
    """An item of memory in one revision, without the digest of its text."""

    memory_id: str
    principal: str
    kind: Annotated[str, known(MemoryKind)]
    text: str
    scope: Annotated[str, known(ItemScope)] = "principal"
    channel: str | None = None
    session_id: str | None = None
    author: str | None = None
    at_ms: int
    tags: tuple[str, ...] = ()
    confidence_bps: int
    source: Annotated[str, known(MemorySource)]
    lineage: tuple[Lineage, ...] = ()
    trust: Annotated[str, known(Trust)]
    pinned: bool = False
    never_recall: bool = False
    valid_from_ms: int
    expires_ms: int | None = None
    superseded_by: str | None = None
    superseded_ms: int | None = None
    revision: int
    created_ms: int
    changed_ms: int
    changed_by: str
    action: Annotated[str, known(MemoryAction)]


class MemoryPage(Result, frozen=True, kw_only=True):
    """A page of items, newest first."""

    items: list[MemoryItem]
    next_cursor: str | None = None


class MemoryScore(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a score; it is their sum."""

    lexical: float = 0.0  # words
    vector: float = 0.0  # similarity of meaning
    author: float = 0.0  # the person that the query names
    date: float = 0.0  # the time that the query names
    form: float = 0.0  # a question rarely answers one: below 0
    session: float = 0.0  # other good hits of the same conversation
    context: float = 0.0  # what was said two turns away; behind the ten best, more around them
    newer: float = 0.0  # what it needed to stand before an earlier one about the same
    rerank: float = 0.0  # what the re-ranking model moved it by


class MemoryFound(Result, frozen=True, kw_only=True):
    """One hit of a search; `why` explains the score in words, if that was asked for."""

    memory_id: str
    kind: Annotated[str, known(MemoryKind)]
    text: str
    author: str | None = None
    at_ms: int
    session_id: str | None = None
    tags: tuple[str, ...] = ()
    trust: Annotated[str, known(Trust)]
    score: float
    parts: MemoryScore
    lineage: tuple[Lineage, ...] = ()
    later: str | None = None  # a newer hit that says otherwise
    why: str | None = None


class MemorySearched(Result, frozen=True, kw_only=True):
    """Hits of a search, best first; `degraded` says which part of it was left out, and why."""

    hits: list[MemoryFound]
    mode: Annotated[str, known(SearchMode)]
    degraded: str | None = None


class MemoryHistory(Result, frozen=True, kw_only=True):
    """All revisions of an item, oldest first, the items it superseded, and its log, newest first."""

    versions: list[MemoryItem]
    superseded: list[MemoryItem] = []
    log: list[MemoryLogLine] = []


class MemoryStatus(Result, frozen=True, kw_only=True):
    """Figures of the memory of one principal, and state of the search."""

    principal: str
    total: int
    items: int  # that a search may return
    by_kind: dict[str, int] = {}
    pinned: int = 0
    never_recall: int = 0
    superseded: int = 0
    expiring: int = 0
    text_bytes: int = 0
    without_vector: int = 0
    mode: Annotated[str, known(SearchMode)]
    degraded: str | None = None
    embedder: EmbedderView | None = None


class MemoryRebuilt(Result, frozen=True, kw_only=True):
    """Number of rows whose index entries were written again."""

    rows: int


class MemoryAudit(Result, frozen=True, kw_only=True):
    """Changes of a principal's memory, newest first, without text."""

    entries: list[MemoryLogLine]
    next_cursor: int | None = None


class MemoryStatement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True,
                      forbid_unknown_fields=True):  # fmt: skip
    """An item as an import takes it and an export gives it."""

    text: str
    kind: MemoryKind = "note"
    tags: tuple[str, ...] = ()
    author: str | None = None
    session_id: str | None = None
    channel: str | None = None
    scope: ItemScope = "principal"
    at_ms: Integer | None = None
    confidence_bps: Integer = 10_000
    ttl_ms: Integer | None = None
    transient: bool = False  # a fact about a running system: 24 h if no `ttl_ms` is given
    valid_from_ms: Integer | None = None
    pinned: bool = False
    never_recall: bool = False
    lineage: tuple[Lineage, ...] = ()
    trust: Trust = "trusted_local"


class MemoryExport(Result, frozen=True, kw_only=True):
    """A page of current items that `memory.import` takes, newest first."""

    items: list[MemoryStatement]
    next_cursor: str | None = None


class MemoryUsed(Result, frozen=True, kw_only=True):
    """Recalls of a run, oldest first."""

    uses: list[MemoryUseRecord]
