"""The model that plays the steps of a procedure; it calls no provider.

A run with this model begins with a plan (`core.learning.procedures.render_plan`).  Each turn proposes
the next step; the first step that did not succeed ends the run.  The next turn follows from the
request alone, so a recovered or replayed run continues at the same place.
"""

from collections.abc import Callable, Sequence

import trio

from palyra.core.ids import NewId
from palyra.core.journal.records import Usage
from palyra.core.learning.procedures import MODEL, PlannedCall, read_plan
from palyra.core.model.messages import (
    Delta,
    Message,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.trust.fences import inside_fence

SHOWN_CHARS = 2_000  # of a result in the answer


class ProcedurePlayer:
    """`core.ports.LanguageModel` of procedures."""

    name = MODEL
    provider = MODEL

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id

    def most_output(self, request: ModelRequest) -> int:  # noqa: ARG002, PLR6301 - the port
        """Return 0: there is no limit."""
        return 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:  # noqa: ARG002 - the port
        """Propose the next step, or report the results.

        Raises ModelFailure without a plan and after a step that did not succeed.  Cancellation: at
        the checkpoint; nothing was changed.
        """
        await trio.lowlevel.checkpoint()
        steps, results = _find_place(request.messages)
        failed = next((each for each in results if each.status != "succeeded"), None)
        if failed is not None:
            done = len(results) - 1
            raise ModelFailure(
                "step_failed",
                f"step {done + 1} of {len(steps)} ({failed.tool}) ended {failed.status}, after "
                f"{done} that succeeded: {inside_fence(failed.output)[:SHOWN_CHARS]}",
            )
        if len(results) == len(steps):
            return ModelTurn(text=_report(results), calls=(), finish_reason="stop", usage=Usage())
        due = steps[len(results)]
        call = ProposedCall(call_id=self._new_id("call"), tool=due.tool, arguments=due.arguments)
        return ModelTurn(text="", calls=(call,), finish_reason="tool_calls", usage=Usage())


def _find_place(messages: Sequence[Message]) -> tuple[tuple[PlannedCall, ...], list[ToolMessage]]:
    """Return the steps of the plan and the results that there are."""
    for place, message in enumerate(messages):
        steps = read_plan(message.text) if isinstance(message, UserMessage) else None
        if steps is not None:
            later = messages[place + 1 :]
            return steps, [each for each in later if isinstance(each, ToolMessage)]
    raise ModelFailure("invalid_request", "the run has no plan: this model plays procedures only")


def _report(results: Sequence[ToolMessage]) -> str:
    """Return the results of all steps, each cut to an excerpt."""
    return "\n".join(
        f"{number}. {each.tool} succeeded: {inside_fence(each.output)[:SHOWN_CHARS]}"
        for number, each in enumerate(results, 1)
    )
