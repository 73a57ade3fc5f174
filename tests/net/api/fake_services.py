"""The daemon as connections see it, in memory: publishing and committing is up to the test."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec
import trio

from palyra.actors.hub import Hub, hub
from palyra.actors.kernel.child import ChildSnapshot
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.configuration import (
    ConfigChange,
    ConfigChanged,
    ConfigEntry,
    ConfigView,
    StoredSecret,
)
from palyra.core.context.views import (
    ContextExplained,
    ReferencePreview,
    explain_context,
    preview_references,
)
from palyra.core.ids import Prefix
from palyra.core.journal.changes import CandidateFilter, Change, RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import (
    ApprovalRecord,
    CandidateRecord,
    Evidence,
    GrantRecord,
    IdempotencyRecord,
    Pin,
    Role,
    SessionCheckpointRecord,
    SessionMode,
    SessionRecord,
    TokenRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.learning.views import CandidateChanged, Reflected
from palyra.core.memory.items import MemoryPurged
from palyra.core.memory.vectors import EmbedderView
from palyra.core.model.sources import ContextSource
from palyra.core.notice import NoticeSent
from palyra.core.policy.request import Explanation
from palyra.core.policy.views import AppliedSuggestion, Proof, Resolved, RuleFor, SuggestionList
from palyra.core.preview.blocks import Preview, ReachList
from palyra.core.redaction.redactor import Redactor
from palyra.core.replay.report import ReplayReport
from palyra.core.session.commands import (
    Cancelled,
    ChangeQueue,
    Forked,
    Queue,
    RestoreSession,
    RunView,
    SessionCheckpoints,
    SessionCompacted,
    SessionRestored,
    Started,
    StartRun,
    Steered,
)
from palyra.core.session.fork import InheritedView
from palyra.core.session.purge import PurgeSession, SessionPurged
from palyra.core.suspension import Suspension
from palyra.core.tape.events import ContextAssembled
from palyra.errors import NotFound
from palyra.models.scripted.model import Scripted
from palyra.net.api.idempotency import IdempotencyStore
from palyra.net.api.logins import Logins
from palyra.net.api.method import Backend, Drain
from palyra.net.api.rate_limit import ConnectionLimits, Pacer
from palyra.net.api.tokens import authenticate, digest_token
from palyra.net.connection.connection import serve_connection
from palyra.net.protocol import notifications
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.net.server.transport import Peer as PeerFacts
from palyra.services.memory.items import Memories
from palyra.services.registry.model_router import ModelRouter
from palyra.services.upkeep.admission import Admission, VolatileSuspension
from palyra.services.upkeep.healing import HealingModes
from palyra.services.upkeep.log_history import LogHistory
from palyra.tools.skills.text_skills import TextSkills
from tests.actors.run.office_kit import inline_blocking
from tests.net.api.fake_budgets import FakeBudgets
from tests.net.api.fake_documents import FakeDocuments
from tests.net.api.fake_files import FakeChanges, FakeFiles
from tests.net.api.fake_incidents import FakeIncidents
from tests.net.api.fake_keeping import FakeKeeping
from tests.net.api.fake_mcp import FakeMcp
from tests.net.api.fake_memories import FakeMemories
from tests.net.api.fake_registry import FakeAgents, FakeChannels
from tests.net.api.fake_skills import FakeSkills
from tests.net.api.fake_store import FakeJournal, FakeStore, run_record
from tests.net.api.fake_tasks import FakeSchedules, FakeTasks
from tests.net.server.memory_peer import MemoryTransport, Peer

T = TypeVar("T")

ROLES: dict[str, tuple[str, Role]] = {
    "tok-operator": ("root", "operator"),
    "tok-ann": ("ann", "client"),
    "tok-bob": ("bob", "client"),
    "tok-person": ("ann", "person"),
    "tok-approver": ("eve", "approver"),
    "tok-observer": ("oscar", "observer"),
}
RUN = "run_1"


def row(seq: int, run_id: str = RUN, *, kind: str = "turn.started", text: str = "") -> TapeRow:
    """A row of ann's whose payload names its seq."""
    data = msgspec.json.encode({"n": seq, "text": text})
    return TapeRow(run_id, "ses_1", seq, 1_000 + seq, kind, "ann", False, data)  # noqa: FBT003


