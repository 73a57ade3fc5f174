"""What the gate asks of the rules and what the rules answer."""

from typing import Literal

import msgspec

from palyra.core.tool.call_facts import NO_PATHS, PathFacts, read_paths
from palyra.core.tool.spec import NO_FACETS, CallFacts

Answer = Literal["allow", "ask", "deny"]
Action = Literal["tool.execute", "skill.execute", "approval.decide"]
Standing = Literal["none", "granted"]  # of a person's earlier word


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question: may this principal do this with this tool's call?"""

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
    known_paths: PathFacts = NO_PATHS  # of the facets, if they were read already
    size_bytes: int = 0  # of the canonical arguments
    in_scope: bool = True  # False: a tool that the parent run did not hand down
    approval: Standing = "none"
    now_ms: int = 0
    decision: Literal["allow", "deny"] | None = None  # approval.decide: what is answered
    scope: str | None = None  # approval.decide: for how long

    @property
    def paths(self) -> PathFacts:
        """What is known of the paths it names."""
        named, known = self.facets.paths, self.known_paths
        return known if known.of is named else read_paths(named)


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The rules' answer, with everything a person needs to understand it."""

    answer: Answer
    reason_code: str  # allowed | asks | denied | no_rule | policy_error | …
    reason: str  # one sentence, names the rule and the setting that would change it
    policies: tuple[str, ...]  # ids of the determining rules
    version: str


class Explanation(PolicyDecision, frozen=True, kw_only=True, omit_defaults=True):
    """What would come of a call: the rules' answer, and what people have said before."""

    risk: str | None = None  # of what would be asked
    scopes: tuple[str, ...] = ()  # that an answer could have
    grant_key: str = ""  # what an answer beyond once would hold for
