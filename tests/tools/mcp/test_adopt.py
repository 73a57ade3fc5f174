"""A stranger's tools: narrowed, fenced, capped, or left out with a reason."""

from typing import Any

import msgspec
import pytest

from palyra.core.redaction.redactor import Redactor
from palyra.core.trust.fences import inside_fence
from palyra.tools.mcp.adopt import (
    MAX_DESCRIPTION_CHARS,
    MAX_TOOLS,
    AdoptionTerms,
    DescribedTool,
    adopt,
)
from palyra.tools.mcp.schema import MAX_DEPTH, Unusable, narrowed
from tests.core.trust.injection_samples import PLAIN_ATTACK

SECRET = "ghp_" + "Canary0123456789abcdefghijABCDEFGHIJ"
REDACT = Redactor([]).redact_text
TERMS = AdoptionTerms(server="s", capabilities=("network",), read_only=("look",), left_out=("no",))


def described(name: str = "tool", **fields: Any) -> DescribedTool:
    """A tool that can be taken."""
    empty = {"type": "object", "properties": {}}
    return DescribedTool(**{"name": name, "description": "Does it.", "parameters": empty, **fields})


def a_property(schema: Any) -> dict[str, Any]:
    """An object's schema with one property."""
    return {"type": "object", "properties": {"a": schema}}


# --- schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "format": "uri", "title": "A", "default": "x"}, {"type": "string"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}),
        ({"type": ["integer", "null"], "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": ["boolean", "string"], "minLength": 1}, {"type": "boolean"}),
        (
            {"type": ["integer", "string"], "exclusiveMinimum": 0, "maxLength": 3},
            {"type": "integer", "minimum": 1},
        ),
        ({"type": ["null", "string", "array"], "items": {}}, {"type": "string"}),
        ({"type": "integer", "exclusiveMinimum": 1}, {"type": "integer", "minimum": 2}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "integer", "maximum": 8}),
        (
            {"type": "array", "items": {"type": "string", "title": "x"}},
            {"type": "array", "items": {"type": "string"}},
        ),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"type": "object", "additionalProperties": {}}, {"type": "object"}),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "additionalProperties": False},
        ),
    ],
)
def test_schema_is_narrowed(schema: Any, expected: Any) -> None:
    """Descriptive keywords are removed, and others replaced by stricter ones."""
    assert a_property(expected) == narrowed({"$schema": "x", **a_property(schema)})


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "null"}]},
        {"anyOf": [True]},
        {"type": []},
        {"type": ["null"]},
        {"type": ["string", "integer"], "pattern": "^a"},
        {"type": ["number", "string"], "exclusiveMinimum": 0.5},
        {"type": ["thing", "string"]},
        {"type": [["string"], "string"]},
        {"oneOf": []},
        {"$ref": "#/$defs/A"},
        {"type": "string", "pattern": "(a+)+$"},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "exclusiveMinimum": 0.5},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": []},
        {"type": "object", "required": 7},
        {"type": "object", "required": ["missing"]},
        {"type": "thing"},
        {},
        True,
        "string",
    ],
)
def test_schema_beyond_intake_is_unusable(schema: Any) -> None:
    """No rule is dropped silently: what intake cannot keep makes the tool unusable."""
    with pytest.raises(Unusable):
        narrowed(a_property(schema))


def test_deep_schema_is_unusable() -> None:
    """Nesting is bounded."""
    schema: Any = {"type": "string"}
    for _ in range(MAX_DEPTH + 1):
        schema = {"type": "array", "items": schema}
    with pytest.raises(Unusable, match="deeper"):
        narrowed(a_property(schema))


# --- tools ---------------------------------------------------------------------------------------


def test_tool_is_taken_under_the_operators_terms() -> None:
    """Name, class, risk, capabilities and deadline are ours; the words are fenced."""
    schema = a_property({"type": "array", "description": "No.", "items": {"type": "string"}})
    adopted = adopt(TERMS, [described("Do-It", parameters=schema)], REDACT)
    name, spec = adopted.tools["mcp:s.do_it"]
    assert ("Do-It", {}) == (name, adopted.missing)
    assert ("effect", "high", ("network",)) == (spec.tool_class, spec.risk, spec.capabilities)
    assert "Does it." == inside_fence(spec.description)
    assert 'trust="external_untrusted" source="mcp:s.do_it"' in spec.description
    assert a_property({"type": "array", "items": {"type": "string"}}) == spec.parameters