class FakeNotices:
    """One address, which takes everything."""

    async def try_out(self, caller: Caller) -> list[NoticeSent]:
        caller.require("config:write")
        return [NoticeSent(address="notify.webhook")]


class FakeDevices:
    """Takes one device."""

    def __init__(self) -> None:
        self.endpoint = ""

    async def find_key(self) -> str:
        return "BKey"

    async def find(self, token_id: str) -> str:
        assert token_id
        return self.endpoint

    async def subscribe(self, token_id: str, endpoint: str) -> None:
        assert token_id
        self.endpoint = endpoint

    async def unsubscribe(self, token_id: str) -> None:
        await self.subscribe(token_id, "")


class FakeVault:
    """Takes every secret and has one."""

    async def list_stored(self, caller: Caller) -> list[StoredSecret]:
        caller.require("secrets:read")
        return [StoredSecret(name="KEY", set_ms=1)]

    async def put(self, caller: Caller, name: str, _value: str, now_ms: int) -> StoredSecret:
        caller.require("secrets:write")
        return StoredSecret(name=name, set_ms=now_ms)

    async def remove(self, caller: Caller, _name: str) -> None:
        caller.require("secrets:write")


class FakeAdmission(Admission):
    """The real one; changes are effects of the gateway."""

    def __init__(self, gateway: "FakeGateway") -> None:
        super().__init__(VolatileSuspension(), lambda: 0, inline_blocking)
        self.gateway = gateway

    async def suspend(self, caller: Caller, reason: str) -> Suspension:
        self.gateway.effects.append("suspend")
        return await super().suspend(caller, reason)

    async def resume(self, caller: Caller) -> Suspension | None:
        self.gateway.effects.append("resume")
        return await super().resume(caller)


class FakeConfiguration:
    """A port; changes are effects of the gateway."""

    def __init__(self, gateway: "FakeGateway") -> None:
        self.gateway = gateway

    async def read(self, _caller: Caller) -> ConfigView:
        entry = ConfigEntry(
            key="server.port", value=1, source="file", next_value=1, default=2, description="d",
            is_live=False,
        )  # fmt: skip
        return ConfigView(entries=(entry,), config_file="f", digest="0")

    async def change(self, _caller: Caller, change: ConfigChange) -> ConfigChanged:
        await self.gateway.gate.wait()
        self.gateway.effects.append(f"config {change.key}")
        return ConfigChanged(
            key=change.key, value=change.value, effect="restart", source="file", digest="1",
            config_file="f",
        )  # fmt: skip


