"""Parameters of tools: unknown keywords are errors, listed properties are all there are."""

from typing import Any

import pytest

from palyra.core.text.json_schema import UnusableSchema
from palyra.core.tool.arguments import compile_parameters, expected_text
from tests.rows import every_row

INTEGER = {"type": "integer"}


def an_object(**rules: Any) -> dict[str, Any]:
    return {"type": "object", **rules}


@every_row(
    ("schema", "complaint"),
    [
        ({}, "parameters must describe an object"),
        ({"type": ["object", "null"]}, "parameters must describe an object"),
        (an_object(type="date"), "no JSON Schema"),
        (an_object(minlength=1), "#: minlength is no keyword"),
        (an_object(properties={"a": {"maximun": 1}}), "#/properties/a: maximun is no keyword"),
        (an_object(anyOf=[{"nullable": True}]), "#/anyOf/0: nullable is no keyword"),
        (an_object(**{"$defs": {"a": {"foo": 1}}}), "foo is no keyword"),
        (an_object(required=["a"]), "arguments: required but not described: a"),
        (
            an_object(properties={"a": {"items": an_object(required=["b"])}}),
            "arguments.a[]: required but not described: b",
        ),
        (an_object(properties={"a": {"pattern": "("}}), "the pattern '('"),
        (an_object(properties={"a": {"$ref": "https://example.com"}}), "leads to no schema"),
    ],
)
def test_a_rule_that_cannot_be_checked_is_an_error(schema: dict[str, Any], complaint: str) -> None:
    """A misspelled, unsatisfiable or costly rule fails the tool's registration."""
    with pytest.raises(UnusableSchema) as raised:
        compile_parameters(schema)
    assert complaint in raised.value.message.replace("%24", "$")


NESTED = an_object(properties={"b": INTEGER})


@every_row(
    ("schema", "value", "fits"),
    [
        (an_object(), {"x": 1}, False),
        (an_object(properties={"a": INTEGER}), {"a": 1, "x": 1}, False),
        (an_object(properties={"a": NESTED}), {"a": {"b": 1, "x": 1}}, False),
        (an_object(properties={"a": {"items": NESTED}}), {"a": [{"x": 1}]}, False),
        (an_object(properties={"a": NESTED}, additionalProperties=True), {"x": 1}, True),
        (an_object(properties={"a": NESTED}, additionalProperties=True), {"a": {"x": 1}}, False),
        (an_object(additionalProperties=INTEGER), {"x": 1}, True),
        (an_object(additionalProperties=INTEGER), {"x": ""}, False),
        (an_object(properties={"a": INTEGER}, allOf=[{"properties": {"x": {}}}]), {"x": 1}, True),
        (an_object(properties={"a": {"not": NESTED}}), {"a": {"b": 1, "x": 1}}, False),
        (an_object(properties={"a": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": NESTED}}),
         {"a": {"x": 1}}, True),
        (an_object(properties={"a": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": NESTED}}),
         {"a": {}, "x": 1}, False),
        (an_object(properties={"a": NESTED, "c": {"not": {"$ref": "#/properties/a"}}}),
         {"c": {"x": 1}}, False),
    ],
)  # fmt: skip
def test_an_object_takes_the_properties_that_it_lists(
    schema: dict[str, Any], value: object, *, fits: bool
) -> None:
    """Unlisted ones are refused unless the schema says more of them than a list."""
    assert fits == compile_parameters(schema).fits("", value)


@every_row(
    ("schema", "expected"),
    [
        ({"type": "object"}, "an object"),
        ({"type": "null"}, "null"),
        ({"type": "boolean"}, "a boolean"),
        ({"type": "number", "minimum": 0}, "a number of at least 0"),
        ({"type": "integer", "minimum": 0, "maximum": 9}, "an integer of 0 to 9"),
        ({"type": "string", "maxLength": 9}, "a string of at most 9 characters"),
        ({"type": "array", "minItems": 1}, "an array of at least 1 item"),
        ({"type": "string", "enum": ["a", "b"]}, "one of 'a', 'b'"),
        ({"type": "string", "pattern": "a"}, ""),
        ({"type": ["string", "null"]}, ""),
        ({}, ""),
        (True, ""),
    ],
)
def test_a_short_description_of_the_values(schema: Any, expected: str) -> None:
    """A refusal says which values are expected, or "" where that takes more than a few words."""
    assert expected == expected_text(schema)
