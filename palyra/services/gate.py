"""The gate as runs use it: intake, rules, earlier words of people, and the verdict.

Owns: nothing.  Talks to: rules and toolbox (ports), open prompts and grants (look-ups).
Never: waits.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import Prefix
from palyra.core.journal.records import GrantRecord, SessionRecord
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import (
    Allow,
    Deny,
    GateContext,
    NeedsApproval,
    judge,
    policy_request,
    tool_call,
)
from palyra.core.policy.grants import find_grant
from palyra.core.policy.request import Explanation, PolicyDecision, PolicyRequest
from palyra.core.policy.validation import CheckedCall, ValidatedCall, tool_unavailable, validate
from palyra.core.ports import Policy, ToolRunner
from palyra.core.run.environment import GatedCall
from palyra.core.run.state import Run
from palyra.core.tool.arguments import Refused
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import CLIENT, NO_FACETS, CallFacts, Preflight, ToolCall, ToolSpec
from palyra.errors import InvalidParams

FindGrants = Callable[[str, str, str, str], Sequence[GrantRecord]]  # principal, agent, tool, key
FindTwins = Callable[[CheckedCall], tuple[str, ...]]
DECISIONS = 3  # in a row that other rules overtake, before the answer is no


class Gate:
    """Intake, rules and verdict for one call after the other; no state of its own."""

    def __init__(
        self,
        toolbox: ToolRunner,
        policy: Policy,
        count_prompts: Callable[[str], int],
        find_grants: FindGrants = lambda *_: (),
        grant_holds: Callable[[str], bool] = lambda _grant_id: False,
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._count_prompts = count_prompts  # open prompts of a principal
        self._find_grants = find_grants
        self.grant_holds = grant_holds  # by its id

    @property
    def policy_version(self) -> str:
        """Of the rules now."""
        return self._policy.version

    def evaluate(
        self,
        run: Run,
        proposed: ProposedCall | ValidatedCall,
        prefix: Prefix,
        inspection: Preflight | None = None,
        *,
        find_twins: FindTwins = lambda _admitted: (),
        end: str = "",
    ) -> GatedCall:
        """The verdict on a proposal, with what the verdict is about.

        What was not in the prefix, the model was not shown: such a tool is unknown.  `inspection`
        is what a look has found; `find_twins` gives later calls of the turn that are the same: one
        question is enough for all; `end` is why the model will not be asked again.
        """
        taken = proposed if isinstance(proposed, ValidatedCall) else self.take_in(proposed, prefix)
        admitted = self._available(taken)
        if isinstance(admitted, Refused):
            return self._refused(taken, admitted)
        facts = msgspec.structs.replace(self._facts(run, prefix, admitted), end=end)
        verdict = self._judge(admitted, facts, inspection)
        prepared = GatedCall(
            digest=admitted.digest,
            tool_class=admitted.spec.tool_class,
            arguments=admitted.arguments,
            coercions=admitted.coercions,
            verdict=verdict,
            executor=admitted.spec.executor,
            enforcement=admitted.spec.enforcement,
            may_rerun=admitted.spec.may_rerun,
            path_key=admitted.path_key,
        )
        if not isinstance(verdict, NeedsApproval):
            return prepared
        twins = find_twins(admitted)
        call = tool_call(admitted, facts, inspection)
        covers = (admitted.call_id, *twins)
        return msgspec.structs.replace(
            prepared,
            execution_digest=execution_digest(call, verdict.version, covers),
            inspects=inspection is None and self._toolbox.inspects(admitted.spec.name),
            inspection=None if inspection is None else msgspec.to_builtins(inspection),
            duplicates=twins,
        )

    def take_in(self, proposed: ProposedCall, prefix: Prefix) -> ValidatedCall:
        """Intake of a proposal against what the model was shown.  Any thread may call."""
        return validate(proposed, prefix.catalogue, self._facets_of)

    def _available(self, taken: ValidatedCall) -> CheckedCall | Refused:
        """What was taken in, unless its tool has gone since, or is another one: then none can run."""
        admitted = taken.result
        if isinstance(admitted, Refused) or admitted.spec.executor == CLIENT:
            return admitted
        now = self.find_spec(admitted.spec.name)
        is_same = now is not None and now.version == admitted.spec.version
        return admitted if is_same else tool_unavailable(admitted.spec.name)

    def _facets_of(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts | None:
        return NO_FACETS if spec.executor == CLIENT else self._toolbox.facets(spec, arguments)

    def _judge(
        self, admitted: CheckedCall, facts: GateContext, inspection: Preflight | None
    ) -> Allow | Deny | NeedsApproval:
        """What the client runs is the client's to judge; of the rest the rules have a say."""
        if admitted.spec.executor == CLIENT:
            return _hand_to_client(admitted, self._policy.version)
        decision = self._decide(policy_request(admitted, facts))
        return judge(admitted, facts, decision, inspection)

    def _refused(self, taken: ValidatedCall, refused: Refused) -> GatedCall:
        spec = self._toolbox.catalogue().tools.get(taken.proposal.tool)
        return GatedCall(
            digest=taken.digest,
            tool_class="unknown" if spec is None else spec.tool_class,
            arguments=taken.proposal.arguments,
            verdict=refused,
        )

    def _decide(self, request: PolicyRequest) -> PolicyDecision:
        """The rules' answer; one that other rules overtook while it was made is void."""
        for _ in range(DECISIONS):
            decision = self._policy.decide(request)
            if decision.version == self._policy.version:
                return decision
        reason = "the rules changed while they were asked: propose the call again"
        return msgspec.structs.replace(
            decision, answer="deny", reason_code="policy_changing", reason=reason
        )

    def alone(self) -> "Gate":
        """The same, as if nobody had been asked anything: for a look at what would be decided."""
        return Gate(self._toolbox, self._policy, lambda _principal: 0)

    def _facts(self, run: Run, prefix: Prefix, admitted: CheckedCall) -> GateContext:
        """What the gate must know of the run."""
        accepted = run.accepted
        handed_down = accepted.tools
        return GateContext(
            run_id=run.run_id,
            session_id=accepted.session_id,
            principal=accepted.principal,
            role=accepted.role,
            agent=accepted.agent,
            agent_labels=prefix.agent.labels,
            origin=accepted.origin,
            approval_mode=accepted.approval_mode,
            is_tainted=run.is_tainted,
            depth=accepted.depth,
            denied=run.denied,
            pending_approvals=self._count_prompts(accepted.principal),
            handed_down=None if handed_down is None else frozenset(handed_down),
            grant=find_grant(
                self._grants(accepted.principal, accepted.agent, admitted),
                session_id=accepted.session_id,
                epoch=accepted.epoch,
                at_ms=run.last_ms,
            ),
            now_ms=run.last_ms,
        )

    def _grants(self, principal: str, agent: str, admitted: CheckedCall) -> Sequence[GrantRecord]:
        key = admitted.facets.grant_key
        return self._find_grants(principal, agent, admitted.spec.name, key) if key else ()

    def explain(
        self,
        caller: Caller,
        proposed: ProposedCall,
        prefix: Prefix,
        *,
        session: SessionRecord | None = None,
        now_ms: int,
        inspection: Preflight | None = None,
    ) -> tuple[Explanation, ToolCall | None]:
        """What would come of the call in a run of this caller.  Raises InvalidParams.

        With it the call itself if it would be looked at before anybody is asked: `inspection` is
        what the look has found.
        """
        admitted = self._available(self.take_in(proposed, prefix))
        if isinstance(admitted, Refused):
            raise InvalidParams(f"{admitted.reason}; {admitted.repair_hint}", field="arguments")
        session_id, epoch = ("", None) if session is None else (session.session_id, session.epoch)
        facts = GateContext(
            run_id="",
            session_id=session_id,
            principal=caller.principal,
            role=caller.role,
            agent=prefix.agent.name,
            agent_labels=prefix.agent.labels,
            pending_approvals=self._count_prompts(caller.principal),
            grant=find_grant(
                self._grants(caller.principal, prefix.agent.name, admitted),
                session_id=session_id,
                epoch=epoch,
                at_ms=now_ms,
            ),
            now_ms=now_ms,
        )
        decision = self._decide(policy_request(admitted, facts))
        told = _explanation(judge(admitted, facts, decision, inspection))
        looks = (
            told.answer == "ask" and inspection is None and self._toolbox.inspects(proposed.tool)
        )
        return told, tool_call(admitted, facts) if looks else None

    def judge_answer(
        self,
        run: Run,
        asked: ValidatedCall,
        prefix: Prefix,
        caller: Caller,
        answer: ResolveApproval,
    ) -> PolicyDecision:
        """Whether the rules let this caller answer so; the caller is the token's, not the message's."""
        admitted = self._available(asked)
        if isinstance(admitted, Refused):
            return PolicyDecision(
                answer="allow" if answer.decision == "deny" else "deny",
                reason_code="cannot_run",
                reason=f"{asked.proposal.tool} could not run any more: {admitted.reason}",
                policies=(),
                version=self._policy.version,
            )
        facts = self._facts(run, prefix, admitted)
        return self._decide(
            msgspec.structs.replace(
                policy_request(admitted, facts),
                action="approval.decide",
                principal=caller.principal,
                role=caller.role,
                decision=answer.decision,
                scope=answer.scope,
            )
        )

    def find_spec(self, tool: str) -> ToolSpec | None:
        """The tool as the catalogue has it now."""
        return self._toolbox.catalogue().tools.get(tool)


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


def _hand_to_client(admitted: CheckedCall, version: str) -> Allow:
    """The word on a call that the daemon does not run: it goes to whoever declared the tool."""
    return Allow(
        reason_code="client_tool",
        reason=f"the client declared {admitted.spec.name} and runs it itself",
        policies=(),
        version=version,
    )
