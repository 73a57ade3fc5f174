"""The environments of a replay: lenient from the tape, strict from the configuration of today."""

import base64
import binascii
from typing import Any, cast

import msgspec

from palyra.core.ids import Prefix
from palyra.core.model.messages import FailureClass, ModelRequest
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.policy.modes import ACCEPT_EDITS, PLAN_MODE
from palyra.core.replay.recorded_inputs import E, RecordedTape
from palyra.core.run.answer import AnswerDefect, answer_text
from palyra.core.run.call import Call
from palyra.core.run.calls import LAPSED, STALE
from palyra.core.run.delegation import plan_delegation
from palyra.core.run.environment import GatedCall, RunEnvironment, RunLimits
from palyra.core.run.inputs import Gather
from palyra.core.run.state import RULES_CHANGED, Run
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction
from palyra.core.tool.arguments import Refused

NO_LIMIT = 2**31
# Reason codes of verdicts that depended on other runs at that moment and cannot be repeated.
_MOMENTARY = frozenset({
    "too_many_prompts", "budget_spent", "granted", "denied_by_grant", ACCEPT_EDITS, PLAN_MODE,
})  # fmt: skip
_JUDGED = (ev.ToolProposed, ev.ToolRejected, ev.ToolDecided, ev.ApprovalRequested)


# Events of a step that start a turn, the first of them; without one the step has ended before.
_PROMPT = (ev.RoutePlanned, ev.RouteChanged, ev.ContextAssembled)

# Causes of partial ends whose text passed the answer check.
_WITHOUT_FLAW = frozenset({"too_large", "outcome_unknown"})


