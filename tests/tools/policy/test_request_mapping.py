"""The question: what our own check takes the schema takes, and the other way round."""

from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.policy.gate import policy_request
from palyra.tools.policy.request_mapping import Context, build_entities, facts, question
from palyra.tools.policy.rules import SHIPPED
from tests.core.policy.tool_samples import FACTS, an_admitted
from tests.rows import every_row

SCHEMA = cedarpy.Schema.from_str((SHIPPED / "schema.cedarschema").read_text("utf-8"))
ANYTHING = cedarpy.PolicySet.from_str("permit (principal, action, resource);")
REQUEST = policy_request(an_admitted(), FACTS)
FULL = msgspec.structs.replace(
    REQUEST,
    facets=msgspec.structs.replace(
        REQUEST.facets, paths=("a",), executable="git", subcommand="log", host="example.org"
    ),
    decision="allow",
    scope="once",
)
CONTEXT: dict[str, Any] = msgspec.json.decode(question(FULL, ())[0]["context"])
ODD = st.sampled_from(
    [None, True, 1, -1, 2**63, "", "x", [], ["x"], [1], [["x"]], {}, {"a": 1},
     {"__entity": {"type": "Principal", "id": "x"}}, {"__entity": {"type": "Agent", "id": "x"}},
     {"__entity": {"type": "Tool", "id": "x"}}, {"__entity": {"type": "Agent", "id": 1}}, {"__entity": {"id": "x"}},
     {"__extn": {"fn": "datetime", "arg": "2026-01-02T03:04:05.678Z"}},
     {"__extn": {"fn": "datetime", "arg": "yesterday"}},
     {"__extn": {"fn": "decimal", "arg": "1.0"}}]
)  # fmt: skip
PLACES = [
    *CONTEXT,
    "run.id",
    "run.owner",
    "run.origin",
    "run.taint",
    "run.depth",
    "more",
    "run.more",
]


def schema_takes(context: dict[str, Any]) -> bool:
    """True if Cedar accepts a request with this context under the schema."""
    asked = {**question(FULL, ())[0], "context": msgspec.json.encode(context).decode()}
    try:
        result = cedarpy.is_authorized(asked, ANYTHING, build_entities(*facts(FULL)), SCHEMA)
    except ValueError:
        return False
    return bool(result.allowed)


def we_take(context: dict[str, Any]) -> bool:
    """True if the daemon's own check accepts it."""
    try:
        msgspec.json.decode(msgspec.json.encode(context), type=Context)
    except msgspec.DecodeError:
        return False
    return True


def with_value(place: str, value: Any) -> dict[str, Any]:
    """The context with another value there; `...` takes it away."""
    context: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(CONTEXT))
    *outer, name = place.split(".")
    inner = context[outer[0]] if outer else context
    inner.pop(name, None)
    if value is not ...:
        inner[name] = value
    return context


def test_both_checks_accept_the_daemons_requests() -> None:
    """With every field, and with the fewest."""
    least = msgspec.json.decode(question(REQUEST, ())[0]["context"])
    assert [True] * 4 == [take(c) for take in (schema_takes, we_take) for c in (CONTEXT, least)]


@every_row("place", PLACES)
def test_both_checks_refuse_a_missing_field(place: str) -> None:
    """A field is required by both or by neither."""
    context = with_value(place, ...)
    assert schema_takes(context) == we_take(context)


@given(st.sampled_from(PLACES), ODD)
@settings(max_examples=400)
def test_our_check_is_as_strict_as_the_schema(place: str, value: Any) -> None:
    """For any value in any place both give the same result."""
    context = with_value(place, value)
    assert schema_takes(context) == we_take(context)


def test_a_time_beyond_the_calendar_is_refused() -> None:
    """No instant that Cedar could not read is made."""
    with pytest.raises(ValueError, match="no time"):
        question(msgspec.structs.replace(REQUEST, now_ms=10**18), ())
