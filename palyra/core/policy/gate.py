"""The gate: may a proposed call run?  Allow | Deny | NeedsApproval.

A verdict takes three steps, each with the result of the one before:

    validate(proposal, catalogue)       -> CheckedCall | Refused   tool, arguments, facts
    policy.decide(policy_request(...))  -> PolicyDecision          the rules
    judge(checked, context, decision)   -> Verdict                 rules, grants, doubts, obstacles

`services.policy.gate.Gate.evaluate` runs them in this order, without waiting, and returns a `GatedCall`.
All work that grows with the size of the arguments is in the first step, which may run in a worker
thread before the run decides on the turn.  An approval is requested only if nothing else forbids
the call, and only if what it depends on can be shown in full.  The approval is bound to the digest of
the execution object (`core.tool.attestation`).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    ApprovalScope,
    GrantRecord,
    SessionMode,
)
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.grants import ONCE, describe_key, scopes_of, why_once
from palyra.core.policy.modes import (
    ACCEPT_EDITS,
    PLAN_MODE,
    PROPOSE_PLAN,
    find_plan_refusal,
    session_of_edits,
)
from palyra.core.policy.questions import ASK_USER
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.tape.events import ApprovalMode, ApprovalRequested
from palyra.core.text.canonical_json import digest_of_any, sha256_hex
from palyra.core.text.visible import least_chars, render_call
from palyra.core.tool.arguments import Accepted, Refused, check_arguments, refusal, unknown_tool
from palyra.core.tool.paths import NO_PATHS, PathFacts, composed, normal_path, read_paths
from palyra.core.tool.spec import (
    CLIENT,
    MEMORY_WRITE,
    NO_FACETS,
    SHARED_HOST,
    CallFacts,
    Catalogue,
    Preflight,
    Risk,
    ToolCall,
    ToolSpec,
    compute_risk,
    is_sensitive,
    path_facets,
)
from palyra.core.trust.labels import Trust, is_from_outside
from palyra.errors import InvariantBroken

MAX_PENDING_PER_PRINCIPAL = 32
INSPECTION_CAP_BYTES = 16_384  # of what a call depends on; arguments have the cap of their tool
LIGHT_CHARS = 512  # of the arguments of a turn; every word of a command is examined
_MARK = re.compile(rb"\[redacted:[a-z][a-z0-9_]*\]")

# --- verdicts ------------------------------------------------------------------------------------

# What an approval is about.  A stored request names a call if its subject is a tool call; otherwise
# its `tool` field holds the subject.
ApprovalSubject = Literal["tool_call", "budget"]


def find_subject(asked: ApprovalRequested) -> ApprovalSubject:
    """Return the subject of a stored approval request.  Raises InvariantBroken for an unknown one."""
    if asked.call_id:
        return "tool_call"
    if asked.tool == "budget":
        return "budget"
    raise InvariantBroken(f"{asked.approval_id} is about {asked.tool!r}, which is no known subject")


class Allow(msgspec.Struct, frozen=True, kw_only=True, tag="allow"):
    """The call may run."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str  # of the rules
    grant_id: str | None = None  # the grant that decided


class Deny(msgspec.Struct, frozen=True, kw_only=True, tag="deny"):
    """The call may not run; the reason names the setting that would change that."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str
    grant_id: str | None = None  # the grant that decided


class NeedsApproval(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """The call may run once a person has approved it."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str
    risk: Risk
    summary: str  # one line, safe to show
    scopes: tuple[ApprovalScope, ...] = ONCE
    grant_key: str = ""  # scope key of an answer beyond once
    once_because: str = ""  # why no wider scope is offered; "" if one is
    subject: ApprovalSubject = "tool_call"


Verdict = Allow | Deny | NeedsApproval

# --- validation ----------------------------------------------------------------------------------


class CheckedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal with valid arguments for a tool of the catalogue."""

    call_id: str
    spec: ToolSpec
    arguments: dict[str, Any]  # after coercion
    digest: str  # SHA-256 of the canonical arguments
    size_bytes: int  # of the canonical arguments
    coercions: tuple[str, ...] = ()
    facets: CallFacts = NO_FACETS
    paths: PathFacts = NO_PATHS  # derived from the facets

    @property
    def path_key(self) -> str | None:
        """Conflict key of the call: the path it works on; "" is the workspace root.

        A call with several paths conflicts with every other in the workspace.
        """
        paths = self.facets.paths
        if len(paths) > 1:
            return ""
        return composed(normal_path(paths[0]) or "") if paths else None

    @property
    def proposal(self) -> tuple[str, str]:
        """Tool and digest of the arguments; equal for two equal proposals."""
        return self.spec.name, self.digest


# Facts about checked arguments; None if the tool was removed or changed since it was shown.
FindFacets = Callable[[ToolSpec, dict[str, Any]], CallFacts | None]


def validate(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets = path_facets
) -> CheckedCall | Refused:
    """Validate a proposal; either result has the digest of the arguments."""
    result = _check(proposal, catalogue, find_facets)
    if isinstance(result, Refused):
        return msgspec.structs.replace(result, digest=digest_of_any(proposal.arguments))
    return result


def _check(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets
) -> CheckedCall | Refused:
    """Check a proposal: the tool exists, the arguments match its schema, no redaction mark."""
    spec = catalogue.tools.get(proposal.tool)
    if spec is None:
        return unknown_tool(proposal.tool, catalogue)
    checked = check_arguments(spec, proposal.arguments)
    if isinstance(checked, Refused):
        return checked
    if spec.executor != CLIENT and is_sensitive(spec):
        mark = _MARK.search(checked.canonical)
        if mark is not None:
            return _redacted(mark[0].decode())
    return _with_facets(proposal, spec, checked, find_facets)


def reconstruct(
    proposal: ProposedCall, catalogue: Catalogue, find_facets: FindFacets
) -> tuple[CheckedCall, bool] | None:
    """Return a recorded call as the rules see it, and True if no secret was redacted from it.

    None if the tool is gone or does not take these arguments any more.
    """
    spec = catalogue.tools.get(proposal.tool)
    if spec is None:
        return None
    checked = check_arguments(spec, proposal.arguments)
    if isinstance(checked, Refused):
        return None
    found = _with_facets(proposal, spec, checked, find_facets)
    if isinstance(found, Refused):
        return None
    return found, _MARK.search(checked.canonical) is None


def _with_facets(
    proposal: ProposedCall, spec: ToolSpec, checked: Accepted, find_facets: FindFacets
) -> CheckedCall | Refused:
    facets = find_facets(spec, checked.arguments)
    if facets is None:
        return tool_unavailable(spec.name)
    return CheckedCall(
        call_id=proposal.call_id,
        spec=_as_called(spec, facets),
        arguments=checked.arguments,
        digest=sha256_hex(checked.canonical),
        size_bytes=len(checked.canonical),
        coercions=checked.coercions,
        facets=facets,
        paths=read_paths(facets.paths),
    )


def tool_unavailable(tool: str) -> Refused:
    """Refuse a call whose tool was removed or changed."""
    return refusal(
        f"{tool} is not available any more, or not as it was shown",
        expected="another tool, or the call again in another run",
    )


def _as_called(spec: ToolSpec, facets: CallFacts) -> ToolSpec:
    """Return the spec of the tool narrowed or widened by this call.

    A call that takes a secret gains the capability `secret`; a dry run counts as a read.
    """
    if facets.only_reads:
        reads: dict[str, Any] = {"tool_class": "read_only_safe", "capabilities": ("fs.read",)}
        return msgspec.structs.replace(spec, risk="low", **reads)
    if not facets.secrets or "secret" in spec.capabilities:
        return spec
    return msgspec.structs.replace(spec, capabilities=(*spec.capabilities, "secret"))


def _redacted(mark: str) -> Refused:
    """Refuse arguments with a redaction mark: the mark is not the secret it replaced."""
    return refusal(
        f"{mark} stands for a secret that was not shown, so the call would not do what it says",
        expected="arguments without it; secrets are named to the daemon (sandbox.environment, "
        "a credential of the tool), files that hold one are changed around it",
    )


def is_light(proposals: Sequence[ProposedCall], catalogue: Catalogue) -> bool:
    """True if validating all of them takes less than a millisecond; otherwise use a thread.

    An unknown tool is not light: the search for the nearest name takes 0.1 ms per known tool.
    """
    if any(proposal.tool not in catalogue.tools for proposal in proposals):
        return False
    left = LIGHT_CHARS
    pending: list[object] = [proposal.arguments for proposal in proposals]
    while pending and left >= 0:
        item = pending.pop()
        left -= 1 + (len(item) if isinstance(item, str | dict | list) else 0)
        if left >= 0 and isinstance(item, dict):
            pending += [*item, *item.values()]
        elif left >= 0 and isinstance(item, list):
            pending += item
    return left >= 0


# --- rules ---------------------------------------------------------------------------------------


class GateContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the run that a verdict depends on."""

    run_id: str
    session_id: str
    principal: str
    role: str
    agent: str
    agent_labels: tuple[str, ...] = ()
    origin: str = "interactive"
    approval_mode: ApprovalMode = "ask"
    is_tainted: bool = False
    input_trust: Trust = "trusted_local"  # lowest label of what the model has read
    depth: int = 0
    denied: frozenset[tuple[str, str]] = frozenset()  # (tool, digest) denied by a person
    pending_approvals: int = 0  # of the principal, over all runs
    end: str = ""  # why the model gets no further turn, so that it reads no result
    handed_down: frozenset[str] | None = None  # tools of a delegated run; None: not delegated
    grant: GrantRecord | None = None  # the grant for calls with the same key
    now_ms: int = 0
    workspace: str = DEFAULT_WORKSPACE
    is_confined: bool = False  # to the conversation of a channel, as are its grants
    mode: SessionMode = "ask"  # of the session

    def hands_down(self, tool: str) -> bool:
        """True unless the run is delegated without this tool."""
        return self.handed_down is None or tool in self.handed_down

    @property
    def is_attended(self) -> bool:
        """True if the run may request approvals."""
        return self.approval_mode == "ask"


