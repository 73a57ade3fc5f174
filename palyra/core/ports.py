"""The ports: what actors need from stores, tools, models and the world, as Protocols.

`actors` imports these and nothing of the packages that implement them; `daemon.py` wires the two.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, TypeVarTuple

import msgspec

from palyra.core.access import Caller
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.changes import (
    ChainedRow,
    Change,
    IncidentFilter,
    OpenReport,
    PairingFilter,
    RunFilter,
    TapePage,
    UsageBy,
    UsageFilter,
    UsageSum,
    VerifyReport,
)
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    RunRecord,
    SessionRecord,
    TokenRecord,
    UsageRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.embeddings import Embeddings
from palyra.core.model.messages import Delta, ModelRequest, ModelTurn
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.skill.manifest import Audit, InstallSkill, SkillRecord
from palyra.core.tool.artifacts import Artifact
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Restored, Side
from palyra.core.tool.spec import CallFacts, Catalogue, Preflight, ToolCall, ToolOutput, ToolSpec
from palyra.errors import PalyraError

T = TypeVar("T")
Args = TypeVarTuple("Args")

NowMs = Callable[[], int]  # integer Unix milliseconds
Sign = Callable[[bytes], bytes]  # Ed25519 signature, 64 bytes


class Registry(Protocol):
    """Who answers, what may come in where, what holds: agents, channels, pairings, grants."""

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
    """What model calls took, and what may be spent."""

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """Sums of each group, by key and time; with a grain of each such stretch since 1970."""

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Single lines, newest first."""

    def find_budget(self, budget_id: str) -> BudgetRecord | None: ...
    def list_budgets(self) -> list[BudgetRecord]: ...


class IncidentStore(Protocol):
    """What was found to be wrong: all that is not resolved, and the newest of what is."""

    def find_incident(self, incident_id: str) -> IncidentRecord | None: ...
    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]: ...


class JournalStore(Registry, Ledger, IncidentStore, Protocol):
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

    def close(self) -> None:
        """Seal, checkpoint, mark the shutdown clean."""

    def read_tape(
        self, run_id: str, *, after_seq: int, limit: int, max_bytes: int = 2_097_152
    ) -> TapePage:
        """Committed rows with seq > after_seq; at least one row when there is any."""

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        """The same rows with position and hash, for export; ask until there are none."""

    def verify(self, run_id: str | None = None) -> VerifyReport:
        """Check chain and signed roots, of one run or everything.  Never stops reads."""

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        """After an unclean end: what is wrong with the file as such, None when nothing is.

        Reads everything, while the other calls go on, and gives up when `is_stopped` says so.  A
        file that was found damaged is not opened again.
        """

    def find_run(self, run_id: str) -> RunRecord | None: ...
    def list_runs(self, wanted: RunFilter) -> list[RunRecord]: ...
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
    def find_receipt(
        self, principal: str, key: str, *, now_ms: int
    ) -> IdempotencyRecord | None: ...
    def find_token(self, sha256: str) -> TokenRecord | None: ...
    def list_tokens(self) -> list[TokenRecord]: ...


class PendingWrite(Protocol):
    """One appended change on its way to the disk."""

    @property
    def is_settled(self) -> bool:
        """Whether the change is durable or refused."""

    async def wait(self) -> None:
        """Wait until the change is durable.

        Raises the reason when it was refused.  Cancellation: it may be committed all the same.
        """


class Journal(Protocol):
    """The running journal: appends in order, reads beside the writer."""

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
        """Rows that wait to be committed."""

    @property
    def is_writable(self) -> bool:
        """Whether the store has refused no write recently."""

    @property
    def has_room(self) -> bool:
        """Whether the store has refused no write since its last successful probe."""


class IncidentReporter(Protocol):
    """Receives reports of problems.  No method waits or fails."""

    def report(self, report: IncidentReport) -> IncidentRecord:
        """Open the incident of the report or count it there; notify and record."""

    def clear(self, key: str, reason: str) -> None:
        """Resolve the incident of that key, if there is an open one."""

    def is_reported(self, key: str) -> bool:
        """True while the incident of that key is open; an operator may have resolved it."""


class LanguageModel(Protocol):
    """One model endpoint."""

    name: str
    provider: str

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """The finished turn; deltas are handed over as they arrive.

        Raises ModelFailure.  Cancellation: the request is abandoned, nothing else changes.
        """

    def most_output(self, request: ModelRequest) -> int:
        """The tokens that the request lets its answer have; 0: as many as the model likes."""


