"""The live environment of a run: the services of all runs, and the answers to its decisions.

`LiveEnvironment` answers from the gate, the context assembly and the model router.  A strict replay
uses the same class, with a gate that has no prompts and no grants.

The tape has the arguments of calls redacted.  The unredacted ones of the open turn are kept here, in
memory only, by one run actor.  They do not survive a restart: a call whose arguments held a secret
must be proposed again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.run.approval import OpenApprovals
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import Prefix, assemble
from palyra.core.context.history import History
from palyra.core.context.overflow import plan_compaction
from palyra.core.context.rendering import PromptCache
from palyra.core.ids import NewId
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.model.images import newest
from palyra.core.model.messages import (
    AssistantMessage,
    FailureClass,
    ModelRequest,
    ProposedCall,
    UserMessage,
    pictures_of,
)
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.model.routing import ModelRequirements
from palyra.core.policy.gate import CheckedCall, NeedsApproval, is_light
from palyra.core.policy.request import PolicyDecision
from palyra.core.ports import Artifacts, LanguageModel, Notifier, NowMs, RunBlocking, ToolRunner
from palyra.core.redaction.redactor import REMEMBERED_BYTES, Redactor
from palyra.core.run.answer import AnswerDefect, find_defect
from palyra.core.run.call import Call
from palyra.core.run.claims import ShownBefore
from palyra.core.run.delegation import plan_delegation
from palyra.core.run.environment import GatedCall, RunLimits
from palyra.core.run.inputs import Gather, Summarise
from palyra.core.run.refused_items import Suspects, find_refused, may_be_overflow
from palyra.core.run.state import Run, find_unresolved
from palyra.core.tape.events import (
    Compaction,
    CompactionApplied,
    CompactionSkipped,
    ContextAssembled,
    DelegationStarted,
    ItemRefused,
)
from palyra.core.tool.arguments import Refused
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import Preflight, ToolCall
from palyra.core.usage.budgets import find_left
from palyra.services.context.compaction import SessionCompactor
from palyra.services.context.history import ConversationHistory
from palyra.services.context.references import ContextSources
from palyra.services.learning.candidates import Reflections
from palyra.services.learning.procedures import Procedures
from palyra.services.policy.gate import Gate
from palyra.services.policy.grants import Grants
from palyra.services.registry.agents import Agents
from palyra.services.registry.channels import Channels
from palyra.services.registry.model_router import ModelRouter, needs_of
from palyra.services.upkeep.incidents import Incidents
from palyra.services.usage.budgets import Budgets
from palyra.services.usage.token_factors import TokenFactors


@dataclass(frozen=True, slots=True)
class RunServices:
    """Services of a run.  None of them belongs to one run."""

    journal: JournalHandle
    hub: Notifier
    toolbox: ToolRunner  # inspects and executes calls
    artifacts: Artifacts  # stores whole outputs and pictures
    gate: Gate  # validates calls and asks the policy
    models: Mapping[str, LanguageModel]  # by name
    player: LanguageModel  # of the steps of procedures; clients cannot name it
    router: ModelRouter  # plans and changes the model of a run
    agents: Agents  # their versions, and the stable part of requests
    channels: Channels  # which agent and session a message of a channel belongs to
    approvals: OpenApprovals  # questions that wait for an answer
    grants: Grants  # answers that cover later calls
    budgets: Budgets  # reservations and refusals
    incidents: Incidents  # where findings are reported
    compactor: SessionCompactor  # summarises long sessions
    histories: ConversationHistory  # earlier runs of a session
    sources: ContextSources  # texts for prompts from outside the run
    factors: TokenFactors  # corrections of the token estimate
    reflections: Reflections  # tasks that read runs which have ended
    procedures: Procedures  # accepted ones, as tools
    redactor: Redactor
    fence_key: bytes  # for the nonces of fences round tool output
    limits: RunLimits
    run_blocking: RunBlocking
    now_ms: NowMs
    new_id: NewId
    sign: Callable[[bytes], bytes]  # digests of attestations, with the daemon's key
    jitter_ms: Callable[[int], int]  # backoff of a model call, by its failed attempts
    instance_id: str

    def redact(self, data: bytes) -> tuple[bytes, bool]:
        """Redact a JSON document; True if it held a secret."""
        return self.redactor.redact_bytes(data)


async def look_for_secrets(services: RunServices, written: bytes) -> None:
    """Search JSON for secrets before a step writes it; in a thread unless it is short.

    The redactor caches the result, so the step itself, which blocks the event loop, finds it there.
    The step refuses what is too large for the tape, so that is not searched.
    Cancellation: waits for the thread.
    """
    if REMEMBERED_BYTES <= len(written) <= MAX_PAYLOAD_BYTES:
        await services.run_blocking(services.redactor.redact_bytes, written)


class CallArguments:
    """Arguments of one run's calls, as proposed and as coerced, with their inspections.

    Validations are cached by call id.  An inspection may hold secrets as well.
    """

    __slots__ = (
        "_arguments", "_find_end", "_inspections", "_prefix", "_proposed", "_validated", "gate",
    )  # fmt: skip

    def __init__(self, gate: Gate, prefix: Prefix, find_end: Callable[[], str]) -> None:
        """`find_end` returns why the model gets no further turn, or "" if it may."""
        self.gate = gate
        self._find_end = find_end
        self._prefix = prefix
        self._proposed: dict[str, ProposedCall] = {}
        self._arguments: dict[str, Any] = {}
        self._inspections: dict[str, Preflight] = {}
        self._validated: dict[str, tuple[ProposedCall, CheckedCall | Refused]] = {}

    async def validate_ahead(
        self, calls: Sequence[ProposedCall], run_blocking: RunBlocking
    ) -> None:
        """Validate the calls of a turn before the run decides on it, in a thread unless light.

        Cancellation: the thread finishes first.
        """
        if is_light(calls, self._prefix.catalogue):
            return
        validate = partial(self.gate.validate, prefix=self._prefix)
        validated = await run_blocking(lambda: [(call, validate(call)) for call in calls])
        self._validated.update((each[0].call_id, each) for each in validated)

    async def reload(self, run: Run, run_blocking: RunBlocking) -> None:
        """Keep and validate the calls on the tape, after a restart."""
        self.keep(map(self._written, run.calls))
        await self.validate_ahead(tuple(self._proposed.values()), run_blocking)

    def keep(self, calls: Iterable[ProposedCall]) -> None:
        """Replace the calls of the previous turn by those of this one."""
        self._proposed = {call.call_id: call for call in calls}
        self._validated = {
            call_id: validated
            for call_id, validated in self._validated.items()
            if validated[0] is self._proposed.get(call_id)
        }
        self._arguments.clear()
        self._inspections.clear()

    def note(self, call_id: str, seen: Preflight) -> None:
        """Keep the result of the call's inspection."""
        self._inspections[call_id] = seen

    def evaluate(self, run: Run, call: Call) -> GatedCall:
        """Evaluate one call with its unredacted arguments.

        A question is about the execution object: the call exactly as it would run, the rules'
        version, and all later calls of the turn that are equal to it, which one answer decides.
        """
        inspection, written = self._inspections.get(call.call_id), self._written(call)
        validated = self._validate(written)
        gated = self.gate.evaluate(
            run, written, validated, self._prefix, inspection=inspection, end=self._find_end()
        )
        self._arguments[call.call_id] = gated.arguments
        if not isinstance(gated.verdict, NeedsApproval):
            return gated
        duplicates = self._find_duplicates(run, call, gated.digest)
        executed = msgspec.structs.replace(self.tool_call(run, call), inspection=inspection)
        covers = (call.call_id, *duplicates)
        digest = execution_digest(executed, gated.verdict.version, covers)
        return msgspec.structs.replace(gated, execution_digest=digest, duplicates=duplicates)

    def tool_call(self, run: Run, call: Call) -> ToolCall:
        """Return the call as the executor gets it: arguments as gated or, after a restart, as taped."""
        spec = self.gate.find_spec(call.tool)
        return ToolCall(
            call_id=call.call_id,
            run_id=run.run_id,
            session_id=run.accepted.session_id,
            principal=run.accepted.principal,
            tool=call.tool,
            tool_version=spec.version if spec is not None else "",
            arguments=self._arguments.get(call.call_id, call.arguments),
            audience=run.accepted.audience(self._prefix.agent.memory_scope),
            trust=run.trust,
            workspace=run.accepted.workspace,
        )

    def _written(self, call: ProposedCall | Call) -> ProposedCall:
        """Return the call as proposed or, after a restart, as taped."""
        return self._proposed.get(call.call_id) or ProposedCall(
            call_id=call.call_id, tool=call.tool, arguments=call.arguments
        )

    def _find_duplicates(self, run: Run, call: Call, digest: str) -> tuple[str, ...]:
        """Return the ids of later calls of the turn with the same tool and equal arguments."""
        ids = [each.call_id for each in run.calls]
        later = run.calls[ids.index(call.call_id) + 1 :]
        same = [self._written(each) for each in later if each.tool == call.tool]
        checked = ((each.call_id, self._validate(each)) for each in same)
        return tuple(
            call_id
            for call_id, found in checked
            if isinstance(found, CheckedCall) and found.digest == digest
        )

    def _validate(self, written: ProposedCall) -> CheckedCall | Refused:
        """Validate the call once and cache the result; duplicate detection asks again."""
        known = self._validated.get(written.call_id)
        if known is None or known[0] != written:  # another turn may reuse the id
            known = written, self.gate.validate(written, self._prefix)
            self._validated[written.call_id] = known
        return known[1]

    def is_ruled_out(self, run: Run, call: Call) -> bool:
        """True if the mode of the run's session refuses the call now."""
        return self.gate.is_ruled_out(run, self._validate(self._written(call)))

    def judge_answer(
        self, run: Run, caller: Caller, answer: ResolveApproval
    ) -> PolicyDecision | None:
        """Decide if the rules permit the caller to give this answer about a call.

        None if no call waits for that approval.
        """
        call = run.find_asking(answer.approval_id)
        if call is None:
            return None
        written = self._written(call)
        asked = self._validate(written)
        return self.gate.judge_answer(run, written, asked, self._prefix, caller, answer=answer)


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
        self._arguments = arguments
        self._gate, self._router = arguments.gate, services.router
        self._has_sources = services.sources.has_sources
        self._fence_key = services.fence_key
        self.prefix, self._history = prefix, history
        self._budgets = services.budgets
        self._cache: PromptCache | None = None
        self._compactor = services.compactor
        self._least_tokens = services.compactor.least_tokens(services.router.least_window)

    def is_stale(self, run: Run, call: Call) -> bool:
        """Return True if the rules have changed since the verdict on `call`, or its mode has."""
        if call.policy_version != self._gate.policy_version:
            return True
        return bool(self._gate.modes) and self._arguments.is_ruled_out(run, call)

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
        """Check the answer against the tools and everything that the model was shown."""
        earlier = [message for past in self._history.runs for message in past.messages]
        instructions = self.prefix.agent.instructions
        background = ShownBefore(instructions, earlier, self._history.summary)
        return find_defect(run, self.prefix.catalogue.tools, background)

    def plan_route(self, run: Run) -> RoutePlan | None:
        """Let the router choose the model."""
        return self._router.plan(run, self._measure)

    def change_route(self, run: Run, leaving: Leaving, *, may_retry: bool) -> RouteChange | None:
        """Let the router choose the model that takes over."""
        return self._router.change(run, leaving, self._measure, may_retry=may_retry)

    def summary_is_due(self, run: Run, input_tokens: int) -> bool:
        """Compare the size of the prompt with the trigger of the session compaction."""
        if input_tokens <= self._least_tokens:
            return False
        window = self._router.window(run.model)
        return self._compactor.is_due(run, self._shown(run), input_tokens, window)

    def _shown(self, run: Run) -> History:
        """Return the part of the history that the run's own summary does not cover."""
        return self._history if run.summary is None else self._history.summarised(run.summary)

    async def summarise(
        self, run: Run, task: Summarise, run_blocking: RunBlocking
    ) -> CompactionApplied | CompactionSkipped:
        """Summarise the conversation of the session and of the run; render it for the next prompt.

        Cancellation: see `SessionCompactor.summarise`.
        """
        event = await self._compactor.summarise(run, self._history, task)
        if isinstance(event, CompactionApplied) and self._cache is not None:
            await run_blocking(self._cache.render_summary, event.summary)
        return event

    def find_refused(
        self, run: Run, failure_class: FailureClass, detail: str, *, may_retry: bool
    ) -> ItemRefused | Compaction | None:
        """Search the prompt of the open turn, assembled again: refusals are rare."""
        _, request = self.assemble(run, run.turn, run.attempt + 1)
        pictures = [each for message in request.messages for each in pictures_of(message)]
        suspects = Suspects(
            pictures=tuple(picture.artifact for picture in newest(pictures)),
            tools=request.tools,
            has_thoughts=request.sends_thoughts
            and any(
                isinstance(each, AssistantMessage) and each.thought for each in request.messages
            ),
        )
        found = find_refused(run.turn, failure_class, detail, suspects, attempt=run.attempt)
        if found is not None or may_retry:
            return found
        tokens = run.asked.input_tokens
        is_suspect = may_be_overflow(failure_class, detail, tokens, run.good_tokens)
        return self.compact(run) if is_suspect else None

    def compact(self, run: Run) -> Compaction | None:
        """Plan a compaction of the history and the transcript."""
        return plan_compaction(run, self._shown(run), self.prefix.tokens)

    def plan_delegation(self, run: Run, call: Call) -> DelegationStarted:
        """Give the run of the call a fresh id, and a share of what this run has left."""
        left_ms = (
            self.limits.wall_ms
            if run.accepted.budget.wall_ms is None
            else min(run.accepted.budget.wall_ms, self.limits.wall_ms)
        )
        spent_ms = run.spent_ms(with_people=self.limits.wall_counts_approvals)
        left = msgspec.structs.replace(
            find_left(self._budgets.find(run), self.now_ms()), wall_ms=max(1, left_ms - spent_ms)
        )
        return plan_delegation(run, call, run_id=self.new_id("run"), left=left)

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
