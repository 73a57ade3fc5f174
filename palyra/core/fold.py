"""The fold of a tape: how each event changes a run's state.

`apply(state, event)` is the only way the state changes, live and in recovery alike; an event the
state does not allow raises InvariantBroken and changes nothing.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from palyra.core import events as ev
from palyra.core import fold_calls, fold_routes
from palyra.core.fold_rules import is_attested, need, registrar
from palyra.core.pictures import recorded_pictures
from palyra.core.progress import start_anew, told
from palyra.core.prompt import AssistantMessage, Message, ProposedCall, UserMessage
from palyra.core.records import Charge
from palyra.core.run_state import (
    Call,
    CallPhase,
    Run,
    has_findings,
    transcript_with_results,
)
from palyra.errors import InvariantBroken


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


_RULES = {**fold_calls.RULES, **fold_routes.RULES}
_rule = registrar(_RULES)
_replace = msgspec.structs.replace


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
    return _replace(run, guidance=(*run.guidance, event.guidance), progress=told(run.progress))


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
