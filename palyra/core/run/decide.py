"""The decisions of a run: `decide(run, input, env)` returns events, effects and the next state.

A decision is deterministic except for the answers of `env` (clock, ids, gate, signature), so live
operation, recovery and replay share this code.  Which events are legal when is in `core.run.state`
and `core.run.call`; this module decides which of them follow from an input:

- Calls are evaluated one after the other in the model's order.  Evaluation stops at a call that is
  being inspected or waits for an approval.
- One step evaluates at most `MAX_GATED` calls and then yields, so that a turn with a hundred calls
  does not block the event loop.
- Execution starts when every call of the turn has a verdict, in batches (`core.tool.batches`).
- The next turn starts when every call is attested, unless the loop guard ends the run.
- A turn without calls ends the run if its text is an answer (`core.run.answer`).  A text that is
  not is rejected once.  A text that was cut off is continued up to three times, unless the caller
  set the limit itself.
- A turn with two equal call ids, or one too large for the tape, is malformed and ends the run.
- Calls that the client executes end the run once all other calls of the turn have ended.  If the
  caller accepts one call at most, that is the first allowed one.
- A terminal run ignores every input.  A late input, such as the outcome of an ended call, is
  ignored as well.
"""

from collections.abc import Sequence
from functools import partial
from typing import assert_never, cast

import msgspec

from palyra.core.incident.kinds import recovery_exhausted
from palyra.core.run.answer import answer_text
from palyra.core.run.approvals import abort_question, take_answer
from palyra.core.run.call import Call
from palyra.core.run.calls import (
    complete_call,
    complete_unknown,
    deny_ended,
    evaluate_again,
    find_duplicate_ids,
    hand_over,
    prepare_call,
    record_decision,
    reject,
)
from palyra.core.run.ending import (
    EndReason,
    end_at_callers_limit,
    end_failed,
    end_handed_over,
    end_partial,
    end_requested,
)
from palyra.core.run.environment import RunEnvironment, TapeEnvironment
from palyra.core.run.fold import begin
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    BudgetRefused,
    CallEnded,
    CallInspected,
    Cancel,
    Execute,
    Expire,
    Gathered,
    GoOn,
    Input,
    Inspect,
    ReportIncident,
    Resume,
    RulesChanged,
    Steer,
    TurnFailedInput,
    TurnFinished,
    Yield,
)
from palyra.core.run.state import RULES_CHANGED, Question, Run
from palyra.core.run.transition import EncodedEvent, Step, Transition, transition
from palyra.core.run.turns import (
    add_turn,
    budget_answered,
    budget_refused,
    fail_turn,
    gathered,
    judge_answer,
    leave_unavailable_model,
    next_turn,
)
from palyra.core.tape import events as ev
from palyra.core.tool.arguments import Refused
from palyra.core.tool.batches import next_batch
from palyra.core.tool.spec import HANDED_OVER

MAX_GATED = 4  # calls evaluated in one step: about a millisecond
MAX_CONTINUATIONS = 3  # of a text that was cut off at the model's output limit


def accept(
    run_id: str,
    accepted: ev.RunAccepted,
    message: ev.MessageReceived | None,
    env: TapeEnvironment,
    inherited: Sequence[ev.ConversationInherited] = (),
) -> Transition:
    """Return the first step of a run: what was accepted, inherited messages, the message.

    A fork inherits messages and needs no message of its own.
    """
    now_ms = env.now_ms()
    data, redacted = env.redact(ev.encode_event(accepted))
    if redacted:
        accepted = msgspec.json.decode(data, type=ev.RunAccepted)
    step = Transition(begin(run_id, accepted, now_ms), env, now_ms=now_ms, redacts_each=True)
    step.drafts.append(EncodedEvent(accepted.KIND, data, redacted))
    for event in (*inherited, *(() if message is None else (message,))):
        step.add(event)
    return step


def decide(run: Run, incoming: Input, env: RunEnvironment) -> Step:
    """Decide one step.  Raises InvariantBroken for an input that only a bug can produce."""
    return transition(run, env, partial(_handle, incoming=incoming))


