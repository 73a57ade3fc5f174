"""The turn task: asks the model once and reports the answer, or the failure, to its run.

Talks to: the model adapter, the hub (volatile deltas), its run (one message).
Never: retries; the run decides that.
Restart: none; it is a child of its run and ends with it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from palyra.actors.hub import ProgressStream
from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import ChildTask
from palyra.actors.run.environment import RunServices, look_for_secrets
from palyra.actors.run.handle import RunHandle
from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.model.messages import Delta, ModelFailure, ProposedCall
from palyra.core.policy.gate import MAX_PENDING_PER_PRINCIPAL
from palyra.core.ports import LanguageModel, RunBlocking
from palyra.core.run.decide import turn_completed
from palyra.core.run.inputs import BudgetRefused, CallModel, TurnFailedInput, TurnFinished
from palyra.core.run.refused_items import Suspects, names_no_tool
from palyra.core.tape.events import encode_event, turn_item
from palyra.services.context.images import show_pictures
from palyra.services.policy.refused_tools import RefusedTools, find_refused_tools
from palyra.services.usage.budgets import Reservation

MAX_SEARCHED_ATTEMPTS = 3  # of one turn: later refusals end it as they are
NOTHING_USED = Usage()


@dataclass(slots=True, kw_only=True)
class TurnTask(ChildTask):
    """One request to the model and its answer."""

    run: RunHandle
    services: RunServices
    model: LanguageModel
    effect: CallModel
    reservation: Reservation
    # The commit that a resumed run waits for before it calls the model: a request that crashes the
    # process must leave a trace of the attempt on the tape.
    charge: PendingCommit | None
    # Validates the proposed calls ahead of the run's own step, in a thread if they are long.
    validate: Callable[[Sequence[ProposedCall], RunBlocking], Awaitable[None]]


async def ask_model(task: TurnTask) -> None:
    """Stream one turn and report TurnFinished, TurnFailedInput, or BudgetRefused without a request.

    Cancellation: the request is abandoned and nothing is reported.
    """
    run, services, model, request = task.run, task.services, task.model, task.effect.request
    budgets, reservation, turn = services.budgets, task.reservation, request.turn
    if task.charge is not None:
        await task.charge.wait()
    if task.effect.delay_ms:
        task.waits_for = "retry delay"
        await trio.sleep(task.effect.delay_ms / 1000)
    task.waits_for = "budget"
    exceeded = await budgets.admit(run, reservation, request, model.most_output(request))
    if exceeded is not None:
        room = services.approvals.count(run.run.accepted.asks_as) < MAX_PENDING_PER_PRINCIPAL
        approval_id = services.new_id("apr") if room else ""
        await run.report(BudgetRefused(exceeded=exceeded, approval_id=approval_id))
        return
    task.waits_for, run.silent_since_s = "model", None
    stream = ProgressStream(run, services.hub, services.redactor, turn_item(turn, request.attempt))

    def on_delta(delta: Delta) -> None:
        reservation.chars += len(delta.text)
        if (
            len(delta.text) <= MAX_PAYLOAD_BYTES
        ):  # a larger one is refused with its turn, unsearched
            stream.take(delta.kind, delta.text)

    outcome: TurnFinished | TurnFailedInput
    try:
        shown = await show_pictures(services.artifacts, services.run_blocking, request)
        result = budgets.finish(reservation, await model.stream(shown, on_delta))
        await task.validate(result.calls, services.run_blocking)
        await look_for_secrets(services, encode_event(turn_completed(turn, result)))
        outcome = TurnFinished(turn=turn, attempt=request.attempt, result=result)
    except ModelFailure as failure:
        outcome = await _explain(task, failure, had_output=stream.order > 0)
    stream.close()
    await run.report(outcome)


async def _explain(task: TurnTask, failure: ModelFailure, *, had_output: bool) -> TurnFailedInput:
    """Return the failure with its cost, and with the refused tools if it is about some and names none."""
    request, reservation, budgets = task.effect.request, task.reservation, task.services.budgets
    reservation.is_sent = failure.was_asked
    refused = RefusedTools((), NOTHING_USED)
    suspects = Suspects(tools=request.tools)
    is_vague = names_no_tool(failure.failure_class, failure.message, suspects)
    if is_vague and request.attempt <= MAX_SEARCHED_ATTEMPTS:
        task.waits_for = "refused tools"
        refused = await find_refused_tools(task.model, request)
    charge = budgets.break_off(reservation, had_output=had_output)
    if refused.usage != NOTHING_USED:
        charge = budgets.charge(reservation.model, refused.usage)
    return TurnFailedInput(
        turn=request.turn,
        attempt=request.attempt,
        failure_class=failure.failure_class,
        detail=failure.message,
        retry_after_ms=failure.retry_after_ms,
        charge=charge,
        was_asked=failure.was_asked,
        refused_tools=refused.names,
    )
