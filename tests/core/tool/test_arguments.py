"""Intake: every rule of a schema, every coercion, every bound."""

from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.text.canonical_json import canonical_json
from palyra.core.tool.arguments import MAX_DEPTH, MAX_NODES, Accepted, Refused, check_arguments
from tests.core.policy.tool_samples import a_spec
from tests.rows import every_row


def take(
    properties: dict[str, Any], arguments: object, *, required: tuple[str, ...] = (), **spec: object
) -> Accepted | Refused:
    """Validate arguments of a tool with those properties."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return check_arguments(a_spec("probe", parameters=parameters, **spec), arguments)


def accepted(
    properties: dict[str, Any], arguments: object, **spec: object
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments and coercions of an accepted call."""
    taken = take(properties, arguments, **spec)  # type: ignore[arg-type]  # the specs here are right
    assert isinstance(taken, Accepted), taken
    return taken.arguments, taken.coercions


def refused(properties: dict[str, Any], arguments: object, **spec: object) -> Refused:
    """The refusal of a refused call."""
    taken = take(properties, arguments, **spec)  # type: ignore[arg-type]  # the specs here are right
    assert isinstance(taken, Refused), taken
    return taken


WITHIN = [
    ({"type": "string"}, ""),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "éé"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "abc"),
    ({"type": "string", "enum": ["a", "b"]}, "b"),
    ({"type": "integer"}, -5),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 1),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 3),
    ({"type": "integer", "enum": [1, 2]}, 1),
    ({"type": "number"}, 1.5),
    ({"type": "number"}, 2),
    ({"type": "number", "minimum": 0.5}, 0.5),
    ({"type": "boolean"}, True),
    ({"type": "null"}, None),
    ({"type": "array"}, [1, "a", None]),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
    ({"type": "array", "minItems": 1, "maxItems": 2}, [1]),
    ({"type": "object"}, {}),
    ({"type": "object", "additionalProperties": True}, {"any": {"thing": [1]}}),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"a": 1}),
]


@every_row(("schema", "value"), WITHIN)
def test_a_valid_value_is_unchanged(schema: dict[str, Any], value: object) -> None:
    """A valid value is passed on without coercion."""
    assert accepted({"x": schema}, {"x": value}) == ({"x": value}, ())


OUTSIDE = [
    ({"type": "string"}, True, "a string", "a boolean"),
    ({"type": "string"}, None, "a string", "null"),
    ({"type": "string"}, 1.5, "a string", "the number 1.5"),
    ({"type": "string"}, ["a"], "a string", "an array of 1 item"),
    ({"type": "string"}, {"a": 1}, "a string", "an object"),
    ({"type": "string", "minLength": 2}, "a", "a string of at least 2 characters",
     "a string of 1 character"),
    ({"type": "string", "maxLength": 2}, "abc", "a string of at most 2 characters",
     "a string of 3 characters"),
    ({"type": "string", "enum": ["a", "b"]}, "c", "one of 'a', 'b'", "a string of 1 character"),
    ({"type": "integer"}, True, "an integer", "a boolean"),
    ({"type": "integer"}, 1.5, "an integer", "the number 1.5"),
    ({"type": "integer"}, "x", "an integer", "a string of 1 character"),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 0, "an integer of 1 to 3", "the number 0"),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 4, "an integer of 1 to 3", "the number 4"),
    ({"type": "integer", "minimum": 1, "maximum": 3}, "4", "an integer of 1 to 3", "the number 4"),
    ({"type": "integer", "enum": [1]}, True, "one of 1", "a boolean"),
    ({"type": "number", "maximum": 1}, 1.1, "a number of at most 1", "the number 1.1"),
    ({"type": "number"}, False, "a number", "a boolean"),
    ({"type": "boolean"}, 1, "a boolean", "the number 1"),
    ({"type": "boolean"}, "yes", "a boolean", "a string of 3 characters"),
    ({"type": "null"}, 0, "null", "the number 0"),
    ({"type": "array"}, "a", "an array", "a string of 1 character"),
    ({"type": "array", "minItems": 1}, [], "an array of at least 1 item", "an array of 0 items"),
    ({"type": "array", "maxItems": 1}, [1, 2], "an array of at most 1 item",
     "an array of 2 items"),
    ({"type": "object"}, [], "an object", "an array of 0 items"),
    ({"type": "object"}, "{}", "an object", "a string of 2 characters"),
]  # fmt: skip


@every_row(("schema", "value", "expected", "got"), OUTSIDE)
def test_a_value_outside_its_schema_is_refused(
    schema: dict[str, Any], value: object, expected: str, got: str
) -> None:
    """The refusal names position, what was expected and the kind of what came."""
    found = refused({"x": schema}, {"x": value})
    assert found == Refused(reason=f"x: got {got}", repair_hint=f"expected {expected}")