class RecordedEnvironment:
    """`RunEnvironment` of a lenient replay: every answer is read from the tape.

    `record.position` is the first event of the step being replayed.  No method counts its calls,
    because a step with a secret is decided twice.
    """

    def __init__(self, record: RecordedTape, limits: RunLimits) -> None:
        self.record = record
        self.unjudged: set[int] = set()  # seqs of proposals whose verdict was taken from the tape
        self._base_limits = limits
        self._call_id = ""  # of the call evaluated last

    def now_ms(self) -> int:
        """Return the recorded time of the step."""
        return self.record.at_ms

    @staticmethod
    def redact(data: bytes) -> tuple[bytes, bool]:
        """Return `data`: the tape is redacted, and so is everything computed from it."""
        return data, False

    def new_id(self, prefix: Prefix) -> str:
        """Return the recorded id of the approval request for the call evaluated last."""
        asked = self.record.find_of(ev.ApprovalRequested, self._call_id)
        return asked.approval_id if asked is not None else f"{prefix}_of_no_record"

    def plan_delegation(self, run: Run, call: Call) -> ev.DelegationStarted:
        """Return the recorded plan; a replay starts no run."""
        planned = self.record.find_of(ev.DelegationStarted, call.call_id)
        return planned or plan_delegation(run, call, run_id="run_of_no_record", left=ev.Budget())

    def jitter_ms(self, _attempt: int) -> int:
        """Return the recorded backoff."""
        failed = self.record.find_next(ev.TurnFailed)
        return failed.delay_ms if failed is not None else 0

    def plan_route(self, run: Run) -> RoutePlan | None:
        """Return the recorded plan."""
        return self._added(run, ev.RoutePlanned)

    def change_route(self, run: Run, _leaving: Leaving, *, may_retry: bool) -> RouteChange | None:  # noqa: ARG002 - the tape knows
        """Return the recorded change of the model."""
        return self._added(run, ev.RouteChanged)

    def find_refused(
        self,
        run: Run,
        _failure_class: FailureClass,
        _detail: str,
        *,
        may_retry: bool,  # noqa: ARG002 - the tape knows
    ) -> ev.ItemRefused | Compaction | None:
        """Return the recorded item, or the recorded compaction."""
        return self._added(run, ev.ItemRefused) or self._added(run, ev.ContextCompacted)

    def compact(self, run: Run) -> Compaction | None:
        """Return the recorded compaction."""
        return self._added(run, ev.ContextCompacted)

    def summary_is_due(self, run: Run, _input_tokens: int) -> bool:
        """Return True if the tape goes on with the outcome of a compaction."""
        events, place = self.record.events, run.next_seq
        following = events[place] if place < len(events) else None
        return isinstance(following, ev.CompactionApplied | ev.CompactionSkipped)

    def provider(self, _model: str) -> str:
        """Return the recorded provider of the next turn."""
        started = self.record.find_next(ev.TurnStarted)
        return started.provider if started is not None else ""

    def _added(self, run: Run, kind: type[E]) -> E | None:
        """Return the event of that kind if the current step adds it next, after a failure at most."""
        events, place = self.record.events, run.next_seq
        if place < len(events) and isinstance(events[place], ev.TurnFailed):
            place += 1
        found = events[place] if place < len(events) else None
        return found if isinstance(found, kind) else None

    def sign(self, digest: bytes) -> bytes:
        """Return the recorded signature; empty if the tape has none."""
        try:
            return base64.b64decode(self.record.signatures.get(digest.hex(), ""), validate=True)
        except (binascii.Error, ValueError):
            return b""

    @property
    def limits(self) -> RunLimits:
        """Limits as high as the run ever reached, so that they end it only where they did."""
        record, last = self.record, self.record.last
        match last:
            case ev.RunFailed(failure_class=end) | ev.RunDone(cause=end):
                pass
            case _:
                end = ""
        turns = [event.turn for event in record.find_all(ev.TurnStarted)]
        resumes = [event.attempt for event in record.find_all(ev.RunRecovered)]
        asked = record.find_next(ev.ApprovalRequested)
        return msgspec.structs.replace(
            self._base_limits,
            max_turns=max(turns, default=0) if end == "turn_cap" else NO_LIMIT,
            max_recoveries=(max(resumes, default=0) if end == "recovery_exhausted" else NO_LIMIT),
            model_retries=NO_LIMIT,
            approval_ms=asked.expires_ms - record.at_ms if asked is not None else 0,
        )

    def assemble(
        self, run: Run, turn: int, attempt: int
    ) -> tuple[ev.ContextAssembled, ModelRequest]:
        """Return the recorded context with an empty request; no model is called."""
        record = self.record
        event = record.find_next(ev.ContextAssembled)
        if event is None:
            event = ev.ContextAssembled(
                turn=turn, segments=(), input_tokens=0, prefix_hash="", catalogue_hash=""
            )
        request = ModelRequest(
            run_id=run.run_id,
            turn=turn,
            attempt=attempt,
            model=run.model,
            instructions="",
            messages=(),
        )
        return msgspec.structs.replace(event, turn=turn), request

    def find_sources(self, run: Run) -> Gather | None:
        """Return an empty request if the tape gathers first: its step adds no prompt."""
        events, place = self.record.events, run.next_seq
        found = events[place] if place < len(events) else None
        return None if isinstance(found, _PROMPT) else Gather()

    def check_answer(self, run: Run) -> AnswerDefect | None:
        """Return the recorded defect of the text of the current turn."""
        record = self.record
        following = record.events[record.position + 1 : record.position + 3]
        match following:
            case [ev.AnswerRejected() as rejected, *_]:
                return AnswerDefect(rejected.reason, "", rejected.guidance)
            case [ev.MessageCompleted(text=text), ev.RunDone(reason="partial") as done]:
                is_taken = done.cause in _WITHOUT_FLAW or text == answer_text(run)
                return None if is_taken else AnswerDefect(done.cause, done.missing, "")
            case _:
                return None

    def is_stale(self, run: Run, call: Call) -> bool:
        """True if the tape withdraws the question, or denies the call, because the rules changed.

        The question is withdrawn if that is the next event of the step; a later change of the rules
        may withdraw another question of the turn.
        """
        if call.phase != "asking":
            return self._is_void(call, STALE)
        events, place, rows = self.record.events, run.next_seq, self.record.rows
        following = events[place] if place < len(events) else None
        return (
            isinstance(following, ev.ApprovalResolved)
            and (following.call_id, following.by) == (call.call_id, RULES_CHANGED)
            and rows[place].at_ms == self.record.at_ms
        )

    def has_lapsed(self, call: Call) -> bool:
        """Return True if the tape denies the allowed call because its grant had ended."""
        return self._is_void(call, LAPSED)

    def _is_void(self, call: Call, reason: str) -> bool:
        """True if the tape denies the allowed call for that reason before the next start.

        Calls that may no longer start are denied right before a batch starts, so a denial after
        the next start belongs to a later step.
        """
        verdicts = self.record.list_ahead(ev.ToolDecided, call.call_id, before=ev.ToolStarted)
        return any(verdict.reason == reason for verdict in verdicts)

    # --- verdicts

    def evaluate(self, run: Run, call: Call) -> GatedCall:  # noqa: ARG002 - the tape knows
        """Return the recorded verdict."""
        self._call_id = call.call_id
        return self._recorded(call)

    def _recorded(self, call: Call) -> GatedCall:
        """Return the call and its verdict as recorded."""
        proposed = self.record.find_of(ev.ToolProposed, call.call_id)
        asked = self.record.find_ahead(ev.ApprovalRequested, call.call_id)
        inspects_first = proposed is not None and self._inspects_first(proposed)
        if proposed is None:
            unknown = Refused(reason="not on the tape", repair_hint="")
            return GatedCall(
                digest="", tool_class="unknown", arguments=call.arguments, verdict=unknown
            )
        return GatedCall(
            digest=proposed.digest,
            tool_class=proposed.tool_class,
            arguments=proposed.arguments,
            coercions=proposed.coercions,
            verdict=_question("") if inspects_first else self._verdict(call.call_id, asked),
            execution_digest=asked.digest if asked is not None else "",
            executor=proposed.executor,
            enforcement=proposed.enforcement,
            may_rerun=proposed.may_rerun,
            path_key=proposed.path_key,
            inspects=inspects_first,
            inspection=asked.inspection if asked is not None else None,
            duplicates=asked.covers[1:] if asked is not None else (),
        )

    def _inspects_first(self, proposed: ev.ToolProposed) -> bool:
        """True if the verdict followed an inspection, in a later step than the proposal."""
        seq = self.record.seq_of(ev.ToolProposed, proposed.call_id)
        return proposed.inspects and seq is not None and seq >= self.record.position

    def _verdict(
        self, call_id: str, asked: ev.ApprovalRequested | None
    ) -> Refused | Allow | Deny | NeedsApproval:
        rejected = self.record.find_ahead(ev.ToolRejected, call_id)
        decided = self.record.find_ahead(ev.ToolDecided, call_id)
        if rejected is not None:
            return Refused(reason=rejected.reason, repair_hint=rejected.repair_hint)
        if asked is not None:
            return NeedsApproval(
                reason_code="",
                reason=asked.policy_reason,
                policies=(),
                version=asked.policy_version,
                risk=asked.risk,  # type: ignore[arg-type]  # as the gate wrote it
                summary=asked.summary,
                scopes=asked.scopes,
                grant_key=asked.grant_key,
                once_because=asked.once_because,
            )
        if decided is not None and decided.approval_id is not None:
            return _question(decided.policy_version)
        if decided is None:
            return Refused(reason="no verdict on the tape", repair_hint="")
        fields: dict[str, Any] = {
            "reason_code": decided.reason_code,
            "reason": decided.reason,
            "policies": decided.policies,
            "version": decided.policy_version,
            "grant_id": decided.grant_id,
        }
        if decided.verdict == "allow":
            return Allow(**fields)
        return Deny(**fields)


