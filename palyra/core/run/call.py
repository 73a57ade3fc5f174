from typing import Any, Literal

import msgspec

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
    covers: tuple[str, ...] = ()  # calls the approval is for, when there are several
    answer: str = ""  # to its question: allow, deny
    answered_by: str = ""
    policy_version: str = ""
    grant_id: str | None = None  # the person's earlier word it was allowed on
    started_ms: int = 0
    executor: str = "none"
    enforcement: str = "none"
    may_rerun: bool = False
    path_key: str | None = None
    batch: int = 0
    status: str = ""
    output: str = ""
    trust: Trust = "trusted_local"  # of `output`: until the tool gave one, the daemon's own words
    findings: tuple[str, ...] = ()
    output_sha256: str = ""
