"""The query half of the journal in memory, over dictionaries; mirrors `palyra/store/sqlite/queries`."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from palyra.core.incident.incident import is_wanted
from palyra.core.journal.changes import (
    CandidateFilter,
    IncidentFilter,
    PairingFilter,
    RunFilter,
    TaskFilter,
    UsageBy,
    UsageFilter,
    UsageSum,
)
from palyra.core.journal.records import (
    RECEIPT_TTL_MS,
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    CandidateRecord,
    ChannelRecord,
    DocumentRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    ReflectionRecord,
    RunRecord,
    ScheduleRecord,
    SessionCheckpointRecord,
    SessionRecord,
    TaskRecord,
    TokenRecord,
    UsageRecord,
)
from palyra.core.preview.blocks import EarlierAnswers
from palyra.core.task.fair_shares import pick_fairly
from palyra.core.task.life import MAX_OPEN_OWN, OWN_KINDS, is_claimable, is_expired, order
from palyra.core.task.schedule import firing_order
from palyra.core.task.views import TaskCounts
from palyra.store.sqlite.queries import R

Queued = TypeVar("Queued", TaskRecord, ScheduleRecord)


def _queues(found: list[Queued], order: Callable[[Queued], object]) -> dict[str, Iterator[Queued]]:
    """Return the entries of each principal in their order."""
    ranked: dict[str, list[Queued]] = defaultdict(list)
    for each in sorted(found, key=order):  # type: ignore[arg-type]  # tuples of the same types
        ranked[each.principal].append(each)
    return {principal: iter(entries) for principal, entries in ranked.items()}


class MemoryQueries(ABC):  # noqa: PLR0904 - as many methods as the Protocol has queries
    """The queries of `core.ports.JournalStore`."""

    @abstractmethod
    def _find(self, kind: type[R], *key: str | int) -> R | None: ...

    @abstractmethod
    def _list(self, kind: type[R]) -> list[R]:
        """All records of one type, by key."""

    def find_run(self, run_id: str) -> RunRecord | None:
        return self._find(RunRecord, run_id)

    def list_runs(self, wanted: RunFilter) -> list[RunRecord]:
        """Newest first."""
        found = [
            run
            for run in self._list(RunRecord)
            if wanted.principal in {None, run.principal}
            and wanted.session_id in {None, run.session_id}
            and wanted.parent_run_id in {None, run.parent_run_id}
            and (not wanted.states or run.state in wanted.states)
            and (not wanted.run_ids or run.run_id in wanted.run_ids)
            and (wanted.before is None or run.run_id < wanted.before)
        ]
        return found[::-1][: wanted.limit]

    def list_started_ids(self, wanted: RunFilter) -> list[str]:
        """Latest start first."""
        found = [(run.started_ms, run.run_id) for run in self.list_runs(wanted)]
        started = sorted(((ms, run_id) for ms, run_id in found if ms is not None), reverse=True)
        return [run_id for _, run_id in started]

    def list_open_runs(self) -> list[RunRecord]:
        """Oldest first."""
        return [run for run in self._list(RunRecord) if not run.is_terminal]

    def find_session(self, session_id: str) -> SessionRecord | None:
        return self._find(SessionRecord, session_id)

    def find_session_by_key(self, principal: str, key: str) -> SessionRecord | None:
        found = self._list(SessionRecord)
        return next((s for s in found if (s.principal, s.key) == (principal, key)), None)

    def list_sessions(
        self, principal: str | None, *, before: str | None, limit: int
    ) -> list[SessionRecord]:
        """Newest first."""
        found = [
            session
            for session in self._list(SessionRecord)
            if principal in {None, session.principal}
            and (before is None or session.session_id < before)
        ]
        return found[::-1][:limit]

    def list_purging(self) -> list[SessionRecord]:
        return [session for session in self._list(SessionRecord) if session.is_purging]

    def list_branches(self, run_ids: Sequence[str]) -> list[RunRecord]:
        return [run for run in self._list(RunRecord) if run.parent_run_id in run_ids]

    def list_session_checkpoints(
        self, session_id: str, *, limit: int
    ) -> list[SessionCheckpointRecord]:
        """Newest first."""
        every = self._list(SessionCheckpointRecord)
        return [each for each in every if each.session_id == session_id][::-1][:limit]

    def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        return self._find(ApprovalRecord, approval_id)

    def list_approvals(
        self, *, principal: str | None, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]:
        """Pending first, then the newest first."""
        found = [
            approval
            for approval in self._list(ApprovalRecord)
            if principal in {None, approval.principal}
            and run_id in {None, approval.run_id}
            and (not pending_only or approval.state == "pending")
        ]
        pending = [approval for approval in found if approval.state == "pending"]
        settled = [approval for approval in found if approval.state != "pending"]
        return [*reversed(pending), *reversed(settled)][:limit]

    def count_answers(self, asked: ApprovalRecord, *, limit: int) -> EarlierAnswers:
        """See `RecordStore.count_answers`."""
        own = [each for each in self._list(ApprovalRecord) if each.principal == asked.principal]
        same = [
            each
            for each in own[-limit:]
            if each.approval_id != asked.approval_id
            and each.state in {"allowed", "denied"}
            and (each.agent, each.tool, each.grant_key)
            == (asked.agent, asked.tool, asked.grant_key)
        ]
        latest = max(same, key=lambda each: each.resolved_ms or 0, default=None)
        return EarlierAnswers(
            allowed=sum(each.state == "allowed" for each in same),
            denied=sum(each.state == "denied" for each in same),
            latest_ms=None if latest is None else latest.resolved_ms,
            latest_by=None if latest is None else latest.by,
        )

    def find_task(self, task_id: str) -> TaskRecord | None:
        return self._find(TaskRecord, task_id)

    def list_tasks(self, wanted: TaskFilter) -> list[TaskRecord]:
        """Newest first."""
        found = [
            task
            for task in self._list(TaskRecord)
            if wanted.principal in {None, task.principal}
            and wanted.kind in {None, task.kind}
            and (not wanted.states or task.state in wanted.states)
            and (wanted.before is None or task.task_id < wanted.before)
            and wanted.schedule_id in {None, (task.firing or "").partition("@")[0]}
        ]
        return found[::-1][: wanted.limit]

    def list_claimable(
        self, *, now_ms: int, limit: int, running: Mapping[str, int]
    ) -> list[TaskRecord]:
        found = [task for task in self._list(TaskRecord) if is_claimable(task, now_ms)]
        return pick_fairly(_queues(found, order), running, order, limit)

    def list_running(self) -> list[TaskRecord]:
        return [task for task in self._list(TaskRecord) if task.state == "running"]

    def list_expired_tasks(self, *, now_ms: int, limit: int) -> list[TaskRecord]:
        found = [task for task in self._list(TaskRecord) if is_expired(task, now_ms)]
        return sorted(found, key=lambda task: task.expires_ms or 0)[:limit]

    def list_fired(self, schedule_id: str) -> list[TaskRecord]:
        wanted = TaskFilter(schedule_id=schedule_id, limit=len(self._list(TaskRecord)))
        return [task for task in self.list_tasks(wanted)[::-1] if not task.is_final]

    def count_open_tasks(self, principal: str, *, own: bool) -> int:
        found = (task for task in self._list(TaskRecord) if task.principal == principal)
        return sum(not task.is_final and (task.kind in OWN_KINDS) is own for task in found)

    def count_tasks(self, principal: str | None, *, now_ms: int) -> TaskCounts:
        found = [each for each in self._list(TaskRecord) if principal in {None, each.principal}]
        due = [e.not_before_ms for e in found if e.state == "queued" and e.not_before_ms <= now_ms]
        failed = [each for each in found if each.state == "failed"]
        return TaskCounts(
            due=len(due),
            running=sum(each.state == "running" for each in found),
            oldest_due_ms=min(due, default=None),
            failed=sum((each.finished_ms or 0) > now_ms - 86_400_000 for each in failed),
            own=sum(each.kind in OWN_KINDS and not each.is_final for each in found),
            own_limit=MAX_OPEN_OWN,
        )

    def count_own_tasks(self) -> dict[str, int]:
        found = self._list(TaskRecord)
        return Counter(
            task.principal for task in found if task.kind in OWN_KINDS and not task.is_final
        )

    def find_schedule(self, schedule_id: str) -> ScheduleRecord | None:
        return self._find(ScheduleRecord, schedule_id)

    def list_schedules(self, principal: str | None) -> list[ScheduleRecord]:
        found = [each for each in self._list(ScheduleRecord) if each.removed_ms is None]
        return [each for each in found if principal in {None, each.principal}]

    def list_due_schedules(self, *, now_ms: int, limit: int) -> list[ScheduleRecord]:
        due = [
            each
            for each in self._list(ScheduleRecord)
            if each.next_ms is not None and each.next_ms <= now_ms
        ]
        return pick_fairly(_queues(due, firing_order), {}, firing_order, limit)

    def find_next_due(self, *, after_ms: int) -> int | None:
        tasks, times = self._list(TaskRecord), list[int]()
        times += [
            task.not_before_ms
            for task in tasks
            if task.state == "queued" and task.not_before_ms > after_ms
        ]
        times += [each.expires_ms for each in tasks if each.expires_ms and not each.is_final]
        times += [each.next_ms for each in self._list(ScheduleRecord) if each.next_ms is not None]
        return min(times, default=None)

    def find_receipt(self, principal: str, key: str, *, now_ms: int) -> IdempotencyRecord | None:
        found = self._find(IdempotencyRecord, principal, key)
        is_alive = found is not None and found.created_ms > now_ms - RECEIPT_TTL_MS
        return found if is_alive else None

    def find_token(self, sha256: str) -> TokenRecord | None:
        return next((t for t in self._list(TokenRecord) if t.sha256 == sha256), None)

    def find_token_id(self, sha256: str) -> str | None:
        found = self.find_token(sha256)
        return None if found is None else found.token_id

    def list_tokens(self) -> list[TokenRecord]:
        return self._list(TokenRecord)

    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None:
        """One that is not archived."""
        wanted = principal, agent, channel, conversation_id
        found = self._list(SessionRecord)
        return next((s for s in found if s.place == wanted), None)

    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None:
        """This version, or the newest, deleted or not."""
        if version is not None:
            return self._find(AgentRecord, name, version)
        return next((a for a in reversed(self._list(AgentRecord)) if a.name == name), None)

    def list_agents(self) -> list[AgentRecord]:
        """The newest version of each that is not deleted, by name."""
        newest = {agent.name: agent for agent in self._list(AgentRecord)}
        return [agent for agent in newest.values() if agent.deleted_ms is None]

    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        """Deleted or not."""
        return self._find(ChannelRecord, principal, channel, conversation_id)

    def list_channels(self, principal: str | None) -> list[ChannelRecord]:
        """By principal, channel and conversation; none that is deleted."""
        return [
            found
            for found in self._list(ChannelRecord)
            if found.deleted_ms is None and principal in {None, found.principal}
        ]

    def find_pairing(self, pairing_id: str) -> PairingRecord | None:
        return self._find(PairingRecord, pairing_id)

    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None:
        wanted = principal, channel, sender
        found = self._list(PairingRecord)
        return next((p for p in found if (p.principal, p.channel, p.sender) == wanted), None)

    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]:
        """Newest first."""
        found = [
            pairing
            for pairing in self._list(PairingRecord)
            if wanted.principal in {None, pairing.principal}
            and wanted.channel in {None, pairing.channel}
            and wanted.state in {None, pairing.state}
            and (wanted.before is None or pairing.pairing_id < wanted.before)
        ]
        return found[::-1][: wanted.limit]

    def find_grant(self, grant_id: str) -> GrantRecord | None:
        return self._find(GrantRecord, grant_id)

    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]:
        """Newest first; with `live_at_ms` only those in force at that time."""
        found = [
            grant
            for grant in self._list(GrantRecord)
            if principal in {None, grant.principal}
            and (live_at_ms is None or grant.is_live(live_at_ms))
        ]
        return found[::-1][:limit]

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """See `Ledger.sum_usage`."""
        groups: dict[tuple[str, int], list[UsageRecord]] = defaultdict(list)
        for line in self._list(UsageRecord):
            if _is_wanted(line, wanted):
                begun = line.at_ms - line.at_ms % grain_ms if grain_ms else 0
                groups[_GROUPS[by](line), begun].append(line)
        return [_add_up(*place, lines) for place, lines in sorted(groups.items())][:limit]

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Newest first."""
        found = [line for line in self._list(UsageRecord) if _is_wanted(line, wanted)]
        found.sort(key=lambda line: (line.at_ms, line.run_id, line.turn, line.attempt))
        return found[::-1][:limit]

    def find_budget(self, budget_id: str) -> BudgetRecord | None:
        """Deleted or not."""
        return self._find(BudgetRecord, budget_id)

    def list_budgets(self) -> list[BudgetRecord]:
        """By id; none that is deleted."""
        return [found for found in self._list(BudgetRecord) if found.deleted_ms is None]

    def find_incident(self, incident_id: str) -> IncidentRecord | None:
        return self._find(IncidentRecord, incident_id)

    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]:
        """Newest first."""
        found = [each for each in self._list(IncidentRecord) if is_wanted(each, wanted)]
        return found[::-1][: wanted.limit]

    def find_candidate(self, candidate_id: str) -> CandidateRecord | None:
        return self._find(CandidateRecord, candidate_id)

    def list_learned(self, wanted: CandidateFilter) -> list[CandidateRecord]:
        """Newest first."""
        found = [
            each
            for each in self._list(CandidateRecord)[::-1]
            if wanted.principal in {None, each.principal}
            and (wanted.before is None or each.candidate_id < wanted.before)
            and (not wanted.states or each.state in wanted.states)
            and (not wanted.kinds or each.kind in wanted.kinds)
            and (not wanted.keys or each.key in wanted.keys)
            and (not wanted.memory_ids or each.memory_id in wanted.memory_ids)
        ]
        return found[: wanted.limit]

    def find_reflection(self, run_id: str) -> ReflectionRecord | None:
        return self._find(ReflectionRecord, run_id)

    def list_document_versions(
        self, workspace: str, document: str, *, before: int | None = None, limit: int = -1
    ) -> list[DocumentRecord]:
        """Newest first, at most the newest 100."""
        found = [
            each
            for each in self._list(DocumentRecord)
            if (each.workspace, each.document) == (workspace, document)
        ]
        newest = [each for each in found[::-1] if each.version > found[-1].version - 100]
        wanted = [each for each in newest if before is None or each.version < before]
        return wanted if limit < 0 else wanted[:limit]

    def unresolved(self) -> tuple[IncidentRecord, ...]:
        """Oldest first."""
        return tuple(each for each in self._list(IncidentRecord) if each.state != "resolved")


