"""Ports: the interfaces to stores, tools, models and the environment, as Protocols.

`actors` imports only these and none of the implementing packages; `daemon.py` connects the two.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

import msgspec

from palyra.core.access import Caller
from palyra.core.configuration import StoredSecret
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.backup import BackupMade, BackupOrder, BackupReport
from palyra.core.journal.changes import (
    CandidateFilter,
    ChainedRow,
    Change,
    FilesLost,
    IncidentFilter,
    MemoryCounts,
    MemoryFilter,
    MemoryLogLine,
    MemoryPlace,
    OpenReport,
    PairingFilter,
    RunFilter,
    SaidTexts,
    ScoredMemory,
    TapePage,
    TaskFilter,
    UnembeddedItem,
    UsageBy,
    UsageFilter,
    UsageSum,
    VerifyReport,
)
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    CandidateRecord,
    ChannelRecord,
    DocumentRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    MemoryRecord,
    MemoryReindex,
    MemoryUseRecord,
    MemoryVectors,
    PairingRecord,
    ReflectionRecord,
    RunRecord,
    ScheduleRecord,
    SessionCheckpointRecord,
    SessionRecord,
    TaskRecord,
    TokenRecord,
    UsageRecord,
    WorkRemoval,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.memory.items import (
    MemoryAdded,
    MemoryDraft,
    MemoryForgotten,
    MemoryHit,
    MemoryHits,
    RecallPack,
    RecallUse,
)
from palyra.core.memory.query import SearchQuestion
from palyra.core.memory.vectors import StoredVector
from palyra.core.model.embeddings import Embeddings
from palyra.core.model.messages import Delta, ModelRequest, ModelTurn
from palyra.core.model.reranking import Reranking
from palyra.core.model.sources import ContextSource, MemorySources, RecallScope
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.policy.views import AppliedSuggestion
from palyra.core.preview.blocks import EarlierAnswers
from palyra.core.session.purge import SessionWork
from palyra.core.skill.manifest import Audit, InstallSkill, SkillRecord
from palyra.core.skill.text_skill import TextSkill
from palyra.core.tape.events import ProgressKind
from palyra.core.tape.search import EventRow, TapeSearch
from palyra.core.task.views import TaskCounts
from palyra.core.tool.artifacts import Artifact
from palyra.core.tool.checkpoints import (
    Checkpoint,
    CheckpointFilter,
    FollowedFile,
    Restored,
    Rewound,
    Side,
)
from palyra.core.tool.mcp import McpPrompt, McpResource, McpServerView
from palyra.core.tool.spec import (
    CallFacts,
    Catalogue,
    DelegatedWork,
    Preflight,
    ToolCall,
    ToolOutput,
    ToolSpec,
)
from palyra.core.tool.targets import CallTargets
from palyra.errors import PalyraError

T = TypeVar("T")
Args = TypeVarTuple("Args")

NowMs = Callable[[], int]  # integer Unix milliseconds
Sign = Callable[[bytes], bytes]  # Ed25519 signature, 64 bytes


class Registry(Protocol):
    """Registered agents, channels, pairings and grants; marks of sessions."""

    def list_purging(self) -> list[SessionRecord]:
        """Return the sessions with a purge that is not complete."""

    def list_branches(self, run_ids: Sequence[str]) -> list[RunRecord]:
        """Return the runs that continue one of these runs."""

    def list_session_checkpoints(
        self, session_id: str, *, limit: int
    ) -> list[SessionCheckpointRecord]: ...
    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None: ...
    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None: ...
    def list_agents(self) -> list[AgentRecord]: ...
    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None: ...
    def list_channels(self, principal: str | None) -> list[ChannelRecord]: ...
    def find_pairing(self, pairing_id: str) -> PairingRecord | None: ...
    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None: ...
    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]: ...
    def find_grant(self, grant_id: str) -> GrantRecord | None: ...
    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]: ...


class Ledger(Protocol):
    """Recorded usage of model calls, and budgets."""

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """Return the sums of each group, by key and time, in steps of `grain_ms` since 1970."""

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Return single lines, newest first."""

    def find_budget(self, budget_id: str) -> BudgetRecord | None: ...
    def list_budgets(self) -> list[BudgetRecord]: ...


class IncidentStore(Protocol):
    """Recorded incidents: all unresolved ones and the newest resolved ones."""

    def find_incident(self, incident_id: str) -> IncidentRecord | None: ...
    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]: ...


