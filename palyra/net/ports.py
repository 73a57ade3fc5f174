"""What the connections need from the actors, as Protocols: the real ones, or fakes in tests."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeVar

from palyra.core.access import Caller
from palyra.core.agent import AgentChange
from palyra.core.approval import ResolveApproval, Resolved
from palyra.core.channel import SetChannel
from palyra.core.context.assembly import Prefix
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.changes import Change, IncidentFilter, PairingFilter, RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IncidentRecord,
    PairingRecord,
    SessionRecord,
)
from palyra.core.model.messages import Message
from palyra.core.model.views import ModelList
from palyra.core.policy.request import Explanation
from palyra.core.ports import JournalStore
from palyra.core.replay.report import ReplayReport
from palyra.core.session.commands import (
    Cancelled,
    ChangeQueue,
    Forked,
    Queue,
    RunView,
    Started,
    StartRun,
)
from palyra.core.skill.manifest import Audit, InstallSkill, SkillRecord
from palyra.core.tool.artifacts import Artifact, ArtifactPage
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Restored, Side
from palyra.core.tool.spec import Catalogue
from palyra.core.usage.views import AccountsView, UsageView, UsageWanted

T = TypeVar("T")


class Journal(Protocol):
    """The journal's handle (`actors.journal.actor`)."""

    async def read(self, query: Callable[[JournalStore], T]) -> T: ...
    async def find(self, query: Callable[[JournalStore], T]) -> T: ...
    async def commit(self, change: Change) -> None: ...
    @property
    def backlog(self) -> int: ...
    @property
    def is_writable(self) -> bool: ...


class Gateway(Protocol):
    """The one door to sessions, runs and approvals (`actors.gateway`).

    Checks scope and visibility itself, answers after the commit, raises PalyraError.
    """

    async def start_run(
        self, caller: Caller, command: StartRun, receipt: IdempotencyKey | None = None
    ) -> Started: ...
    async def fork_run(
        self,
        caller: Caller,
        run_id: str,
        at_seq: int,
        text: str | None,
        receipt: IdempotencyKey | None = None,
    ) -> Forked: ...
    async def replay_run(self, caller: Caller, run_id: str, *, strict: bool) -> ReplayReport: ...
    async def steer_run(
        self, caller: Caller, run_id: str, text: str, receipt: IdempotencyKey | None = None
    ) -> int: ...
    async def cancel_run(self, caller: Caller, run_id: str, reason: str) -> Cancelled: ...
    async def get_run(self, caller: Caller, run_id: str) -> RunView: ...
    async def read_conversation(self, caller: Caller, run_id: str) -> tuple[Message, ...]: ...
    async def list_runs(self, caller: Caller, wanted: RunFilter) -> list[RunView]: ...
    async def wait_run(
        self,
        caller: Caller,
        run_id: str,
        *,
        until: Literal["terminal", "attention"],
        timeout_s: float,
    ) -> tuple[RunView, bool]: ...
    async def resolve_approval(
        self, caller: Caller, command: ResolveApproval, receipt: IdempotencyKey | None = None
    ) -> Resolved: ...
    async def get_approval(self, caller: Caller, approval_id: str) -> ApprovalRecord: ...
    async def list_approvals(
        self, caller: Caller, *, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]: ...
    async def resolve_session(
        self, caller: Caller, *, key: str | None, session_id: str | None
    ) -> SessionRecord: ...
    async def get_session(self, caller: Caller, session_id: str) -> SessionRecord: ...
    async def list_sessions(
        self, caller: Caller, *, before: str | None, limit: int
    ) -> list[SessionRecord]: ...
    async def archive_session(self, caller: Caller, session_id: str) -> SessionRecord: ...
    async def reset_session(self, caller: Caller, session_id: str) -> SessionRecord: ...
    async def arrange_queue(
        self, caller: Caller, session_id: str, change: ChangeQueue
    ) -> Queue: ...
    async def catalogue(self, caller: Caller, agent: str | None = None) -> Catalogue: ...
    async def explain_policy(
        self,
        caller: Caller,
        tool: str,
        arguments: dict[str, Any],
        agent: str | None = None,
        session_id: str | None = None,
    ) -> Explanation: ...