def _handle(step: Step, incoming: Input) -> None:
    if step.run.is_terminal:
        return
    match incoming:
        case Begin():
            step.add(ev.RunStarted(**msgspec.structs.asdict(incoming)))
            _proceed(step)
        case Gathered():
            gathered(step, incoming)
        case Resume():
            _resume(step, incoming)
        case TurnFinished() | TurnFailedInput():
            _end_turn(step, incoming)
        case BudgetRefused():
            budget_refused(step, incoming)
        case ApprovalAnswered() | CallInspected() | RulesChanged() | GoOn() | CallEnded():
            _handle_call_input(step, incoming)
        case Steer():
            step.add(incoming.event)
        case Cancel() | Expire():
            end_requested(step, incoming)
        case _:
            assert_never(incoming)


def _handle_call_input(
    step: Step, incoming: ApprovalAnswered | CallInspected | RulesChanged | GoOn | CallEnded
) -> None:
    match incoming:
        case ApprovalAnswered():
            _approval_answered(step, incoming)
        case CallInspected():
            _inspected(step, incoming)
        case RulesChanged():
            _rules_changed(step)
        case GoOn():
            if any(call.phase == "named" for call in step.run.calls):
                _proceed(step)
        case CallEnded():
            call = step.run.find_call(incoming.call_id)
            if call is not None and call.phase == "started":
                complete_call(step, call, incoming)
                _proceed(step)
        case _:
            assert_never(incoming)


# --- turns ---------------------------------------------------------------------------------------


def _proceed(step: Step) -> None:
    """Do everything that is possible before the next input."""
    _prepare_calls(step)
    phases = {call.phase for call in step.run.calls}
    if phases & {"named", "proposed", "asking", "started"}:
        return
    deny_ended(step)
    hand_over(step)
    if any(call.phase == "allowed" for call in step.run.calls):
        _start_batch(step)
    elif any(call.status == HANDED_OVER for call in step.run.calls):
        end_handed_over(step)
    else:
        _check_progress(step)


def _check_progress(step: Step) -> None:
    """Apply the findings of the loop guard: end the run, or warn the model in the next turn."""
    end = step.run.progress.end
    if end is not None:
        step.add(ev.GuardBlocked(rule=end.rule, call=end.call, count=end.count))
        end_partial(step, EndReason("no_progress", end.sentence))
        return
    for finding in step.run.progress.findings:
        step.add(
            ev.GuardWarned(
                rule=finding.rule,
                call=finding.call,
                count=finding.count,
                guidance=finding.guidance,
            )
        )
    next_turn(step)


def _end_turn(step: Step, incoming: TurnFinished | TurnFailedInput) -> None:
    """Close the open turn; ignore the result of a turn that is not open any more."""
    run = step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (incoming.turn, incoming.attempt):
        return
    if isinstance(incoming, TurnFailedInput):
        fail_turn(step, incoming)
        return
    unfit = find_duplicate_ids(step, incoming.result.calls) or add_turn(step, incoming)
    if unfit is None:
        _turn_finished(step)
        return
    broke = TurnFailedInput(
        turn=incoming.turn,
        attempt=incoming.attempt,
        failure_class="malformed",
        detail=unfit,
        had_output=True,
        charge=incoming.result.charge,
    )
    fail_turn(step, broke)


def _turn_finished(step: Step) -> None:
    run = step.run
    if run.calls or run.steers:
        _proceed(step)
    elif not run.is_cut:
        judge_answer(step)
    elif run.output_cap is not None:
        end_at_callers_limit(step, run.output_cap)
    elif run.continuations < MAX_CONTINUATIONS:
        next_turn(step)
    else:
        sentence = f"it was cut off at the model's output limit {run.continuations + 1} times"
        end_partial(step, EndReason("cut_off", sentence), answer_text(run))


# --- calls ---------------------------------------------------------------------------------------


def _prepare_calls(step: Step) -> None:
    """Evaluate the named calls in order; stop at one that waits for inspection or approval."""
    if _is_waiting(step.run):
        return
    named = [call for call in step.run.calls if call.phase == "named"]
    for call in named[:MAX_GATED]:
        prepare_call(step, call)
        if _is_waiting(step.run):
            return
    if len(named) > MAX_GATED:
        step.effects.append(Yield())


