"""The JSON Schema an answer is to fit: what can be checked exactly, and nothing else.

The part of JSON Schema 2020-12 that SDKs make from their types.  A word outside of it makes the
schema unusable, so that no rule stands in it without being kept.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from palyra.core.schema import TYPES
from palyra.errors import PalyraError

MAX_DEPTH = 32  # of schema and value alike, references included
MAX_STEPS = 20_000  # of one check: as many values as a message may have, some 20 ms
_WORDS = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"}
)
_RULES = frozenset(
    {
        "type", "enum", "const", "anyOf", "$ref", "$defs", "properties", "required",
        "additionalProperties", "items", "minItems", "maxItems", "minLength", "maxLength",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    }
)  # fmt: skip
_NUMBER, _COUNT = (int, float), (int,)
_SHAPES: dict[str, tuple[type, ...]] = {
    "type": (str, list),
    "enum": (list,),
    "anyOf": (list,),
    "$ref": (str,),
    "$defs": (dict,),
    "properties": (dict,),
    "required": (list,),
    "additionalProperties": (bool, dict),
    "items": (bool, dict),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
}
_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_LENGTHS = {"minLength": "minimum", "maxLength": "maximum"}
_COUNTS = {"minItems": "minimum", "maxItems": "maximum"}
_DEFS = "#/$defs/"

Json = Mapping[str, Any]


class UnusableSchema(PalyraError):
    """The schema has a rule that is not kept here."""

    code = "unusable_schema"


def check_answer_schema(schema: object) -> None:
    """Raises UnusableSchema unless every rule in it is one that is kept."""
    root = schema if isinstance(schema, Mapping) else {}
    _check(schema, root, "the schema", 0)
    for name, inner in root.get("$defs", {}).items():
        _check(inner, root, f"$defs.{name}", 0)


def _check(schema: object, root: Json, where: str, depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        raise UnusableSchema(f"{where}: not a schema, or deeper than {MAX_DEPTH}")
    unknown = schema.keys() - _WORDS - _RULES
    if unknown:
        raise UnusableSchema(f"{where}: {min(unknown)!r} is not checked here")
    _check_words(schema, where)
    reference = schema.get("$ref")
    if reference is not None and _find(root, reference) is None:
        raise UnusableSchema(f"{where}: {reference!r} leads nowhere; only {_DEFS}NAME does")
    for name, inner in _parts(schema):
        _check(inner, root, f"{where}.{name}", depth + 1)


def _check_words(schema: Json, where: str) -> None:
    """Raises UnusableSchema for a rule that is no rule."""
    for word, shapes in _SHAPES.items():
        if word not in schema:
            continue
        value = schema[word]
        if not isinstance(value, shapes) or (isinstance(value, bool) and bool not in shapes):
            raise UnusableSchema(f"{where}: {word} has no form that it may have")
    if not all(isinstance(name, str) for name in schema.get("required", ())):
        raise UnusableSchema(f"{where}: required must name members")
    kinds = schema.get("type", ())
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if not isinstance(kind, str) or kind not in TYPES:
            raise UnusableSchema(f"{where}: no type {kind!r}")


def _parts(schema: Json) -> Iterator[tuple[str, object]]:
    """The schemas in it."""
    yield from schema.get("properties", {}).items()
    yield from (("anyOf", option) for option in schema.get("anyOf", ()))
    for word in ("items", "additionalProperties"):
        if not isinstance(schema.get(word, True), bool):
            yield word, schema[word]


def _find(root: Json, reference: object) -> Json | None:
    if not isinstance(reference, str) or not reference.startswith(_DEFS):
        return None
    definitions = root.get("$defs")
    if not isinstance(definitions, Mapping):
        return None
    found = definitions.get(reference.removeprefix(_DEFS))
    return found if isinstance(found, Mapping) else None


def find_mismatch(schema: Json, value: object) -> str | None:
    """Where the value breaks a rule of a checked schema, and which; None when it fits."""
    return _mismatch(schema, _Walk(schema), value, "the answer", 0)


class _Walk:
    """A schema while a value is checked: choices inside choices must not take for ever."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.steps = 0


def _mismatch(schema: Json, walk: _Walk, value: object, where: str, depth: int) -> str | None:
    walk.steps += 1
    if depth > MAX_DEPTH or walk.steps > MAX_STEPS:
        return f"{where}: deeper than {MAX_DEPTH}, or more than {MAX_STEPS} values and choices"
    target = _find(walk.root, schema["$ref"]) if "$ref" in schema else None
    if target is not None and (found := _mismatch(target, walk, value, where, depth + 1)):
        return found
    options = schema.get("anyOf")
    if options and all(_mismatch(o, walk, value, where, depth + 1) for o in options):
        return f"{where}: none of the {len(options)} forms it may have"
    return _own(schema, value, where) or _inside(schema, walk, value, where, depth)


def _own(schema: Json, value: object, where: str) -> str | None:
    """What is wrong with the value itself."""
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if wanted and not any(TYPES[kind](value) for kind in wanted):
        return f"{where}: must be {' or '.join(wanted)}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where}: must be one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where}: must be {schema['const']!r}"
    size, words = _measure(value)
    for word, rule in words.items():
        if word in schema and not _BOUNDS[rule](size, schema[word]):
            return f"{where}: {word} is {schema[word]}"
    return None


def _measure(value: object) -> tuple[float, dict[str, str]]:
    """What of a value is bounded, and by which words."""
    match value:
        case bool():
            return 0, {}
        case int() | float():
            return value, {rule: rule for rule in _BOUNDS}
        case str():
            return len(value), _LENGTHS
        case list():
            return len(value), _COUNTS
        case _:
            return 0, {}


def _same(left: object, right: object) -> bool:
    """Equal as JSON: true is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _inside(schema: Json, walk: _Walk, value: object, where: str, depth: int) -> str | None:
    """What is wrong with what the value holds."""
    if isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"{where}: {missing[0]!r} is missing"
    for inner, item, place in _held(schema, value, where):
        if inner is False:
            return f"{place}: is not asked for"
        if isinstance(inner, Mapping):
            found = _mismatch(inner, walk, item, place, depth + 1)
            if found is not None:
                return found
    return None


def _held(schema: Json, value: object, where: str) -> Iterator[tuple[object, object, str]]:
    """What the value holds, each with its schema and its place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield schema.get("items", True), item, f"{where}[{index}]"
    elif isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            yield known.get(name, rest), item, f"{where}.{name}"
