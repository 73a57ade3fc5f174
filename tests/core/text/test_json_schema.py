"""Schemas of answers, against the reference implementation of JSON Schema and at a bounded cost."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.json_schema import (
    MAX_DEPTH,
    MAX_VALUE_DEPTH,
    UnusableSchema,
    check_schema,
    find_mismatch,
)
from tests.rows import every_row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", 0.5, 1.0]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
NAMES = st.lists(st.sampled_from("ab"), max_size=2, unique=True)


def one_of_these(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, named = st.lists(inner, min_size=1, max_size=2), st.sampled_from("ab")
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
            "properties": st.dictionaries(named, inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "^b$"]), inner, max_size=1),
            "additionalProperties": st.booleans() | inner,
            "propertyNames": inner,
            "required": NAMES,
            "dependentRequired": st.dictionaries(named, NAMES, max_size=1),
            "dependentSchemas": st.dictionaries(named, inner, max_size=1),
            "maxProperties": st.integers(0, 2),
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "maxItems": st.integers(0, 2),
            "unevaluatedItems": inner,
            "unevaluatedProperties": inner,
            "anyOf": some,
            "oneOf": some,
            "allOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "enum": st.lists(st.integers(-1, 1) | st.booleans(), min_size=1, max_size=3),
            "const": st.integers(0, 1) | st.booleans(),
            "$ref": st.sampled_from(["#/$defs/x", "#/%24defs/x", "#y"]),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "multipleOf": st.integers(1, 2),
            "minLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^a", "b$", "^(a|b)*$"]),
        },
    )


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(st.just({}), one_of_these, max_leaves=6)
DEFINED = {"x": {"type": ["string", "null"]}, "z": {"$anchor": "y", "type": "array"}}


@given(SCHEMAS, JSON)
def test_it_says_what_the_reference_says(schema: dict[str, Any], value: Any) -> None:
    """Fits or not: the two agree, and a mismatch always has a reason."""
    whole = {**schema, "$defs": DEFINED}
    check_schema(whole)
    expected = jsonschema.Draft202012Validator(whole).is_valid(value)
    assert expected == (find_mismatch(whole, value) is None)


WORDS = ["type", "enum", "anyOf", "$ref", "$defs", "properties", "required", "items", "minimum"]
MORE_WORDS = ["pattern", "oneOf", "not", "format", "$id", "$anchor", "unevaluatedItems", "a"]
NONSENSE = st.recursive(
    JSON | st.sampled_from(["#/$defs/a", "#/items", "#", "#a", "string", "("]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*WORDS, *MORE_WORDS]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(NONSENSE, JSON)
def test_an_invalid_schema_is_refused_or_harmless(schema: Any, value: Any) -> None:
    """A client's invalid schema never crashes the run that is checked by it."""
    try:
        check_schema(schema)
    except UnusableSchema:
        return
    find_mismatch(schema, value)


