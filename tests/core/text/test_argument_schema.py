"""The schema subset: a keyword that is not enforced is an error."""

from typing import Any

import pytest

from palyra.core.text.argument_schema import KEYWORDS, check_schema, expected_text
from palyra.errors import InvariantBroken

WHOLE: dict[str, Any] = {
    "type": "object",
    "title": "t",
    "description": "d",
    "properties": {
        "a": {"type": "string", "minLength": 1, "maxLength": 2, "enum": ["x"], "default": "x"},
        "b": {"type": "array", "items": {"type": "number", "minimum": 1, "maximum": 2},
              "minItems": 1, "maxItems": 2, "examples": [[1]]},
        "c": {"type": "object", "additionalProperties": True},
    },
    "required": ["a"],
}  # fmt: skip


def test_every_keyword_may_be_used() -> None:
    """A schema with all known keywords is accepted."""
    check_schema(WHOLE, "tool")
    used = repr(WHOLE)
    assert [] == [word for word in KEYWORDS if repr(word) not in used]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({}, "tool: type must be one of"),
        ({"type": ["string", "null"]}, "tool: type must be one of"),
        ({"type": "date"}, "not 'date'"),
        ({"type": "string", "pattern": "a+"}, "tool: intake does not check pattern"),
        ({"type": "string", "minimum": 1}, "tool: intake does not check minimum"),
        ({"type": "object", "patternProperties": {}}, "intake does not check patternProperties"),
        ({"type": "array", "enum": [[1]]}, "tool: intake does not check enum"),
        ({"type": "object", "required": ["a"]}, "tool: required but not described: a"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "must be true or false"),
        ({"type": "object", "properties": {"a": {"type": "x"}}}, "tool.a: type must be one of"),
        ({"type": "array", "items": {"const": 1, "type": "integer"}}, "tool[]: intake does not"),
    ],
)
def test_an_unsupported_keyword_is_an_error(schema: dict[str, Any], complaint: str) -> None:
    """A keyword that validation does not enforce fails the tool's registration."""
    with pytest.raises(InvariantBroken) as raised:
        check_schema(schema, "tool")
    assert complaint in raised.value.message


@pytest.mark.parametrize(
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
    ],
)
def test_schemas_in_words(schema: dict[str, Any], expected: str) -> None:
    """A refusal can say what was expected."""
    assert expected == expected_text(schema)