class Grants(Protocol):
    """What people allowed or denied beyond one call (`services.grants`), alike."""

    async def list_seen(
        self, caller: Caller, *, live_only: bool, limit: int
    ) -> list[GrantRecord]: ...
    async def revoke(self, caller: Caller, grant_id: str) -> GrantRecord: ...


class Budgets(Protocol):
    """Usage and budgets (`services.usage`), alike."""

    async def sum_usage(self, caller: Caller, wanted: UsageWanted) -> UsageView: ...
    async def list_all(self, caller: Caller) -> list[BudgetRecord]: ...
    async def status(
        self, caller: Caller, budget_id: str | None, limit: int = 100
    ) -> AccountsView: ...
    async def set(
        self, caller: Caller, wanted: BudgetRecord, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord: ...
    async def delete(
        self, caller: Caller, budget_id: str, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord: ...


class Models(Protocol):
    """Which models there are (`services.model_router`), alike."""

    def list_all(self, caller: Caller) -> ModelList: ...


class Agents(Protocol):
    """The agents (`services.agents`): like the gateway, checks scopes and answers after the commit."""

    async def list_all(self, caller: Caller) -> list[AgentRecord]: ...
    async def get(self, caller: Caller, name: str) -> AgentRecord: ...
    def prefix(self, agent: AgentRecord) -> Prefix: ...
    async def create(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord: ...
    async def update(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord: ...
    async def delete(
        self, caller: Caller, name: str, receipt: IdempotencyKey | None = None
    ) -> AgentRecord: ...


class Skills(Protocol):
    """The WASM skills (`tools.skills`), alike."""

    def list_all(self, caller: Caller) -> list[SkillRecord]: ...
    def find_obstacle(self) -> str: ...
    def get(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    def upload(self, caller: Caller, sha256: str, offset: int, chunk: bytes) -> int: ...
    async def install(self, caller: Caller, wanted: InstallSkill) -> SkillRecord: ...
    async def audit(self, caller: Caller, skill_id: str) -> Audit: ...
    async def quarantine(self, caller: Caller, skill_id: str, reason: str) -> SkillRecord: ...
    async def enable(self, caller: Caller, skill_id: str) -> SkillRecord: ...
    async def remove(self, caller: Caller, skill_id: str) -> SkillRecord: ...


class Files(Protocol):
    """Whole outputs and file checkpoints (`services.artifacts`), alike."""

    async def read_artifact(
        self, caller: Caller, session_id: str, name: str, *, offset: int, limit_bytes: int
    ) -> tuple[Artifact, ArtifactPage]: ...
    async def list_checkpoints(
        self, caller: Caller, wanted: CheckpointFilter
    ) -> list[Checkpoint]: ...
    async def restore_checkpoint(
        self, caller: Caller, checkpoint_id: str, side: Side, *, is_forced: bool
    ) -> Restored: ...


class Incidents(Protocol):
    """What is wrong (`services.incidents`), alike; `report` is for those who find something."""

    @property
    def open_count(self) -> int: ...
    def report(self, alarm: IncidentReport) -> IncidentRecord: ...
    async def list_page(
        self, caller: Caller, wanted: IncidentFilter
    ) -> tuple[list[IncidentRecord], str | None]: ...
    async def get(self, caller: Caller, incident_id: str) -> IncidentRecord: ...
    async def resolve(
        self, caller: Caller, incident_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> IncidentRecord: ...


class Channels(Protocol):
    """The channels (`services.channels`), alike."""

    async def list_all(self, caller: Caller, principal: str | None) -> list[ChannelRecord]: ...
    async def set(
        self, caller: Caller, wanted: SetChannel, receipt: IdempotencyKey | None = None
    ) -> ChannelRecord: ...
    async def delete(
        self,
        caller: Caller,
        *,
        principal: str,
        channel: str,
        conversation_id: str,
        receipt: IdempotencyKey | None = None,
    ) -> ChannelRecord: ...
    async def list_pairings(self, caller: Caller, wanted: PairingFilter) -> list[PairingRecord]: ...
    async def approve(
        self, caller: Caller, pairing_id: str, code: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord: ...
    async def revoke(
        self, caller: Caller, pairing_id: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord: ...


Authenticate = Callable[[str], Awaitable[Caller]]  # raises Unauthenticated