class TaskStore(Protocol):
    """Recorded tasks and schedules.

    A task changes by compare-and-set of its revision, and no two tasks have the same firing.
    """

    def find_task(self, task_id: str) -> TaskRecord | None: ...
    def list_tasks(self, wanted: TaskFilter) -> list[TaskRecord]: ...
    def list_claimable(
        self, *, now_ms: int, limit: int, running: Mapping[str, int]
    ) -> list[TaskRecord]:
        """Return queued tasks that are due and not expired, in the order of claiming.

        `running` is the number of running tasks by principal, for fair shares.
        """

    def list_running(self) -> list[TaskRecord]:
        """Return the tasks with a lease."""

    def list_expired_tasks(self, *, now_ms: int, limit: int) -> list[TaskRecord]:
        """Return the tasks that have not ended and whose time is over."""

    def list_fired(self, schedule_id: str) -> list[TaskRecord]:
        """Return the tasks of a schedule that have not ended, oldest first."""

    def count_open_tasks(self, principal: str, *, own: bool) -> int:
        """Return how many tasks of a principal have not ended: of `OWN_KINDS`, or of the others."""

    def count_tasks(self, principal: str | None, *, now_ms: int) -> TaskCounts:
        """Return numbers of the tasks of a principal, or of all."""

    def count_own_tasks(self) -> dict[str, int]:
        """Return the number of open tasks of `OWN_KINDS` by principal."""

    def find_schedule(self, schedule_id: str) -> ScheduleRecord | None: ...
    def list_schedules(self, principal: str | None) -> list[ScheduleRecord]:
        """Return the schedules that are not removed, by id."""

    def find_work(self, removal: WorkRemoval) -> SessionWork:
        """Return the tasks and schedules that the removal deletes."""

    def list_due_schedules(self, *, now_ms: int, limit: int) -> list[ScheduleRecord]:
        """Return the schedules with an instant to decide about, in fair shares, earliest first."""

    def find_next_due(self, *, after_ms: int) -> int | None:
        """Return when the next task or schedule is due or expires, None if there is none."""


