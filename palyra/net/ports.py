"""What the connections need from the actors, as Protocols: the real ones, or fakes in tests."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeVar

from palyra.core.access import Caller
from palyra.core.commands import (
    Cancelled,
    ChangeQueue,
    Forked,
    Queue,
    ReceiptKey,
    ResolveApproval,
    Resolved,
    RunView,
    Started,
    StartRun,
)
from palyra.core.journal import Change, RunFilter
from palyra.core.policy import PolicyDecision
from palyra.core.ports import JournalStore
from palyra.core.records import ApprovalRecord, SessionRecord
from palyra.core.replay_report import ReplayReport
from palyra.core.tools import Catalogue

T = TypeVar("T")


class Journal(Protocol):
    """The journal's handle (`actors.journal`)."""

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
        self, caller: Caller, command: StartRun, receipt: ReceiptKey | None = None
    ) -> Started: ...
    async def fork_run(
        self,
        caller: Caller,
        run_id: str,
        at_seq: int,
        text: str | None,
        receipt: ReceiptKey | None = None,
    ) -> Forked: ...
    async def replay_run(self, caller: Caller, run_id: str, *, strict: bool) -> ReplayReport: ...
    async def steer_run(
        self, caller: Caller, run_id: str, text: str, receipt: ReceiptKey | None = None
    ) -> int: ...
    async def cancel_run(self, caller: Caller, run_id: str, reason: str) -> Cancelled: ...
    async def get_run(self, caller: Caller, run_id: str) -> RunView: ...
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
        self, caller: Caller, command: ResolveApproval, receipt: ReceiptKey | None = None
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
        self, caller: Caller, tool: str, arguments: dict[str, Any], agent: str | None = None
    ) -> PolicyDecision: ...


Authenticate = Callable[[str], Awaitable[Caller]]  # raises Unauthenticated