@every_row(
    ("schema", "said"),
    [
        (7, "no JSON object"),
        ({"a": 1j}, "no JSON"),
        ({"required": [["a"]]}, "required.0"),
        ({"minimum": True}, "minimum"),
        ({"properties": []}, "properties"),
        ({"type": "text"}, "type"),
        ({"items": [{"type": "string"}]}, "items"),
        ({"properties": {"a": {"oneOf": []}}}, "properties.a.oneOf"),
        ({"$defs": []}, "defs"),
        ({"$ref": "https://example.com/x"}, "'https://example.com/x' leads to no schema"),
        ({"$ref": "file:///etc/passwd"}, "leads to no schema"),
        ({"$ref": "#/$defs/none"}, "'#/$defs/none' leads to no schema"),
        ({"$ref": "#/anyOf/7", "anyOf": [True]}, "leads to no schema"),
        ({"$ref": "#none"}, "leads to no schema"),
        ({"$ref": "#/const", "const": {"properties": [1]}}, "leads to no schema"),
        ({"$ref": "#/$defs/%ZZ", "$defs": {"%ZZ": True}}, "URI"),
        ({"properties": {"a": {"$dynamicRef": "#x"}}}, "#/properties/a: $dynamicRef"),
        ({"dependencies": {"a": ["b"]}}, "dependencies"),
        ({"$defs": {"a": {"$id": "https://example.com/"}}}, "#/$defs/a: $id"),
        ({"pattern": "("}, "the pattern '('"),
        ({"pattern": r"(\w{1000}){1000}"}, "too large"),
        ({"not": {"pattern": "^(?!a)"}}, "linear time"),
        ({"patternProperties": {"^(?!a)": True}}, "linear time"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any, said: str) -> None:
    """The refusal names the place, the word or the pattern."""
    with pytest.raises(UnusableSchema) as refused:
        check_schema(schema)
    assert said in refused.value.message.replace("%24", "$")


@every_row(
    ("reference", "name"),
    [
        ("#/$defs/Caf\u00e9", "Caf\u00e9"),
        ("#/$defs/Page[int]", "Page[int]"),
        ("#/$defs/a b", "a b"),
        ("#/$defs/a~1b~0c", "a/b~c"),
        ("#/$defs/a%25b", "a%b"),
    ],
)
def test_a_reference_finds_a_name_of_any_letters(reference: str, name: str) -> None:
    """Escaped as the specification wants it, or as it is."""
    schema = {"$ref": reference, "$defs": {name: {"type": "string"}}}
    check_schema(schema)
    assert find_mismatch(schema, "x") is None
    assert find_mismatch(schema, 7) is not None


@every_row("word", ["const", "enum", "weird", "default"])
@every_row("depth", [20, 300, 600, 900, 5_000])
def test_data_in_a_schema_has_a_bound_of_depth(word: str, depth: int) -> None:
    """However deep the data lie, the schema is taken or refused, and nothing else happens."""
    data = wrap(depth, 1, lambda held: [held])
    try:
        check_schema({word: data})
    except UnusableSchema:
        assert depth > 20


FORMATS = {
    "date-time": ("2024-02-29T23:59:59.5+01:00", "2024-02-29T23:59:59"),
    "date": ("2024-02-29", "2023-02-29"),
    "time": ("10:00:00Z", "25:00:00Z"),
    "duration": ("P1Y2M3DT4H", "1 day"),
    "email": ("a@example.com", "a.example.com"),
    "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"),
    "uri": ("https://example.com/a?b#c", "example.com/a"),
    "hostname": ("a.example.com", "-a-"),
    "ipv4": ("192.0.2.1", "192.0.2.256"),
    "ipv6": ("2001:db8::1", "2001:db8"),
    "json-pointer": ("/a/0", "a"),
    "regex": ("^a+$", "("),
}


@every_row("name", FORMATS)
def test_a_format_is_a_rule(name: str) -> None:
    """A text of that format fits, another text does not, and a number is not concerned."""
    right, wrong = FORMATS[name]
    schema = {"format": name}
    assert [True, False, True] == [
        find_mismatch(schema, value) is None for value in (right, wrong, 7)
    ]


def test_an_unknown_format_is_an_annotation() -> None:
    """Formats beyond the specification, as `int32` and `binary`, refuse nothing."""
    check_schema({"format": "int32"})
    assert find_mismatch({"format": "int32"}, "x") is None


def test_a_pattern_is_removed_at_every_place() -> None:
    """Patterns are also removed inside lists of alternatives."""
    schema = {"anyOf": [{"pattern": DECIMAL, "type": "string"}, {"type": "null"}]}
    check_schema(schema)
    assert find_mismatch(schema, "no number") is None
    assert find_mismatch(schema, 7) is not None


def test_the_explanation_knows_names_that_match_a_pattern() -> None:
    """A member that a pattern covers is judged by it, the others by `additionalProperties`."""
    schema = {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    assert "the answer.x-a: it is not of type" in (find_mismatch(schema, {"x-a": 1}) or "")
    assert "the answer.y: it is not allowed" in (find_mismatch(schema, {"x-a": "", "y": 1}) or "")
    both = {"contains": {"const": 1}, "unevaluatedItems": False}
    assert "no rule allows" in (find_mismatch(both, [1, 2]) or "")
    dependent = {"dependentSchemas": {"a": {"required": ["b"]}}}
    assert '"b" is a required' in (find_mismatch(dependent, {"a": 1}) or "")


DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"


def test_a_pattern_that_is_not_linear_is_not_asserted() -> None:
    """Look-around is left to the provider; the rules round it are kept."""
    schema = {"properties": {"a": {"pattern": DECIMAL, "type": "string"}, "b": {"pattern": "^x"}}}
    check_schema(schema)
    assert find_mismatch(schema, {"a": "no number", "b": "x"}) is None
    assert "type" in (find_mismatch(schema, {"a": 7}) or "")
    assert "match" in (find_mismatch(schema, {"b": "y"}) or "")
    member = {"properties": {"pattern": {"pattern": "^x"}, "a": {"pattern": DECIMAL}}}
    assert "match" in (find_mismatch(member, {"pattern": "y"}) or "")


# --- cost ----------------------------------------------------------------------------------------


def wrap(times: int, innermost: Any, around: Callable[[Any], Any]) -> Any:
    """A value with so many others round it."""
    return reduce(lambda inner, _: around(inner), range(times), innermost)


def nested(depth: int) -> dict[str, Any]:
    """A schema with so many others inside."""
    schema: dict[str, Any] = wrap(depth, {"type": "string"}, lambda inner: {"items": inner})
    return schema


def test_a_schema_has_a_bound_of_depth() -> None:
    """The deepest that is taken, and one more."""
    check_schema(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 300, 1_000, 100_000):
        with pytest.raises(UnusableSchema, match=r"deep|JSON|limit"):
            check_schema(nested(depth))


def doubling(times: int) -> dict[str, Any]:
    """A schema whose references double with each step."""
    steps: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(times)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{times}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        doubling(60),
        wrap(30, {}, lambda inner: {"allOf": [inner], "unevaluatedProperties": False}),
    ],
)
def test_a_small_schema_that_means_a_large_one_is_refused(schema: Any) -> None:
    """Neither references that double nor nested `unevaluated…` reach the library."""
    with pytest.raises(UnusableSchema, match="written out"):
        check_schema(schema)


