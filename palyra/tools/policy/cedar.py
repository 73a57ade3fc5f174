"""Policy decisions with Cedar (https://docs.cedarpolicy.com): allow, ask or deny, with a reason.

A decision has these steps:
1. Deny a sensitive request if no valid set of user policies has been loaded yet.
2. Map the request to a Cedar question (`request_mapping`).
3. Return the cached decision if the attributes that the rules read are equal (`mentions`).
4. Ask the engine.  A forbid of any layer denies.  Otherwise the permits of the highest layer
   decide: ask if one of them requires an approval, else allow.  Without a permit, deny.

Fail closed: an error in a rule, a request outside the schema and an engine error all deny.  Cedar
itself skips a rule with an error, so an erroring forbid would otherwise permit.

A reload replaces the whole rule set at once.  A broken user file leaves the last valid set in
force.  If there is none yet, only calls of class `read_only_safe` without capabilities are
evaluated, with the shipped rules.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import cedarpy
import msgspec

from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.questions import ASK_USER
from palyra.core.policy.request import Answer, PolicyDecision, PolicyRequest
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.paths import PathFacts, composed
from palyra.tools.policy.mentions import Mentions, mentions_paths, values_of
from palyra.tools.policy.request_mapping import Context, Facts, build_entities, facts, question
from palyra.tools.policy.rules import (
    Fingerprint,
    PolicyFile,
    PolicyRule,
    RuleSet,
    build_rules,
    folder_fingerprint,
    read_policy_files,
    shipped_files,
)
from palyra.tools.policy.text import BrokenPolicy

_ENTITY_SETS = 512  # parsed entity sets in the cache, by (principal, agent, tool)
_ERROR_CHARS = 300
_KNOWN = 4_096  # cached decisions
# Limits of context.paths, if a rule reads it.  The engine needs some 4 microseconds a path and
# blocks the whole process meanwhile.
MAX_PATHS = 512
MAX_PATH_CHARS = 65_536


@dataclass(frozen=True, slots=True)
class _ActiveRules:
    """The active rule set and its decision cache; replaced as a whole."""

    rules: RuleSet
    version: str
    is_degraded: bool  # no valid user policies were loaded since the start
    problems: tuple[str, ...]
    # Decisions under these rules; a decision depends only on its key.
    known: dict[tuple[object, ...], PolicyDecision] = field(default_factory=dict)


class CedarPolicy:
    """`core.ports.Policy` over the shipped rules and a folder of user policies.

    `decide` must be called from one thread; `reload` may run concurrently in another thread.
    """

    def __init__(
        self,
        user_folder: Path | None = None,
        state: Iterable[Path] = (),
        extra: Sequence[PolicyFile] = (),
    ) -> None:
        """`state` lists the daemon's own paths, which no call may access; `extra` are more files."""
        self._user_folder = user_folder
        self._extra = list(extra)
        self._had_folder = False
        self._seen: Fingerprint = None
        self._state = tuple(str(place) for place in state)
        self._shipped = shipped_files()
        self._entities = lru_cache(maxsize=_ENTITY_SETS)(build_entities)
        self._active = self._load_first()

    @property
    def version(self) -> str:
        """SHA-256 of all rules and the schema, in hex."""
        return self._active.version

    @property
    def problems(self) -> tuple[str, ...]:
        """Errors in the current user policies; empty if they are in force."""
        return self._active.problems

    def refresh(self) -> None:
        """Reload the user policies if their files changed since the last read (blocks)."""
        if self._user_folder is not None and folder_fingerprint(self._user_folder) != self._seen:
            self.reload()

    def reload(self) -> bool:
        """Reload the user policies (blocks); False if they are broken, see `problems`."""
        try:
            self._active = _activate(self._read())
        except BrokenPolicy as broken:
            kept = self._active
            self._active = _ActiveRules(
                kept.rules, kept.version, kept.is_degraded, (broken.message,)
            )
            return False
        return True

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        """Decide a request: allow, ask or deny.  Every error results in deny with a reason."""
        active = self._active
        is_harmless = request.tool_class == "read_only_safe" and not request.capabilities
        if active.is_degraded and not is_harmless:
            reason = f"the user policies are broken ({active.problems[0]}); repair or remove them"
            return _decision("deny", "policy_broken", reason, (), active.version)
        about = facts(request)
        shows_paths = mentions_paths(active.rules.mentions)
        if shows_paths and (excess := _excess(request.paths)):
            return _decision("deny", "too_many_paths", excess, (), active.version)
        try:
            asked, context = question(
                request,
                self._state,
                shows_paths=shows_paths,
                shows_words=active.rules.reads_words,
            )
        except ValueError as error:  # a fact outside the schema
            return _error(str(error), active.version)
        key = _key(request, about, context, active.rules.mentions)
        known = None if key is None else active.known.get(key)
        if known is not None:
            return known
        decision = self._ask_engine(active, request, asked)
        if key is not None:
            if len(active.known) >= _KNOWN:
                active.known.clear()
            active.known[key] = decision
        return decision

    def with_rules(self, rules: Sequence[str]) -> "CedarPolicy":
        """Return a policy with these texts among the user policies (blocks); see its `problems`."""
        extra = [PolicyFile("user", f"suggested{n}", rule) for n, rule in enumerate(rules)]
        return CedarPolicy(self._user_folder, map(Path, self._state), extra)

    def find_permits(
        self, rules: Sequence[str], requests: Iterable[PolicyRequest]
    ) -> Iterator[frozenset[str]]:
        """Yield for each request the @id of each of these permits that would allow it (blocks).

        The rules are evaluated alone, without a forbid or another permit of the daemon.  A request
        that the engine cannot decide is allowed by all of them, so a proof that needs a no fails.
        """
        policies = cedarpy.PolicySet.from_str(composed("\n".join(rules)), release_gil=True)
        every = frozenset(_labels(rules))
        for request in requests:
            try:
                asked, _ = question(request, self._state, shows_paths=False)
                entities = build_entities(*facts(request))
                result = cedarpy.is_authorized(asked, policies, entities)
            except ValueError:
                yield every
                continue
            if result.diagnostics.errors:
                yield every
                continue
            labels = result.diagnostics.id_annotations_by_reason
            yield frozenset(labels[key] or "" for key in result.diagnostics.reasons)

    def _ask_engine(
        self, active: _ActiveRules, request: PolicyRequest, asked: dict[str, Any]
    ) -> PolicyDecision:
        try:
            entities = self._entities(*facts(request))
            result = cedarpy.is_authorized(asked, active.rules.policies, entities)
        except ValueError as error:  # an id or a fact that the engine rejects
            return _error(str(error), active.version)
        if result.diagnostics.errors:
            return _error(result.diagnostics.errors[0], active.version)
        return _answer(active, request, result)

    def _read(self) -> list[PolicyFile]:
        """Read all files; the fingerprint is taken first, so that no later change is missed."""
        folder = self._user_folder
        if folder is None:
            return self._shipped + self._extra
        self._seen = folder_fingerprint(folder)
        if self._had_folder and self._seen is None:
            raise BrokenPolicy(f"{folder} is gone; its last policies stay in force")
        self._had_folder = self._had_folder or self._seen is not None
        return self._shipped + read_policy_files(folder, "user") + self._extra

    def _load_first(self) -> _ActiveRules:
        try:
            return _activate(self._read())
        except BrokenPolicy as broken:
            rules = build_rules(self._shipped)
            version = sha256_hex(b"degraded " + rules.version.encode())
            return _ActiveRules(rules, version, is_degraded=True, problems=(broken.message,))


