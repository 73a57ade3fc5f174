"""The fold of a tape: how each event changes a run's state.

`apply(state, event)` is the only way the state changes, live and in recovery alike; an event the
state does not allow raises InvariantBroken and changes nothing.

The rules of the fold about tool calls; see `core.fold`.

The rules of the fold about which model answers, and what of the past it is shown.

What the parts of the fold share: how a rule is written down, and what it may demand.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from palyra.core.journal.records import Charge
from palyra.core.model.images import recorded_pictures
from palyra.core.model.messages import AssistantMessage, Message, ProposedCall, UserMessage
from palyra.core.run.call import Call, CallPhase
from palyra.core.run.loop_guard import clear_findings, observe, start_anew
from palyra.core.run.state import (
    DENIED_BY_PERSON,
    RULES_CHANGED,
    Run,
    has_findings,
    transcript_with_results,
)
from palyra.core.tape import events as ev
from palyra.errors import InvariantBroken

Rule = Callable[[Run, Any, int], Run]  # the state before, the event, when it happened


RulesOf = dict[type[ev.Event], Rule]


def registrar(rules: RulesOf) -> Callable[[type[ev.Event]], Callable[[Rule], Rule]]:
    """A decorator that notes a function as the rule for a kind of event."""

    def rule(kind: type[ev.Event]) -> Callable[[Rule], Rule]:
        def note(function: Rule) -> Rule:
            rules[kind] = function
            return function

        return note

    return rule


def need(condition: bool, run: Run, event: ev.Event) -> None:  # noqa: FBT001 - an assertion
    """Raise InvariantBroken, saying how the run stands, unless that is so."""
    if not condition:
        raise InvariantBroken(
            f"{event.KIND} is not possible: {run.run_id} is {run.state}, turn {run.turn} "
            f"{'open' if run.turn_is_open else 'closed'}, calls "
            f"{[call.phase for call in run.calls]}"
        )


def is_attested(run: Run) -> bool:
    """Whether every call of the last turn has its end."""
    return all(call.phase == "attested" for call in run.calls)


_CALL_RULES: RulesOf = {}
_call_rule = registrar(_CALL_RULES)
_replace = msgspec.structs.replace


def _advance(
    run: Run,
    event: Any,  # noqa: ANN401 - every event about a call
    before: frozenset[CallPhase],
    **changes: Any,  # noqa: ANN401 - fields of Call, checked by replace
) -> Run:
    """The run with one call moved on from one of the phases `before`."""
    call = run.find_call(event.call_id)
    need(call is not None and call.phase in before, run, event)
    calls = tuple(
        _replace(other, **changes) if other.call_id == event.call_id else other
        for other in run.calls
    )
    return _replace(run, calls=calls)


_NAMED: frozenset[CallPhase] = frozenset({"named"})
_PROPOSED: frozenset[CallPhase] = frozenset({"proposed"})
_ASKING: frozenset[CallPhase] = frozenset({"asking"})
_GATED: frozenset[CallPhase] = frozenset({"proposed", "asking"})
_ALLOWED: frozenset[CallPhase] = frozenset({"allowed"})
_STARTED: frozenset[CallPhase] = frozenset({"started"})
_ENDED: frozenset[CallPhase] = frozenset({"rejected", "denied", "allowed", "completed"})


@_call_rule(ev.ToolProposed)
def _tool_proposed(run: Run, event: ev.ToolProposed, _at_ms: int) -> Run:
    after = _advance(
        run,
        event,
        _NAMED,
        phase="proposed",
        arguments=event.arguments,
        digest=event.digest,
        tool_class=event.tool_class,
        may_rerun=event.may_rerun,
        path_key=event.path_key,
        executor=event.executor,
        enforcement=event.enforcement,
    )
    return _replace(after, tool_calls=run.tool_calls + 1)


@_call_rule(ev.ToolRejected)
def _tool_rejected(run: Run, event: ev.ToolRejected, _at_ms: int) -> Run:
    text = f"{event.reason}\n{event.repair_hint}".rstrip()
    return _advance(run, event, _PROPOSED, phase="rejected", status="rejected", output=text)


@_call_rule(ev.ApprovalRequested)
def _approval_requested(run: Run, event: ev.ApprovalRequested, at_ms: int) -> Run:
    if not event.call_id:  # no call is asked about, but the model call that a budget stopped
        need(run.exceeded is not None and run.asked_ms is None, run, event)
        return _replace(run, budget_question=event.approval_id, asked_ms=at_ms)
    after = _advance(
        run,
        event,
        _PROPOSED,
        phase="asking",
        approval_id=event.approval_id,
        approval_digest=event.digest,
        approval_expires_ms=event.expires_ms,
        covers=event.covers,
        policy_version=event.policy_version,
    )
    return _replace(after, asked_ms=at_ms)


_NO_APPROVAL: dict[str, Any] = {
    "approval_id": None,
    "approval_digest": "",
    "approval_expires_ms": 0,
    "covers": (),
}


@_call_rule(ev.ApprovalResolved)
def _approval_resolved(run: Run, event: ev.ApprovalResolved, at_ms: int) -> Run:
    if event.approval_id == run.budget_question:
        return _budget_answered(run, event, at_ms)
    call = run.find_call(event.call_id)
    need(call is not None and call.approval_id == event.approval_id, run, event)
    need(run.asked_ms is not None, run, event)
    if event.decision == "abort":
        void = _NO_APPROVAL if event.by == RULES_CHANGED else {}
        after = _advance(run, event, _ASKING, phase="proposed", **void)
    else:
        after = _advance(run, event, _ASKING, answer=event.decision, answered_by=event.by)
    return _stop_waiting(after, at_ms)


def _stop_waiting(run: Run, at_ms: int) -> Run:
    """The run with the time that people took."""
    waited_ms = max(0, at_ms - cast("int", run.asked_ms))
    return _replace(run, asked_ms=None, people_ms=run.people_ms + waited_ms)


def _budget_answered(run: Run, event: ev.ApprovalResolved, at_ms: int) -> Run:
    """Somebody said whether the run may go beyond the budget; that holds for the rest of it."""
    need(run.exceeded is not None and run.asked_ms is not None, run, event)
    exceeded = cast("ev.BudgetExceeded", run.exceeded)
    is_lifted = event.decision == "allow"
    lifted = run.lifted | {exceeded.budget_id} if is_lifted else run.lifted
    return _replace(_stop_waiting(run, at_ms), budget_question="", lifted=lifted)


@_call_rule(ev.ToolDecided)
def _tool_decided(run: Run, event: ev.ToolDecided, _at_ms: int) -> Run:
    shared = _shared_approval(run, event)
    if event.verdict == "allow":
        facts = {"policy_version": event.policy_version, "grant_id": event.grant_id}
        return _advance(run, event, _GATED, phase="allowed", **facts, **shared)
    after = _advance(
        run,
        event,
        _GATED | _ALLOWED,
        phase="denied",
        status="denied",
        output=event.reason,
        policy_version=event.policy_version,
        **shared,
    )
    call = run.find_call(event.call_id)
    if call is None or event.reason_code != DENIED_BY_PERSON:
        return after
    return _replace(after, denied=run.denied | {(call.tool, call.digest)})


def _shared_approval(run: Run, event: ev.ToolDecided) -> dict[str, Any]:
    """What a call has from the question about an identical one before it."""
    asked = run.find_asked(event.call_id) if event.approval_id is not None else None
    if asked is None or asked.approval_id != event.approval_id:
        need(event.approval_id is None, run, event)
        return {}
    return {name: getattr(asked, name) for name in _NO_APPROVAL}


@_call_rule(ev.ToolStarted)
def _tool_started(run: Run, event: ev.ToolStarted, at_ms: int) -> Run:
    return _advance(
        run,
        event,
        _ALLOWED,
        phase="started",
        started_ms=at_ms,
        executor=event.executor,
        enforcement=event.enforcement,
        batch=event.batch,
    )


@_call_rule(ev.ToolCompleted)
def _tool_completed(run: Run, event: ev.ToolCompleted, _at_ms: int) -> Run:
    shown = event.output if event.error is None else f"{event.output}{event.error}"
    after = _advance(
        run,
        event,
        _STARTED,
        phase="completed",
        status=event.status,
        output=shown,
        trust=event.trust,
        findings=event.findings,
    )
    recoveries = run.recoveries if event.status == "unknown" else 0
    return _replace(after, recoveries=recoveries, is_tainted=run.is_tainted or bool(event.findings))


@_call_rule(ev.ToolAttested)
def _tool_attested(run: Run, event: ev.ToolAttested, _at_ms: int) -> Run:
    status = str(event.attestation.get("status", ""))
    digest = str(event.attestation.get("output_sha256", ""))
    after = _advance(run, event, _ENDED, phase="attested", status=status, output_sha256=digest)
    progress = observe(run.progress, after.calls) if is_attested(after) else run.progress
    return _replace(after, attestation_head=event.digest, progress=progress)


_ROUTE_RULES: RulesOf = {}
_route_rule = registrar(_ROUTE_RULES)


@_route_rule(ev.RoutePlanned)
def _route_planned(run: Run, event: ev.RoutePlanned, _at_ms: int) -> Run:
    need(run.state == "in_progress" and run.attempt == 0, run, event)
    return _replace(run, model=event.uses)


@_route_rule(ev.RouteChanged)
def _route_changed(run: Run, event: ev.RouteChanged, _at_ms: int) -> Run:
    need(run.state == "in_progress" and not run.turn_is_open, run, event)
    need(event.from_model == run.model and event.model not in run.left, run, event)
    return _replace(run, model=event.model, left=(*run.left, run.model), spent_attempts=run.attempt)


@_route_rule(ev.ContextCompacted)
def _context_compacted(run: Run, event: ev.ContextCompacted, _at_ms: int) -> Run:
    need(run.state == "in_progress" and not run.turn_is_open, run, event)
    need(event.turn == run.turn and event.through <= len(run.transcript), run, event)
    return _replace(run, compacted=event, spent_attempts=run.attempt)


def begin(run_id: str, event: ev.RunAccepted, at_ms: int) -> Run:
    """The state after `run.accepted`, the first event of every tape."""
    return Run(
        run_id=run_id,
        state="accepted",
        accepted=event,
        model=event.model,
        created_ms=at_ms,
        last_ms=at_ms,
        next_seq=1,
    )


def apply(run: Run, event: ev.Event, at_ms: int) -> Run:
    """The state after one more event.  Raises InvariantBroken when the state does not allow it."""
    rule = _RULES.get(type(event))
    if rule is None or run.is_terminal:
        raise InvariantBroken(f"{event.KIND} is not possible in state {run.state!r}")
    after = rule(run, event, at_ms)
    return msgspec.structs.replace(after, next_seq=run.next_seq + 1, last_ms=at_ms)


def fold(run_id: str, rows: Sequence[tuple[str, int, bytes]]) -> Run:
    """The state after a whole tape of (kind, at_ms, data).  Raises InvariantBroken."""
    if not rows or rows[0][0] != ev.RunAccepted.KIND:
        raise InvariantBroken(f"the tape of {run_id} does not begin with run.accepted")
    kind, at_ms, data = rows[0]
    run = begin(run_id, cast("ev.RunAccepted", ev.decode_event(kind, data)), at_ms)
    for kind, at_ms, data in rows[1:]:
        run = apply(run, ev.decode_event(kind, data), at_ms)
    return run


_RULES = {**_CALL_RULES, **_ROUTE_RULES}
_rule = registrar(_RULES)


@_rule(ev.ConversationInherited)
def _conversation_inherited(run: Run, event: ev.ConversationInherited, _at_ms: int) -> Run:
    need(run.state == "accepted", run, event)
    transcript = (*run.transcript, *event.messages)
    return _replace(
        run,
        inherited=len(transcript),
        transcript=transcript,
        is_given=not event.run_id,
        is_tainted=run.is_tainted or has_findings(event.messages),
    )


@_rule(ev.MessageReceived)
def _message_received(run: Run, event: ev.MessageReceived, _at_ms: int) -> Run:
    need(run.state == "accepted", run, event)
    pictures = recorded_pictures(event.attachments)
    is_said = bool(event.text or pictures) or not event.results
    said = (UserMessage(event.text, pictures),) if is_said else ()
    return _replace(
        run,
        messages=run.messages + 1,
        transcript=(*run.transcript, *event.results, *said),
        is_tainted=run.is_tainted or has_findings(event.results),
    )


@_rule(ev.RunStarted)
def _run_started(run: Run, event: ev.RunStarted, at_ms: int) -> Run:
    need(run.state == "accepted" and bool(run.transcript), run, event)
    past = {"history": event.history, "is_tainted": run.is_tainted or event.is_tainted}
    return _replace(run, state="in_progress", started_ms=at_ms, **past)


@_rule(ev.ContextAssembled)
def _context_assembled(run: Run, event: ev.ContextAssembled, _at_ms: int) -> Run:
    need(run.state == "in_progress" and not run.turn_is_open, run, event)
    return _replace(run, input_tokens=event.input_tokens)


@_rule(ev.TurnStarted)
def _turn_started(run: Run, event: ev.TurnStarted, _at_ms: int) -> Run:
    is_retry = event.turn == run.turn and event.attempt == run.attempt + 1
    is_next = event.turn == run.turn + 1 and event.attempt == 1 and not run.turn_is_open
    need(run.state == "in_progress" and (is_retry or is_next), run, event)
    run = _replace(run, asked_model=event.model, asked_provider=event.provider, exceeded=None)
    if is_retry:
        return _replace(run, attempt=event.attempt, turn_is_open=True)
    need(is_attested(run) and event.continues == run.is_cut, run, event)
    return _replace(
        run,
        turn=event.turn,
        attempt=1,
        turn_is_open=True,
        left=(),
        spent_attempts=0,
        calls=(),
        steers=(),
        guidance=(),
        continuations=run.continuations + 1 if event.continues else 0,
        transcript=transcript_with_results(run),
    )


@_rule(ev.TurnCompleted)
def _turn_completed(run: Run, event: ev.TurnCompleted, _at_ms: int) -> Run:
    need(run.turn_is_open and event.turn == run.turn, run, event)
    cost = None if event.is_unpriced else event.cost_usd_micros
    run = _charged(run, Charge(usage=event.usage, cost_usd_micros=cost))
    return _replace(
        run,
        turn_is_open=False,
        finish_reason=event.finish_reason,
        recoveries=0,
        transcript=_with_turn(run, event),
        calls=tuple(_named(call) for call in event.calls),
    )


def _charged(run: Run, charge: Charge | None) -> Run:
    """The run with what one more model call took."""
    if charge is None:
        return run
    return _replace(
        run,
        usage=run.usage.plus(charge.usage),
        cost_usd_micros=run.cost_usd_micros + (charge.cost_usd_micros or 0),
        unpriced_calls=run.unpriced_calls + (charge.cost_usd_micros is None),
    )


def _with_turn(run: Run, event: ev.TurnCompleted) -> tuple[Message, ...]:
    """The conversation with what the model said; a text that goes on becomes one with its start."""
    if not run.continuations:
        return (*run.transcript, AssistantMessage(event.text, event.calls))
    *before, last = run.transcript
    start = cast("AssistantMessage", last)  # or the turn would not have continued it
    return (*before, AssistantMessage(start.text + event.text, event.calls, start.turns + 1))


def _named(call: ProposedCall) -> Call:
    return Call(call_id=call.call_id, tool=call.tool, arguments=call.arguments)


@_rule(ev.TurnFailed)
def _turn_failed(run: Run, event: ev.TurnFailed, _at_ms: int) -> Run:
    need(run.turn_is_open and event.turn == run.turn, run, event)
    return _replace(_charged(run, event.charge), turn_is_open=False)


@_rule(ev.BudgetExceeded)
def _budget_exceeded(run: Run, event: ev.BudgetExceeded, _at_ms: int) -> Run:
    need(run.turn_is_open and event.turn == run.turn, run, event)
    return _replace(run, turn_is_open=False, exceeded=event)


@_rule(ev.SteerReceived)
def _steer_received(run: Run, event: ev.SteerReceived, _at_ms: int) -> Run:
    word = UserMessage(event.text, recorded_pictures(event.attachments))
    return _replace(run, steers=(*run.steers, word), progress=start_anew(run.progress))


_CLOSED: frozenset[CallPhase] = frozenset({"named", "attested"})  # at the end of a run


def _is_between_turns(run: Run) -> bool:
    return run.state == "in_progress" and not run.turn_is_open and is_attested(run)


@_rule(ev.AnswerRejected)
def _answer_rejected(run: Run, event: ev.AnswerRejected, _at_ms: int) -> Run:
    need(_is_between_turns(run) and run.turn > 0 and not run.calls, run, event)
    return _replace(run, guidance=(*run.guidance, event.guidance), rejections=run.rejections + 1)


@_rule(ev.GuardWarned)
def _guard_warned(run: Run, event: ev.GuardWarned, _at_ms: int) -> Run:
    need(_is_between_turns(run) and bool(run.calls), run, event)
    return _replace(
        run, guidance=(*run.guidance, event.guidance), progress=clear_findings(run.progress)
    )


@_rule(ev.GuardBlocked)
def _guard_blocked(run: Run, event: ev.GuardBlocked, _at_ms: int) -> Run:
    need(_is_between_turns(run) and bool(run.calls), run, event)
    return run


@_rule(ev.MessageCompleted)
def _message_completed(run: Run, event: ev.MessageCompleted, _at_ms: int) -> Run:
    need(_is_between_turns(run), run, event)
    return run


@_rule(ev.RunRecovered)
def _run_recovered(run: Run, event: ev.RunRecovered, at_ms: int) -> Run:
    need(event.attempt - run.recoveries in {0, 1}, run, event)
    stood_still = run.started_ms is None or run.asked_ms is not None
    return _replace(
        _charged(run, event.abandoned),
        recoveries=event.attempt,
        turn_is_open=False,  # an open turn is abandoned
        down_ms=run.down_ms + (0 if stood_still else max(0, at_ms - run.last_ms)),
    )


@_rule(ev.RunDone)
def _run_done(run: Run, event: ev.RunDone, at_ms: int) -> Run:
    need(_is_between_turns(run), run, event)
    return _replace(run, state="done", finished_ms=at_ms, reason=event.reason)


@_rule(ev.RunFailed)
def _run_failed(run: Run, event: ev.RunFailed, at_ms: int) -> Run:
    need(all(call.phase in _CLOSED for call in run.calls), run, event)
    reason = f"{event.failure_class}: {event.reason}"
    run = _charged(run, event.abandoned)
    return _replace(run, state="failed", finished_ms=at_ms, reason=reason)


@_rule(ev.RunCancelled)
def _run_cancelled(run: Run, event: ev.RunCancelled, at_ms: int) -> Run:
    need(all(call.phase in _CLOSED for call in run.calls), run, event)
    run = _charged(run, event.abandoned)
    return _replace(run, state="cancelled", finished_ms=at_ms, reason=event.reason)
