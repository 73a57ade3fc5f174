"""The gate: may this proposed call run?  Allow | Deny | NeedsApproval.

Three steps, each with the result of the one before:

    admit(proposal, catalogue)        -> Admitted | Refused     intake
    policy.decide(policy_request(…))  -> PolicyDecision         the rules
    judge(admitted, facts, decision)  -> Verdict                everything together

A person is asked only when everything else says yes, and only about what can be shown in full.
What is approved is the digest of the execution object (`core.execution`).
"""

from typing import Any, Literal

import msgspec

from palyra.core.journal.records import ApprovalScope, GrantRecord
from palyra.core.policy.grants import BEYOND_ONCE, ONCE, describe_key, why_once
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.policy.validation import CheckedCall
from palyra.core.tape.events import ApprovalMode, ApprovalRequested
from palyra.core.text.visible import least_chars, render_call, render_json
from palyra.core.tool.risk import compute_risk, is_sensitive
from palyra.core.tool.spec import SHARED_HOST, Preflight, Risk, ToolCall
from palyra.errors import InvariantBroken

MAX_PENDING_PER_PRINCIPAL = 32


PROMPT_CAP_BYTES = 16_384  # of rendered arguments: what a person can still be asked to read
UNATTENDED = frozenset({"background"})  # origins where nobody is there to ask


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
    """It may run now."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str  # of the rules
    grant_id: str | None = None  # the person's earlier word it rests on


class Deny(msgspec.Struct, frozen=True, kw_only=True, tag="deny"):
    """It may not; the reason names the setting that would change it."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str
    grant_id: str | None = None  # the person's earlier word it rests on


