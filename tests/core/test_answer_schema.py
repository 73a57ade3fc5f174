"""Schemas of answers, against the reference implementation of JSON Schema."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core import answer_schema
from palyra.core.answer_schema import (
    MAX_DEPTH,
    MAX_STEPS,
    UnusableSchema,
    check_answer_schema,
    find_mismatch,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", 0.5]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def one_of_these(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(st.integers(-1, 1) | st.booleans(), min_size=1, max_size=3),
            "const": st.integers(0, 1) | st.booleans(),
            "$ref": st.just("#/$defs/x"),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
        },
    )


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(st.just({}), one_of_these, max_leaves=6)


@given(SCHEMAS, JSON)
def test_it_says_what_the_reference_says(schema: dict[str, Any], value: Any) -> None:
    """Fits or not: the two agree, for every schema that is taken."""
    whole = {**schema, "$defs": {"x": {"type": ["string", "null"]}}}
    check_answer_schema(whole)
    # The reference takes 1.0 for an integer and 1 for 1.0; what a model writes is told apart here.
    expected = jsonschema.Draft202012Validator(whole).is_valid(value)
    assert expected == (find_mismatch(whole, value) is None)


WORDS = ["type", "enum", "anyOf", "$ref", "$defs", "properties", "required", "items", "minimum"]
NONSENSE = st.recursive(
    JSON | st.sampled_from(["#/$defs/a", "string"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*WORDS, "maxLength", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(NONSENSE, JSON)
def test_nonsense_is_refused_or_harmless(schema: Any, value: Any) -> None:
    """What a stranger writes never breaks the run that is to be judged by it."""
    try:
        check_answer_schema(schema)
    except UnusableSchema:
        return
    find_mismatch(schema, value)


@pytest.mark.parametrize(
    "schema",
    [
        7,
        {"pattern": "^a"},
        {"required": [["a"]]},
        {"minimum": True},
        {"properties": []},
        {"type": "text"},
        {"$ref": "https://example.com/x"},
        {"$ref": "#/$defs/none"},
        {"properties": {"a": {"oneOf": []}}},
        {"$defs": {"x": {"not": {}}}},
        {"$defs": []},
    ],
)
def test_a_rule_that_is_not_kept_is_refused(schema: Any) -> None:
    """Wherever it stands."""
    with pytest.raises(UnusableSchema):
        check_answer_schema(schema)


def test_a_circle_has_an_end() -> None:
    """A schema that refers to itself is checked as deep as anybody may nest."""
    schema = {"$ref": "#/$defs/x", "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}}}
    check_answer_schema(schema)
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    assert find_mismatch(schema, value) is not None
    circle = {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}
    assert find_mismatch(circle, 1) is not None


def test_choices_inside_choices_have_an_end() -> None:
    """A small schema cannot make a small answer take for ever."""
    again: dict[str, Any] = {"items": {"$ref": "#/$defs/x"}}
    inner = {"anyOf": [{"type": "null"}, again, again, again], "type": ["array", "null"]}
    schema = {"$ref": "#/$defs/x", "$defs": {"x": inner}}
    check_answer_schema(schema)
    value: Any = {"no": "list"}
    for _ in range(14):  # 3^14 ways to look at it
        value = [value]
    walk = answer_schema._Walk(schema)
    assert answer_schema._mismatch(schema, walk, value, "the answer", 0) is not None
    assert walk.steps < 2 * MAX_STEPS


def test_the_place_is_named() -> None:
    """So that a model can mend it."""
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert find_mismatch(schema, {"a": [1, "x"]}) == "the answer.a[1]: must be integer"


def nested(depth: int) -> dict[str, Any]:
    """A schema with so many others inside."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_a_schema_has_a_bound_of_depth() -> None:
    """The deepest that is taken, and one more."""
    check_answer_schema(nested(MAX_DEPTH))
    with pytest.raises(UnusableSchema, match="deeper"):
        check_answer_schema(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"maxLength": 2}, "abc", "the answer: maxLength is 2"),
        ({"minimum": 3}, 2, "the answer: minimum is 3"),
        ({"additionalProperties": False}, {"a": 1}, "the answer.a: is not asked for"),
    ],
)
def test_what_does_not_fit_is_named(schema: Any, value: Any, told: str) -> None:
    """The place and the word of the schema."""
    assert told == find_mismatch(schema, value)
