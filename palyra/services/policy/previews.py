"""Previews of approvals, the reach of their scopes, and the narrowest rule for one of them.

Talks to: the journal (records, tapes), the tools (targets of a call), the gate.  Never: answers an
approval, executes a tool, or keeps a preview.  File contents are read and compared in a thread.
Restart: nothing to restore.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from palyra.core.access import Caller
from palyra.core.journal.changes import Change, RunFilter
from palyra.core.journal.records import ApprovalRecord, ApprovalScope
from palyra.core.policy.grants import beyond_call, parts_of
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.recorded import PolicyEvidence, read_calls
from palyra.core.ports import CallTargeting, Journal, JournalStore, RunBlocking
from palyra.core.preview.blocks import (
    AskingRun,
    EarlierAnswers,
    FieldsBlock,
    Preview,
    Reach,
    ReachList,
)
from palyra.core.preview.call import DEFAULT_LINES, build_preview
from palyra.core.preview.files import Redact
from palyra.core.tape.events import BudgetExceeded, decode_event
from palyra.core.tape.taint import TaintSource, read_taint
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.core.tool.targets import CallTargets
from palyra.errors import Damaged, NotFound, Unreadable
from palyra.services.policy.gate import Gate
from palyra.services.tape.pins import read_rows

REACH_CALLS = 200  # recent calls that a reach looks at
_REACH_RUNS = 200  # runs read for them
_PAGE_RUNS = 20
_EXAMPLES = 5
MOST_CHAINED = 32  # runs that delegate to each other
MOST_EARLIER = 500  # approvals in which earlier answers are looked for
_COMPARED = ("binary", "cwd", "profile")  # of an inspection; operands are compared by name


class Previews:
    """Previews of approvals.  Every method takes the authenticated caller first."""

    def __init__(
        self,
        journal: Journal,
        tools: CallTargeting,
        gate: Gate,
        redact: Redact,
        run_blocking: RunBlocking,
    ) -> None:
        self._journal = journal
        self._tools = tools
        self._gate = gate
        self._redact = redact
        self._run_blocking = run_blocking

    async def preview(
        self, caller: Caller, approval_id: str, max_lines: int = DEFAULT_LINES
    ) -> Preview:
        """Return the preview of an approval.

        Files of a pending approval are read now; a difference from the question makes the preview
        stale.  A settled approval is shown by its arguments alone.  Raises NotFound, also for an
        approval of another principal.  Cancellation: nothing happened.
        """
        caller.require("approvals:read")
        record, taint = await self._find(caller, approval_id)
        call = _call_of(record)
        targets: CallTargets | None = None
        changed: tuple[str, ...] = ()
        if call is not None and record.state == "pending":
            try:
                targets = await self._run_blocking(self._tools.find_targets, call)
                if targets is None or not targets.files:
                    changed = await self._find_changed(call, record.inspection or {})
            except ToolFailure as failure:
                changed = (f"the call could not run now: {failure.message}",)
        exceeded = await self._journal.read(partial(_find_exceeded, record))
        shown = await self._run_blocking(
            partial(
                build_preview,
                record,
                targets,
                exceeded=exceeded,
                redact=self._redact,
                changed=changed,
                taint=taint,
                max_lines=max_lines,
            )
        )
        chain, earlier, effect = await self._journal.read(
            lambda store: (
                _read_chain(store, record.run_id),
                _read_earlier(store, record),
                _read_effect(store, record),
            )
        )
        blocks = (*shown.blocks, *effect)
        return msgspec.structs.replace(shown, chain=chain, earlier=earlier, blocks=blocks)

    async def _find(
        self, caller: Caller, approval_id: str
    ) -> tuple[ApprovalRecord, Sequence[TaintSource]]:
        """Return the record and what tainted its run.  Raises NotFound.

        Clients get an event before it is committed, so the record of a question that was just asked
        may wait in the journal.  A commit without content ends after everything that waited before.
        """
        query = partial(_read, caller, approval_id)
        may_be_waiting = (
            self._journal.backlog > 0
        )  # before the read, or a commit in between hides it
        try:
            return await self._journal.read(query)
        except NotFound:
            if not may_be_waiting:
                raise
        await self._journal.commit(Change())
        return await self._journal.read(query)

    async def _find_changed(self, call: ToolCall, recorded: dict[str, Any]) -> tuple[str, ...]:
        """Return what differs from the recorded inspection, in words.  Raises ToolFailure."""
        if not self._tools.inspects(call.tool):
            return ()
        found = await self._tools.inspect(call)
        now: dict[str, Any] = msgspec.to_builtins(found) if found is not None else {}
        before, after = recorded.get("operands", {}), now.get("operands", {})
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        parts = [part for part in _COMPARED if recorded.get(part, "") != now.get(part, "")]
        return (
            *(f"{name} is not as it was when the question was asked" for name in names),
            *(f"{part} was {recorded.get(part)}, is {now.get(part)}" for part in parts),
        )

    async def reach(self, caller: Caller, approval_id: str) -> ReachList:
        """Return how many of the last calls each offered scope would have decided.

        Raises NotFound.  Cancellation: nothing happened.
        """
        caller.require("approvals:read")
        record, _ = await self._find(caller, approval_id)
        recent: list[tuple[str, PolicyEvidence]] = []
        before: str | None = None
        for _ in range(_REACH_RUNS // _PAGE_RUNS):
            before = await self._journal.read(partial(self._read_recent, record, recent, before))
            if before is None or len(recent) >= REACH_CALLS:
                break
        del recent[REACH_CALLS:]
        return ReachList(
            approval_id=approval_id,
            looked_at=len(recent),
            reaches=tuple(_reach(record, scope, recent) for scope in record.scopes),
        )

    def _read_recent(
        self,
        record: ApprovalRecord,
        recent: list[tuple[str, PolicyEvidence]],
        before: str | None,
        store: JournalStore,
    ) -> str | None:
        """Add the calls of one page of runs, newest first; return the last run, None at the end.  Blocks."""
        found = store.list_runs(
            RunFilter(principal=record.principal, before=before, limit=_PAGE_RUNS)
        )
        for run in found:
            calls, _ = read_calls(run.run_id, read_rows(store, run.run_id, run.head_seq))
            seen = (self._gate.read_recorded(call) for call in reversed(calls))
            recent.extend((run.session_id, each) for each in seen if each is not None)
        return found[-1].run_id if len(found) == _PAGE_RUNS else None


def _read_chain(store: JournalStore, run_id: str | None) -> tuple[AskingRun, ...]:
    """Return the run and those that delegated to it, each the parent of the one before.  Blocks."""
    chain: list[AskingRun] = []
    while run_id is not None and len(chain) < MOST_CHAINED:
        run = store.find_run(run_id)
        if run is None:
            break
        chain.append(AskingRun(run_id=run.run_id, agent=run.agent, depth=run.depth))
        run_id = run.parent_run_id if run.depth else None  # a fork has a parent that asks nothing
    return tuple(chain)


def _read_effect(store: JournalStore, record: ApprovalRecord) -> tuple[FieldsBlock, ...]:
    """Return what a permission changes besides the call: the mode after a plan.  Blocks."""
    session = store.find_session(record.session_id) if record.tool == PROPOSE_PLAN else None
    if session is None or session.mode_set is None or session.mode != "plan":
        return ()
    then = f"the session is in the mode {session.mode_set.before} again"
    return (FieldsBlock(title="accepted", rows=(("then", then),)),)


def _read_earlier(store: JournalStore, record: ApprovalRecord) -> EarlierAnswers:
    """Return how the same question was answered before.  Blocks."""
    if not record.grant_key:
        return EarlierAnswers()
    return store.count_answers(record, limit=MOST_EARLIER)


def _read(
    caller: Caller, approval_id: str, store: JournalStore
) -> tuple[ApprovalRecord, Sequence[TaintSource]]:
    """Return the record, and the events that tainted its run.  Blocks.  Raises NotFound."""
    record = store.find_approval(approval_id)
    if record is None or not caller.sees(record.principal):
        raise NotFound(f"no approval {approval_id!r}", field="approval_id")
    run = store.find_run(record.run_id)
    if run is None:
        return record, ()
    try:
        return record, read_taint(read_rows(store, record.run_id, run.head_seq))
    except Unreadable:
        return record, ()


def _find_exceeded(record: ApprovalRecord, store: JournalStore) -> BudgetExceeded | None:
    """Return the event that a question about a budget follows; None for another one.  Blocks."""
    run = None if record.call_id else store.find_run(record.run_id)
    if run is None:
        return None
    try:
        rows = read_rows(store, record.run_id, run.head_seq)
        found = [row for row in rows if row.kind == BudgetExceeded.KIND]
        events = [
            decode_event(row.kind, row.data) for row in found if row.at_ms <= record.requested_ms
        ]
    except (Unreadable, Damaged):
        return None
    return events[-1] if events and isinstance(events[-1], BudgetExceeded) else None


def _call_of(record: ApprovalRecord) -> ToolCall | None:
    """Return the call as far as its tool needs it to name targets; None for another subject."""
    if not record.call_id:
        return None
    return ToolCall(
        call_id=record.call_id,
        run_id=record.run_id,
        session_id=record.session_id,
        principal=record.principal,
        tool=record.tool,
        tool_version="",
        arguments=msgspec.json.decode(record.arguments),
        workspace=record.workspace,
    )


def _reach(
    record: ApprovalRecord, scope: ApprovalScope, recent: Sequence[tuple[str, PolicyEvidence]]
) -> Reach:
    """Return the calls that an answer would have decided; the call itself is not counted."""
    found = [
        each
        for session_id, each in recent
        if each.call_id != record.call_id and _is_covered(record, scope, session_id, each)
    ]
    return Reach(
        scope=scope,
        calls=len(found),
        asked=sum(each.was_asked for each in found),
        examples=tuple(each.summary for each in found[:_EXAMPLES]),
        beyond=() if scope == "once" else beyond_call(record.tool, record.grant_key),
    )


def _is_covered(
    record: ApprovalRecord, scope: ApprovalScope, session_id: str, each: PolicyEvidence
) -> bool:
    if scope == "once":
        return each.run_id == record.run_id and each.call_id in record.covers
    request = each.request
    return (
        bool(record.grant_key)
        and parts_of(request.facets.grant_key) <= parts_of(record.grant_key)
        and bool(request.facets.grant_key)
        and (request.tool, request.agent, request.workspace)
        == (record.tool, record.agent, record.workspace)
        and not request.is_tainted
        and (scope == "timeboxed" or session_id == record.session_id)
    )
