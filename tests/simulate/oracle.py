"""The oracle: reads every committed row and record at its commit, and checks the invariants.

It folds every tape itself, so a daemon whose state differs is found at the step where the
difference begins.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from palyra.config.sections import BudgetConfig
from palyra.core.agent import BUILT_IN
from palyra.core.journal.changes import Change
from palyra.core.journal.purged_row import make_tombstone
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    RunRecord,
    SessionRecord,
    UsageRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ModelRequest
from palyra.core.run.state import RULES_CHANGED, Run, apply, begin
from palyra.core.session.purge import purge_run
from palyra.core.session.queue import BESIDE
from palyra.core.tape import events as ev
from palyra.core.text.canonical_json import digest_of_any
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import ToolCall
from palyra.errors import Conflict, InvariantBroken, PalyraError
from tests.simulate.backlog import Backlog
from tests.simulate.consent import Consent
from tests.simulate.models import SECRET
from tests.simulate.purse import Purse
from tests.simulate.recollection import Recollection
from tests.simulate.transcripts import Transcripts
from tests.simulate.vigil import Vigil

if TYPE_CHECKING:
    from tests.simulate.life import Life


MAX_RECOVERIES = 3
Fail = Callable[[str, str], None]


def _is_probe(change: Change) -> bool:
    """Return True for a change that only tests whether the store can be written."""
    return not change.rows and any(
        isinstance(record, IdempotencyRecord) and record.key.startswith("probe-")
        for record in change.records
    )


def took_ms(event: ev.ToolAttested) -> int:
    """Return the signed duration of a call."""
    return int(event.attestation["finished_ms"]) - int(event.attestation["started_ms"])


class CallFacts:
    """The tape's facts about one call."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.proposed: ev.ToolProposed | None = None
        self.decided: ev.ToolDecided | None = None
        self.before: TapeRow | None = None  # the row before the verdict
        self.digest = ""
        self.approval: ev.ApprovalRequested | None = None
        self.answer: ev.ApprovalResolved | None = None
        self.may_rerun = False

    def repeats(self, event: ev.Event) -> bool:
        """Return True if a kind of event occurs again, except for a decision on a void approval."""
        is_void = isinstance(event, ev.ToolDecided) and event.reason_code == "approval_void"
        return event.KIND in self.kinds and not is_void

    def take(self, event: ev.Event, before: TapeRow) -> None:
        """One more; a question that ends with its rules was not asked."""
        self.kinds.append(event.KIND)
        match event:
            case ev.ToolProposed():
                self.proposed = event
                self.digest, self.may_rerun = event.digest, event.may_rerun
            case ev.ToolDecided():
                self.decided, self.before = event, before
            case ev.ApprovalRequested():
                self.approval = event
            case ev.ApprovalResolved(by=by) if by == RULES_CHANGED:
                self.approval = None
                self.kinds = [kind for kind in self.kinds if not kind.startswith("approval.")]
            case ev.ApprovalResolved():
                self.answer = event
            case _:
                pass