COERCED = [
    ({"type": "integer"}, "25", 25, 'x: "25" -> 25'),
    ({"type": "integer"}, "-3", -3, 'x: "-3" -> -3'),
    ({"type": "integer"}, 5.0, 5, "x: 5.0 -> 5"),
    ({"type": "number"}, "25", 25, 'x: "25" -> 25'),
    ({"type": "number"}, "2.5", 2.5, 'x: "2.5" -> 2.5'),
    ({"type": "boolean"}, "true", True, 'x: "true" -> true'),
    ({"type": "boolean"}, "false", False, 'x: "false" -> false'),
    ({"type": "string"}, 25, "25", 'x: 25 -> "25"'),
]


@every_row(("schema", "value", "expected", "text"), COERCED)
def test_a_scalar_in_the_wrong_dress_is_put_right(
    schema: dict[str, Any], value: object, expected: object, text: str
) -> None:
    """A safe coercion is made and recorded."""
    arguments, coercions = accepted({"x": schema}, {"x": value})
    assert (expected, type(expected), (text,)) == (arguments["x"], type(arguments["x"]), coercions)


@every_row(("schema", "value", "expected", "text"), COERCED)
def test_nothing_is_coerced_where_the_text_is_the_point(
    schema: dict[str, Any], value: object, expected: object, text: str
) -> None:
    """A path, command, URL, body or secret is taken as written or refused, at any depth."""
    del expected, text
    assert refused({"x": schema}, {"x": value}, never_coerced=("x",)).reason.startswith("x: ")
    inner = {"type": "array", "items": schema}
    assert refused({"x": inner}, {"x": [value]}, never_coerced=("x",)).reason.startswith("x[0]: ")


@every_row(
    ("kind", "value"),
    [
        ("integer", " 25"), ("integer", "25 "), ("integer", "+25"), ("integer", "025"),
        ("integer", "2_5"), ("integer", "0x19"), ("integer", "٢٥"), ("integer", "1e3"),
        ("integer", "25.0"), ("integer", "9" * 16), ("integer", ""), ("integer", 1e300),
        ("number", "nan"), ("number", "inf"), ("number", "1e3"), ("number", ".5"),
        ("number", "5."), ("boolean", "True"), ("boolean", "1"), ("string", 1.0),
        ("null", "null"),
    ],
)  # fmt: skip
def test_an_ambiguous_scalar_is_refused(kind: str, value: object) -> None:
    """A value that is not plainly the wanted scalar is refused, not guessed."""
    assert refused({"x": {"type": kind}}, {"x": value}).reason.startswith("x: ")


def test_missing_field() -> None:
    """A required field that is missing is named with what it should be."""
    found = refused({"x": {"type": "integer", "maximum": 3}}, {}, required=("x",))
    assert found.reason == "x: got nothing"
    assert found.repair_hint == "expected an integer of at most 3"


def test_missing_and_unknown_field() -> None:
    """The error names both the missing and the unknown field."""
    found = refused({"path": {"type": "string"}}, {"file": "a"}, required=("path",))
    assert found.reason == 'path: got nothing, but the field "file"'


def test_a_number_out_of_range_is_shown() -> None:
    """As it came; what is longer than any number anybody means is not."""
    schema = {"x": {"type": "integer", "minimum": 0}}
    assert "x: got the number -1" == refused(schema, {"x": -1}).reason
    assert "x: got the number beyond all bounds" == refused(schema, {"x": -(10**40)}).reason


def test_unknown_field() -> None:
    """An unknown field is refused, with the nearest known one."""
    found = refused({"offset": {"type": "integer"}}, {"ofset": 1})
    assert found.reason == 'arguments: got the field "ofset"'
    assert "only the fields offset (did you mean offset?)" in found.repair_hint


def test_unknown_field_of_a_tool_without_any() -> None:
    """A tool without parameters takes none."""
    found = refused({}, {"\u202ex": 1})
    assert found.reason == 'arguments: got the field "\\u202ex"'
    assert found.repair_hint == "expected only the fields none"


def test_positions_inside() -> None:
    """The position leads through objects and arrays."""
    edit = {"type": "object", "properties": {"line": {"type": "integer"}}}
    found = refused({"edits": {"type": "array", "items": edit}}, {"edits": [{}, {"line": "?"}]})
    assert found.reason.startswith("edits[1].line: got ")


def test_coercions_inside() -> None:
    """A coercion inside an array is recorded with its place."""
    listed = {"type": "array", "items": {"type": "integer"}}
    assert accepted({"x": listed}, {"x": ["1", 2]}) == ({"x": [1, 2]}, ('x[0]: "1" -> 1',))


