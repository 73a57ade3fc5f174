"""The life of one tool call: its phases, the events that move it, and the state of one call.

A call is an entry of the turn that the model completed.  It ends in exactly one attestation,
whatever happens in between:

    named -> proposed
    proposed -> rejected | asking | allowed | denied
    asking -> proposed | allowed | denied
    allowed -> started | denied | attested
    started -> completed
    rejected, denied, completed -> attested

- `named`: the model asked for it; nothing is checked yet.  A run may end with calls still named:
  they have no effect and need no attestation.
- `proposed`: its arguments are on the tape.  The verdict usually follows in the same step; the call
  stays proposed only while its targets are inspected.
- `rejected`: the model has to repair it.  `denied`: rules or a person refused it.
- `asking`: an approval request is pending.  The answer (`approval.resolved` with allow or deny)
  does not move the call: the verdict that follows does, because the rules have the last word.  A
  request that is withdrawn (abort) puts the call back to proposed.
- `allowed`: it may start.  It is denied after all if its approval expires, its grant ends or the
  rules change before the start, and it is attested without a start if the run ends first or the
  client is the one to execute it.
- `started`: the executor may have acted.  After a crash the call is started again only if its tool
  permits that; otherwise its outcome is recorded as unknown.
- `completed`: the outcome is on the tape.  `attested`: so is its signed digest; nothing follows.

`CALL_TRANSITIONS` is the drawing as data.  Two kinds of event have more than one row, distinguished by
the verdict or decision they carry.  The fold rejects every pair that is not in the table.
"""

from typing import Any, Literal

import msgspec

from palyra.core.model.images import Picture
from palyra.core.policy.questions import ASK_USER
from palyra.core.tape import events as ev
from palyra.core.tool.spec import CLIENT
from palyra.core.trust.labels import Trust

CallPhase = Literal[
    "named",
    "proposed",
    "rejected",
    "asking",
    "allowed",
    "denied",
    "started",
    "completed",
    "attested",
]


def _from(*phases: CallPhase) -> frozenset[CallPhase]:
    return frozenset(phases)


# (kind of event, its verdict or decision) -> (phases it is legal in, phase after it)
CALL_TRANSITIONS: dict[tuple[type[ev.Event], str], tuple[frozenset[CallPhase], CallPhase]] = {
    (ev.ToolProposed, ""): (_from("named"), "proposed"),
    (ev.ToolRejected, ""): (_from("proposed"), "rejected"),
    (ev.ApprovalRequested, ""): (_from("proposed"), "asking"),
    (ev.ApprovalResolved, "allow"): (_from("asking"), "asking"),
    (ev.ApprovalResolved, "deny"): (_from("asking"), "asking"),
    (ev.ApprovalResolved, "abort"): (_from("asking"), "proposed"),
    (ev.ToolDecided, "allow"): (_from("proposed", "asking"), "allowed"),
    (ev.ToolDecided, "deny"): (_from("proposed", "asking", "allowed"), "denied"),
    (ev.ToolStarted, ""): (_from("allowed"), "started"),
    (ev.ToolCompleted, ""): (_from("started"), "completed"),
    (ev.DelegationStarted, ""): (_from("started"), "started"),
    (ev.DelegationEnded, ""): (_from("completed"), "completed"),
    (ev.ToolAttested, ""): (_from("rejected", "denied", "allowed", "completed"), "attested"),
}
CLOSED: frozenset[CallPhase] = _from("named", "attested")  # phases of the calls of an ended run


class DelegatedRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The run that a call delegates its task to."""

    run_id: str
    budget: ev.Budget
    is_ended: bool = False  # its end is on this tape


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool call of the current turn."""

    call_id: str
    tool: str
    arguments: Any  # as on the tape: redacted
    phase: CallPhase = "named"
    tool_class: str = "unknown"
    digest: str = ""  # of the canonical arguments
    approval_id: str | None = None
    approval_digest: str = ""
    approval_expires_ms: int = 0
    covers: tuple[str, ...] = ()  # ids of all calls that the approval is for, if several
    answer: str = ""  # to its approval request: allow, deny
    answered_by: str = ""
    policy_version: str = ""
    grant_id: str | None = None  # the grant it was allowed by
    started_ms: int = 0
    executor: str = "none"
    enforcement: str = "none"
    may_rerun: bool = False
    path_key: str | None = None
    batch: int = 0
    status: str = ""
    output: str = ""
    trust: Trust = "trusted_local"  # of `output`; before the tool's output, text of the daemon
    findings: tuple[str, ...] = ()
    artifact: str | None = None  # name of the whole output, if `output` is an excerpt
    pictures: tuple[Picture, ...] = ()
    output_sha256: str = ""
    delegated: DelegatedRun | None = None

    @property
    def is_question(self) -> bool:
        """True if the model asks a person; a tool of the client may have the same name."""
        return self.tool == ASK_USER and self.executor != CLIENT