class Oracle:
    """The durable state, and the checks that follow from it."""

    def __init__(
        self, fail: Fail, budgets: Sequence[BudgetConfig], now_ms: Callable[[], int]
    ) -> None:
        self.purse = Purse(fail, budgets)
        self.memory = Recollection(fail, now_ms)
        self.backlog = Backlog(fail)
        self.transcripts = Transcripts(fail)
        self.vigil = Vigil(fail)
        self.failovers = 0
        self._fail = fail
        self.tapes: dict[str, list[TapeRow]] = {}
        self.runs: dict[str, Run] = {}
        self.calls: dict[str, CallFacts] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.approvals: dict[str, ApprovalRecord] = {}
        self.consent = Consent(fail)
        self.receipts: dict[tuple[str, str], IdempotencyRecord] = {}
        self.records: dict[str, RunRecord] = {}
        self.tasks: dict[str, str] = {}  # first line of a message -> its run
        self.effects: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.agents = {
            (each.name, each.version) for each in BUILT_IN.values()
        }  # and versions there ever were
        self.paired: set[tuple[str, str, str]] = set()  # who ever was: principal, channel, sender
        self.left_alone: set[str] = set()  # runs that crashed too often, by the log
        self._early: dict[str, list[ModelRequest]] = {}  # prompts of runs before their first row
        self.dirty: dict[str, None] = {}  # runs that committed since the last step

    # --- what is committed

    def committed(
        self,
        changes: Sequence[Change],
        outcomes: Sequence[PalyraError | None],
        torn: set[str],
    ) -> None:
        """One batch is durable; what follows a refused change of a `torn` run is refused too."""
        for change, refused in zip(changes, outcomes, strict=True):
            if refused is not None:
                is_race = isinstance(refused, Conflict) and not change.rows  # of two for one name
                is_torn = bool(change.rows) and change.rows[0].run_id in torn
                if not is_race and not is_torn:
                    self._fail("the journal refuses nothing sound", repr(refused))
                continue
            self.memory.begin_commit()
            for row in change.rows:
                self._row(row)
            self._check_early_prompts(change)
            self._check_incidents(change)
            if not _is_probe(change):
                for record in change.records:
                    self._record(record)

    def _check_early_prompts(self, change: Change) -> None:
        """Check the prompts that were sent before the first rows of their run were committed."""
        for request in self._early.pop(change.rows[0].run_id, ()) if change.rows else ():
            self.memory.check_prompt(self.runs[request.run_id], request, self.runs)

    def _check_incidents(self, change: Change) -> None:
        """Check that each incident is committed together with its cause on the tape."""
        said = {each.key for each in change.records if isinstance(each, IncidentRecord)}
        for row in change.rows:
            if row.kind == ev.ToolCompleted.KIND:
                event = cast("ev.ToolCompleted", ev.decode_event(row.kind, row.data))
                if event.status == "unknown" and f"outcome_unknown:{event.call_id}" not in said:
                    self._fail("an unknown outcome has its incident", event.call_id)

    def head(self, run_id: str) -> int:
        """Return the last durable seq, or -1 for an unknown run."""
        return len(self.tapes.get(run_id, ())) - 1

    def open_runs(self) -> list[str]:
        """Runs that are not over."""
        return [run_id for run_id, run in self.runs.items() if not run.is_terminal]

    def find_open(self) -> list[str]:
        """Runs and tasks that are not over, and schedules."""
        return self.open_runs() + self.backlog.find_open()

    def _row(self, row: TapeRow) -> None:
        tape = self.tapes.setdefault(row.run_id, [])
        if row.seq < len(tape):  # a repeat is a no-op, if it is one
            if tape[row.seq] != row:
                self._fail("what is committed never changes", f"{row.run_id} {row.seq}")
            return
        if row.seq != len(tape):
            self._fail("seq is dense", f"{row.run_id}: {row.seq} after {len(tape) - 1}")
        tape.append(row)
        self.dirty[row.run_id] = None
        if SECRET.encode() in row.data:
            self._fail("no secret reaches the tape", f"{row.run_id} {row.seq} {row.kind}")
        event = ev.decode_event(row.kind, row.data)
        if isinstance(event, ev.RunPurged):
            self._purge(row, tape)
            return
        self._fold(row, event)
        self._note_call(row, event)
        self.purse.note(event)
        self.backlog.note(row.run_id, event)
        self.memory.note(self.runs[row.run_id], row, event)
        self.transcripts.note(self.runs, self.sessions, row, event)
        self.failovers += isinstance(event, ev.RouteChanged)

    def _purge(self, purge: TapeRow, tape: list[TapeRow]) -> None:
        """A run that has ended loses its payloads; its state stays what it was."""
        if not self.runs[purge.run_id].is_terminal:
            self._fail("only what has ended is purged", purge.run_id)
        tape[:-1] = [
            msgspec.structs.replace(row, data=make_tombstone(row.data, purge.at_ms))
            for row in tape[:-1]
        ]

    def _fold(self, row: TapeRow, event: ev.Event) -> None:
        run = self.runs.get(row.run_id)
        if isinstance(event, ev.RunAccepted):
            self._check_admitted(row, event)
            self.consent.run_begins(row.run_id)
        if isinstance(event, ev.RunStarted):
            self._check_alone(row)
        if isinstance(event, ev.RunRecovered) and event.attempt > MAX_RECOVERIES:
            self._fail("at most three recoveries", f"{row.run_id}: {event.attempt}")
        if isinstance(event, ev.MessageReceived):
            self._check_once(row.run_id, event.text)
        try:
            if run is None:
                self.runs[row.run_id] = begin(row.run_id, cast("ev.RunAccepted", event), row.at_ms)
            else:
                self.runs[row.run_id] = apply(run, event, row.at_ms)
        except (InvariantBroken, AttributeError, TypeError) as broken:
            self._fail("every committed prefix folds", f"{row.run_id} {row.seq}: {broken}")

    def _check_once(self, run_id: str, text: str) -> None:
        """A message with a key of its own is accepted once, however often it was sent."""
        task = text.partition("\n")[0]
        first = self.tasks.setdefault(task, run_id)
        if first != run_id and task.startswith("task "):
            self._fail("one key, one effect", f"{task} is in {first} and {run_id}")

    def _check_admitted(self, row: TapeRow, accepted: ev.RunAccepted) -> None:
        """The agent is one that is kept; through a channel comes only who was let in."""
        if (accepted.agent, accepted.agent_version) not in self.agents:
            self._fail("a run's agent is durable", f"{row.run_id}: {accepted.agent}")
        sender = (row.principal, accepted.channel or "", accepted.sender or "")
        if accepted.channel is not None and sender not in self.paired:
            self._fail("who is not paired is not heard", f"{row.run_id}: {sender}")

    def _check_place(self, record: SessionRecord) -> None:
        """One open session a conversation."""
        for other in self.sessions.values():
            if (
                record.place is not None
                and other.place == record.place
                and other.session_id != record.session_id
            ):
                self._fail("one session a conversation", f"{record.session_id} {other.session_id}")

    def _check_alone(self, row: TapeRow) -> None:
        """One run of a session is active at a time, besides those that stand beside its queue."""
        if self.runs[row.run_id].accepted.origin in BESIDE:
            return
        for other in self.runs.values():
            if (
                other.accepted.session_id == row.session_id
                and other.accepted.origin not in BESIDE
                and other.state == "in_progress"
                and other.run_id not in self.left_alone
            ):
                self._fail("one active run a session", f"{row.run_id} beside {other.run_id}")

    def _note_call(self, row: TapeRow, event: ev.Event) -> None:
        """The order within a call, and one answer to each question."""
        call_id = getattr(event, "call_id", None)
        if not call_id:  # a question about a budget is of no call
            return
        call = self.calls.setdefault(call_id, CallFacts())
        if call.repeats(event):
            self._fail("each step of a call happens once", f"{call_id}: {row.kind}")
        call.take(event, self.tapes[row.run_id][row.seq - 1])
        if isinstance(event, ev.ToolAttested) and took_ms(event) < 0:
            self._fail("no call ends before it starts", f"{call_id}: {took_ms(event)} ms")
        if isinstance(event, ev.ToolStarted):
            self._check_start(self.runs[row.run_id], call, call_id)

    def _check_start(self, run: Run, call: CallFacts, call_id: str) -> None:
        """Check that a person or the rules allowed the call."""
        if call.approval is not None:
            if call.answer is None or call.answer.decision != "allow":
                self._fail("only what was approved starts", call_id)
        elif call.proposed is None or call.decided is None or call.before is None:
            self._fail("nothing starts that nobody allowed", call_id)
        elif call.decided.approval_id is not None:
            answers = [each.answer for each in self.calls.values() if each.answer is not None]
            allowed = [each.approval_id for each in answers if each.decision == "allow"]
            if call.decided.approval_id not in allowed:
                self._fail("only what was approved starts", call_id)
        else:
            self.consent.check_start(run, call.proposed, call.decided, call.before)

    def _record(self, record: msgspec.Struct) -> None:
        match record:
            case RunRecord():
                self._check_run(record)
                self.records[record.run_id] = record
            case ApprovalRecord():
                self._check_approval(record)
                self.approvals[record.approval_id] = record
            case IdempotencyRecord():
                receipt = self.receipts.setdefault((record.principal, record.key), record)
                if receipt != record:
                    self._fail("a receipt never changes", record.key)
            case UsageRecord():
                self.purse.take(record)
            case GrantRecord():
                self.consent.take_grant(record)
            case IncidentRecord():
                self.vigil.take(record)
            case SessionRecord():
                self._check_place(record)
                self.sessions[record.session_id] = record
            case _:
                self._record_who(record)

    def _check_approval(self, record: ApprovalRecord) -> None:
        """One answer; after it only uses change, and there are as many as calls it is for."""
        known = self.approvals.get(record.approval_id)
        if known is None or known.state == "pending":
            return
        if msgspec.structs.replace(known, uses=record.uses) != record:
            self._fail("an approval is answered once", record.approval_id)
        if not known.uses <= record.uses <= 1 + len(record.covers):
            self._fail("an approval is used once", f"{record.approval_id}: {record.uses}")

    def _record_who(self, record: msgspec.Struct) -> None:
        self.memory.take(record)
        self.backlog.take(record)
        if isinstance(record, AgentRecord):
            self.agents.add((record.name, record.version))
        elif isinstance(record, PairingRecord) and record.state == "paired":
            self.paired.add((record.principal, record.channel, record.sender))

    def _check_run(self, record: RunRecord) -> None:
        before, folded = self.records.get(record.run_id), self.runs[record.run_id].to_record()
        if record.purged_ms is not None:
            before, folded = None, purge_run(folded, self.tapes[record.run_id][-1])
        if before is not None and before.is_terminal and before != record:
            self._fail("a terminal state never changes", record.run_id)
        if record != folded:
            self._fail("a record is the fold of its tape", record.run_id)

    # --- what runs

    def is_executed(self, call: ToolCall, life: "Life") -> None:
        """A call is handed to its tool."""
        facts, run = self.calls.get(call.call_id), self.runs.get(call.run_id)
        if facts is None or run is None or "tool.started" not in facts.kinds:
            self._fail("no tool before its start is committed", call.call_id)
            return
        if run.is_terminal or "tool.completed" in facts.kinds:
            self._fail("nothing starts after the end", f"{call.call_id} of {call.run_id}")
        if digest_of_any(call.arguments) != facts.digest:
            self._fail("what runs is what was proposed", call.call_id)
        if not self.backlog.has_child(call, self.runs):  # its end is only waited for
            self._check_rules(call, facts, life.daemon.policy.version)
        if call.tool == "never":
            self._fail("a denial always denies", call.call_id)
        self.executions[call.call_id] += 1
        if not facts.may_rerun and self.executions[call.call_id] > 1:
            self._fail("what may not be repeated is not", call.call_id)

    def _check_rules(self, call: ToolCall, facts: CallFacts, version: str) -> None:
        """Check that the verdict was given under these rules and for exactly this call."""
        if facts.decided is None or facts.decided.policy_version != version:
            self._fail("a verdict ends with its rules", call.call_id)
        if facts.approval is not None:
            digest = execution_digest(call, version, facts.approval.covers)
            if digest != facts.approval.digest:
                self._fail("what runs is what was approved", call.call_id)

    def took_effect(self, call: ToolCall) -> None:
        """A tool changed the world."""
        self.effects[call.call_id] += 1
        if self.effects[call.call_id] > 1 and not self.calls[call.call_id].may_rerun:
            self._fail("an effect happens once", call.call_id)

    def check_prompt(self, request: ModelRequest) -> None:
        """A prompt is sent to a model; the first one of a run may be sent before it is committed."""
        run = self.runs.get(request.run_id)
        if run is None:
            self._early.setdefault(request.run_id, []).append(request)
            return
        self.memory.check_prompt(run, request, self.runs)
        self.transcripts.check_prompt(run, request, self.runs)

    # --- what the daemon believes

    def check_live(self, life: "Life") -> None:
        """After a step: the live state of what was just committed is the fold of its tape."""
        for run_id in self.dirty:
            handle = life.daemon.registry.runs.get(run_id)
            if handle is None:
                continue
            live, durable = handle.run, self.runs[run_id]
            if live.next_seq == durable.next_seq and live != durable:
                self._fail("the live state is the fold of the tape", run_id)
        self.dirty.clear()