def test_control_a_schema_within_the_bounds_is_accepted() -> None:
    """A schema that expands to less than the limit is accepted."""
    check_schema(doubling(5))
    assert find_mismatch(doubling(5), "x") is None
    assert find_mismatch(doubling(5), 7) is not None


def test_nested_alternatives_are_bounded() -> None:
    """A schema with 3^100 readings of a value is validated and explained."""
    inner = [{"title": f"{i}", "items": {"$ref": "#/$defs/x"}} for i in range(3)]
    schema = {
        "$ref": "#/$defs/x",
        "$defs": {"x": {"anyOf": [{"type": "null"}, *inner], "type": ["array", "null"]}},
    }
    check_schema(schema)
    assert find_mismatch(schema, wrap(100, {"no": "list"}, lambda held: [held])) is not None
    assert find_mismatch(schema, wrap(100, None, lambda held: [held])) is None


def test_a_recursive_schema_of_a_syntax_tree_is_validated() -> None:
    """Recursive kinds with a constant discriminator are validated at once; the error names the leaf."""
    kinds = {
        name: {
            "type": "object",
            "properties": {
                "left": {"$ref": "#/$defs/any"},
                "right": {"$ref": "#/$defs/any"},
                "kind": {"const": name},
            },
            "required": ["kind", "left"],
        }
        for name in ("add", "sub", "mul", "div", "mod", "pow")
    }
    any_of = [{"$ref": f"#/$defs/{name}"} for name in kinds]
    schema = {
        "$ref": "#/$defs/any",
        "$defs": {**kinds, "any": {"anyOf": [*any_of, {"type": "integer"}]}},
    }

    def tree(depth: int, leaf: Any) -> Any:
        return wrap(depth, leaf, lambda left: {"kind": "add", "left": left, "right": 1})

    assert find_mismatch(schema, tree(12, 1)) is None
    told = find_mismatch(schema, tree(12, "x"))
    assert "the answer" + ".left" * 12 + ': it fits none of the 7 forms of anyOf (got "x")' == told


