"""Event kinds about one tool call: proposal, verdict, question, execution, attestation."""

from typing import Any, Literal

import msgspec

from palyra.core.event import Event
from palyra.core.records import ApprovalScope
from palyra.core.tools import OutcomeStatus
from palyra.core.trust import Trust


class ToolProposed(Event, frozen=True, kw_only=True, gc=False):
    """Preparation of one call began."""

    KIND = "tool.proposed"
    call_id: str
    tool: str
    arguments: Any
    digest: str  # SHA-256 of the canonical arguments
    tool_class: str = msgspec.field(name="class")
    coercions: tuple[str, ...] = ()
    may_rerun: bool = False  # without an outcome after a crash: start again, or outcome unknown
    path_key: str | None = None  # calls with equal keys never overlap
    executor: str = "none"
    enforcement: str = "none"
    inspects: bool = False  # what the call would meet is looked at before a person is asked


class ToolRejected(Event, frozen=True, kw_only=True, gc=False):
    """The call was malformed; the model may repair it."""

    KIND = "tool.rejected"
    call_id: str
    reason: str
    repair_hint: str


class ToolDecided(Event, frozen=True, kw_only=True, gc=False):
    """The gate's last word."""

    KIND = "tool.decided"
    call_id: str
    verdict: Literal["allow", "deny"]
    reason_code: str
    reason: str
    policies: tuple[str, ...]
    policy_version: str
    taint: bool = False
    approval_id: str | None = None  # of an identical call before it, whose answer was for both
    grant_id: str | None = None  # the person's earlier word it rests on


class ApprovalRequested(Event, frozen=True, kw_only=True, gc=False):
    """A person is asked."""

    KIND = "approval.requested"
    approval_id: str
    call_id: str
    tool: str
    risk: str
    summary: str
    arguments: Any
    digest: str  # SHA-256 of the canonical execution object
    scopes: tuple[ApprovalScope, ...]
    default: Literal["deny"] = "deny"
    expires_ms: int
    policy_reason: str
    policy_version: str = ""
    grant_key: str = ""  # what an answer beyond once would hold for
    covers: tuple[str, ...] = ()  # the call and its twins in the turn; the answer is for all
    inspection: Any = None  # what the call would meet
    once_because: str = ""  # why no wider scope is offered; "": one is


class ApprovalResolved(Event, frozen=True, kw_only=True, gc=False):
    """The question is settled, by a person, a deadline, other rules or the end of the run."""

    KIND = "approval.resolved"
    approval_id: str
    call_id: str
    decision: Literal["allow", "deny", "abort"]
    scope: ApprovalScope
    by: str
    reason: str
    grant_id: str | None = None  # the grant that the answer makes, with its end
    grant_expires_ms: int | None = None


class ToolStarted(Event, frozen=True, kw_only=True, gc=False):
    """The call is about to take effect; committed before it does."""

    KIND = "tool.started"
    HAS_FOREIGN_TEXT = False
    call_id: str
    executor: str
    enforcement: str
    batch: int
    approval_id: str | None = None


class ToolCompleted(Event, frozen=True, kw_only=True, gc=False):
    """What came of it."""

    KIND = "tool.completed"
    call_id: str
    status: OutcomeStatus
    output: str
    truncated: bool = False
    duration_ms: int = 0
    artifact: str | None = None
    error: str | None = None
    trust: Trust = "workspace"
    findings: tuple[str, ...] = ()  # of the scanner for injected instructions


class ToolAttested(Event, frozen=True, kw_only=True, gc=False):
    """The signed digest that ends every call."""

    KIND = "tool.attested"
    call_id: str
    attestation: dict[str, Any]
    digest: str  # SHA-256 of the canonical attestation, hex; the next one's `prev`
    signature: str  # Ed25519 over that digest's bytes, base64
