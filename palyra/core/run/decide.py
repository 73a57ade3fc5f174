"""What a run does next: `decide(run, input, setting)` gives events, effects and the state after.

Pure but for what `Setting` hands in (clock, ids, rules, signature), so live operation, recovery
and replay take the same path.  Rules:

- Preparation is sequential in the model's order and stops at a call that waits for a person.
- A step gates a few calls, then lets others go first: a turn with a hundred holds up nobody.
- Execution begins when every call of the turn is prepared, in batches (`core.batches`).
- The next turn begins when every call is attested and the guard of `core.progress` has had its
  say; without calls the text ends the run, if `core.answer` takes it for an answer.
- A turn with two equal call ids, or too large for the tape, is malformed: it ends the run.
- A text that is none is sent back once; one that was cut off is gone on with, three times, unless
  the caller itself limited it.
- Calls of tools that the client runs end the run, once all other calls of the turn have ended.
  Where the caller takes one call at most, the first one that may be made is it.
- A terminal run ignores every input; so does a run that no longer expects it (a late outcome).
"""

from collections.abc import Sequence
from functools import partial
from typing import assert_never, cast

import msgspec

from palyra.core.incident.kinds import recovery_exhausted
from palyra.core.run.answer import answer_text
from palyra.core.run.approvals import (
    abort_question,
    take_answer,
)
from palyra.core.run.call import Call
from palyra.core.run.calls import (
    complete_call,
    complete_unknown,
    deny_ended,
    find_duplicate_ids,
    hand_over,
    judge_again,
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
    choose_model,
    judge_answer,
    leave_unavailable_model,
    next_turn,
    turn_broke,
)
from palyra.core.tape import events as ev
from palyra.core.tool.arguments import Refused
from palyra.core.tool.batches import next_batch
from palyra.core.tool.spec import HANDED_OVER

MAX_GATED = 4  # calls in one step: about a millisecond
MAX_CONTINUATIONS = 3  # of a text that was cut off at the model's output limit


def accept(
    run_id: str,
    accepted: ev.RunAccepted,
    message: ev.MessageReceived | None,
    env: TapeEnvironment,
    inherited: Sequence[ev.ConversationInherited] = (),
) -> Transition:
    """The first step of every run: its promise and its text.

    A fork begins with what it inherits, and may go on from there without a new text.
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


def decide(run: Run, heard: Input, env: RunEnvironment) -> Step:
    """One step.  Raises InvariantBroken for an input that only a bug can produce."""
    return transition(run, env, partial(_hear, heard=heard))


def _hear(step: Step, heard: Input) -> None:
    if step.run.is_terminal:
        return
    match heard:
        case Begin():
            step.add(ev.RunStarted(**msgspec.structs.asdict(heard)))
            choose_model(step)
            _go_on(step)
        case Resume():
            _resume(step, heard)
        case TurnFinished() | TurnFailedInput():
            _turn_ended(step, heard)
        case BudgetRefused():
            budget_refused(step, heard)
        case ApprovalAnswered() | CallInspected() | RulesChanged() | GoOn() | CallEnded():
            _hear_of_call(step, heard)
        case Steer():
            step.add(heard.event)
        case Cancel() | Expire():
            end_requested(step, heard)
        case _:
            assert_never(heard)


def _hear_of_call(
    step: Step, heard: ApprovalAnswered | CallInspected | RulesChanged | GoOn | CallEnded
) -> None:
    match heard:
        case ApprovalAnswered():
            _approval_answered(step, heard)
        case CallInspected():
            _inspected(step, heard)
        case RulesChanged():
            _rules_changed(step)
        case GoOn():
            _gate_more(step)
        case CallEnded():
            _call_ended(step, heard)
        case _:
            assert_never(heard)


# --- turns ---------------------------------------------------------------------------------------


def _go_on(step: Step) -> None:
    """Whatever comes next between two inputs."""
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
        _look_back(step)


def _look_back(step: Step) -> None:
    """Between two turns: does the run get further?"""
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


def _turn_ended(step: Step, heard: TurnFinished | TurnFailedInput) -> None:
    """The open turn's end; a turn that is over already changes nothing."""
    run = step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (heard.turn, heard.attempt):
        return
    if isinstance(heard, TurnFailedInput):
        turn_broke(step, heard)
        return
    unfit = find_duplicate_ids(step, heard.result.calls) or add_turn(step, heard)
    if unfit is None:
        _turn_finished(step)
        return
    broke = TurnFailedInput(
        turn=heard.turn,
        attempt=heard.attempt,
        failure_class="malformed",
        detail=unfit,
        had_output=True,
        charge=heard.result.charge,
    )
    turn_broke(step, broke)