class MemoryStore(Protocol):
    """Items of memory with their text index, earlier revisions and log."""

    def find_memory(self, memory_id: str) -> MemoryRecord | None: ...
    def list_memories(self, wanted: MemoryFilter) -> list[MemoryRecord]: ...
    def search_memories(self, wanted: MemoryFilter, words: Sequence[str]) -> list[ScoredMemory]:
        """Return the items with one of the words, best first; the filter is part of the search."""

    def list_taken_from(
        self, principal: str, session_id: str, run_ids: Sequence[str]
    ) -> list[MemoryRecord]:
        """Return the items of this session or with one of these runs in their lineage."""

    def find_by_text(self, principal: str, hashes: Sequence[str]) -> list[MemoryRecord]:
        """Return the current items with one of these texts, by their `text_hash`."""

    def find_alike(self, item: MemoryRecord, *, now_ms: int, limit: int) -> list[MemoryRecord]:
        """Return the current items that a new item may repeat or correct; reads no others' words."""

    def plan_reindex(self) -> MemoryReindex | None:
        """Return the next entries of a text index that is made again; None if it is whole."""

    def list_versions(self, memory_id: str) -> list[MemoryRecord]: ...
    def list_superseded(self, memory_id: str) -> list[MemoryRecord]: ...
    def list_memory_log(
        self,
        *,
        principal: str | None,
        memory_id: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[MemoryLogLine]: ...
    def list_memory_uses(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        principal: str | None = None,
        limit: int = 200,
    ) -> list[MemoryUseRecord]: ...
    def count_memories(self, principal: str | None, *, now_ms: int) -> MemoryCounts: ...


class LearningStore(Protocol):
    """Candidates of learning, and which runs were read for it."""

    def find_candidate(self, candidate_id: str) -> CandidateRecord | None: ...
    def list_learned(self, wanted: CandidateFilter) -> list[CandidateRecord]: ...
    def find_reflection(self, run_id: str) -> ReflectionRecord | None: ...


class DocumentVersions(Protocol):
    """Recorded versions of workspace documents."""

    def list_document_versions(
        self, workspace: str, document: str, *, before: int | None = None, limit: int = -1
    ) -> list[DocumentRecord]:
        """Return the newest first; a limit of -1 means all."""


class AccessStore(Protocol):
    """Recorded tokens and idempotency records."""

    def find_receipt(
        self, principal: str, key: str, *, now_ms: int
    ) -> IdempotencyRecord | None: ...
    def check_rows(self, limit: int) -> None:
        """Check the next rows of the journal, also those that no query reads; see `list_damaged`.

        Each call goes on behind the last one.  Blocks.  Raises Unavailable.
        """

    def list_damaged(self) -> tuple[str, ...]:
        """Return the rows that queries left out or checks found damaged, as `table:key`."""

    def find_token(self, sha256: str) -> TokenRecord | None: ...
    def find_token_id(self, sha256: str) -> str | None:
        """Return the id of the token, also of one whose record does not decode."""

    def list_tokens(self) -> list[TokenRecord]: ...


class JournalFiles(Protocol):
    """Checks of the files of an open journal."""

    def check_files(self) -> FilesLost | None:
        """Compare the open files with those at their paths, and save a journal that would be lost.

        Called between commits.  A loss stays one until the next `open`; each call copies what was
        committed since the last copy.
        """

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        """Check the database file after an unclean shutdown; return its damage, or None.

        Reads everything, concurrently with other calls, and stops early when `is_stopped` returns
        true.  A file found damaged is not opened again.
        """


class TapeScans(Protocol):
    """Looks at all of a tape, or at a large part."""

    def find_latest(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return kind and time of the last event of each run that has one."""

    def read_codes(self, run_id: str) -> str:
        """Return the codes of all events of the run, in order; see `core.tape.outline`."""

    def search_tape(self, run_id: str, wanted: TapeSearch) -> tuple[list[EventRow], int | None]:
        """Return the events of a bounded part that may fit, and the seq behind it, None at the end.

        Which of them do fit is decided by `core.tape.search`.
        """


class JournalStore(
    JournalFiles,
    Registry,
    Ledger,
    IncidentStore,
    TaskStore,
    MemoryStore,
    LearningStore,
    DocumentVersions,
    AccessStore,
    TapeScans,
    Protocol,
):
    """The durable store.  Synchronous; blocking calls are made from threads.

    The write half (`open`, `commit`, `seal`, `close`) is called by one thread at a time, the read
    half by any thread at any time between `open` and `close`.
    """

    def open(self) -> OpenReport:
        """Take ownership (owner epoch + 1), migrate, verify from the last signed root.

        Raises Unavailable when another process owns the store or it cannot be opened.
        """

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """Commit all changes in one transaction; durable on return.

        Result: per change None, or the reason why nothing of it was written (TooLarge for a
        payload over the limit, InvariantBroken for a gap or a rewritten row).  Raises Unavailable
        (disk full, I/O error, ownership lost) when nothing of the whole batch was written.
        """

    def seal(self) -> bool:
        """Sign a Merkle root over the events since the last one; False when there are none."""

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the database and free its space.  Raises Unavailable."""

    @property
    def has_leftovers(self) -> bool:
        """True if removed content may still be in the files; later seals overwrite it."""

    def close(self) -> None:
        """Seal, checkpoint, mark the shutdown clean."""

    def read_tape(
        self, run_id: str, *, after_seq: int, limit: int, max_bytes: int = 2_097_152
    ) -> TapePage:
        """Committed rows with seq > after_seq; at least one row when there is any."""

    def find_last_seq(self, run_id: str, kind: str) -> int | None:
        """Return the number of the last event of this kind of the run."""

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        """Return the same rows with position and hash, for export; repeat until empty."""

    def verify(
        self, run_id: str | None = None, *, note: Callable[[int], object] | None = None
    ) -> VerifyReport:
        """Check chain and signed roots, of one run or of all.  Never blocks reads.

        `note` gets the last position that a check of all has passed, once for each signed root.
        """

    def find_run(self, run_id: str) -> RunRecord | None: ...
    def list_runs(self, wanted: RunFilter) -> list[RunRecord]: ...
    def list_started_ids(self, wanted: RunFilter) -> list[str]: ...
    def list_open_runs(self) -> list[RunRecord]: ...
    def find_session(self, session_id: str) -> SessionRecord | None: ...
    def find_session_by_key(self, principal: str, key: str) -> SessionRecord | None: ...
    def list_sessions(
        self, principal: str | None, *, before: str | None, limit: int
    ) -> list[SessionRecord]: ...
    def find_approval(self, approval_id: str) -> ApprovalRecord | None: ...
    def list_approvals(
        self, *, principal: str | None, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]: ...
    def count_answers(self, asked: ApprovalRecord, *, limit: int) -> EarlierAnswers:
        """Count the answers to the same grant key, agent and tool as of that approval.

        Among the `limit` newest approvals of its principal, without itself.
        """


class PendingWrite(Protocol):
    """An appended change that is not yet on disk."""

    @property
    def is_settled(self) -> bool:
        """True if the change is durable or refused."""

    async def wait(self) -> None:
        """Wait until the change is durable.

        Raises the reason if it was refused.  Cancellation: the change may still be committed.
        """


class Journal(Protocol):
    """The running journal: ordered appends, and reads concurrent with the writer."""

    def append(self, change: Change) -> PendingWrite:
        """Queue a change; never waits.  Changes are committed in the order of these calls."""

    async def commit(self, change: Change) -> None:
        """Append and wait; see `PendingWrite.wait`."""

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        """Run a query in a reader's thread.  Raises Unavailable while the journal is closed."""

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        """Look one record up by its key.  Raises Unavailable while the journal is closed."""

    @property
    def backlog(self) -> int:
        """Number of rows that wait to be committed."""

    @property
    def is_writable(self) -> bool:
        """True if the store has refused no write recently."""

    @property
    def has_room(self) -> bool:
        """True if the store has refused no write since its last successful probe."""


class IncidentReporter(Protocol):
    """Receives reports of problems.  No method waits or fails."""

    def report(self, report: IncidentReport) -> IncidentRecord:
        """Open the incident of the report or count it there; notify and record."""

    def clear(self, key: str, reason: str) -> None:
        """Resolve the incident of that key, if there is an open one."""

    def is_reported(self, key: str) -> bool:
        """True while the incident of that key is open; an operator may have resolved it."""


Progress = Callable[[], None]  # the work has progressed; never waits


class TaskHandler(Protocol):
    """The work of one kind of task."""

    @property
    def is_for_all(self) -> bool:
        """True if the work concerns all principals; only operators submit it."""

    async def check(self, payload: dict[str, Any]) -> None:
        """Raise InvalidParams for a payload that the work cannot use, such as an unknown agent."""

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        """Do the work and return its result.

        Raises Unavailable, Overloaded or TooSlow if a later attempt may succeed; any other
        PalyraError ends the task.  An attempt may follow one that a crash cut short, so the work is
        idempotent.  Cancellation: the work stops; what belongs to it elsewhere goes on until
        `abandon`.
        """

    async def abandon(self, task: TaskRecord) -> None:
        """Stop what belongs to a cancelled or expired task outside of `work`."""


class LanguageModel(Protocol):
    """One model endpoint."""

    name: str
    provider: str

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Return the finished turn; pass deltas to `on_delta` as they arrive.

        Raises ModelFailure.  Cancellation: the request is abandoned, nothing else changes.
        """

    def most_output(self, request: ModelRequest) -> int:
        """Return the output limit of the request in tokens; 0 for no limit."""


class EmbeddingModel(Protocol):
    """One embedding model."""

    name: str
    provider: str

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Return one vector per text, in order, of `dimensions` numbers or the model's default.

        Raises InvalidParams for texts that no model can embed, ModelFailure when the provider
        failed.  Cancellation: the request is abandoned, nothing else changes.
        """


class RerankModel(Protocol):
    """One re-ranking model."""

    name: str
    provider: str

    async def rerank(self, question: str, texts: Sequence[str]) -> Reranking:
        """Return how well each text answers the question.

        Raises ModelFailure when the provider failed.  Cancellation: the request is abandoned.
        """


class Reranker(Protocol):
    """The re-ranker of the memory's searches."""

    limit: int  # hits that it reads

    async def rerank(self, principal: str, question: str, found: MemoryHits) -> MemoryHits:
        """Return the hits with the first `limit` in the model's order, within a second or so.

        A model that fails, is slow or is over a budget of the principal leaves the order, and `degraded` says why.
        """
        ...


class Embedder(Protocol):
    """Embedding of memories and questions.  Blocks, so it is called in threads; any may call.

    `name` is stored with each vector: vectors of another name are not compared.  `is_semantic` says
    that texts without a common word may be near; it decides how much a cosine weighs.
    """

    name: str
    dimensions: int
    is_semantic: bool

    def embed(self, texts: Sequence[str]) -> list[StoredVector]:
        """Return one vector per text, in order.  Raises Unavailable."""


class MemoryEmbedder(Protocol):
    """The embedder of memories and questions, on this machine or at a provider."""

    name: str
    dimensions: int | None  # None: those of its vectors
    is_semantic: bool
    is_local: bool  # no text leaves the machine, and no call has a price
    batch: int  # texts of one call

    async def embed_items(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """Return one vector per text, in order.

        Raises Unavailable while the embedder is down, Forbidden while the principal may not use it,
        InvalidParams for texts that it refuses.  Cancellation: a provider may charge for the call.
        """
        ...

    async def embed_question(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """Return one vector per text within a second or so.

        Raises Unavailable with the reason.  Cancellation: as of `embed_items`.
        """
        ...


class EmbeddingService(Protocol):
    """The embedding model as offered to clients."""

    name: str

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        """Embed as `EmbeddingModel.embed` does, charged to the principal.

        Raises also Rejected when a budget refuses the call.
        """


class PromptRecall(Protocol):
    """The memory as prompts use it."""

    async def prepare(self, principal: str) -> None:
        """Find out if the principal has items.  Cancellation: nothing happened."""
        ...

    def has_items(self, principal: str) -> bool:
        """Return True unless the principal is known to have no items.  Never waits."""
        ...

    async def find_standing(self, scope: RecallScope) -> MemorySources:
        """Return the items of every prompt of the principal, in the order of the prompt.

        Raises Unavailable.  Cancellation: nothing happened.
        """
        ...

    async def recall(self, question: str, scope: RecallScope) -> Sequence[ContextSource]:
        """Return the memories for a question, the best first, in the order of the prompt.

        `name` is the id of the item and `kind` its kind.  What `find_standing` returns for the same
        prompt is left out.  Raises Unavailable.  Cancellation: nothing happened.
        """
        ...


class DiffSection(NamedTuple):
    """The changes of one file."""

    path: str  # relative to the workspace
    text: str


class WorkspaceFolder(Protocol):
    """A folder that sessions work in."""

    @property
    def root(self) -> object:
        """Absolute path without links; `str` gives its text."""

    def find_problem(self) -> str:
        """Return why the folder is unusable, with the remedy; "" if it is usable.  Blocks."""


class ReadDiff(Protocol):
    """Reader of the changes in the workspace."""

    async def __call__(self, path: str, *, is_staged: bool) -> Sequence[DiffSection]:
        """Return the changes of a file or folder, of everything for "", without private files.

        Raises ToolFailure.  Cancellation: nothing happened.
        """
        ...


class SecretVault(Protocol):
    """The vault as clients use it; no method returns a value."""

    async def list_stored(self, caller: Caller) -> list[StoredSecret]:
        """Return the secrets by name.  Raises Forbidden, Unavailable."""
        ...

    async def put(self, caller: Caller, name: str, value: str, now_ms: int) -> StoredSecret:
        """Store a secret, durably; the redactor knows it from the call on.

        Raises Forbidden, InvalidParams, Unavailable.
        """
        ...

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove a secret, durably; it stays redacted.  Raises Forbidden, NotFound, Unavailable."""
        ...


class McpDirectory(Protocol):
    """The configured MCP servers.  No method but `retry` waits."""

    def list_servers(self) -> list[McpServerView]:
        """Return the servers in the order of the configuration."""
        ...

    def list_resources(self, name: str) -> Sequence[McpResource]:
        """Return the resources and templates of a server.  Raises NotFound."""
        ...

    def list_prompts(self, name: str | None) -> list[McpPrompt]:
        """Return the prompts of a server, of all servers for None.  Raises NotFound."""
        ...

    async def retry(self, name: str) -> McpServerView:
        """Have a server that failed connect now; return its state after that, in bounded time.

        Raises NotFound.  Cancellation: the attempt goes on.
        """
        ...


class MemoryIndexing(Protocol):
    """The index of memory, without the embedder.  Blocks; called by one thread at a time."""

    @property
    def degraded(self) -> str:
        """Reason why only words are searched; "" for none."""

    @property
    def damage(self) -> str:
        """Defect of the vectors; `FILE_GONE` if only their file is missing, "" for none."""

    @property
    def vectors(self) -> int:
        """Number of vectors that are compared."""

    def ask(self, query: str, wanted: MemoryFilter) -> tuple[SearchQuestion, Sequence[str]]:
        """Take a query apart; also return what to embed of it, nothing if no vector would be used.

        Raises Unavailable.
        """

    def find(
        self, question: SearchQuestion, wanted: MemoryFilter, vectors: Sequence[StoredVector]
    ) -> MemoryHits:
        """Return the best items, checked against their rows.  Raises Unavailable."""

    def plan_build(self) -> Callable[[], object] | None:
        """Return a job that builds the vectors, for any thread; None if none is due."""

    def adopt(self, build: Any) -> None:  # noqa: ANN401 - the adapter's own
        """Use the result of a job."""

    def list_unembedded(
        self, limit: int, *, without: Collection[str] = (), but: Collection[int] = ()
    ) -> list[UnembeddedItem]:
        """Return the newest items of one principal without a vector.

        Leaves out the principals `without` and the rows `but`.  Raises Unavailable.
        """

    def refresh(self, batch: MemoryVectors) -> None:
        """Read the vectors of the rows of a batch that was committed."""

    def save(self) -> None:
        """Write the file of the index.  Raises Unavailable."""


class Recall(Protocol):
    """The memory as the assembly of a prompt uses it."""

    async def recall(
        self, question: str, place: MemoryPlace, *, limit: int | None = None
    ) -> RecallPack:
        """Return what the memory of that place holds about a question; empty for nothing.

        Never raises for a memory that is damaged or being rebuilt: `degraded` says so.
        Cancellation: nothing happened.
        """

    def note_use(self, use: RecallUse, hits: Sequence[MemoryHit]) -> None:
        """Record what a run was given, for `memory.used`; never waits."""


class MemoryFinder(Protocol):
    """Search of the memory, for tools."""

    async def search_in(self, place: MemoryPlace, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Return the best matches that the place sees."""

    def note_use(self, use: RecallUse, hits: Sequence[MemoryHit]) -> None:
        """Record what a run was given."""

    async def search_said(
        self, place: MemoryPlace, query: str, *, run_id: str, limit: int
    ) -> SaidTexts:
        """Return texts of earlier conversations that the place sees, except of that run."""


class MemoryKeeper(Protocol):
    """Storing in the memory and deleting from it, for tools."""

    async def retain(self, draft: MemoryDraft, place: MemoryPlace) -> MemoryAdded:
        """Store a statement of a run.  Raises Rejected, also for text that came from the memory."""

    async def forget_in(self, place: MemoryPlace, memory_ids: Sequence[str]) -> MemoryForgotten:
        """Delete items that the place sees.  Raises NotFound."""


class ToolRunner(Protocol):
    """All tools of the daemon."""

    def catalogue(self) -> Catalogue:
        """Return a snapshot of the available tools, with its hash."""

    def facets(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts | None:
        """Return the facts about these checked arguments that policy rules may use.

        None for a tool that is no longer available or was replaced: its facts are unknown.
        """

    def inspects(self, tool: str) -> bool:
        """True if calls of that tool are inspected before they are gated."""

    async def inspect(self, call: ToolCall) -> Preflight | None:
        """Inspect the current state of the call's targets; None for a tool without inspection.

        Raises ToolFailure for a call that could not run.  Cancellation: the inspection runs to its
        end.
        """

    async def execute(self, call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        """Run one allowed call to its end.  Raises ToolFailure with a text for the model.

        Cancellation: everything that the tool started is stopped before this returns.
        """


class Delegator(Protocol):
    """Delegation of tasks to runs."""

    async def delegate(self, call: ToolCall, work: DelegatedWork | None = None) -> ToolOutput:
        """Start the run that the call delegates to unless it exists, and return its end.

        `work` is its task if the arguments of the call are not those of the tool `delegate`.

        Raises ToolFailure if the run cannot be accepted.  Cancellation: the run continues.
        """


class CallTargeting(Protocol):
    """Inspection of a call before it runs, for previews: the files and the host it is for."""

    def inspects(self, tool: str) -> bool:
        """True if calls of that tool are inspected before they are gated."""

    async def inspect(self, call: ToolCall) -> Preflight | None:
        """Inspect as `ToolRunner.inspect` does."""

    def find_targets(self, call: ToolCall) -> CallTargets | None:
        """Return the files and the address of a call; None if its tool names none.

        Blocks; any thread may call.  Raises ToolFailure for a call that could not run now.
        """


class Policy(Protocol):
    """The policy rules.  Pure in effect: same version and request, same decision."""

    @property
    def version(self) -> str:
        """Version of the rules; it changes with every change of a rule."""

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        """Return allow, ask or deny; an internal error is a deny with the reason."""


class Artifacts(Protocol):
    """Complete tool outputs, stored for a limited time.  Blocks; any thread may call."""

    def put(self, artifact: Artifact, data: bytes) -> None:
        """Store an artifact durably; storing it again changes nothing.  Raises Unavailable."""

    def find(self, session_id: str, name: str) -> tuple[Artifact, bytes] | None:
        """Return the session's artifact whose digest starts with `name`, if there is exactly one.

        Raises Unavailable for a damaged one.
        """

    def explain_absence(self, session_id: str, name: str) -> str:
        """Return why `find` returns nothing, for a person and a model.  Raises Unavailable."""

    def count_session(self, session_id: str) -> int:
        """Return the number of artifacts of a session.  Raises Unavailable."""

    def drop_session(self, session_id: str) -> int:
        """Delete all artifacts of a session; return their number.  Raises Unavailable."""


class CheckpointStore(Protocol):
    """File checkpoints, stored for a limited time.  Blocks; any thread may call."""

    def put(self, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> None:
        """Store a checkpoint durably with the contents it names, by digest.  Raises Unavailable."""

    def drop(self, checkpoint_id: str) -> None:
        """Delete the checkpoint, if it is stored.  Raises Unavailable."""

    def drop_damaged(self) -> None:
        """Delete checkpoints whose description cannot be read: they may belong to any session.

        Raises Unavailable.
        """

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint without its contents."""

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        """Return the matching checkpoints, newest first."""

    def contents(self, checkpoint_id: str) -> dict[str, bytes]:
        """Return all contents by digest.  Raises Unavailable if one is lost or damaged."""


class FileHistory(Protocol):
    """File checkpoints of the workspace.  Blocks."""

    def find(self, checkpoint_id: str) -> Checkpoint | None: ...
    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]: ...
    def restore(self, kept: Checkpoint, side: Side, *, is_forced: bool) -> Restored:
        """Restore every file of the checkpoint to that side; this change gets a checkpoint, too.

        Raises Conflict if a file was changed since by another writer (`is_forced` skips this
        check), IllegalState for another workspace, Unavailable; in these cases nothing is changed.
        """

    def rewind(self, made: Sequence[Checkpoint], *, is_forced: bool, is_dry: bool) -> Rewound:
        """Undo several changes, oldest first, as one; a dry run only compares.

        Raises as `restore` does; a dry run lists conflicts instead.
        """

    def follow(self, made: Sequence[Checkpoint]) -> Sequence[FollowedFile]:
        """Return each file that calls of a run changed, oldest first, with its standing now.

        Raises IllegalState for another workspace.
        """

    def undo(
        self, made: Sequence[Checkpoint], paths: Collection[str], expected: Mapping[str, str]
    ) -> str | None:
        """Put the files `paths` back to their state before these changes, as one change.

        `expected` has the digest of each file now; Conflict if one differs.  Return the id of the
        checkpoint of this change; None if no file differed.  Raises as `restore` does.
        """

    def drop_session(self, session_id: str) -> int:
        """Delete the checkpoints of a session; return their number.  Raises Unavailable."""


class DocumentFiles(Protocol):
    """The files of the workspace documents.  Blocks."""

    @property
    def workspace(self) -> str:
        """Absolute path of the workspace."""

    def read(self, document: str) -> bytes | None:
        """Return the content, None for no file.

        Raises IllegalState for a file that may not be used (a link, a folder), TooLarge.
        """

    def write(self, document: str, before: bytes | None, after: bytes, by: str) -> str:
        """Replace the content atomically and durably; return the id of the checkpoint.

        Raises Conflict if the file has no longer the content `before`; then it is as found.  Raises
        Unavailable when it cannot be written (a full disk), and IllegalState as `read` does.
        """

    def forget(self, document: str, texts: tuple[str, ...]) -> int:
        """Delete the document's checkpoints that have one of these texts; return their number."""


class BackupStore(Protocol):
    """Backups of the data directory.  Blocks; any thread may call.

    Both methods raise Unavailable soon after `is_stopped` returns true.
    """

    def create(
        self, path: str | None, order: BackupOrder, is_stopped: Callable[[], bool]
    ) -> BackupMade:
        """Make a backup as a new folder; None: in the data directory.

        Raises IllegalState for a path that cannot be used, DiskFull, Unavailable; nothing is left.
        """

    def verify(self, path: str, is_stopped: Callable[[], bool]) -> BackupReport:
        """Check a backup.  Raises NotFound for a path without one, Unavailable."""


class SkillService(Protocol):
    """Management of installed WASM skills for clients; implemented by `tools.skills`."""

    def list_all(self, caller: Caller) -> list[SkillRecord]: ...
    def find_obstacle(self) -> str: ...
    def get(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    def upload(self, caller: Caller, sha256: str, offset: int, chunk: bytes) -> int: ...
    async def install(self, caller: Caller, wanted: InstallSkill) -> SkillRecord: ...
    async def audit(self, caller: Caller, skill_id: str) -> Audit: ...
    async def quarantine(self, caller: Caller, skill_id: str, reason: str) -> SkillRecord: ...
    async def enable(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    async def remove(self, caller: Caller, skill_id: str) -> SkillRecord: ...


class TextSkillFinder(Protocol):
    """Text skills of the workspaces and of the home."""

    @property
    def is_used(self) -> bool:
        """False if no run knows one of them, whatever the folders have."""
        ...

    @property
    def present(self) -> Container[str]:
        """Workspaces whose runs may have skills.  Never waits."""
        ...

    def notice(self) -> None:
        """Find out which workspaces may have skills.  Blocks."""
        ...

    def look(self, workspace: str) -> Sequence[TextSkill]:
        """Return the skills of a workspace and of the home as they are now.  Blocks."""
        ...

    def listed(self, workspace: str) -> Sequence[TextSkill]:
        """Return what the last `look` found.  Never waits."""
        ...

    def offer_tool(self, workspace: str) -> None:
        """Put the tool into the catalogue if the workspace has a skill.  Never waits."""
        ...


class PolicyTrial(Policy, Protocol):
    """The rules, and rules that are not in force.  The methods here block; any thread may call them."""

    def find_permits(
        self, rules: Sequence[str], requests: Iterable[PolicyRequest]
    ) -> Iterator[frozenset[str]]:
        """Yield for each request the @id of each of these permits that allows it alone."""

    def with_rules(self, rules: Sequence[str]) -> "PolicyTrial":
        """Return a policy with these rules among the user policies."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Errors in the user policies."""


class SuggestedFiles(Protocol):
    """Files of applied suggestions among the user policies.  Every method blocks."""

    def list_applied(self) -> list[AppliedSuggestion]:
        """Return the applied suggestions, the newest first."""

    def apply(
        self, suggestion_id: str, cedar: str, notes: Sequence[str], at_ms: int
    ) -> AppliedSuggestion:
        """Write the rule with the notes as comments.  Raises Conflict, Unavailable."""

    def undo(self, suggestion_id: str | None) -> AppliedSuggestion:
        """Remove the file, of the newest without an id.  Raises NotFound, Conflict, Unavailable."""


class RunBlocking(Protocol):
    """Runner of blocking calls outside the event loop."""

    def __call__(self, fn: Callable[[*Args], T], /, *args: *Args) -> Awaitable[T]:
        """Return the result of `fn(*args)`.  Cancellation: ignored; the call runs to its end."""


class Notifier(Protocol):
    """The hub as publishers use it.  No method waits or fails because of a reader."""

    def publish(self, rows: Sequence[TapeRow]) -> None:
        """Send consecutive rows of one run to subscribers, before the journal gets them."""

    def committed(self, heads: Sequence[tuple[str, int]]) -> None:
        """Announce for each run that its tape is durable up to this seq."""

    def progress(
        self,
        *,
        run_id: str,
        item: str,
        order: int,
        kind: ProgressKind,
        delta: str,
        offset: int = 0,
    ) -> None:
        """Send a volatile delta to subscribers; `offset` characters of the kind came before it."""

    def notify(
        self, method: str, params: msgspec.Struct | dict[str, Any], *, principal: str, scope: str
    ) -> None:
        """Notify every connection that may see this principal and has this scope."""
