"""JSON Schemas of tools' parameters: which are accepted, and how they are read.

The validator is `core.text.json_schema`.  Two rules are added to the specification:

- Every keyword must be known, so that a misspelled rule is not silently ignored.
- An object that lists its properties and says nothing of others takes no others, so that a misspelled
  argument is not silently ignored either.  This applies where it can only narrow the schema: to the
  arguments as a whole and to objects and items written out below them.  Where a subschema is applied
  together with another (`$ref`, `anyOf`, …), the specification alone decides, because each part
  sees only its own properties.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.json_schema import (
    ANNOTATIONS,
    DEFINITIONS,
    RULES,
    CompiledSchema,
    Json,
    UnusableSchema,
    all_subschemas,
)
from palyra.core.text.visible import pluralize

_ENUM_CHARS = 400  # of an enumeration in a refusal
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
# Rules of an object's members and an array's items, which are explained where they are broken.
_INNER = frozenset({"properties", "required", "additionalProperties", "items"})
# Keywords through which another subschema can describe the same object or its members.
_SHARED = frozenset(
    {
        "$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
        "patternProperties", "contains", "unevaluatedProperties", "unevaluatedItems",
    }
)  # fmt: skip


def compile_parameters(parameters: Json) -> CompiledSchema:
    """Return the compiled form of the parameters of a tool.

    Raises UnusableSchema if arguments cannot be checked against every rule at a bounded cost.
    """
    return _compiled(msgspec.json.encode(parameters))


@lru_cache(maxsize=512)  # about 20 KB and 0.3 ms each; a server may have 128 tools
def _compiled(encoded: bytes) -> CompiledSchema:
    return CompiledSchema(msgspec.json.decode(encoded), _prepared)


def _prepared(schema: dict[str, Any]) -> dict[str, Any]:
    """Check the keywords and close the objects of a well-formed schema.  Raises UnusableSchema."""
    if schema.get("type") != "object":
        raise UnusableSchema("parameters must describe an object: type must be 'object'")
    definitions = tuple(f"#/{word}/" for word in DEFINITIONS)
    can_close = True
    for pointer, each in all_subschemas(schema):
        if unknown := each.keys() - RULES - ANNOTATIONS:
            raise UnusableSchema(f"#{pointer}: {min(unknown)} is no keyword of JSON Schema 2020-12")
        can_close = can_close and each.get("$ref", definitions[0]).startswith(definitions)
    closed: dict[str, Any] = _closed(schema, "arguments") if can_close else schema
    return closed


def _closed(schema: Any, where: str) -> Any:  # noqa: ANN401 - any JSON
    """Refuse unlisted properties.  Raises UnusableSchema where a required one is not listed."""
    if not isinstance(schema, dict) or _SHARED & schema.keys():
        return schema
    closed = dict(schema)
    known = schema.get("properties", {})
    if (known or schema.get("type") == "object") and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
        if missing := set(schema.get("required", ())) - known.keys():
            raise UnusableSchema(
                f"{where}: required but not described: {', '.join(sorted(missing))}"
            )
    if known:
        closed["properties"] = {
            name: _closed(inner, f"{where}.{name}") for name, inner in known.items()
        }
    if "items" in schema:
        closed["items"] = _closed(schema["items"], f"{where}[]")
    return closed


def expected_text(schema: Any) -> str:  # noqa: ANN401 - any JSON
    """Describe the values that the schema accepts; "" if there is no short description."""
    rules = schema if isinstance(schema, Mapping) else {}
    if "enum" in rules:
        return truncate_safely("one of " + ", ".join(map(repr, rules["enum"])), _ENUM_CHARS)
    kind = rules.get("type")
    words, low, high, noun = _WORDS.get(kind if isinstance(kind, str) else "", ("", "", "", ""))
    if not words or rules.keys() & RULES - _INNER - {"type", low, high}:
        return ""
    least, most = rules.get(low), rules.get(high)
    if least is None and most is None:
        return words
    if most is None:
        return f"{words} of at least {_measure(least, noun)}"
    return f"{words} of {'at most' if least is None else f'{least} to'} {_measure(most, noun)}"


def _measure(bound: Any, noun: str) -> str:  # noqa: ANN401 - a number
    return pluralize(bound, noun) if noun else str(bound)