class FakeGateway:
    """Counts effects; runs exist when the store has a record of them."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.effects: list[str] = []
        self.gate = trio.Event()  # effects wait for it
        self.gate.set()
        self.wake = trio.Event()  # ends `wait_run`
        self.on_start: Callable[[str], None] | None = None  # while a run with that id is begun

    async def perform(
        self, name: str, receipt: IdempotencyKey | None, result: msgspec.Struct
    ) -> None:
        await self.gate.wait()
        self.effects.append(name)
        if receipt is not None:
            kept = IdempotencyRecord(
                principal=receipt.principal,
                key=receipt.key,
                body_sha256=receipt.body_sha256,
                result=msgspec.Raw(msgspec.json.encode(result)),
                created_ms=0,
            )
            self.store.write(Change(records=(kept,)))

    async def start_run(
        self, caller: Caller, command: StartRun, receipt: IdempotencyKey | None = None
    ) -> Started:
        run_id = f"run_{len(self.effects) + 1}"
        if command.run_id is not None and self.on_start is not None:
            run_id = command.run_id
            self.on_start(run_id)
        started = Started(run_id=run_id, session_id="ses_1", seq=1, disposition="started")
        await self.perform(f"start {command.text}", receipt, started)
        self.store.runs[run_id] = run_record(run_id, principal=caller.principal)
        return started

    async def fork_run(
        self,
        caller: Caller,
        run_id: str,
        at_seq: int,
        text: str | None,
        receipt: IdempotencyKey | None = None,
    ) -> Forked:
        await self.get_run(caller, run_id)
        made = Forked(
            run_id="run_2",
            session_id="ses_2",
            seq=2,
            disposition="started",
            parent_run_id=run_id,
            at_seq=at_seq - 1,
        )
        await self.perform(f"fork {text}", receipt, made)
        return made

    async def replay_run(self, caller: Caller, run_id: str, *, strict: bool) -> ReplayReport:
        await self.get_run(caller, run_id)
        return ReplayReport(
            run_id=run_id,
            matched=True,
            strict=strict,
            events=1,
            recorded_digest="d",
            replayed_digest="d",
        )

    async def steer_run(
        self, caller: Caller, run_id: str, text: str, receipt: IdempotencyKey | None = None
    ) -> int:
        await self.get_run(caller, run_id)
        await self.perform(f"steer {text}", receipt, Steered(seq=7))
        return 7

    async def cancel_run(self, caller: Caller, run_id: str, reason: str) -> Cancelled:
        await self.get_run(caller, run_id)
        await self.perform(f"cancel {reason}", None, Steered(seq=0))
        return Cancelled(state="cancelled", applied_seq=9)

    async def get_run(self, caller: Caller, run_id: str) -> RunView:
        await trio.lowlevel.checkpoint()
        record = self.store.runs.get(run_id)
        if record is None or not caller.sees(record.principal):
            raise NotFound(f"no run {run_id!r}", field="run_id")
        return RunView.of(record)

    async def read_conversation(self, caller: Caller, run_id: str) -> InheritedView:
        await self.get_run(caller, run_id)
        return InheritedView(messages=())

    async def list_runs(self, caller: Caller, wanted: RunFilter) -> list[RunView]:
        await trio.lowlevel.checkpoint()
        seen = [
            run
            for run in sorted(self.store.runs.values(), key=lambda run: run.run_id, reverse=True)
            if caller.sees(run.principal)
            and wanted.principal in {None, run.principal}
            and (not wanted.states or run.state in wanted.states)
            and (not wanted.run_ids or run.run_id in wanted.run_ids)
            and (wanted.before is None or run.run_id < wanted.before)
        ]
        return [RunView.of(run) for run in seen[: wanted.limit]]

    async def wait_run(
        self,
        caller: Caller,
        run_id: str,
        *,
        until: Literal["terminal", "attention", "person"],
        timeout_s: float,
    ) -> tuple[RunView, bool]:
        del until
        view = await self.get_run(caller, run_id)
        with trio.move_on_after(timeout_s) as scope:
            await self.wake.wait()
        return view, scope.cancelled_caught

    async def compact_session(
        self, _caller: Caller, session_id: str, receipt: IdempotencyKey | None = None
    ) -> SessionCompacted:
        compacted = SessionCompacted(session_id=session_id, run_id="run_9")
        await self.perform(f"compact {session_id}", receipt, compacted)
        return compacted

    async def preview_compaction(self, _caller: Caller, session_id: str) -> SessionCompacted:
        return SessionCompacted(session_id=session_id, reason="nothing to summarise")

    async def explain_context(
        self, _caller: Caller, run_id: str, turn: int | None
    ) -> ContextExplained:
        event = ContextAssembled(
            turn=turn or 1,
            segments=({"layer": "instructions", "tokens": 3, "kept": True},),
            input_tokens=3,
            prefix_hash="p",
            catalogue_hash="c",
        )
        return explain_context(run_id, event, None)

    async def preview_references(
        self,
        _caller: Caller,
        text: str,
        _agent: str | None,
        _session_id: str | None,
        _workspace: str | None,
    ) -> ReferencePreview:
        return preview_references(text, [ContextSource(name="@file:a", text="x")], [])

    async def explain_policy(
        self,
        caller: Caller,
        tool: str,
        arguments: dict[str, Any],
        agent: str | None = None,
        *,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> Explanation:
        del caller, arguments, agent, session_id, workspace
        return Explanation(
            answer="allow", reason_code="allowed", reason=tool, policies=(), version="1"
        )


class FakeApprovals:
    """No approvals; each is resolved as requested."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    async def resolve(
        self, caller: Caller, command: ResolveApproval, receipt: IdempotencyKey | None = None
    ) -> Resolved:
        resolved = Resolved(
            decision=command.decision,
            scope=command.scope,
            by=caller.principal,
            resolved_ms=1,
            won=True,
            run_id=RUN,
            seq=3,
        )
        await self._gateway.perform(f"resolve {command.decision}", receipt, resolved)
        return resolved

    async def get(self, caller: Caller, approval_id: str) -> ApprovalRecord:
        raise NotFound(f"no approval {approval_id!r} for {caller.principal}")

    async def list_seen(
        self, caller: Caller, *, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]:
        del caller, run_id, pending_only, limit
        return []


