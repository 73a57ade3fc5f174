"""What a run asks for beside verdicts: its prompts, its model, whether a text is an answer.

The same for a run that lives and for one that is replayed strictly.
"""

import msgspec

from palyra.actors.run.services import RunServices
from palyra.core.context.assembly import Prefix, assemble
from palyra.core.context.compaction import plan_compaction
from palyra.core.context.history import History
from palyra.core.model.messages import ModelRequest, UserMessage
from palyra.core.model.routing import ModelRequirements
from palyra.core.run.answer import find_flaw
from palyra.core.run.inputs import RunEnvironment
from palyra.core.run.state import Run
from palyra.core.tape.events import ContextAssembled
from palyra.services.model_router import needs_of

CODE = "```"


def run_setting(services: RunServices, prefix: Prefix, history: History) -> RunEnvironment:
    """The setting of a run of that agent with that past; `prepare` is still nobody's."""
    key, router = services.fence_key, services.router

    def assembled(run: Run, turn: int, attempt: int) -> tuple[ContextAssembled, ModelRequest]:
        return assemble(run, prefix, turn, attempt, key, history=history)

    def measure(run: Run) -> ModelRequirements:
        """What the next request asks of a model."""
        place = (run.turn, run.attempt + 1) if run.turn_is_open else (run.turn + 1, 1)
        context, request = assembled(run, *place)
        shown = [each for each in request.messages if isinstance(each, UserMessage)]
        has_pictures = any(message.pictures for message in shown)
        return ModelRequirements(
            needs=needs_of(
                has_pictures=has_pictures,
                json_mode=request.json_mode,
                has_tools=bool(request.tools),
            ),
            input_tokens=context.input_tokens,
            output_tokens=router.output_tokens,
            tools=len(request.tools),
            has_code=_has_code(run),
            has_pictures=has_pictures,
            is_background=request.is_background,
            budget_usd_micros=run.accepted.budget.usd_micros,
        )

    return msgspec.structs.replace(
        services.setting,
        assemble=assembled,
        judge=lambda run: find_flaw(run, prefix.catalogue.tools, prefix.agent.instructions),
        provider=router.provider,
        plan_route=lambda run: router.plan(run, measure),
        change_route=lambda run, leaving, may_retry: router.change(
            run, leaving, measure, may_retry=may_retry
        ),
        compact=lambda run: plan_compaction(run, history, prefix.tokens),
    )


def _has_code(run: Run) -> bool:
    """Whether what people said in this run holds code."""
    said = run.transcript[run.inherited :]
    return any(isinstance(message, UserMessage) and CODE in message.text for message in said)
