"""JSON Schema subset for tool arguments: rules that are checked exactly and in linear time.

A keyword outside `KEYWORDS` is an error when the tool is registered, so no rule of a schema is
silently ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any

from palyra.core.text.visible import pluralize
from palyra.errors import InvariantBroken

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_ANNOTATIONS = frozenset({"title", "description", "default", "examples"})
_NUMERIC = frozenset({"minimum", "maximum", "enum"})
_OF_TYPE: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "enum"}),
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "boolean": frozenset(),
    "null": frozenset(),
}
KEYWORDS = frozenset({"type"}) | _ANNOTATIONS | frozenset().union(*_OF_TYPE.values())
# Type -> its name, the keywords of its lower and upper bound, and the counted unit.
_WORDS = {
    "object": ("an object", "", "", ""),
    "array": ("an array", "minItems", "maxItems", "item"),
    "string": ("a string", "minLength", "maxLength", "character"),
    "integer": ("an integer", "minimum", "maximum", ""),
    "number": ("a number", "minimum", "maximum", ""),
    "boolean": ("a boolean", "", "", ""),
    "null": ("null", "", "", ""),
}


def keywords_of_others(kind: str) -> frozenset[str]:
    """Return the keywords that constrain values of other types and have no effect on this one."""
    return KEYWORDS - _ANNOTATIONS - {"type"} - _OF_TYPE[kind]


def check_schema(schema: Mapping[str, Any], where: str) -> None:
    """Raise InvariantBroken unless intake enforces every rule in the schema."""
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise InvariantBroken(f"{where}: type must be one of {', '.join(TYPES)}, not {kind!r}")
    unknown = schema.keys() - _ANNOTATIONS - {"type"} - _OF_TYPE[kind]
    if unknown:
        raise InvariantBroken(f"{where}: intake does not check {', '.join(sorted(unknown))}")
    properties: Mapping[str, Any] = schema.get("properties", {})
    missing = set(schema.get("required", ())) - properties.keys()
    if missing:
        raise InvariantBroken(f"{where}: required but not described: {', '.join(sorted(missing))}")
    if not isinstance(schema.get("additionalProperties", False), bool):
        raise InvariantBroken(f"{where}: additionalProperties must be true or false")
    for name, inner in properties.items():
        check_schema(inner, f"{where}.{name}")
    if "items" in schema:
        check_schema(schema["items"], f"{where}[]")


def expected_text(schema: Mapping[str, Any]) -> str:
    """Describe the values that the schema accepts."""
    if "enum" in schema:
        return "one of " + ", ".join(repr(one) for one in schema["enum"])
    words, low, high, noun = _WORDS[schema["type"]]
    return words + _range_text(schema, low, high, noun)


def _range_text(schema: Mapping[str, Any], low: str, high: str, noun: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if most is None:
        return "" if least is None else f" of at least {_measure(least, noun)}"
    from_least = "at most" if least is None else f"{least} to"
    return f" of {from_least} {_measure(most, noun)}"


def _measure(bound: int, noun: str) -> str:
    return pluralize(bound, noun) if noun else str(bound)