class FakeLearning:
    """One candidate, which every change leaves as it is."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def list_candidates(self, caller: Caller, wanted: CandidateFilter) -> Any:
        caller.require("memory:read")
        assert wanted.limit
        return [a_candidate()]

    async def get(self, caller: Caller, candidate_id: str) -> Any:
        caller.require("memory:read")
        return a_candidate(candidate_id)

    async def accept(self, caller: Caller, candidate_id: str) -> CandidateChanged:
        caller.require("memory:write")
        self.asked.append(candidate_id)
        return CandidateChanged(
            candidate_id=candidate_id, state="applied", revision=2, memory_id="mem_1"
        )

    reject = undo = accept

    async def edit(self, caller: Caller, candidate_id: str, text: str) -> CandidateChanged:
        assert text
        return await self.accept(caller, candidate_id)

    async def reflect_for(self, caller: Caller, run_id: str) -> Reflected:
        caller.require("memory:write")
        return Reflected(run_id=run_id, is_new=True)


def a_candidate(candidate_id: str = "can_1") -> CandidateRecord:
    return CandidateRecord(
        candidate_id=candidate_id,
        principal="ann",
        session_id="ses_1",
        kind="fact",
        text="our port is 1",
        score_bps=8_000,
        signals={"base": 8_000},
        evidence=(Evidence(run_id="run_1", seq=1, quote="our port is 1"),),
        trust="trusted_local",
        key="fact:1",
        state="applied",
        created_ms=1,
        changed_ms=1,
    )


class FakeDataRights:
    """`DataRights` that removes the memory only."""

    def __init__(self, gateway: FakeGateway, memories: Memories) -> None:
        self.gateway = gateway
        self.memories = memories

    async def purge_session(self, caller: Caller, command: PurgeSession) -> SessionPurged:
        del caller
        purged = SessionPurged(session_id=command.session_id, dry_run=command.dry_run)
        await self.gateway.perform("purge", None, Steered(seq=0))
        return purged

    async def purge_principal(
        self, caller: Caller, principal: str, *, sessions: bool, cancel: bool, dry_run: bool
    ) -> MemoryPurged:
        del sessions, cancel
        return await self.memories.purge(caller, principal, dry_run=dry_run)


class FakeCheckpointer:
    """Checkpoints of one session."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    async def create(
        self, caller: Caller, session_id: str, run_id: str | None, seq: int | None, name: str
    ) -> SessionCheckpointRecord:
        await self._gateway.perform("checkpoint", None, Steered(seq=0))
        return SessionCheckpointRecord(
            checkpoint_id="scp_1",
            principal=caller.principal,
            session_id=session_id,
            run_id=run_id or "run_1",
            seq=seq or 0,
            created_ms=1,
            name=name,
        )

    async def list_seen(self, caller: Caller, session_id: str, limit: int) -> SessionCheckpoints:
        assert caller.principal
        assert session_id
        return SessionCheckpoints(checkpoints=[][:limit])

    async def restore(
        self, caller: Caller, command: RestoreSession, receipt: IdempotencyKey | None
    ) -> SessionRestored:
        assert caller.principal
        restored = SessionRestored(
            parent_run_id="run_1", at_seq=1, checkpoint_id=command.checkpoint_id or "cmp_1"
        )
        if not command.dry_run:
            await self._gateway.perform("restore", receipt, restored)
        return restored