def _is_waiting(run: Run) -> bool:
    return any(call.phase in {"proposed", "asking"} for call in run.calls)


def _start_batch(step: Step) -> None:
    """Start the allowed calls that may run in parallel now."""
    allowed = [call for call in step.run.calls if call.phase == "allowed"]
    number = 1 + max((call.batch for call in step.run.calls), default=0)
    chosen = next_batch(
        [(call.tool_class, call.path_key) for call in allowed], step.env.limits.max_parallel
    )
    for call in allowed[:chosen]:
        step.add(
            ev.ToolStarted(
                call_id=call.call_id,
                executor=call.executor,
                enforcement=call.enforcement,
                batch=number,
                approval_id=call.approval_id,
            )
        )
        step.effects.append(_execute(call))


def _execute(call: Call) -> Execute:
    return Execute(
        call_id=call.call_id,
        approval_digest=call.approval_digest if call.approval_id is not None else None,
        covers=call.covers,
    )


def _approval_answered(step: Step, incoming: ApprovalAnswered) -> None:
    question = step.run.find_question(incoming.approval_id)
    if question is None:
        return
    match question.subject:
        case "budget":
            budget_answered(step, incoming)
        case "tool_call":
            call = cast("Call", step.run.find_asking(incoming.approval_id))
            record_decision(step, call, take_answer(step, call, incoming))
            _proceed(step)
        case subject:
            assert_never(subject)


def _inspected(step: Step, incoming: CallInspected) -> None:
    call = step.run.find_call(incoming.call_id)
    if call is None or call.phase != "proposed":
        return
    if incoming.failure:
        reject(step, call, Refused(reason=incoming.failure, repair_hint=""))
    else:
        evaluate_again(step, call)
    _proceed(step)


def _rules_changed(step: Step) -> None:
    """Evaluate pending questions again; an allowed call is checked when it starts."""
    for call in step.run.calls:
        if call.phase == "asking" and step.env.is_stale(call):
            question = Question(call.approval_id or "", "tool_call", call.call_id)
            reason = "the rules have changed since it was asked"
            abort_question(step, question, by=RULES_CHANGED, reason=reason)
            evaluate_again(step, call)
            _proceed(step)


# --- recovery ------------------------------------------------------------------------------------


def _resume(step: Step, incoming: Resume) -> None:
    """Resume from the tape: count the attempt, repeat what may be repeated, record what is unknown.

    The attempt does not count if the run only waits for an approval, because nothing is dispatched
    that could fail, or if the journal refused its writes, because the run did not fail.
    """
    run, limits = step.run, step.env.limits
    is_free = incoming.is_put_off or run.pending_approvals > 0
    attempt = run.recoveries if is_free else run.recoveries + 1
    if attempt > limits.max_recoveries:
        end_failed(
            step,
            "recovery_exhausted",
            f"resumed {run.recoveries} times without getting further",
            "read the tape's last events; start the run again once the cause is mended",
            incoming.abandoned,
        )
        step.effects.append(ReportIncident(alarm=recovery_exhausted(run.run_id, run.recoveries)))
        return
    step.add(
        ev.RunRecovered(attempt=attempt, from_seq=run.next_seq - 1, abandoned=incoming.abandoned)
    )
    leave_unavailable_model(step)
    if run.turn_is_open:
        next_turn(step, run.attempt + 1)
        return
    if run.question is not None:
        step.effects.append(AskPerson(approval_id=run.question.approval_id))
        return
    for call in run.calls:
        if call.phase == "asking":
            step.effects.append(AskPerson(approval_id=call.approval_id or ""))
        elif call.phase == "proposed":
            step.effects.append(Inspect(call_id=call.call_id))
        elif call.phase == "started":
            _resume_call(step, call)
    _proceed(step)


def _resume_call(step: Step, call: Call) -> None:
    """Repeat a call that was started before the restart, if its tool permits that."""
    if call.may_rerun:
        step.effects.append(_execute(call))
    else:
        complete_unknown(step, call)
