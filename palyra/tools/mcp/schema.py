"""Conversion of an untrusted JSON Schema to the subset that argument validation supports.

The subset is defined by `core.text.argument_schema`.  Annotation keywords are dropped.  Some
constraints are replaced by narrower supported ones.  A constraint outside the subset makes the
schema unusable.  The result therefore accepts only values that the original schema accepts.
"""

from collections.abc import Mapping
from typing import Any

from palyra.core.text.argument_schema import TYPES, check_schema, keywords_of_others
from palyra.errors import InvariantBroken, PalyraError

MAX_DEPTH = 8
# Keywords that do not constrain values (JSON Schema 2020-12, sections 8 and 9, `format` of 7).
_DESCRIBES = frozenset(
    {
        "$schema", "$id", "$comment", "title", "examples", "default", "deprecated", "readOnly",
        "writeOnly", "format", "contentEncoding", "contentMediaType",
    }
)  # fmt: skip
_NULL = {"type": "null"}
_EXCLUSIVE = frozenset({"exclusiveMinimum", "exclusiveMaximum"})


class Unusable(PalyraError):
    """The schema has a constraint that argument validation does not support."""

    code = "unusable_schema"


def narrowed(schema: object, where: str = "arguments", depth: int = 0) -> dict[str, Any]:
    """Convert a schema to the supported subset; the result accepts no value that `schema` refuses.

    `where` is the path named in messages.  Raises Unusable.
    """
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        raise Unusable(f"{where}: not a schema, or deeper than {MAX_DEPTH}")
    plain = {key: value for key, value in schema.items() if key not in _DESCRIBES}
    plain = _without_null(plain, where)
    for word, bound, step in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        if word in plain:
            plain[bound] = _whole(plain.pop(word), f"{where}.{word}", plain) + step
    if isinstance(plain.get("properties"), Mapping):
        plain["properties"] = {
            str(name): narrowed(inner, f"{where}.{name}", depth + 1)
            for name, inner in plain["properties"].items()
        }
    if "items" in plain:
        plain["items"] = narrowed(plain["items"], f"{where}[]", depth + 1)
    if plain.get("additionalProperties") in ({}, True):
        del plain["additionalProperties"]  # narrower: declared properties only
    _check(plain, where)
    return plain


def _without_null(schema: dict[str, Any], where: str) -> dict[str, Any]:
    """Replace `X or null` by X; a nullable argument can be omitted instead."""
    options = schema.get("anyOf")
    if isinstance(options, list):
        kept = [option for option in options if option != _NULL]
        if len(kept) != 1 or not isinstance(kept[0], Mapping):
            raise Unusable(f"{where}: intake does not check anyOf")
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        inner = {key: value for key, value in kept[0].items() if key not in _DESCRIBES}
        return {**inner, **rest}
    kinds = schema.get("type")
    return _of_first_type(schema, kinds, where) if isinstance(kinds, list) else schema


def _of_first_type(schema: dict[str, Any], kinds: list[Any], where: str) -> dict[str, Any]:
    """Keep the first of several types besides null, which is narrower, and what constrains it."""
    some = [kind for kind in kinds if kind != "null"]
    if not some or not all(isinstance(kind, str) and kind in TYPES for kind in some):
        raise Unusable(f"{where}: the type is none of {', '.join(TYPES)}")
    others = keywords_of_others(some[0]) if len(some) > 1 else frozenset()
    if others and some[0] not in {"integer", "number"}:
        others |= _EXCLUSIVE
    return {key: value for key, value in schema.items() if key not in others} | {"type": some[0]}


def _whole(bound: object, where: str, schema: Mapping[str, Any]) -> int:
    if not isinstance(bound, int) or schema.get("type") != "integer":
        raise Unusable(f"{where}: intake checks it for whole numbers only")
    return bound


def _check(schema: Mapping[str, Any], where: str) -> None:
    try:
        check_schema(schema, where)
    except (InvariantBroken, TypeError, AttributeError) as error:
        raise Unusable(f"{where}: {error}") from None
