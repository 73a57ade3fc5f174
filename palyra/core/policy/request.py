"""The request to the rules and their decision."""

from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.tool.paths import NO_PATHS, PathFacts, read_paths
from palyra.core.tool.spec import NO_FACETS, CallFacts

Answer = Literal["allow", "ask", "deny"]
Action = Literal["tool.execute", "skill.execute", "approval.decide"]
_STRICTNESS: dict[Answer, int] = {"allow": 0, "ask": 1, "deny": 2}
Standing = Literal["none", "granted"]  # "granted": a grant allows the call


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """May this principal execute this call?"""

    action: Action
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
    owner: str  # the principal the run belongs to
    agent_labels: tuple[str, ...] = ()
    is_tainted: bool = False
    depth: int = 0
    facets: CallFacts = NO_FACETS
    known_paths: PathFacts = NO_PATHS  # derived from the facets, if cached
    size_bytes: int = 0  # of the canonical arguments
    digest: str = ""  # SHA-256 of the canonical arguments
    in_scope: bool = True  # False: the delegating run did not hand the tool down
    approval: Standing = "none"
    now_ms: int = 0
    workspace: str = DEFAULT_WORKSPACE  # by name
    decision: Literal["allow", "deny"] | None = None  # approval.decide: the answer
    scope: str | None = None  # approval.decide: the scope of the answer

    @property
    def paths(self) -> PathFacts:
        """Facts about the paths in the call."""
        named, known = self.facets.paths, self.known_paths
        return known if known.of is named else read_paths(named)


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of the rules, with the reason for people."""

    answer: Answer
    reason_code: str  # allowed | asks | denied | no_rule | policy_error | …
    reason: str  # one sentence, names the rule and the setting that would change it
    policies: tuple[str, ...]  # ids of the determining rules
    version: str


class Explanation(PolicyDecision, frozen=True, kw_only=True, omit_defaults=True):
    """Predicted verdict on a call, from the rules and the grants."""

    risk: str | None = None  # of the question
    scopes: tuple[str, ...] = ()  # of the answer
    grant_key: str = ""  # scope key of an answer beyond once


def decide_parts(
    request: PolicyRequest, decide: Callable[[PolicyRequest], PolicyDecision]
) -> PolicyDecision:
    """Decide a request; a line of plain calls by each of them, and the strictest decision holds.

    The line as a whole can be denied.
    """
    whole = decide(request)
    parts = request.facets.parts
    if not parts or whole.answer == "deny" or request.action == "approval.decide":
        return whole
    change = msgspec.structs.replace
    return strictest([decide(change(request, facets=part, known_paths=NO_PATHS)) for part in parts])


def strictest(decisions: Collection[PolicyDecision]) -> PolicyDecision:
    """Return the first of the strictest decisions."""
    return max(decisions, key=lambda each: _STRICTNESS[each.answer])