class StrictEnvironment(RecordedEnvironment):
    """`RunEnvironment` of a strict replay: what the configuration decides is asked of `now`."""

    def __init__(self, record: RecordedTape, now: RunEnvironment) -> None:
        super().__init__(record, now.limits)
        self.now = now

    @property
    def limits(self) -> RunLimits:
        """Limits of today."""
        return self.now.limits

    def sign(self, digest: bytes) -> bytes:
        """Sign again."""
        return self.now.sign(digest)

    def assemble(
        self, run: Run, turn: int, attempt: int
    ) -> tuple[ev.ContextAssembled, ModelRequest]:
        """Assemble again."""
        return self.now.assemble(run, turn, attempt)

    def check_answer(self, run: Run) -> AnswerDefect | None:
        """Check the answer again."""
        return self.now.check_answer(run)

    def provider(self, model: str) -> str:
        """Return the provider of today."""
        return self.now.provider(model)

    def compact(self, run: Run) -> Compaction | None:
        """Plan the compaction again."""
        return self.now.compact(run)

    def evaluate(self, run: Run, call: Call) -> GatedCall:
        """Evaluate the call again, unless the tape lacks what its verdict depended on."""
        self._call_id = call.call_id
        if self._is_lost(call.call_id):
            return self._recorded(call)
        gated = self.now.evaluate(run, call)
        proposed = self.record.find_of(ev.ToolProposed, call.call_id)
        if not gated.inspects or proposed is None or not proposed.inspects:
            return gated
        self._note_unjudged(call.call_id)  # the result of the inspection is not on the tape
        return self._recorded(call)

    def _note_unjudged(self, call_id: str) -> None:
        self.unjudged.add(cast("int", self.record.seq_of(ev.ToolProposed, call_id)))

    def _is_lost(self, call_id: str) -> bool:
        """True if the subject of the verdict is not on the tape; noted for the report."""
        record = self.record
        seqs = [record.seq_of(kind, call_id) for kind in _JUDGED]
        decided = record.find_of(ev.ToolDecided, call_id)
        is_redacted = any(seq is not None and record.rows[seq].redacted for seq in seqs)
        is_momentary = decided is not None and decided.reason_code in _MOMENTARY
        if seqs[0] is None or not (is_redacted or is_momentary):
            return False
        self._note_unjudged(call_id)
        return True


def _question(version: str) -> NeedsApproval:
    """Return an approval verdict without text: the question comes later or was answered before."""
    return NeedsApproval(
        reason_code="",
        reason="",
        policies=(),
        version=version,
        risk="low",
        summary="",
    )
