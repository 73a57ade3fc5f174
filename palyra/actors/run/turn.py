"""The turn task: asks the model once and reports what came back.

Owns: nothing.  Talks to: the model adapter, the hub (volatile deltas), its run (one message).
Never: retries; that is the run's decision.
Restart: none; it is a child of its run and ends with it.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from palyra.actors.hub.delta_stream import ProgressStream
from palyra.actors.journal.actor import PendingCommit
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.services import RunServices, look_for_secrets
from palyra.core.model.messages import Delta, ModelFailure, ProposedCall
from palyra.core.policy.gate import MAX_PENDING_PER_PRINCIPAL
from palyra.core.ports import LanguageModel, RunBlocking
from palyra.core.run.inputs import BudgetRefused, CallModel, TurnFailedInput, TurnFinished
from palyra.core.run.turns import turn_completed
from palyra.core.tape.events import encode_event
from palyra.services.images import show_pictures

ValidateAhead = Callable[[Sequence[ProposedCall], RunBlocking], Awaitable[None]]


async def ask_model(  # noqa: PLR0917 - a task: a nursery hands on positions only
    run: RunHandle,
    services: RunServices,
    model: LanguageModel,
    effect: CallModel,
    charge: PendingCommit | None,
    validate_ahead: ValidateAhead,
) -> None:
    """Stream one turn; the run hears TurnFinished, TurnBroke, or BudgetRefused without a call.

    `charge` is what a resumed run pays with: a call that takes the process down must not be free.
    `validate_ahead` validates the calls of the turn before the run decides on them.
    Cancellation: the request is abandoned and nothing is reported.
    """
    if charge is not None:
        await charge.wait()
    if effect.delay_ms:
        await trio.sleep(effect.delay_ms / 1000)
    request, budgets, meter = effect.request, services.budgets, run.reservation
    assert meter is not None  # noqa: S101 - dispatched with it
    turn, attempt = request.turn, request.attempt
    exceeded = await budgets.admit(run, meter, request, model.most_output(request))
    if exceeded is not None:
        room = services.approvals.count(run.run.accepted.principal) < MAX_PENDING_PER_PRINCIPAL
        asked = services.new_id("apr") if room else ""
        await run.report(BudgetRefused(exceeded=exceeded, approval_id=asked))
        return
    stream = ProgressStream(run.run, services.hub, services.redactor, f"turn:{turn}")

    def take(delta: Delta) -> None:
        meter.chars += len(delta.text)
        stream.take(delta.kind, delta.text)

    heard: TurnFinished | TurnFailedInput
    try:
        shown = await show_pictures(services.artifacts, services.run_blocking, request)
        result = budgets.finish(meter, await model.stream(shown, take))
        await validate_ahead(result.calls, services.run_blocking)
        await look_for_secrets(services, encode_event(turn_completed(turn, result)))
        heard = TurnFinished(turn=turn, attempt=attempt, result=result)
    except ModelFailure as failure:
        meter.is_sent = failure.was_asked
        heard = TurnFailedInput(
            turn=turn,
            attempt=attempt,
            failure_class=failure.failure_class,
            detail=failure.message,
            had_output=stream.order > 0,
            retry_after_ms=failure.retry_after_ms,
            charge=budgets.break_off(meter, had_output=stream.order > 0),
            was_asked=failure.was_asked,
        )
    stream.close()
    await run.report(heard)