@pytest.mark.parametrize("circle", [{"$ref": "#"}, {"$ref": "#", "type": "string"}])
def test_a_circle_has_an_end(circle: dict[str, Any]) -> None:
    """A schema that refers to itself without going deeper is the rest of what it says."""
    check_schema(circle)
    assert ("type" in circle) == (find_mismatch(circle, 1) is not None)


def test_a_value_has_bounds() -> None:
    """Too deep or too much for its schema is a mismatch that says so; less is not."""
    large = {"items": {"anyOf": [{"const": i} for i in range(500)]}}
    told = "the answer: too many values, or nested too deeply, to be checked against the schema"
    assert told == find_mismatch(large, [1] * 10_000)
    assert find_mismatch(large, [1] * 100) is None
    assert told == find_mismatch({}, wrap(MAX_VALUE_DEPTH, 1, lambda held: [held]))
    patterns = {"properties": {"a": {"allOf": [{"pattern": f"a{i}"} for i in range(200)]}}}
    assert told == find_mismatch(patterns, {"a": "x" * 1_000_000})


def test_a_large_value_is_explained_without_copies() -> None:
    """A megabyte that fits none of 300 forms costs a sentence."""
    schema = {"anyOf": [{"type": "integer", "maximum": i} for i in range(300)]}
    told = find_mismatch(schema, "x" * 1_000_000)
    assert told is not None
    assert len(told) < 200


# --- words ---------------------------------------------------------------------------------------

FORMS = {
    "a": {
        "properties": {"kind": {"const": "a"}, "size": {"type": "integer"}},
        "required": ["kind"],
    },
    "b": {"properties": {"kind": {"const": "b"}}, "required": ["kind"]},
}


@every_row(
    ("schema", "value", "told"),
    [
        ({"maxLength": 2}, "abc", 'the answer: it is longer than 2 characters (got "abc")'),
        ({"minimum": 3}, 2, "the answer: it is less than the minimum of 3 (got 2)"),
        ({"additionalProperties": False}, {"a": 1}, "the answer.a: it is not allowed here (got 1)"),
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1, "x"]},
            'the answer.a[1]: it is not of type "integer" (got "x")',
        ),
        (
            {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in FORMS], "$defs": FORMS},
            {"kind": "a", "size": "x"},
            'the answer.size: it is not of type "integer" (got "x")',
        ),
        ({"oneOf": [True, {}]}, 1, "the answer: it fits 2 of the 2 forms of oneOf (got 1)"),
        (
            {"anyOf": [False, {"type": "null"}]},
            1,
            "the answer: it fits none of the 2 forms of anyOf (got 1)",
        ),
        ({"not": {}}, 1, "the answer: it fits what `not` excludes (got 1)"),
        (
            {"contains": False},
            [1],
            "the answer: 0 of its items fit `contains`, 1 to 1 must (got [1])",
        ),
        (
            {"propertyNames": {"maxLength": 1}},
            {"ab": 1},
            'the answer: it is longer than 1 character (got "ab")',
        ),
        (
            {"unevaluatedProperties": False},
            {"a": 1},
            (
                "the answer: it holds what no rule allows "
                '(unevaluatedProperties or unevaluatedItems) (got {"a":1})'
            ),
        ),
        (
            {"if": {"type": "string"}, "then": {"minLength": 3}},
            "a",
            'the answer: it is shorter than 3 characters (got "a")',
        ),
        (
            {"if": {"type": "string"}, "else": {"type": "null"}, "minLength": 3},
            "a",
            'the answer: it is shorter than 3 characters (got "a")',
        ),
        ({"required": ["a"]}, {}, 'the answer: "a" is a required property (got {})'),
    ],
)
def test_a_mismatch_names_place_rule_and_value(schema: Any, value: Any, told: str) -> None:
    """The error has the place, the keyword and the value."""
    check_schema(schema)
    assert told == find_mismatch(schema, value)


def test_a_secret_is_not_shown() -> None:
    """A member whose name says that it holds a secret is named, its value is not."""
    schema = {"additionalProperties": {"minLength": 99}}
    told = find_mismatch(schema, {"password": "hunter2"})
    assert told is not None
    assert "hunter2" not in told
    assert "hunter2" in (find_mismatch(schema, {"city": "hunter2"}) or "")