@pytest.mark.parametrize(
    ("name", "read_only", "destructive", "expected"),
    [
        ("tool", True, False, ("effect", "high")),
        ("look", True, None, ("idempotent_network", "high")),
        ("look", None, None, ("effect", "high")),
        ("look", True, True, ("idempotent_network", "critical")),
        ("tool", False, True, ("effect", "critical")),
    ],
)
def test_annotations_can_only_make_it_worse(
    name: str, *, read_only: bool | None, destructive: bool | None, expected: tuple[str, str]
) -> None:
    """A claim to be harmless counts where the operator believes it, and never for the risk."""
    tool = described(name, claims_read_only=read_only, claims_destructive=destructive)
    _, spec = adopt(TERMS, [tool], REDACT).tools[f"mcp:s.{name}"]
    assert expected == (spec.tool_class, spec.risk)


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (described("no"), "configuration"),
        (described(SECRET), "secret"),
        (described(description=f"Adds. {SECRET}"), "secret"),
        (described(parameters=a_property({"type": "string", "enum": [SECRET]})), "secret"),
        (described(parameters=a_property({"type": "string", "title": SECRET})), "secret"),
        (described("a b"), "form"),
        (described("x" * 65), "form"),
        (described(description=PLAIN_ATTACK), "instruction"),
        (described(parameters=a_property({"type": "string", "description": PLAIN_ATTACK})), "instruct"),
        (described(parameters=a_property({"type": "string", "enum": [PLAIN_ATTACK]})), "instruction"),
        (described(description="x" * (MAX_DESCRIPTION_CHARS + 1)), "description has more"),
        (described(parameters=a_property({"type": "string", "enum": ["x" * 20_000]})), "bytes"),
        (described(parameters={"type": "string"}), "object"),
        (described(parameters=a_property({"type": "string", "default": object()})), "JSON"),
        (described(parameters=a_property({"type": "string", "enum": ["a\u200bb"]})), "hide"),
    ],
)  # fmt: skip
def test_unusable_tool_is_left_out(tool: DescribedTool, reason: str) -> None:
    """One bad tool costs itself, and says why."""
    adopted = adopt(TERMS, [described("good"), tool], REDACT)
    assert {"mcp:s.good"} == set(adopted.tools)
    assert [True] == [reason in told for told in adopted.missing.values()]


def test_names_do_not_collide() -> None:
    """Of two tools with one name here the first stays."""
    adopted = adopt(TERMS, [described("a-b"), described("a_b")], REDACT)
    assert "a-b" == adopted.tools["mcp:s.a_b"][0]
    assert ["a_b"] == list(adopted.missing)


def test_too_many_tools_are_cut() -> None:
    """A server may have so many."""
    adopted = adopt(TERMS, [described(f"t{n}") for n in range(MAX_TOOLS + 3)], REDACT)
    assert MAX_TOOLS == len(adopted.tools)
    assert "3 more" in adopted.missing["…"]


def test_changed_tool_is_another_version() -> None:
    """An approval of one version does not apply to another."""
    one, two = (
        adopt(TERMS, [described(description=text)], REDACT).tools["mcp:s.tool"][1]
        for text in ("A.", "B.")
    )
    assert one.version != two.version
    assert msgspec.structs.replace(two, version=one.version, description=one.description) == one


def test_a_name_follows_one_rule() -> None:
    """Small letters, digits and _; the server's own name is kept where that changed it."""
    named = [described(name) for name in ("read-file", "readFile", "v1.get", "plain_1")]
    specs = adopt(TERMS, named, REDACT).tools
    assert {
        "mcp:s.read_file": "read-file",
        "mcp:s.readfile": "readFile",
        "mcp:s.v1_get": "v1.get",
        "mcp:s.plain_1": "",
    } == {name: spec.foreign_name for name, (_, spec) in specs.items()}