def policy_request(checked: CheckedCall, context: GateContext) -> PolicyRequest:
    """Return the request that the rules decide."""
    spec = checked.spec
    return PolicyRequest(
        action="skill.execute" if spec.name.startswith("wasm:") else "tool.execute",
        principal=context.principal,
        owner=context.principal,
        role=context.role,
        agent=context.agent,
        agent_labels=context.agent_labels,
        session_id=context.session_id,
        run_id=context.run_id,
        origin=context.origin,
        tool=spec.name,
        tool_class=spec.tool_class,
        risk=compute_risk(spec, is_tainted=context.is_tainted),
        capabilities=spec.capabilities,
        is_tainted=context.is_tainted,
        depth=context.depth,
        facets=checked.facets,
        known_paths=checked.paths,
        size_bytes=checked.size_bytes,
        digest=checked.digest,
        in_scope=context.hands_down(spec.name),
        approval="none" if context.grant is None or context.grant.decision == "deny" else "granted",
        now_ms=context.now_ms,
        workspace=context.workspace,
    )


# --- verdict -------------------------------------------------------------------------------------


def judge(
    checked: CheckedCall,
    context: GateContext,
    decision: PolicyDecision,
    inspection: Preflight | None = None,
) -> Verdict:
    """Combine rules, grant and doubts: any denial wins, and a doubt turns an allow into a question.

    A grant replaces a question of the rules, but not one that a doubt raises.
    """
    denial = _find_denial(checked, context, decision)
    if denial is not None:
        return denial
    grant, doubt = context.grant, _doubt(checked, context)
    if decision.answer == "allow" and doubt is None:
        return _allow(decision, decision.reason_code, decision.reason)
    if grant is not None and doubt is None:
        code, reason = _granted(grant)
        return _allow(decision, code, reason, grant.grant_id)
    if decision.answer == "allow" and doubt is not None:
        code, reason = doubt
        decision = msgspec.structs.replace(decision, answer="ask", reason_code=code, reason=reason)
    return _ask(checked, context, decision, inspection)


def _find_denial(
    checked: CheckedCall, context: GateContext, decision: PolicyDecision
) -> Deny | None:
    """Return the denial by a delegation, the rules, the mode of the session or a grant."""
    spec, grant = checked.spec, context.grant
    if not context.hands_down(spec.name):
        return _deny(decision, "outside_delegation", _outside_text(spec.name))
    if decision.answer == "deny":
        return _deny(decision, decision.reason_code, decision.reason)
    unplanned = find_plan_refusal(context.mode, spec, checked.facets)
    if unplanned:
        return _deny(decision, PLAN_MODE, unplanned)
    if grant is not None and grant.decision == "deny":
        return _deny(decision, "denied_by_grant", _denied_text(grant), grant.grant_id)
    return None


def _granted(grant: GrantRecord) -> tuple[str, str]:
    """Return reason code and reason of a call that a grant allows."""
    if session_of_edits(grant.grant_id):
        return ACCEPT_EDITS, f"{grant.by} put the session into the mode accept_edits"
    covered = describe_key(grant.key)
    return "granted", f"{grant.by} allowed {grant.tool} for {covered} ({grant.scope})"


