"""One tool call: the gate before it, the execution, the outcome.

Owns: nothing.  Talks to: rules and toolbox (ports), the hub (volatile output), its run.
Never: starts before its `tool.started` is committed, or runs anything but what was gated.
Restart: none; it is a child of its run.  A call that was under way when the daemon fell is
started again only if its tool says that is harmless (`core.run`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from palyra.actors.journal import Ticket
from palyra.actors.progress import ProgressStream
from palyra.core.access import Caller
from palyra.core.canonical import digest_of_any, sha256_hex
from palyra.core.context import Prefix
from palyra.core.excerpt import excerpt
from palyra.core.gate import (
    NeedsApproval,
    RunFacts,
    admit,
    execution_digest,
    judge,
    policy_request,
    tool_call,
)
from palyra.core.intake import Refused
from palyra.core.policy import PolicyDecision
from palyra.core.ports import Policy, Toolbox
from palyra.core.prompt import ProposedCall
from palyra.core.run_state import Run
from palyra.core.run_steps import CallEnded, Preparation
from palyra.core.tools import OutcomeStatus, ToolCall, ToolFailure, ToolSpec
from palyra.errors import InvalidParams

if TYPE_CHECKING:
    from palyra.actors.office import Office
    from palyra.actors.run_handle import RunHandle

EMPTY_SHA256 = sha256_hex(b"")


class Gate:
    """Intake, rules and verdict for one call after the other; no state of its own."""

    def __init__(
        self, toolbox: Toolbox, policy: Policy, count_prompts: Callable[[str], int]
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._count_prompts = count_prompts  # open prompts of a principal

    @property
    def policy_version(self) -> str:
        """Of the rules now."""
        return self._policy.version

    def prepare(self, run: Run, proposed: ProposedCall, prefix: Prefix) -> Preparation:
        """The verdict on a proposal, with what the verdict is about.

        What was not in the prefix, the model was not shown: such a tool is unknown.
        """
        admitted = admit(proposed, prefix.catalogue)
        if isinstance(admitted, Refused):
            return self._refused(proposed, admitted)
        facts = self.facts(run, prefix)
        decision = self._policy.decide(policy_request(admitted, facts))
        verdict = judge(admitted, facts, decision)
        asks = isinstance(verdict, NeedsApproval)
        call = tool_call(admitted, facts)
        return Preparation(
            digest=admitted.digest,
            tool_class=admitted.spec.tool_class,
            arguments=admitted.arguments,
            coercions=admitted.coercions,
            verdict=verdict,
            execution_digest=execution_digest(call, verdict.version) if asks else "",
            executor=admitted.spec.executor,
            enforcement=admitted.spec.enforcement,
            may_rerun=admitted.spec.may_rerun,
            path_key=admitted.path_key,
        )

    def _refused(self, proposed: ProposedCall, refused: Refused) -> Preparation:
        spec = self._toolbox.catalogue().tools.get(proposed.tool)
        return Preparation(
            digest=digest_of_any(proposed.arguments),
            tool_class="unknown" if spec is None else spec.tool_class,
            arguments=proposed.arguments,
            verdict=refused,
        )

    def alone(self) -> "Gate":
        """The same, as if no prompt waited anywhere: for a look at what would be decided."""
        return Gate(self._toolbox, self._policy, lambda _principal: 0)

    def facts(self, run: Run, prefix: Prefix) -> RunFacts:
        """What the gate must know of the run."""
        accepted = run.accepted
        return RunFacts(
            run_id=run.run_id,
            session_id=accepted.session_id,
            principal=accepted.principal,
            role=accepted.role,
            agent=accepted.agent,
            agent_labels=prefix.agent.labels,
            origin=accepted.origin,
            approval_mode=accepted.approval_mode,
            denied=run.denied,
            pending_approvals=self._count_prompts(accepted.principal),
        )

    def explain(
        self, caller: Caller, tool: str, arguments: object, prefix: Prefix
    ) -> PolicyDecision:
        """What the rules would say to this caller's own run.  Raises InvalidParams."""
        named = ProposedCall(call_id="", tool=tool, arguments=arguments)
        admitted = admit(named, prefix.catalogue)
        if isinstance(admitted, Refused):
            raise InvalidParams(f"{admitted.reason}; {admitted.repair_hint}", field="arguments")
        facts = RunFacts(
            run_id="",
            session_id="",
            principal=caller.principal,
            role=caller.role,
            agent=prefix.agent.name,
            agent_labels=prefix.agent.labels,
        )
        return self._policy.decide(policy_request(admitted, facts))

    def find_spec(self, tool: str) -> ToolSpec | None:
        """The tool as the catalogue has it now."""
        return self._toolbox.catalogue().tools.get(tool)


async def execute_call(
    run: "RunHandle",
    office: "Office",
    call: ToolCall,
    approved: str | None,
    ticket: Ticket,
) -> None:
    """Run one call once its start is committed; the run hears CallEnded.

    `approved` is the digest a person said yes to, None when nobody was asked.
    Cancellation: the tool is stopped and nothing is reported; the run records the call as
    cancelled.
    """
    await ticket.wait()
    spec = office.gate.find_spec(call.tool)
    obstacle = _obstacle(run.run, call, approved, office.gate.policy_version)
    if spec is None:
        obstacle = f"{call.tool} is not available any more"
    ended: CallEnded | None = None
    if spec is None or obstacle is not None:
        ended = _failed(call, "failed", obstacle or "")
    else:
        with trio.move_on_after(spec.deadline_s):
            ended = await _execute(run, office, spec, call)
        if ended is None:
            text = f"{call.tool} was stopped at its deadline of {spec.deadline_s:g} s"
            ended = _failed(call, "timed_out", text)
    await run.report(ended)


def _obstacle(run: Run, call: ToolCall, approved: str | None, version: str) -> str | None:
    """Why what is about to run is not what was gated; None when it is.

    `version` is that of the rules now: an approval ends with the rules it was given under.
    """
    recorded = run.find_call(call.call_id)
    if recorded is None or digest_of_any(call.arguments) != recorded.digest:
        return "the arguments held a secret, which no restart survives: propose the call again"
    if approved is not None and execution_digest(call, version) != approved:
        return "what would run is not what was approved: propose the call again"
    return None


async def _execute(run: "RunHandle", office: "Office", spec: ToolSpec, call: ToolCall) -> CallEnded:
    """The tool's own outcome; a failure it announces is an outcome too."""
    stream = ProgressStream(run.run, office.hub, office.redactor, call.call_id)
    try:
        output = await office.toolbox.execute(call, lambda text: stream.take("tool_output", text))
    except ToolFailure as failure:
        text, _ = office.redactor.redact_text(failure.message)
        return _failed(call, "failed", text)
    finally:
        stream.close()
    redacted, _ = office.redactor.redact_text(output.text)
    shown, is_cut = excerpt(redacted, spec.excerpt_bytes)
    return CallEnded(
        call_id=call.call_id,
        status="succeeded",
        output=shown,
        raw_sha256=sha256_hex(output.text.encode("utf-8", "surrogatepass")),
        is_truncated=is_cut or output.is_truncated,
        executor=output.executor,
        enforcement=output.enforcement,
    )


def _failed(call: ToolCall, status: OutcomeStatus, error: str) -> CallEnded:
    return CallEnded(
        call_id=call.call_id, status=status, output="", error=error, raw_sha256=EMPTY_SHA256
    )
