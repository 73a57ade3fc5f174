"""The gate as a service: validate a call, evaluate the rules with grants, return the verdict.

Stateless and synchronous; reads the rules and the toolbox (ports), open prompts and grants.

A proposed call is validated against the tools that the model was shown (`validate`).  `evaluate`
checks that the tool is still the same, collects the facts about the run, evaluates the rules, and
combines their decision with the grants into a verdict.  `explain` makes the same evaluation for a
client without a run.  `judge_answer` evaluates the rules on the answer to an approval request.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import Prefix
from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    GrantRecord,
    Role,
    SessionMode,
    SessionRecord,
)
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import (
    Allow,
    CheckedCall,
    Deny,
    GateContext,
    NeedsApproval,
    Verdict,
    judge,
    policy_request,
    reconstruct,
    tool_call,
    tool_unavailable,
    validate,
)
from palyra.core.policy.grants import find_grant
from palyra.core.policy.modes import (
    PLAN_MODE,
    edit_grant,
    edits_hold,
    find_plan_refusal,
    is_edit,
    keeps_files,
    session_of_edits,
)
from palyra.core.policy.questions import ASK_USER, find_defect
from palyra.core.policy.recorded import PolicyEvidence, RecordedCall
from palyra.core.policy.request import (
    Explanation,
    PolicyDecision,
    PolicyRequest,
    decide_parts,
    strictest,
)
from palyra.core.ports import Policy, ToolRunner
from palyra.core.run.delegation import DELEGATE, find_refusal, keep_grant
from palyra.core.run.environment import GatedCall
from palyra.core.run.state import Run
from palyra.core.tape.events import Delegation, RunAccepted, ToolProposed
from palyra.core.text.visible import render_call
from palyra.core.tool.arguments import Refused, refusal
from palyra.core.tool.spec import (
    CLIENT,
    DELEGATION,
    NO_FACETS,
    CallFacts,
    Preflight,
    ToolCall,
    ToolSpec,
)
from palyra.errors import InvalidParams

# By principal, agent, tool, key and workspace.
FindGrants = Callable[[str, str, str, str, str], Sequence[GrantRecord]]
FindAccepted = Callable[[str], RunAccepted | None]  # of an open run, by its id
NO_MODES: Mapping[str, SessionRecord] = {}
DECISIONS = 3  # attempts while the rules keep changing, before the call is denied


class Gate:
    """Validates and evaluates calls."""

    def __init__(  # noqa: PLR0913 - the last ones by name
        self,
        toolbox: ToolRunner,
        policy: Policy,
        count_prompts: Callable[[str], int],
        find_grants: FindGrants = lambda *_: (),
        grant_holds: Callable[[str], bool] = lambda _grant_id: False,
        *,
        modes: Mapping[str, SessionRecord] = NO_MODES,
        find_accepted: FindAccepted = lambda _run_id: None,
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._count_prompts = count_prompts  # open prompts by `RunAccepted.asks_as`
        self._find_grants = find_grants
        self._grant_holds = grant_holds  # by grant id
        self.modes = modes  # live sessions in another mode than `ask`, by id
        self._find_accepted = find_accepted

    @property
    def policy_version(self) -> str:
        """Version of the current rules."""
        return self._policy.version

    def grant_holds(self, grant_id: str) -> bool:
        """True if the grant is live, or the mode that made it."""
        session_id = session_of_edits(grant_id)
        if session_id:
            return edits_hold(self.modes.get(session_id), grant_id)
        return self._grant_holds(grant_id)

    def mode_of(self, accepted: RunAccepted) -> SessionMode:
        """Return the mode that a run works in now: `plan` if a run above it does."""
        session, above = self.modes.get(accepted.session_id), accepted
        mode: SessionMode = "ask" if session is None else session.mode
        while mode != "plan" and above.depth:
            found = self._find_accepted(above.parent_run_id or "")
            if found is None:
                break
            above, session = found, self.modes.get(found.session_id)
            mode = "plan" if session is not None and session.mode == "plan" else mode
        return mode

    def is_ruled_out(self, run: Run, validated: CheckedCall | Refused) -> bool:
        """True if the mode of the run's session refuses the call now."""
        if isinstance(validated, Refused):
            return False
        mode = self.mode_of(run.accepted)
        return bool(find_plan_refusal(mode, validated.spec, validated.facets))

    def evaluate(
        self,
        run: Run,
        proposed: ProposedCall,
        validated: CheckedCall | Refused,
        prefix: Prefix,
        *,
        inspection: Preflight | None = None,
        end: str = "",
    ) -> GatedCall:
        """Evaluate the rules on a validated call and return the verdict with its subject.

        `inspection` is the result of inspecting the call's targets.  `end` says why the model will
        get no further turn; a result that no model reads is not worth a question.
        """
        checked = self._available(validated)
        if isinstance(checked, Refused):
            spec = self.find_spec(proposed.tool)
            return GatedCall(
                digest=checked.digest,
                tool_class="unknown" if spec is None else spec.tool_class,
                arguments=proposed.arguments,
                verdict=checked,
            )
        spec = checked.spec
        verdict: Refused | Verdict
        refused = None
        if spec.tool_class == DELEGATION:
            arguments = checked.arguments if spec.name == DELEGATE else {}
            refused = find_refusal(run.accepted.depth, arguments, held_tools(run, prefix))
        elif spec.name == ASK_USER and spec.executor != CLIENT:
            defect = find_defect(checked.arguments)
            refused = refusal(defect, "a question that a person can answer") if defect else None
        if refused is not None:
            verdict = refused
        elif spec.executor == CLIENT and self.is_ruled_out(run, checked):
            verdict = Deny(
                reason_code=PLAN_MODE,
                reason=find_plan_refusal("plan", spec, checked.facets),
                policies=(),
                version=self._policy.version,
            )
        elif spec.executor == CLIENT:
            verdict = Allow(
                reason_code="client_tool",
                reason=f"the client declared {spec.name} and runs it itself",
                policies=(),
                version=self._policy.version,
            )
        else:
            context = self._context(run, prefix, checked, end)
            request = policy_request(checked, context)
            decision = self._decide(request)
            if run.accepted.delegation is not None:
                decision = self._decide_above(run.accepted.delegation, request, decision)
            verdict = judge(checked, context, decision, inspection)
        needs_approval = isinstance(verdict, NeedsApproval)
        return GatedCall(
            digest=checked.digest,
            tool_class=spec.tool_class,
            arguments=checked.arguments,
            coercions=checked.coercions,
            verdict=verdict,
            executor=spec.executor,
            enforcement=spec.enforcement,
            may_rerun=spec.may_rerun,
            path_key=checked.path_key,
            inspects=needs_approval and inspection is None and self._toolbox.inspects(spec.name),
            inspection=msgspec.to_builtins(inspection) if needs_approval else None,
        )

    def validate(self, proposed: ProposedCall, prefix: Prefix) -> CheckedCall | Refused:
        """Validate a call against the tools that the model was shown.  Thread-safe."""
        return validate(proposed, prefix.catalogue, self._facets_of)

    def _available(self, checked: CheckedCall | Refused) -> CheckedCall | Refused:
        """Return the checked call, or a refusal if its tool was removed or changed since."""
        if isinstance(checked, Refused) or checked.spec.executor == CLIENT:
            return checked
        now = self.find_spec(checked.spec.name)
        is_same = now is not None and now.version == checked.spec.version
        if is_same:
            return checked
        return msgspec.structs.replace(tool_unavailable(checked.spec.name), digest=checked.digest)

    def _facets_of(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts | None:
        return NO_FACETS if spec.executor == CLIENT else self._toolbox.facets(spec, arguments)

    def _decide_above(
        self, delegation: Delegation, request: PolicyRequest, own: PolicyDecision
    ) -> PolicyDecision:
        """Decide for the agents and the origin above the run as well; the strictest holds."""
        agents = dict.fromkeys((request.agent, *delegation.agents))
        asked = (
            msgspec.structs.replace(request, agent=agent, origin=delegation.origin)
            for agent in agents
        )
        return strictest([own, *map(self._decide, asked)])

    def _decide(self, request: PolicyRequest) -> PolicyDecision:
        """Evaluate the rules; of a line of plain calls on each."""
        return decide_parts(request, self._decide_one)

    def _decide_one(self, request: PolicyRequest) -> PolicyDecision:
        """Evaluate the rules; repeat if they were replaced in the meantime."""
        for _ in range(DECISIONS):
            decision = self._policy.decide(request)
            if decision.version == self._policy.version:
                return decision
        reason = "the rules changed while they were asked: propose the call again"
        return msgspec.structs.replace(
            decision, answer="deny", reason_code="policy_changing", reason=reason
        )

    def alone(self) -> "Gate":
        """Return a gate without prompts and grants, for strict replays."""
        return Gate(self._toolbox, self._policy, lambda _principal: 0)

    def _context(
        self, run: Run, prefix: Prefix, checked: CheckedCall, end: str = ""
    ) -> GateContext:
        """Collect the facts about the run that rules and verdict depend on."""
        accepted = run.accepted
        handed_down = accepted.tools
        grant = find_grant(
            self._grants(accepted.principal, accepted.agent, checked, accepted.workspace),
            session_id=accepted.session_id,
            epoch=accepted.epoch,
            at_ms=run.last_ms,
            is_confined=accepted.is_confined,
        )
        if grant is not None and accepted.delegation is not None:
            grant = keep_grant(accepted.delegation, grant)
        context = GateContext(
            run_id=run.run_id,
            session_id=accepted.session_id,
            principal=accepted.principal,
            role=accepted.role,
            agent=accepted.agent,
            agent_labels=prefix.agent.labels,
            origin=accepted.origin,
            approval_mode=accepted.approval_mode,
            is_tainted=run.is_tainted,
            # A confined run writes for its conversation alone: its senders may tell it what to keep.
            input_trust=run.input_trust if accepted.is_confined else run.trust,
            depth=accepted.depth,
            denied=run.denied,
            end=end,
            pending_approvals=self._count_prompts(accepted.asks_as),
            handed_down=None if handed_down is None else frozenset(handed_down),
            grant=grant,
            now_ms=run.last_ms,
            workspace=accepted.workspace,
            is_confined=accepted.is_confined,
            mode=self.mode_of(accepted) if self.modes else "ask",
        )
        if accepted.session_id not in self.modes or accepted.delegation is not None:
            return context
        session = self.modes[accepted.session_id]
        is_present = session.epoch == accepted.epoch
        return self._with_edits(context, checked, session) if is_present else context

    def _with_edits(
        self, context: GateContext, checked: CheckedCall, session: SessionRecord
    ) -> GateContext:
        """Add the grant that the session's mode makes, if the rules let its giver answer so."""
        if context.grant is not None or not is_edit(checked.spec, checked.facets):
            return context
        key, change = checked.facets.grant_key, session.mode_set
        grant = edit_grant(session, context.agent, checked.spec.name, key)
        if grant is None or change is None:
            return context
        asked = _answer_request(
            policy_request(checked, context),
            change.by,
            change.role,
            ResolveApproval(approval_id="", decision="allow", digest="", scope="session"),
        )
        if self._decide(asked).answer != "allow":
            return context
        return msgspec.structs.replace(context, grant=grant)

    def _grants(
        self, principal: str, agent: str, checked: CheckedCall, workspace: str
    ) -> Sequence[GrantRecord]:
        key, tool = checked.facets.grant_key, checked.spec.name
        return self._find_grants(principal, agent, tool, key, workspace) if key else ()

    def explain(  # noqa: PLR0913 - the last ones by name
        self,
        caller: Caller,
        proposed: ProposedCall,
        prefix: Prefix,
        *,
        session: SessionRecord | None = None,
        workspace: str = DEFAULT_WORKSPACE,
        now_ms: int,
        inspection: Preflight | None = None,
    ) -> tuple[Explanation, ToolCall | None]:
        """Predict the verdict on a call in a run of this caller.  Raises InvalidParams.

        Returns the call as well if it would be inspected before an approval request; pass the
        result as `inspection` for the final prediction.
        """
        checked = self._available(self.validate(proposed, prefix))
        if isinstance(checked, Refused):
            raise InvalidParams(f"{checked.reason}; {checked.repair_hint}", field="arguments")
        session_id, epoch = ("", None) if session is None else (session.session_id, session.epoch)
        context = GateContext(
            run_id="",
            session_id=session_id,
            principal=caller.principal,
            role=caller.role,
            agent=prefix.agent.name,
            agent_labels=prefix.agent.labels,
            pending_approvals=self._count_prompts(caller.principal),
            grant=find_grant(
                self._grants(caller.principal, prefix.agent.name, checked, workspace),
                session_id=session_id,
                epoch=epoch,
                at_ms=now_ms,
            ),
            now_ms=now_ms,
            workspace=workspace,
            mode="ask" if session is None else session.mode,
        )
        if session is not None:
            context = self._with_edits(context, checked, session)
        decision = self._decide(policy_request(checked, context))
        explained = _explanation(judge(checked, context, decision, inspection))
        looks = (
            explained.answer == "ask"
            and inspection is None
            and self._toolbox.inspects(proposed.tool)
        )
        return explained, tool_call(checked, context) if looks else None

    def judge_answer(
        self,
        run: Run,
        proposed: ProposedCall,
        validated: CheckedCall | Refused,
        prefix: Prefix,
        caller: Caller,
        *,
        answer: ResolveApproval,
    ) -> PolicyDecision:
        """Return whether the rules permit the caller to give this answer.

        `caller` is the principal and role of the token that the answer came with.
        """
        checked = self._available(validated)
        if isinstance(checked, Refused):
            return PolicyDecision(
                answer="allow" if answer.decision == "deny" else "deny",
                reason_code="cannot_run",
                reason=f"{proposed.tool} could not run any more: {checked.reason}",
                policies=(),
                version=self._policy.version,
            )
        context = self._context(run, prefix, checked)
        asked = policy_request(checked, context)
        return self._decide(_answer_request(asked, caller.principal, caller.role, answer))

    def keeps_files(self, call: ToolProposed) -> bool:
        """True if a recorded call changed no file of a workspace, as far as its tool now says.

        Thread-safe.
        """
        proposed = ProposedCall(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
        found = reconstruct(proposed, self._toolbox.catalogue(), self._facets_of)
        return found is not None and keeps_files(found[0].spec, found[0].facets)

    def read_recorded(self, call: RecordedCall) -> PolicyEvidence | None:
        """Return a recorded call as the rules see it now; None if its tool is gone or changed.

        Thread-safe.
        """
        run = call.run
        proposed = ProposedCall(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
        found = reconstruct(proposed, self._toolbox.catalogue(), self._facets_of)
        if found is None:
            return None
        checked, is_whole = found
        context = GateContext(
            run_id=call.run_id,
            session_id=run.session_id,
            principal=run.principal,
            role=run.role,
            agent=run.agent,
            origin=run.origin,
            is_tainted=call.is_tainted,
            depth=run.depth,
            handed_down=None if run.tools is None else frozenset(run.tools),
            now_ms=call.at_ms,
            workspace=run.workspace,
        )
        return PolicyEvidence(
            request=policy_request(checked, context),
            decided=call.decided,
            run_id=call.run_id,
            call_id=call.call_id,
            summary=render_call(call.tool, checked.arguments),
            is_whole=is_whole,
            at_ms=call.at_ms,
        )

    def find_spec(self, tool: str) -> ToolSpec | None:
        """Return the tool from the current catalogue."""
        return self._toolbox.catalogue().tools.get(tool)


def held_tools(run: Run, prefix: Prefix) -> frozenset[str]:
    """Return the tools that the run may hand down: those it may call, without the client's."""
    names = (name for name, spec in prefix.catalogue.tools.items() if spec.executor != CLIENT)
    handed = run.accepted.tools
    return frozenset(names) if handed is None else frozenset(names) & frozenset(handed)


def _answer_request(
    asked: PolicyRequest, principal: str, role: Role, answer: ResolveApproval
) -> PolicyRequest:
    """Return the request to the rules about an answer to the question of a call."""
    return msgspec.structs.replace(
        asked,
        action="approval.decide",
        principal=principal,
        role=role,
        decision=answer.decision,
        scope=answer.scope,
    )


def _explanation(verdict: Allow | Deny | NeedsApproval) -> Explanation:
    asks = verdict if isinstance(verdict, NeedsApproval) else None
    return Explanation(
        answer="ask" if asks else "allow" if isinstance(verdict, Allow) else "deny",
        reason_code=verdict.reason_code,
        reason=verdict.reason,
        policies=verdict.policies,
        version=verdict.version,
        risk=asks.risk if asks else None,
        scopes=asks.scopes if asks else (),
        grant_key=asks.grant_key if asks else "",
    )