def _ask(
    checked: CheckedCall,
    context: GateContext,
    decision: PolicyDecision,
    inspection: Preflight | None,
) -> Deny | NeedsApproval:
    obstacle = _obstacle(checked, context)
    if obstacle is not None:
        return _deny(decision, *obstacle)
    met = msgspec.to_builtins(inspection)
    if least_chars(met) > INSPECTION_CAP_BYTES:
        reason = (
            f"the files and settings that {checked.spec.name} depends on cannot be shown in full "
            f"within {INSPECTION_CAP_BYTES} bytes, and what is not shown is not approved; name fewer"
        )
        return _deny(decision, "unshowable", reason)
    key, doubt = checked.facets.grant_key, _doubt(checked, context)
    once_because = doubt[1] if doubt else why_once(checked.spec.name, key)
    return NeedsApproval(
        reason_code=decision.reason_code,
        reason=decision.reason,
        policies=decision.policies,
        version=decision.version,
        risk=compute_risk(checked.spec, is_tainted=context.is_tainted),
        summary=render_call(checked.spec.name, checked.arguments),
        scopes=scopes_of(is_confined=context.is_confined, is_once=bool(once_because)),
        grant_key="" if once_because else key,
        once_because=once_because,
    )


def _obstacle(checked: CheckedCall, context: GateContext) -> tuple[str, str] | None:
    """Return why no approval can be requested, as reason code and reason."""
    if not context.is_attended:
        return "no_approver", (
            f"{checked.spec.name} needs an approval, which a run with the approval mode "
            f"{context.approval_mode!r} cannot request; a rule that permits the call would do"
        )
    if context.end:
        return "budget_spent", f"{context.end}, so nobody is asked: the run ends with this turn"
    if checked.proposal in context.denied:
        return "denied_before", "a person denied this very call earlier in the run"
    if context.pending_approvals >= MAX_PENDING_PER_PRINCIPAL:
        return "too_many_prompts", (
            f"{context.pending_approvals} questions already wait for an answer "
            f"(limit {MAX_PENDING_PER_PRINCIPAL}); resolve some first"
        )
    return None


def _doubt(checked: CheckedCall, context: GateContext) -> tuple[str, str] | None:
    """Return why a person must decide despite rules and grants, as reason code and reason."""
    if checked.spec.name == PROPOSE_PLAN:
        return "plan", "a person accepts the plan, or denies it with a reason"
    if context.is_tainted and is_sensitive(checked.spec):
        return "tainted", (
            "untrusted text with findings reached this run: beyond reading, a person decides"
        )
    if checked.spec.name == ASK_USER:
        return "question", "a person answers it"
    if MEMORY_WRITE in checked.spec.capabilities and is_from_outside(context.input_trust):
        return "untrusted_input", (
            "the model has read external text: a person decides what is remembered"
        )
    if SHARED_HOST in checked.spec.capabilities:
        return "sandbox_level_b", (
            "programs run without namespaces here (sandbox level B): a person decides on each"
        )
    return None


def _outside_text(tool: str) -> str:
    return (
        f"{tool} is outside what the run that delegated handed down; "
        "the tools named there decide that, and nobody is asked"
    )


def _denied_text(grant: GrantRecord) -> str:
    why = f": {grant.reason}" if grant.reason else ""
    return (
        f"{grant.by} denied {grant.tool} for {describe_key(grant.key)} ({grant.scope}){why}; "
        f"ending {grant.grant_id} would have a person asked again"
    )


def _allow(decision: PolicyDecision, code: str, reason: str, grant_id: str | None = None) -> Allow:
    return Allow(
        reason_code=code,
        reason=reason,
        policies=decision.policies,
        version=decision.version,
        grant_id=grant_id,
    )


def _deny(decision: PolicyDecision, code: str, reason: str, grant_id: str | None = None) -> Deny:
    return Deny(
        reason_code=code, reason=reason, grant_id=grant_id, policies=decision.policies,
        version=decision.version,
    )  # fmt: skip


# --- the call ------------------------------------------------------------------------------------


def tool_call(
    checked: CheckedCall, context: GateContext, inspection: Preflight | None = None
) -> ToolCall:
    """Return the call as the executor gets it."""
    return ToolCall(
        call_id=checked.call_id,
        run_id=context.run_id,
        session_id=context.session_id,
        principal=context.principal,
        tool=checked.spec.name,
        tool_version=checked.spec.version,
        arguments=checked.arguments,
        inspection=inspection,
        workspace=context.workspace,
    )
