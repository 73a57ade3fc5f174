"""Steps about turns: asking the model, taking its answer, what follows when it gave none."""

from typing import Literal

from msgspec.structs import asdict

from palyra.core import events as ev
from palyra.core.answer import answer_text
from palyra.core.compaction import Compaction
from palyra.core.end_steps import end_answered, end_failed, end_partial
from palyra.core.partial import Ending
from palyra.core.prompt import RETRYABLE, ModelTurn
from palyra.core.route_plan import RouteChange
from palyra.core.routing import FAILS_OVER
from palyra.core.run_steps import CallModel, TurnBroke, TurnFinished
from palyra.core.step import Step
from palyra.errors import TooLarge

PATIENCE_MS = 20_000  # longer a provider is not waited for when another model may take over
MAX_REJECTIONS = 1  # texts of one run that are sent back as no answer
ACTIONS = {  # what somebody can do about a failure, where it is not the provider that needs a look
    "context_overflow": "ask for less at once, reset the session, or choose a model with a larger "
    "window",
    "content_policy": "change the message, or choose another model",
    "quota": "see to the provider's account, or name another model in models.failover",
    "auth": "see to the provider's key; `palyra secrets test` looks for it",
}
PROPOSAL_BYTES = 8_192  # a call's own events hold its arguments again, and more


def next_turn(step: Step, attempt: int = 1, delay_ms: int = 0) -> None:
    """Ask the model, or end at the cap; an `attempt` beyond the first asks for the same turn."""
    run, limits = step.run, step.setting.limits
    turn = run.turn + 1 if attempt == 1 else run.turn
    if turn > limits.max_turns:
        sentence = f"no answer after {limits.max_turns} turns; runs.max_turns is the limit"
        end_partial(step, Ending("turn_cap", sentence), answer_text(run) if run.is_cut else "")
        return
    assembled, request = step.setting.assemble(run, turn, attempt)
    step.add(assembled)
    step.add(
        ev.TurnStarted(
            turn=turn,
            attempt=attempt,
            provider=step.setting.provider(request.model),
            model=request.model,
            continues=run.continues(attempt),
        )
    )
    step.effects.append(CallModel(request=request, delay_ms=delay_ms))


def turn_completed(turn: int, result: ModelTurn) -> ev.TurnCompleted:
    """The turn as its event."""
    return ev.TurnCompleted(
        turn=turn,
        text=result.text,
        calls=result.calls,
        finish_reason=result.finish_reason,
        usage=result.usage,
        cost_usd_micros=result.cost_usd_micros,
        trace_ref=result.trace_ref,
        is_unpriced=result.is_unpriced,
    )


def add_turn(step: Step, heard: TurnFinished) -> str | None:
    """Put the turn on the tape; why no tape takes it, if none does."""
    completed = turn_completed(heard.turn, heard.result)
    try:
        step.add(completed, room_bytes=PROPOSAL_BYTES if completed.calls else 0)
    except TooLarge as too_large:
        return too_large.message
    return None


def judge_answer(step: Step) -> None:
    """Take the text for the answer, or send it back; what comes after that is the end."""
    flaw = step.setting.judge(step.run)
    if flaw is None:
        end_answered(step)
    elif step.run.rejections < MAX_REJECTIONS:
        step.add(ev.AnswerRejected(reason=flaw.code, guidance=flaw.guidance))
        next_turn(step)
    else:
        end_partial(step, Ending(flaw.code, flaw.sentence))


def turn_broke(step: Step, heard: TurnBroke) -> None:
    """Ask again what may be asked again, perhaps another model; everything else ends the run."""
    way = None if heard.had_output else _find_way_on(step, heard)
    pause_ms = max(step.setting.jitter_ms(heard.attempt), heard.retry_after_ms or 0)
    delay_ms = pause_ms if way == "again" else 0
    step.add(
        ev.TurnFailed(
            turn=heard.turn,
            attempt=heard.attempt,
            failure_class=heard.failure_class,
            retry=way is not None,
            detail=heard.detail,
            delay_ms=delay_ms,
            charge=heard.charge,
            was_asked=heard.was_asked,
        )
    )
    if way is None:
        action = ACTIONS.get(heard.failure_class, "check the provider, then start the run again")
        end_failed(step, heard.failure_class, heard.detail, action)
        return
    if isinstance(way, RouteChange):
        step.add(ev.RouteChanged(**asdict(way)))
    elif isinstance(way, Compaction):
        step.add(ev.ContextCompacted(**asdict(way)))
    next_turn(step, heard.attempt + 1, delay_ms)


def _find_way_on(
    step: Step, heard: TurnBroke
) -> Literal["again"] | RouteChange | Compaction | None:
    """The same model again, another one, or a smaller prompt; None when nothing is left."""
    run, setting, failure_class = step.run, step.setting, heard.failure_class
    if failure_class == "context_overflow":
        return setting.compact(run)
    tried = heard.attempt - run.spent_attempts
    may_retry = failure_class in RETRYABLE and tried <= setting.limits.model_retries
    changed = None
    if failure_class in FAILS_OVER:
        is_soon = (heard.retry_after_ms or 0) <= PATIENCE_MS
        changed = setting.change_route(run, failure_class, may_retry and is_soon)
    return changed or ("again" if may_retry else None)


def choose_model(step: Step) -> None:
    """The plan of a run that begins, if there is anything to choose."""
    plan = step.setting.plan_route(step.run)
    if plan is not None:
        step.add(ev.RoutePlanned(**asdict(plan)))
    leave_gone(step)


def leave_gone(step: Step) -> None:
    """Another model for a run whose own is not there any more."""
    changed = step.setting.change_route(step.run, "gone", False)  # noqa: FBT003 - see Setting
    if changed is not None:
        step.add(ev.RouteChanged(**asdict(changed)))
