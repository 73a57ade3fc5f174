"""The live environment of a run: answers from the gate, the context assembly and the model router.

A strict replay uses the same class, with a gate that has no prompts and no grants.
"""

from palyra.actors.run.arguments import CallArguments
from palyra.actors.run.services import RunServices
from palyra.core.context.assembly import Prefix, assemble
from palyra.core.context.compaction import plan_compaction
from palyra.core.context.history import History
from palyra.core.context.rendering import PromptCache
from palyra.core.model.messages import ModelRequest, UserMessage
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.model.routing import ModelRequirements
from palyra.core.ports import RunBlocking
from palyra.core.run.answer import AnswerDefect, find_defect
from palyra.core.run.call import Call
from palyra.core.run.inputs import Gather
from palyra.core.run.state import Run, find_unresolved
from palyra.core.tape.events import Compaction, ContextAssembled
from palyra.services.model_router import needs_of

CODE = "```"


class LiveEnvironment:
    """`RunEnvironment` of one run actor; created when the actor starts.

    It must not refer to the actor: in that cycle only the garbage collector would free the run.
    """

    def __init__(
        self, services: RunServices, prefix: Prefix, history: History, arguments: CallArguments
    ) -> None:
        self.limits = services.limits
        self.now_ms = services.now_ms
        self.new_id = services.new_id
        self.redact = services.redactor.redact_bytes
        self.sign = services.sign
        self.jitter_ms = services.jitter_ms
        self.provider = services.router.provider
        self.evaluate = arguments.evaluate
        self._gate, self._router = arguments.gate, services.router
        self._has_sources = services.sources.has_sources
        self._fence_key = services.fence_key
        self.prefix, self._history = prefix, history
        self._cache: PromptCache | None = None

    def is_stale(self, call: Call) -> bool:
        """Return True if the rules have changed since the verdict on `call`."""
        return call.policy_version != self._gate.policy_version

    def has_lapsed(self, call: Call) -> bool:
        """Return True if the grant that `call` was allowed by has ended."""
        return call.grant_id is not None and not self._gate.grant_holds(call.grant_id)

    def assemble(self, run: Run, turn: int, attempt: int) -> tuple[ContextAssembled, ModelRequest]:
        """Build the model request from the agent's prefix, the history and the transcript."""
        key, history = self._fence_key, self._history
        cache = self._cache = self._cache or PromptCache(run, history, key)
        return assemble(
            run,
            self.prefix,
            turn,
            attempt,
            key,
            history=history,
            limits=self._router.limits(run),
            cache=cache,
        )

    async def prepare(self, run: Run, run_blocking: RunBlocking) -> None:
        """Render a long conversation in a thread, before the first prompt needs it on the loop.

        Cancellation: waits for the thread.
        """
        cache = self._cache = PromptCache(run, self._history, self._fence_key)
        if cache.is_long(run):
            await run_blocking(cache.prepare, run)

    def find_sources(self, run: Run) -> Gather | None:
        """Return references without a text, and what belongs to a run that begins."""
        messages = find_unresolved(run) if run.has_references else ()
        is_first = not run.is_gathered and run.turn == 0 and self._has_sources(run)
        return Gather(messages=messages, is_first=is_first) if messages or is_first else None

    def check_answer(self, run: Run) -> AnswerDefect | None:
        """Check the answer against the tools and the instructions that the model was shown."""
        return find_defect(run, self.prefix.catalogue.tools, self.prefix.agent.instructions)

    def plan_route(self, run: Run) -> RoutePlan | None:
        """Let the router choose the model."""
        return self._router.plan(run, self._measure)

    def change_route(self, run: Run, leaving: Leaving, *, may_retry: bool) -> RouteChange | None:
        """Let the router choose the model that takes over."""
        return self._router.change(run, leaving, self._measure, may_retry=may_retry)

    def compact(self, run: Run) -> Compaction | None:
        """Plan a compaction of the history and the transcript."""
        return plan_compaction(run, self._history, self.prefix.tokens)

    def _measure(self, run: Run) -> ModelRequirements:
        """Derive from the next request what its model must support."""
        turn, attempt = (run.turn, run.attempt + 1) if run.turn_is_open else (run.turn + 1, 1)
        context, request = self.assemble(run, turn, attempt)
        shown = [each for each in request.messages if isinstance(each, UserMessage)]
        has_pictures = any(message.pictures for message in shown)
        own = [each for each in run.transcript[run.inherited :] if isinstance(each, UserMessage)]
        return ModelRequirements(
            needs=needs_of(
                has_pictures=has_pictures,
                json_mode=request.json_mode,
                has_tools=bool(request.tools),
            ),
            input_tokens=context.input_tokens,
            output_tokens=self._router.output_tokens,
            tools=len(request.tools),
            has_code=any(CODE in message.text for message in own),
            has_pictures=has_pictures,
            is_background=request.is_background,
            budget_usd_micros=run.accepted.budget.usd_micros,
        )