class FakeSuggestions:
    """Suggested rules without tapes."""

    APPLIED = AppliedSuggestion(suggestion_id="sug_0", file="f", cedar="permit", applied_ms=1)

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def suggest(
        self, caller: Caller, _min_answers: int, *, with_folders: bool
    ) -> SuggestionList:
        caller.require("policies:read")
        del with_folders
        return SuggestionList(suggestions=(), proof=Proof(), applied=(self.APPLIED,))

    async def apply(
        self, caller: Caller, _suggestion_id: str, _min_answers: int, *, with_folders: bool
    ) -> AppliedSuggestion:
        caller.require("policies:write")
        del with_folders
        self.asked.append("apply")
        return self.APPLIED

    async def rule_for(self, caller: Caller, approval_id: str, *, writes: bool = False) -> RuleFor:
        caller.require("policies:write")
        if writes:
            self.asked.append("allow_from")
        return RuleFor(approval_id=approval_id, suggestion_id="sug_0", cedar="permit")

    async def undo(self, caller: Caller, _suggestion_id: str | None) -> AppliedSuggestion:
        caller.require("policies:write")
        self.asked.append("undo")
        return self.APPLIED


class FakePreviews:
    """One preview, and no past calls."""

    async def preview(self, caller: Caller, approval_id: str, _max_lines: int) -> Preview:
        caller.require("approvals:read")
        return Preview(
            approval_id=approval_id, run_id=RUN, digest="d", state="pending", tool="echo",
            summary="echo", why="echo asks", risk="low", scopes=("once",), blocks=(),
        )  # fmt: skip

    async def reach(self, caller: Caller, approval_id: str) -> ReachList:
        caller.require("approvals:read")
        return ReachList(approval_id=approval_id, looked_at=0, reaches=())


class FakeSessions:
    """The sessions of the store; each change is an effect."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    async def resolve(
        self,
        caller: Caller,
        *,
        key: str | None,
        session_id: str | None,
        workspace: str | None = None,
    ) -> SessionRecord:
        await self._gateway.perform("session", None, Steered(seq=0))
        return SessionRecord(
            session_id=session_id or "ses_new",
            principal=caller.principal,
            key=key,
            workspace=workspace or "default",
            created_ms=len(self._gateway.effects),
            updated_ms=1,
        )

    async def get(self, caller: Caller, session_id: str) -> SessionRecord:
        record = self._gateway.store.sessions.get(session_id)
        if record is None or not caller.sees(record.principal):
            raise NotFound(f"no session {session_id!r}")
        return record

    async def list_seen(
        self, caller: Caller, *, before: str | None, limit: int
    ) -> list[SessionRecord]:
        del before
        seen = [
            found for found in self._gateway.store.sessions.values() if caller.sees(found.principal)
        ]
        return seen[:limit]

    async def archive(self, caller: Caller, session_id: str) -> SessionRecord:
        return await self.resolve(caller, key=None, session_id=session_id)

    async def rename(self, caller: Caller, session_id: str, title: str) -> SessionRecord:
        found = await self.resolve(caller, key=None, session_id=session_id)
        return msgspec.structs.replace(found, title=title)

    async def pin(self, caller: Caller, session_id: str, pin: Pin, *, is_on: bool) -> SessionRecord:
        found = await self.resolve(caller, key=None, session_id=session_id)
        return msgspec.structs.replace(found, pins=(pin,) if is_on else ())

    async def reset(self, caller: Caller, session_id: str) -> SessionRecord:
        return await self.resolve(caller, key=None, session_id=session_id)

    async def set_mode(self, caller: Caller, session_id: str, mode: SessionMode) -> SessionRecord:
        found = await self.resolve(caller, key=None, session_id=session_id)
        return msgspec.structs.replace(found, mode=mode)

    async def arrange_queue(self, caller: Caller, session_id: str, change: ChangeQueue) -> Queue:
        record = await self.get(caller, session_id)
        if not change.is_look:
            await self._gateway.perform("queue", None, Steered(seq=0))
        return Queue(
            session_id=record.session_id,
            mode=change.mode or "followup",
            paused=bool(change.paused),
            waiting=[f"run_of_{session_id}"],
            messages=1,
            cap=20,
        )


class FakeFolder:
    """The default workspace."""

    root = "/work"

    def find_problem(self) -> str:
        return ""


class FakeGrants:
    """No grants; whichever is revoked was there."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    async def list_seen(self, caller: Caller, *, live_only: bool, limit: int) -> list[GrantRecord]:
        del caller, live_only, limit
        return []

    async def revoke(self, caller: Caller, grant_id: str) -> GrantRecord:
        await self._gateway.gate.wait()
        self._gateway.effects.append(f"revoke {grant_id}")
        return GrantRecord(
            grant_id=grant_id,
            principal=caller.principal,
            agent="default",
            tool="shell",
            key="git status",
            decision="allow",
            scope="session",
            session_id="ses_1",
            epoch=0,
            approval_id="apr_1",
            by="bob",
            granted_ms=1,
            ended_ms=len(self._gateway.effects),
            ended_by=caller.principal,
        )