def _activate(files: list[PolicyFile]) -> _ActiveRules:
    rules = build_rules(files)
    return _ActiveRules(rules, rules.version, is_degraded=False, problems=())


def _key(
    request: PolicyRequest, about: Facts, context: Context, mentions: Mentions
) -> tuple[object, ...] | None:
    """Return the cache key of a decision; None if it depends on the whole context."""
    if mentions is None:
        return None
    return (request.action, about, *values_of(context, mentions))


def _excess(paths: PathFacts) -> str:
    """Return why the list of paths is too large for the engine, "" if it is not."""
    if len(paths.inside) <= MAX_PATHS and sum(map(len, paths.inside)) <= MAX_PATH_CHARS:
        return ""
    return (
        f"a rule looks at context.paths, and the call names {len(paths.inside)} of them; it may have "
        f"{MAX_PATHS}, of {MAX_PATH_CHARS} characters together: put the words into a script file"
    )


def _labels(rules: Sequence[str]) -> Iterator[str]:
    """Yield the @id of each rule."""
    for rule in rules:
        parsed = msgspec.json.decode(cedarpy.policies_to_json_str(rule))
        for policy in parsed["staticPolicies"].values():
            yield policy["annotations"]["id"]


# --- answers -------------------------------------------------------------------------------------


def _answer(
    active: _ActiveRules, request: PolicyRequest, result: cedarpy.AuthzResult
) -> PolicyDecision:
    found = {key: active.rules.rules[key] for key in result.diagnostics.reasons}
    labels = result.diagnostics.id_annotations_by_reason
    if any(labels.get(key) != rule.label for key, rule in found.items()):
        return _error("the engine numbers the rules in another order", active.version)
    rules = sorted(found.values(), key=lambda rule: rule.id)
    if not rules:
        reason = f"no rule permits {request.tool}; a permit among the user policies would"
        return _decision("deny", "no_rule", reason, (), active.version)
    if not result.allowed:
        names = _names(rules)
        why = next((f": {rule.reason}" for rule in rules if rule.reason), "")
        return _decision(
            "deny", "denied", f"forbidden by {', '.join(names)}{why}", names, active.version
        )
    return _permitted(request, rules, active.version)


def _permitted(request: PolicyRequest, permits: list[PolicyRule], version: str) -> PolicyDecision:
    """Apply the permits of the highest layer: ask if one requires an approval, else allow."""
    top = max(rule.rank for rule in permits)
    deciding = [rule for rule in permits if rule.rank == top]
    names = _names(deciding)
    if request.action != "approval.decide" and any(rule.asks for rule in deciding):
        why = next((f" ({rule.reason})" for rule in deciding if rule.asks and rule.reason), "")
        is_always_asked = request.is_tainted or request.tool in {ASK_USER, PROPOSE_PLAN}
        hint = "" if is_always_asked else (
            f"; a permit for {request.tool} among the user policies would change that"
        )  # fmt: skip
        reason = f"{', '.join(names)} requires an approval{why}{hint}"
        return _decision("ask", "asks", reason, names, version)
    return _decision("allow", "allowed", f"permitted by {', '.join(names)}", names, version)


def _names(rules: list[PolicyRule]) -> tuple[str, ...]:
    return tuple(rule.id for rule in rules)


def _error(detail: str, version: str) -> PolicyDecision:
    reason = f"the rules could not be applied, so the answer is no: {detail[:_ERROR_CHARS]}"
    return _decision("deny", "policy_error", reason, (), version)


def _decision(
    answer: Answer, code: str, reason: str, policies: tuple[str, ...], version: str
) -> PolicyDecision:
    return PolicyDecision(
        answer=answer, reason_code=code, reason=reason, policies=policies, version=version
    )
