"""What the gate asks of the rules and what the rules answer."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Answer = Literal["allow", "ask", "deny"]


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question: may this principal's run do this with this tool, with these arguments?"""

    action: str  # tool.execute, approval.decide, …
    principal: str
    role: str
    agent: str
    session_id: str
    run_id: str
    origin: str  # interactive | background | delegated | compat
    tool: str
    tool_class: str
    risk: str
    capabilities: tuple[str, ...]
    arguments: Mapping[str, Any]
    agent_labels: tuple[str, ...] = ()
    is_tainted: bool = False
    depth: int = 0
    paths: tuple[str, ...] = ()  # the path arguments, as proposed
    size_bytes: int = 0  # of the canonical arguments


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The rules' answer, with everything a person needs to understand it."""

    answer: Answer
    reason_code: str  # allowed | asks | denied | no_rule | policy_error | …
    reason: str  # one sentence, names the rule and the setting that would change it
    policies: tuple[str, ...]  # ids of the determining rules
    version: str