_GROUPS: dict[UsageBy | None, Callable[[UsageRecord], str]] = {
    None: lambda _: "",
    "principal": lambda line: line.principal,
    "agent": lambda line: line.agent,
    "session": lambda line: line.session_id,
    "run": lambda line: line.run_id,
    "model": lambda line: line.model,
}


def _is_wanted(line: UsageRecord, wanted: UsageFilter) -> bool:
    return (
        wanted.principal in {None, line.principal}
        and wanted.agent in {None, line.agent}
        and wanted.session_id in {None, line.session_id}
        and wanted.run_id in {None, line.run_id}
        and _is_model(line.model, wanted)
        and line.at_ms >= wanted.since_ms
        and (wanted.until_ms is None or line.at_ms < wanted.until_ms)
    )


def _is_model(model: str, wanted: UsageFilter) -> bool:
    family = wanted.model_family
    return wanted.model in {None, model} if family is None else model.startswith(family)


def _add_up(key: str, begun: int, lines: Iterable[UsageRecord]) -> UsageSum:
    lines = tuple(lines)
    return UsageSum(
        key=key,
        from_ms=begun,
        last_ms=max(line.at_ms for line in lines),
        calls=len(lines),
        broken_calls=sum(line.outcome != "completed" for line in lines),
        estimated_calls=sum(line.is_estimate for line in lines),
        unpriced_calls=sum(line.cost_usd_micros is None for line in lines),
        input_tokens=sum(line.input_tokens for line in lines),
        cached_tokens=sum(line.cached_tokens for line in lines),
        output_tokens=sum(line.output_tokens for line in lines),
        cost_usd_micros=sum(line.cost_usd_micros or 0 for line in lines),
    )
