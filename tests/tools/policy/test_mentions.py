"""The attributes that policies mention, and the equality of cached and fresh decisions."""

import json
from pathlib import Path
from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.policy.gate import policy_request
from palyra.core.policy.request import PolicyRequest
from palyra.core.tool.spec import CallFacts
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.mentions import find_mentions
from tests.core.policy.tool_samples import FACTS, an_admitted
from tests.examples import examples
from tests.rows import every_row

REQUEST = policy_request(an_admitted(), FACTS)


def mentions(condition: str) -> frozenset[str] | None:
    """The attributes that one policy with that condition mentions."""
    text = f"permit (principal, action, resource) when {{ {condition} }};"
    parsed: Any = json.loads(cedarpy.policies_to_json_str(text))
    return find_mentions(parsed["staticPolicies"])


@every_row(
    ("condition", "expected"),
    [
        ("true", set()),
        ("principal.role == resource.name", set()),
        ("context.size_bytes > 5", {"size_bytes"}),
        ("context.run.id == context.session", {"run.id", "session"}),
        ("context.run.owner == principal", {"run.owner"}),
        ('context.agent.name like "a*"', {"agent"}),
        ('context has path && context.path == "a"', {"path"}),
        ("context has host", {"host"}),
        ("context.run has depth", {"run.depth"}),
        ("context.run == context.run", {"run"}),
        ('[context.approval].contains("x")', {"approval"}),
        ('{"a": context.scope}.a == "x"', {"scope"}),
        ('if context.in_scope then context.now < datetime("2030-01-01") else false',
         {"in_scope", "now"}),
        ("!(context.paths.isEmpty())", {"paths"}),
        ("context == context", None),
        ('{"a": context}.a.size_bytes > 1', None),
    ],
)  # fmt: skip
def test_the_attributes_of_a_policy(condition: str, expected: set[str] | None) -> None:
    """Every syntax is recognised; a context used as a whole counts as all attributes."""
    assert (None if expected is None else frozenset(expected)) == mentions(condition)


RULE_SETS = {
    "shipped": "",
    "size": "permit (principal, action, resource) when { context.size_bytes > 100 };",
    "time": 'permit (principal, action, resource) when { context.now < datetime("1970-01-02") };',
    "run": 'forbid (principal, action, resource) when { context.run.id == "run_2" };',
    "path": 'permit (principal, action, resource) when { context has path && context.path == "a" };',
    "agent": 'forbid (principal, action, resource) when { context.agent.labels.contains("x") };',
    "role": 'permit (principal, action, resource) when { principal.role == "operator" };',
    "whole": "permit (principal, action, resource) when { context == context };",
    "error": "forbid (principal, action, resource) when { context.size_bytes + 9223372036854775807 > 0 };",
}
REQUESTS = st.builds(
    lambda **changes: msgspec.structs.replace(REQUEST, **changes),
    principal=st.sampled_from(["alice", "bob"]),
    owner=st.sampled_from(["alice", "bob"]),
    role=st.sampled_from(["client", "operator"]),
    agent_labels=st.sampled_from([(), ("x",)]),
    run_id=st.sampled_from(["run_1", "run_2"]),
    tool=st.sampled_from(["read_file", "write_file", "shell"]),
    capabilities=st.sampled_from([("fs.read",), ("fs.write",), ("process",)]),
    facets=st.sampled_from(
        [CallFacts(paths=(path,)) for path in ("a", "b", "../x", ".ssh/id", ".git/config")]
        + [CallFacts(), CallFacts(host="169.254.169.254"), CallFacts(executable="git")]
    ),
    size_bytes=st.sampled_from([0, 101, -1]),
    now_ms=st.sampled_from([0, 200_000_000]),
    in_scope=st.booleans(),
)


@pytest.mark.parametrize("name", RULE_SETS)
@settings(max_examples=examples(40))  # of lists: hundreds of requests for each set of rules
@given(requests=st.lists(REQUESTS, max_size=30))
def test_a_cached_decision_equals_a_fresh_one(
    name: str, requests: list[PolicyRequest], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Requests in sequence, and each by an engine without cached decisions."""
    folder = tmp_path_factory.getbasetemp() / f"rules-{name}"
    if not folder.exists():
        folder.mkdir()
        Path(folder / "rules.cedar").write_text(RULE_SETS[name], encoding="utf-8")
    policy = _POLICIES.get(name) or _POLICIES.setdefault(name, CedarPolicy(folder))
    for request in requests:
        kept = policy.decide(request)
        policy._active.known.clear()
        assert kept == policy.decide(request)
        again = policy.decide(request)
        assert kept == again
    policy._active.known.clear()
    in_turn = [policy.decide(request) for request in requests]
    for request, decision in zip(requests, in_turn, strict=True):
        policy._active.known.clear()
        assert decision == policy.decide(request)


_POLICIES: dict[str, CedarPolicy] = {}


def test_the_engine_evaluates_equal_requests_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls that differ only in attributes no policy mentions; again for other calls."""
    policy, asked = CedarPolicy(), []
    real = cedarpy.is_authorized

    def watched(*arguments: Any) -> Any:
        asked.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(cedarpy, "is_authorized", watched)
    for number in range(5):
        policy.decide(msgspec.structs.replace(REQUEST, run_id=f"run_{number}", now_ms=number))
    assert 1 == len(asked)
    policy.decide(msgspec.structs.replace(REQUEST, facets=CallFacts(paths=("../x",))))
    assert 2 == len(asked)