@every_row("arguments", [None, "{}", [], 1, "not json"])
def test_arguments_must_be_an_object(arguments: object) -> None:
    """Anything but an object is refused as a whole."""
    found = refused({}, arguments)
    assert found.repair_hint == "expected a JSON object"


def nested(depth: int) -> dict[str, Any]:
    """An object of that many levels."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


OPEN = {"type": "object", "additionalProperties": True}


def test_depth_is_bounded() -> None:
    """The deepest allowed nesting passes, one more level does not, and neither do thousands."""
    assert accepted({"x": OPEN}, {"x": nested(MAX_DEPTH - 1)})
    assert "levels" in refused({"x": OPEN}, {"x": nested(MAX_DEPTH)}).repair_hint
    assert "levels" in refused({"x": OPEN}, {"x": nested(5000)}).repair_hint


def test_number_of_values_is_bounded() -> None:
    """As many values as allowed pass, one more does not."""
    array = {"type": "array"}
    assert accepted({"x": array}, {"x": [0] * (MAX_NODES - 2)})
    assert "values" in refused({"x": array}, {"x": [0] * (MAX_NODES - 1)}).repair_hint


def test_size_is_bounded_by_the_tool() -> None:
    """Canonical arguments of exactly the cap pass, one byte more does not."""
    assert accepted({"x": {"type": "string"}}, {"x": "a" * 92}, input_cap_bytes=100)
    found = refused({"x": {"type": "string"}}, {"x": "a" * 93}, input_cap_bytes=100)
    assert found.reason == "arguments: got 101 bytes"
    assert found.repair_hint == "expected at most 100 bytes"


@pytest.mark.parametrize("arguments", [{"x": "a" * 101}, {"x": {"a" * 101: 1}}])
def test_size_is_bounded_before_anything_is_built(arguments: object) -> None:
    """Long texts and long names are refused by their length alone."""
    found = refused({"x": OPEN}, arguments, input_cap_bytes=100)
    assert found.reason == "arguments: got more"
    assert found.repair_hint == "expected at most 100 bytes"


@every_row("value", [2**53, float("nan"), "\ud800", {"a": [1e400]}])
def test_unsafe_numbers_and_broken_unicode_are_refused(value: object) -> None:
    """Neither reaches a tool."""
    schema = {"type": "array"}
    assert "Unicode" in refused({"x": schema}, {"x": [value]}).repair_hint


def test_values_are_never_repeated() -> None:
    """A refusal holds nothing of the value that was refused."""
    found = refused({"x": {"type": "string", "maxLength": 1}}, {"x": "hunter2"})
    assert "hunter2" not in found.reason + found.repair_hint


SCALARS = st.sampled_from(["string", "integer", "number", "boolean"])
VALUES = (
    st.text(max_size=5)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.sampled_from(["25", "-1", "2.5", "true", "false", "01", ""])
)


@settings(derandomize=True, max_examples=400)
@given(
    st.dictionaries(st.sampled_from("abc"), SCALARS),
    st.dictionaries(st.sampled_from("abcd"), VALUES),
)
def test_accepted_arguments_fit_the_schema(
    types: dict[str, str], values: dict[str, object]
) -> None:
    """Accepted arguments have the declared types, and validating them again changes nothing."""
    properties = {name: {"type": kind} for name, kind in types.items()}
    taken = take(properties, values)
    if isinstance(taken, Accepted):
        kinds: dict[str, set[type]] = {
            "string": {str},
            "integer": {int},
            "number": {int, float},
            "boolean": {bool},
        }
        assert all(type(value) in kinds[types[name]] for name, value in taken.arguments.items())
        assert canonical_json(taken.arguments) == taken.canonical
        again = take(properties, msgspec.json.decode(msgspec.json.encode(taken.arguments)))
        assert isinstance(again, Accepted)
        assert (again.canonical, ()) == (taken.canonical, tuple(again.coercions))


def test_arguments_are_not_changed_in_place() -> None:
    """The proposal keeps what the model wrote."""
    proposed = {"x": ["1"]}
    accepted({"x": {"type": "array", "items": {"type": "integer"}}}, proposed)
    assert proposed == {"x": ["1"]}


# --- schemas beyond lists of properties ----------------------------------------------------------

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def take_of(schema: dict[str, Any], arguments: object) -> Accepted | Refused:
    """The result for a tool whose parameters are that object."""
    return check_arguments(a_spec("probe", parameters={"type": "object", **schema}), arguments)


def test_a_coercion_follows_references_and_the_alternative_to_null() -> None:
    """`$ref` and `X or null` are written by generators of schemas, so models meet them often."""
    nullable = {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}
    schema = {
        "properties": {"a": nullable, "b": {"type": ["integer", "null"]}},
        "$defs": {"point": POINT},
    }
    taken = take_of(schema, {"a": {"x": "1"}, "b": "2"})
    assert isinstance(taken, Accepted)
    assert ({"a": {"x": 1}, "b": 2}, ('a.x: "1" -> 1', 'b: "2" -> 2')) == (
        taken.arguments,
        taken.coercions,
    )
    assert isinstance(take_of(schema, {"a": None, "b": None}), Accepted)
    beside_null = take_of(schema, {"a": None, "b": "2"})
    assert isinstance(beside_null, Accepted)
    assert {"a": None, "b": 2} == beside_null.arguments


@every_row(
    ("schema", "value", "reason", "hint"),
    [
        ({"type": "string", "pattern": "^x"}, "y", "a: got a string of 1 character",
         'another value: it does not match "^x"'),
        ({"type": "integer", "exclusiveMinimum": 3}, 3, "a: got the number 3", "another value: it is less"),
        ({"const": 1}, 2, "a: got the number 2", "another value: 1 was expected"),
        ({"$ref": "#/$defs/point"}, {}, "a.x: got nothing", "an integer"),
        ({"$ref": "#/$defs/point"}, {"x": "y"}, "a.x: got a string", "an integer"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "y", "a: got a string",
         "another value: it fits none of the 2 forms of oneOf"),
        ({"additionalProperties": False, "required": ["z"]}, {"hunter2x": 1},
         'a.z: got nothing, but the field "hunter2x"', "a value"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "a: got an array of 2 items", "non-unique"),
    ],
)  # fmt: skip
def test_the_innermost_broken_rule_is_named(
    schema: dict[str, Any], value: object, reason: str, hint: str
) -> None:
    """Any keyword of JSON Schema can be the reason; the position leads to the innermost one."""
    found = take_of({"properties": {"a": schema}, "$defs": {"point": POINT}}, {"a": value})
    assert isinstance(found, Refused)
    assert found.reason.startswith(reason)
    assert hint in found.repair_hint


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """A text that is no Unicode reaches neither the tool nor the caller as an exception."""
    for value in ({"a": "\ud800"}, {"\ud800": "a"}):
        found = take_of({"properties": {"a": {"type": "string", "pattern": "^x"}}}, value)
        assert isinstance(found, Refused)
        assert "Unicode" in found.repair_hint


def test_a_costly_check_is_refused() -> None:
    """Values times alternatives are bounded; control: a tenth of the values is checked."""
    choices = {"anyOf": [{"const": number} for number in range(100)]}
    schema = {"properties": {"a": {"type": "array", "items": choices}}}
    assert isinstance(take_of(schema, {"a": [99] * 100}), Accepted)
    found = take_of(schema, {"a": [99] * 1_000})
    assert isinstance(found, Refused)
    assert "fewer values" in found.repair_hint


CHOICES = st.recursive(
    st.sampled_from(
        [{"type": "integer"}, {"type": "string", "minLength": 1}, {"type": "null"}, {}]
    ),
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
                "additionalProperties": inner,
                "$ref": st.just("#/$defs/point"),
            },
        )
    ),
    max_leaves=5,
)
ANY_JSON = st.recursive(
    st.sampled_from([None, True, 1, 2.0, 0.5, "", "a", "5"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abx"), inner, max_size=2)
    ),
    max_leaves=5,
)


@settings(derandomize=True, max_examples=400)
@given(
    st.dictionaries(st.sampled_from("ab"), CHOICES, max_size=2),
    st.dictionaries(st.sampled_from("abc"), ANY_JSON, max_size=2),
)
def test_what_is_accepted_fits_by_the_reference(
    properties: dict[str, Any], values: dict[str, Any]
) -> None:
    """Closed objects and coercions accept nothing that the reference implementation refuses."""
    schema = {"type": "object", "properties": properties, "$defs": {"point": POINT}}
    taken = check_arguments(a_spec("probe", parameters=schema), values)
    reference = jsonschema.Draft202012Validator(schema)
    if isinstance(taken, Accepted):
        assert reference.is_valid(taken.arguments)
        assert taken.coercions or values == taken.arguments
    elif properties and not values.keys() - properties.keys() and "{" not in str(values)[1:]:
        assert not reference.is_valid(values)  # without objects inside, nothing else is refused


@pytest.mark.parametrize(("references", "is_coerced"), [(7, True), (8, False)])
def test_a_chain_of_references_has_an_end(references: int, is_coerced: bool) -> None:  # noqa: FBT001 - a case
    """Behind more references than are followed a value is refused instead of coerced."""
    chain = {f"A{at}": {"$ref": f"#/$defs/A{at + 1}"} for at in range(references - 1)}
    chain[f"A{references - 1}"] = {"type": "integer"}
    taken = take_of({"$defs": chain, "properties": {"a": {"$ref": "#/$defs/A0"}}}, {"a": "2"})
    assert isinstance(taken, Accepted if is_coerced else Refused)