class Daemon:
    """Hub, store and services; `publish` and `commit` replace the run and journal actors."""

    def __init__(self, nursery: trio.Nursery, limits: ConnectionLimits, *, is_paced: bool) -> None:
        self.nursery = nursery
        self.store = FakeStore()
        self.journal = FakeJournal(self.store)
        self.gateway = FakeGateway(self.store)
        self.agents = FakeAgents(self.store)
        self.channels = FakeChannels(self.store)
        self.budgets = FakeBudgets(self.store)
        self.incidents = FakeIncidents(self.store)
        self.tasks, self.schedules = FakeTasks(self.store), FakeSchedules(self.store)
        self.memories = FakeMemories(self.store, lambda: self.now_ms)
        self.keeping = FakeKeeping()
        self.suggestions = FakeSuggestions()
        self.learning = FakeLearning()
        self.skills = FakeSkills()
        self.files = FakeFiles()
        self.changes = FakeChanges()
        self.documents = FakeDocuments(self.store)
        self.hub = Hub(encode_notification)
        self.hub_life = trio.CancelScope()
        self.now_ms = 1_000_000
        self.admission = FakeAdmission(self.gateway)
        self.log_history = LogHistory()
        self.log_history.add(1, "info", "ready")
        self.blocking_calls = 0  # that would have held up the loop
        self.state: notifications.State = "ready"
        self.tree = ChildSnapshot(id="daemon", state="running", incarnation=1, restarts=0)
        numbers = count(1)

        def new_id(prefix: Prefix) -> str:
            return f"{prefix}_{next(numbers)}"

        self.backend = Backend(
            gateway=cast("Any", self.gateway),
            sessions=cast("Any", FakeSessions(self.gateway)),
            approvals=cast("Any", FakeApprovals(self.gateway)),
            previews=cast("Any", FakePreviews()),
            checkpoints=cast("Any", FakeCheckpointer(self.gateway)),
            backups=cast("Any", self.keeping),
            retention=cast("Any", self.keeping),
            data_rights=cast("Any", FakeDataRights(self.gateway, self.memories.service)),
            grants=cast("Any", FakeGrants(self.gateway)),
            budgets=cast("Any", self.budgets),
            incidents=cast("Any", self.incidents),
            healing=HealingModes(),
            memories=self.memories.service,
            memory_search=self.memories.service.search,
            models=ModelRouter({"scripted": Scripted(lambda prefix: prefix)}, default="scripted"),
            agents=cast("Any", self.agents),
            channels=cast("Any", self.channels),
            configuration=cast("Any", FakeConfiguration(self.gateway)),
            files=cast("Any", self.files),
            changes=cast("Any", self.changes),
            documents=cast("Any", self.documents),
            workspaces={"default": FakeFolder()},
            learning=cast("Any", self.learning),
            tasks=cast("Any", self.tasks),
            schedules=cast("Any", self.schedules),
            skills=self.skills,
            text_skills=TextSkills({}, Path("/nonexistent"), lambda _tool: None),
            mcp=FakeMcp(),
            secrets=FakeVault(),
            notices=cast("Any", FakeNotices()),
            devices=cast("Any", FakeDevices()),
            admission=self.admission,
            drain=Drain(lambda: self.gateway.effects.append("drain"), 5_000),
            log_history=self.log_history,
            suggestions=cast("Any", self.suggestions),
            hub=self.hub,
            journal=cast("Any", self.journal),
            receipts=IdempotencyStore(cast("Any", self.journal), lambda: self.now_ms),
            authenticate=partial(
                authenticate, journal=cast("Any", self.journal), now_ms=lambda: self.now_ms
            ),
            logins=Logins(cast("Any", self.journal), now_ms=lambda: self.now_ms, new_id=new_id),
            limits=limits,
            instance_id="i-1",
            version="1.2.3",
            public_key=b"\x01\x02",
            former_keys=(),
            sign=lambda message: b"signed " + message[:4],
            redact=Redactor([]).redact_bytes,
            run_blocking=self.run_blocking,
            state=lambda: self.state,
            count_stranded=lambda: 3,
            problems=lambda: ["mend me"],
            absent=lambda: ["a program: get it"],
            embedder=lambda: EmbedderView(configured="auto", in_use="hashed"),
            tree=lambda: self.tree,
            now_ms=lambda: self.now_ms,
            new_id=new_id,
            pacer=Pacer() if is_paced else Pacer(gap_s=0, slot_s=0),
        )
        for token, (principal, role) in ROLES.items():
            self.add_token(token, principal, role)

    async def run_blocking(self, fn: Callable[..., T], /, *args: object) -> T:
        self.blocking_calls += 1
        return await inline_blocking(fn, *args)

    def add_token(
        self, token: str, principal: str, role: Role, *, expires_ms: int | None = None
    ) -> TokenRecord:
        record = TokenRecord(
            token_id=f"id-of-{token}",
            sha256=digest_token(token),
            principal=principal,
            role=role,
            name=token,
            created_ms=0,
            expires_ms=expires_ms,
        )
        self.store.write(Change(records=(record,)))
        return record

    async def start_hub(self) -> None:
        """Begin with an empty hub, also after one that crashed."""
        self.hub_life.cancel("crash")
        self.hub_life = trio.CancelScope()
        await self.nursery.start(self._live)

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self.hub_life:
            await hub(self.hub, task_status=task_status)

    def publish(self, *rows: TapeRow) -> None:
        self.hub.publish(rows)

    def commit(self, *rows: TapeRow) -> None:
        """To the store, then to the hub, as the journal actor does."""
        self.store.write(Change(rows=rows))
        self.hub.committed([(rows[-1].run_id, rows[-1].seq)])

    def dial(
        self,
        *,
        window: float = float("inf"),
        bearer: str | None = None,
        caller: Caller | None = None,
        cookie_halves: tuple[str, ...] = (),
    ) -> Peer:
        """A fresh connection, before hello."""
        transport = MemoryTransport(window)
        facts = PeerFacts("memory", bearer, caller, cookie_halves)
        self.nursery.start_soon(serve_connection, transport, facts, self.backend)
        return Peer(transport)

    async def connect(
        self, token: str = "tok-ann", *, window: float = float("inf"), want: tuple[str, ...] = ()
    ) -> Peer:
        """A connected client; hello is dropped."""
        peer = self.dial(window=window)
        await peer.call("connect", token=token, client={"name": "test"}, want=list(want))
        peer.notices.clear()
        return peer


@asynccontextmanager
async def open_daemon(
    limits: ConnectionLimits | None = None, *, is_paced: bool = False
) -> AsyncGenerator[Daemon]:
    """A daemon whose run RUN of ann's is open, with an empty tape; it writes without pauses."""
    async with trio.open_nursery() as nursery:
        daemon = Daemon(nursery, limits or ConnectionLimits(), is_paced=is_paced)
        daemon.store.runs[RUN] = run_record(RUN)
        daemon.store.sessions["ses_1"] = SessionRecord(
            session_id="ses_1", principal="ann", key=None, created_ms=1, updated_ms=1
        )
        await daemon.start_hub()
        try:
            yield daemon
        finally:
            nursery.cancel_scope.cancel("the test is over")