def _turn_finished(step: Step) -> None:
    run = step.run
    if run.calls or run.steers:
        _go_on(step)
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
    """Gate the named calls in order; stop at the one that waits, for a look or a person.

    What is more than one step may take is left to the next one.
    """
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


def _gate_more(step: Step) -> None:
    if any(call.phase == "named" for call in step.run.calls):
        _go_on(step)


def _start_batch(step: Step) -> None:
    """Start the calls that may run together now."""
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


def _approval_answered(step: Step, heard: ApprovalAnswered) -> None:
    question = step.run.find_question(heard.approval_id)
    if question is None:
        return
    match question.subject:
        case "budget":
            budget_answered(step, heard)
        case "tool_call":
            call = cast("Call", step.run.find_asking(heard.approval_id))
            record_decision(step, call, take_answer(step, call, heard))
            _go_on(step)
        case subject:
            assert_never(subject)


def _inspected(step: Step, heard: CallInspected) -> None:
    call = step.run.find_call(heard.call_id)
    if call is None or call.phase != "proposed":
        return
    if heard.failure:
        reject(step, call, Refused(reason=heard.failure, repair_hint=""))
    else:
        judge_again(step, call)
    _go_on(step)


def _rules_changed(step: Step) -> None:
    """Judge again what a person is asked; what is allowed is looked at when it starts."""
    for call in step.run.calls:
        if call.phase == "asking" and step.env.is_stale(call):
            question = Question(call.approval_id or "", "tool_call", call.call_id)
            reason = "the rules have changed since it was asked"
            abort_question(step, question, by=RULES_CHANGED, reason=reason)
            judge_again(step, call)
            _go_on(step)


def _call_ended(step: Step, heard: CallEnded) -> None:
    call = step.run.find_call(heard.call_id)
    if call is None or call.phase != "started":
        return
    complete_call(step, call, heard)
    _go_on(step)


# --- recovery ------------------------------------------------------------------------------------


def _resume(step: Step, heard: Resume) -> None:
    """Go on from the tape: charge the attempt, repeat what may be repeated, say what is unknown.

    A run that only waits for a person is not charged: nothing is dispatched that could fail.  Nor
    is one whose journal refused its writes: it is not what failed.
    """
    run, limits = step.run, step.env.limits
    is_free = heard.is_put_off or run.pending_approvals > 0
    attempt = run.recoveries if is_free else run.recoveries + 1
    if attempt > limits.max_recoveries:
        end_failed(
            step,
            "recovery_exhausted",
            f"resumed {run.recoveries} times without getting further",
            "read the tape's last events; start the run again once the cause is mended",
            heard.abandoned,
        )
        step.effects.append(ReportIncident(alarm=recovery_exhausted(run.run_id, run.recoveries)))
        return
    step.add(ev.RunRecovered(attempt=attempt, from_seq=run.next_seq - 1, abandoned=heard.abandoned))
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
    _go_on(step)


def _resume_call(step: Step, call: Call) -> None:
    if call.may_rerun:
        step.effects.append(_execute(call))
        return
    complete_unknown(step, call)