class NeedsApproval(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A person must say yes first."""

    reason_code: str
    reason: str
    policies: tuple[str, ...]
    version: str
    risk: Risk
    summary: str  # one line, safe to show
    rendered: str  # what a person has to read, complete and safe to show
    scopes: tuple[ApprovalScope, ...] = ONCE
    grant_key: str = ""  # what an answer beyond once would hold for
    once_because: str = ""  # why no wider scope is offered; "": one is
    subject: ApprovalSubject = "tool_call"


Verdict = Allow | Deny | NeedsApproval


# --- rules ---------------------------------------------------------------------------------------


class GateContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate must know of the run; `denied` holds the proposals a person refused in it."""

    run_id: str
    session_id: str
    principal: str
    role: str
    agent: str
    agent_labels: tuple[str, ...] = ()
    origin: str = "interactive"
    approval_mode: ApprovalMode = "ask"
    is_tainted: bool = False
    depth: int = 0
    denied: frozenset[tuple[str, str]] = frozenset()
    pending_approvals: int = 0  # of the principal, over all runs
    end: str = ""  # why the model will not be asked again, so that no result reaches it
    handed_down: frozenset[str] | None = None  # tools of a delegated run; None: not delegated
    grant: GrantRecord | None = None  # a person's earlier word on calls with this one's key
    now_ms: int = 0

    def hands_down(self, tool: str) -> bool:
        """Whether the run that delegated, if one did, let this tool go with it."""
        return self.handed_down is None or tool in self.handed_down

    @property
    def is_attended(self) -> bool:
        """Whether somebody can be asked."""
        return self.approval_mode == "ask" and self.origin not in UNATTENDED


def policy_request(admitted: CheckedCall, facts: GateContext) -> PolicyRequest:
    """The question to the rules."""
    spec = admitted.spec
    return PolicyRequest(
        action="skill.execute" if spec.name.startswith("wasm:") else "tool.execute",
        principal=facts.principal,
        owner=facts.principal,
        role=facts.role,
        agent=facts.agent,
        agent_labels=facts.agent_labels,
        session_id=facts.session_id,
        run_id=facts.run_id,
        origin=facts.origin,
        tool=spec.name,
        tool_class=spec.tool_class,
        risk=compute_risk(spec, is_tainted=facts.is_tainted),
        capabilities=spec.capabilities,
        is_tainted=facts.is_tainted,
        depth=facts.depth,
        facets=admitted.facets,
        known_paths=admitted.paths,
        size_bytes=admitted.size_bytes,
        in_scope=facts.hands_down(spec.name),
        approval="none" if facts.grant is None or facts.grant.decision == "deny" else "granted",
        now_ms=facts.now_ms,
    )


# --- verdict -------------------------------------------------------------------------------------


def judge(
    admitted: CheckedCall,
    facts: GateContext,
    decision: PolicyDecision,
    inspection: Preflight | None = None,
) -> Verdict:
    """The last word before a person: a denial always denies, a doubt turns a yes into a question.

    An earlier word of a person stands in for another question, but not where a doubt asks it.
    """
    if not facts.hands_down(admitted.spec.name):
        return _deny(decision, "outside_delegation", _outside_text(admitted.spec.name))
    if decision.answer == "deny":
        return _deny(decision, decision.reason_code, decision.reason)
    grant = facts.grant
    if grant is not None and grant.decision == "deny":
        return _deny(decision, "denied_by_grant", _denied_text(grant), grant.grant_id)
    doubt = _doubt(admitted, facts)
    if decision.answer == "allow" and doubt is None:
        return _allow(decision, decision.reason_code, decision.reason)
    if grant is not None and doubt is None:
        reason = f"{grant.by} allowed {grant.tool} for {describe_key(grant.key)} ({grant.scope})"
        return _allow(decision, "granted", reason, grant.grant_id)
    if decision.answer == "allow" and doubt is not None:
        code, reason = doubt
        decision = msgspec.structs.replace(decision, answer="ask", reason_code=code, reason=reason)
    return _ask(admitted, facts, decision, inspection)


def _ask(
    admitted: CheckedCall,
    facts: GateContext,
    decision: PolicyDecision,
    inspection: Preflight | None,
) -> Deny | NeedsApproval:
    obstacle = _obstacle(admitted, facts)
    if obstacle is not None:
        return _deny(decision, *obstacle)
    shown = _shown(admitted, inspection)
    rendered = render_json(shown) if least_chars(shown) <= PROMPT_CAP_BYTES else None
    if rendered is None or len(rendered.encode()) > PROMPT_CAP_BYTES:
        return _deny(decision, "unshowable", _unshowable_text(admitted))
    key, doubt = admitted.facets.grant_key, _doubt(admitted, facts)
    once_because = doubt[1] if doubt else why_once(admitted.spec.name, key)
    return NeedsApproval(
        reason_code=decision.reason_code,
        reason=decision.reason,
        policies=decision.policies,
        version=decision.version,
        risk=compute_risk(admitted.spec, is_tainted=facts.is_tainted),
        summary=render_call(admitted.spec.name, admitted.arguments),
        rendered=rendered,
        scopes=ONCE if once_because else BEYOND_ONCE,
        grant_key="" if once_because else key,
        once_because=once_because,
    )


def _shown(admitted: CheckedCall, inspection: Preflight | None) -> dict[str, Any]:
    if inspection is None:
        return admitted.arguments
    return {"arguments": admitted.arguments, "inspection": msgspec.to_builtins(inspection)}


def _obstacle(admitted: CheckedCall, facts: GateContext) -> tuple[str, str] | None:
    """Why nobody is asked: reason code and reason."""
    if not facts.is_attended:
        return "no_approver", (
            f"{admitted.spec.name} needs an approval and nobody can give one to a run with origin "
            f"{facts.origin!r} and approval mode {facts.approval_mode!r}; a rule that permits the "
            "call would"
        )
    if facts.end:
        return "budget_spent", f"{facts.end}, so nobody is asked: the run ends with this turn"
    if admitted.proposal in facts.denied:
        return "denied_before", "a person denied this very call earlier in the run"
    if facts.pending_approvals >= MAX_PENDING_PER_PRINCIPAL:
        return "too_many_prompts", (
            f"{facts.pending_approvals} questions already wait for an answer "
            f"(limit {MAX_PENDING_PER_PRINCIPAL}); resolve some first"
        )
    if admitted.size_bytes > PROMPT_CAP_BYTES:  # rendering never makes it smaller
        return "unshowable", _unshowable_text(admitted)
    return None


def _unshowable_text(admitted: CheckedCall) -> str:
    return (
        f"the arguments of {admitted.spec.name} cannot be shown in full within "
        f"{PROMPT_CAP_BYTES} bytes, and what is not shown is not approved; use smaller pieces"
    )


def _doubt(admitted: CheckedCall, facts: GateContext) -> tuple[str, str] | None:
    """Why a person decides each time, whatever rules and grants say: reason code and reason."""
    if facts.is_tainted and is_sensitive(admitted.spec):
        return "tainted", (
            "untrusted text with findings reached this run: beyond reading, a person decides"
        )
    if SHARED_HOST in admitted.spec.capabilities:
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
    admitted: CheckedCall, facts: GateContext, inspection: Preflight | None = None
) -> ToolCall:
    """The call as the executor gets it."""
    return ToolCall(
        call_id=admitted.call_id,
        run_id=facts.run_id,
        session_id=facts.session_id,
        principal=facts.principal,
        tool=admitted.spec.name,
        tool_version=admitted.spec.version,
        arguments=admitted.arguments,
        inspection=inspection,
    )