class EmbeddingModel(Protocol):
    """One model of embeddings."""

    name: str
    provider: str

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """One vector a text, in order; of `dimensions` numbers, or as many as the model likes.

        Raises InvalidParams for texts that nobody can embed, ModelFailure when the provider did
        not.  Cancellation: the request is abandoned, nothing else changes.
        """


class EmbeddingService(Protocol):
    """The model of embeddings, for clients."""

    name: str

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        """As the model does, on the principal's account.

        Raises also Rejected when a budget does not allow it.
        """


class ToolRunner(Protocol):
    """All tools of the daemon."""

    def catalogue(self) -> Catalogue:
        """A snapshot of what can be called now, with its hash."""

    def facets(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts | None:
        """What the rules may look at in these checked arguments.

        None for a tool that is not there now, or is another one: its own facets are not known.
        """

    def inspects(self, tool: str) -> bool:
        """Whether calls of that tool are inspected before they are gated."""

    async def inspect(self, call: ToolCall) -> Preflight | None:
        """What the world says about the call now; None when its tool does not look.

        Raises ToolFailure for a call that could not run.  Cancellation: the look runs to its end.
        """

    async def execute(self, call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        """Run one allowed call to its end.  Raises ToolFailure with a text for the model.

        Cancellation: whatever the tool started is stopped before this returns.
        """


class Policy(Protocol):
    """The rule set.  Pure in effect: same version and request, same decision."""

    @property
    def version(self) -> str:
        """Changes whenever any rule changes."""

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        """Allow, ask or deny; every error inside is a deny with the reason."""


class Artifacts(Protocol):
    """Whole outputs, kept for a while.  Blocks; any thread may call."""

    def put(self, artifact: Artifact, data: bytes) -> None:
        """Keep it, durably; the same again changes nothing.  Raises Unavailable."""

    def find(self, session_id: str, name: str) -> tuple[Artifact, bytes] | None:
        """The session's artifact whose digest begins so, if there is exactly one.

        Raises Unavailable for one that is damaged.
        """


class CheckpointStore(Protocol):
    """File checkpoints, kept for a while.  Blocks; any thread may call."""

    def put(self, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> None:
        """Keep it, durably, with every content it names, by digest.  Raises Unavailable."""

    def drop(self, checkpoint_id: str) -> None:
        """Keep it no longer."""

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint without its contents."""

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        """Newest first."""

    def contents(self, checkpoint_id: str) -> dict[str, bytes]:
        """Every content of it, by digest.  Raises Unavailable for one that is gone or damaged."""


class FileHistory(Protocol):
    """The file checkpoints of the workspace.  Blocks."""

    def find(self, checkpoint_id: str) -> Checkpoint | None: ...
    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]: ...
    def restore(self, kept: Checkpoint, side: Side, *, is_forced: bool) -> Restored:
        """Every file of the checkpoint as it was on that side; itself a change with a checkpoint.

        Raises Conflict when somebody else changed a file since (forced it is restored all the
        same), IllegalState for another workspace, Unavailable; then nothing is changed.
        """


class SkillService(Protocol):
    """Installed WASM skills, as clients manage them; implemented by `tools.skills`."""

    def list_all(self, caller: Caller) -> list[SkillRecord]: ...
    def find_obstacle(self) -> str: ...
    def get(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    def upload(self, caller: Caller, sha256: str, offset: int, chunk: bytes) -> int: ...
    async def install(self, caller: Caller, wanted: InstallSkill) -> SkillRecord: ...
    async def audit(self, caller: Caller, skill_id: str) -> Audit: ...
    async def quarantine(self, caller: Caller, skill_id: str, reason: str) -> SkillRecord: ...
    async def enable(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    async def remove(self, caller: Caller, skill_id: str) -> SkillRecord: ...


class RunBlocking(Protocol):
    """A place for calls that block."""

    def __call__(self, fn: Callable[[*Args], T], /, *args: *Args) -> Awaitable[T]:
        """What `fn(*args)` returns.  Cancellation: not heard; the call runs to its end."""


ProgressKind = Literal["text", "reasoning", "tool_output", "status"]


class Notifier(Protocol):
    """What publishers see of the hub.  No method waits or fails for a reader's sake."""

    def publish(self, rows: Sequence[TapeRow]) -> None:
        """Put consecutive rows of one run on the wire; call before the journal gets them."""

    def committed(self, heads: Sequence[tuple[str, int]]) -> None:
        """Each run's tape is durable up to this seq."""

    def progress(
        self, *, run_id: str, item: str, order: int, kind: ProgressKind, delta: str
    ) -> None:
        """Put a volatile delta on the wire."""

    def notify(
        self, method: str, params: msgspec.Struct | dict[str, Any], *, principal: str, scope: str
    ) -> None:
        """Tell every connection that sees this principal and holds this scope."""
