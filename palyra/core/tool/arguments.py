"""Validation of a proposed call's name and arguments against the catalogue, before any other check.

The validator is `core.text.json_schema`.  Two rules are added to JSON Schema for the parameters of a
tool, which are checked when the tool is registered:

- Every keyword must be known, so that a misspelled rule is not silently ignored.
- An object that lists its properties and says nothing of others takes no others, so that a misspelled
  argument is not silently ignored either.  This applies where it can only narrow the schema: to the
  arguments as a whole and to objects and items written out below them.  Where a subschema is applied
  together with another (`$ref`, `anyOf`, …), the specification alone decides, because each part
  sees only its own properties.

Arguments that the validator refuses, and those with a float, are traversed once: a scalar of the
wrong type with one possible reading (`"25"` for 25) is converted and the change recorded, except in
arguments where the text itself matters (paths, commands, URLs, bodies, secrets).  If the validator
still refuses them, its innermost reason becomes the refusal.  Of values only numbers appear in a
refusal, of all others their kind: they may be secret.
"""

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache, reduce
from operator import getitem
from typing import Any, cast

import msgspec

from palyra.core.text.canonical_json import MAX_SAFE_INTEGER, NotCanonical, canonical_json
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.json_schema import (
    ANNOTATIONS,
    DEFINITIONS,
    RULES,
    CompiledSchema,
    Json,
    Path,
    UnusableSchema,
    all_subschemas,
    explain,
)
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.spec import Catalogue, ToolSpec

MAX_DEPTH = 16
MAX_NODES = 2_000  # bounds each later traversal to about a millisecond
MAX_WORK = 40_000  # (subschema, value) pairs of one validation: about a millisecond at worst
_MAX_REFERENCES = 8  # in a row
_SHOWN_BELOW = 10**15  # a longer number may be a secret
_NAME_CHARS = 64  # of an unknown field, in a refusal

# Conditions on which a tool's availability depends, by prefix of its name.
_PROGRAMS = "whether there is a sandbox for programs (`palyra doctor`)"
_ALSO = (
    ("shell", _PROGRAMS),
    ("process_", _PROGRAMS),
    ("wasm:", "whether its skill is installed and not in quarantine (`palyra skills list`)"),
    ("mcp:", "whether its server is connected (`palyra status`)"),
)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")  # every match is below 2**53
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")

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


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Valid arguments."""

    arguments: dict[str, Any]
    canonical: bytes  # RFC 8785
    coercions: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A defect and the expected value, for the model to correct."""

    reason: str
    repair_hint: str
    digest: str = ""  # SHA-256 of the arguments as proposed, once they are known


def refusal(reason: str, expected: str) -> Refused:
    """Defect, position and expected value; the model reads them in this order."""
    return Refused(reason=reason, repair_hint=f"expected {expected}")


def unknown_tool(name: str, catalogue: Catalogue) -> Refused:
    """Refuse a name that is no tool of the run, and name the setting that decides it."""
    shown = visible(truncate_safely(name, 64))
    near = get_close_matches(name[:64], catalogue.tools, n=1)
    also = "".join(f", and {each}" for prefix, each in _ALSO if name.startswith(prefix))
    known = f"one of {', '.join(sorted(catalogue.tools))}" if catalogue.tools else "no call at all"
    return refusal(
        f"{shown!r} is not in the catalogue; the agent's tool list "
        f"and what the request says of tools decide that{also}",
        expected=f"{near[0]!r}" if near else known,
    )


def check_arguments(spec: ToolSpec, arguments: object) -> Accepted | Refused:
    """Return the arguments for the tool, or their first defect."""
    if not isinstance(arguments, dict):
        return refusal(f"arguments: got {_kind(arguments)}", "a JSON object")
    schema = compile_parameters(spec.parameters)
    coercions: tuple[str, ...] = ()
    try:
        checked, has_float = _check_shape(arguments, spec.input_cap_bytes, schema)
        if has_float or not schema.fits("", checked):
            checked, coercions = _coerced(schema, checked, spec.never_coerced)
        canonical = _canonical(checked, spec.input_cap_bytes)
    except UnicodeEncodeError:  # of the validator: half of a surrogate pair
        found = _not_canonical()
        return refusal(found.reason, found.expected)
    except _Refusal as found:
        return refusal(found.reason, found.expected)
    return Accepted(arguments=checked, canonical=canonical, coercions=coercions)


class _Refusal(Exception):
    def __init__(self, path: Path, expected: str, got: str) -> None:
        self.expected = expected
        self.reason = f"{_position(path)}: got {got}"  # `arguments: …` for the whole
        super().__init__(self.reason)


# --- parameters ----------------------------------------------------------------------------------


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


# --- shape and size ------------------------------------------------------------------------------


def _check_shape(
    arguments: dict[str, Any], cap_bytes: int, schema: CompiledSchema
) -> tuple[dict[str, Any], bool]:
    """Bound depth, number of values, text and cost; the second part is True if there is a float."""
    level: list[Any] = [arguments]
    nodes = chars = depth = 0
    has_float = False
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise _Refusal((), f"at most {MAX_DEPTH} levels", "deeper nesting")
        if nodes > MAX_NODES:
            raise _Refusal((), f"at most {MAX_NODES} values", "more")
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                chars += len(item)
            elif isinstance(item, dict):
                chars += sum(map(len, item))
                below += item.values()
            elif isinstance(item, list):
                below += item
            else:
                has_float = has_float or isinstance(item, float)
        if chars > cap_bytes:
            raise _Refusal((), f"at most {cap_bytes} bytes", "more")
        level = below
    if schema.work(2 * nodes, chars) > MAX_WORK:  # each value may have a name
        raise _Refusal((), "fewer values or less text", "more than its schema can be checked with")
    return arguments, has_float


def _not_canonical() -> _Refusal:
    return _Refusal((), "numbers within ±(2^53-1) and valid Unicode", "others")


def _canonical(arguments: dict[str, Any], cap_bytes: int) -> bytes:
    try:
        canonical = canonical_json(arguments)
    except NotCanonical:
        raise _not_canonical() from None
    if len(canonical) > cap_bytes:
        raise _Refusal((), f"at most {cap_bytes} bytes", pluralize(len(canonical), "byte"))
    return canonical


# --- coercion ------------------------------------------------------------------------------------


def _coerced(
    schema: CompiledSchema, arguments: dict[str, Any], never_coerced: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return arguments that fit, and the coercions that were necessary.  Raises _Refusal."""
    coercion = _Coercion(schema, never_coerced)
    coerced: dict[str, Any] = coercion.coerce(schema.schema, arguments, ())
    if not schema.fits("", coerced):
        raise _explained(schema, coerced)
    return coerced, tuple(coercion.made)


class _Coercion:
    """Traversal of value and schema along properties and items."""

    def __init__(self, schema: CompiledSchema, never_coerced: tuple[str, ...]) -> None:
        self._schema = schema
        self._never_coerced = never_coerced
        self.made: list[str] = []

    def coerce(self, schema: Any, value: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON
        """Return the value with its scalars coerced where that is safe.  Raises _Refusal."""
        schema = self._resolve(schema, value)
        if isinstance(value, dict):
            known = schema.get("properties", {})
            others = schema.get("additionalProperties", True)
            return {
                name: self.coerce(known.get(name, others), item, (*path, name))
                for name, item in value.items()
            }
        if isinstance(value, list):
            inner = schema.get("items", True)
            return [self.coerce(inner, item, (*path, index)) for index, item in enumerate(value)]
        types = schema.get("type", ())
        wanted = (types,) if isinstance(types, str) else types
        if not wanted or any(_TYPES[kind](value) for kind in wanted):
            return value
        readings = (_COERCIONS[kind](value) for kind in wanted if kind in _COERCIONS)
        coerced = next((reading for reading in readings if reading is not None), None)
        if coerced is None or (path and path[0] in self._never_coerced):
            raise _Refusal(path, expected_text(schema) or "another type", _kind(value))
        self.made.append(f"{_position(path)}: {json.dumps(value)} -> {json.dumps(coerced)}")
        return coerced

    def _resolve(self, schema: Any, value: object) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON
        """Follow references, and the only alternative to null; {} if nothing is known."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping):
                return {}
            if "$ref" in schema:
                _, schema = self._schema.target(schema["$ref"])
            elif "anyOf" in schema:
                options = [each for each in schema["anyOf"] if each != {"type": "null"}]
                schema = options[0] if len(options) == 1 and value is not None else True
            else:
                return schema
        return {}


# --- safe coercions: one possible reading without loss; None if there is none -----------------


def _to_integer(value: object) -> int | None:
    if isinstance(value, float):
        is_exact = value.is_integer() and abs(value) <= MAX_SAFE_INTEGER
        return int(value) if is_exact else None
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None


def _to_number(value: object) -> int | float | None:
    whole = _to_integer(value)
    if whole is not None:
        return whole
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _to_boolean(value: object) -> bool | None:
    return {"true": True, "false": False}.get(value) if isinstance(value, str) else None


def _to_string(value: object) -> str | None:
    return str(value) if type(value) is int else None


_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_COERCIONS: dict[str, Callable[[object], Any]] = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "string": _to_string,
}

# --- error texts ---------------------------------------------------------------------------------------


def _explained(schema: CompiledSchema, value: dict[str, Any]) -> _Refusal:
    """Return the innermost reason why the value does not fit."""
    found = explain(schema, value)
    path, around, extra = found.path, found.schema, ""
    if found.schema is False and found.outer.get("additionalProperties") is False:
        path, around, extra = path[:-1], found.outer, f"the field {_shown(str(path[-1]))}"
    rules = around if isinstance(around, Mapping) else {}
    known, inside = rules.get("properties", {}), reduce(getitem, path, cast("Any", value))
    names = rules.get("required", ()) if isinstance(inside, dict) else ()
    if missing := next((name for name in names if name not in inside), None):
        wanted = expected_text(known.get(missing)) or "a value"
        return _Refusal((*path, missing), wanted, f"nothing, but {extra}" if extra else "nothing")
    if extra:
        return _Refusal(path, _fields_text(known, str(found.path[-1])), extra)
    wanted = expected_text(around) or f"another value: {found.reason}"
    return _Refusal(path, wanted, _kind(found.value))


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


def _position(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "arguments"


def _kind(value: object) -> str:
    """Describe a value by its type; only a number is shown."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            shown = json.dumps(value) if abs(value) < _SHOWN_BELOW else "beyond all bounds"
            return f"the number {shown}"
        case str():
            return f"a string of {pluralize(len(value), 'character')}"
        case list():
            return f"an array of {pluralize(len(value), 'item')}"
        case _:
            return "an object"


def _fields_text(known: Mapping[str, Any], name: str) -> str:
    near = get_close_matches(name[:_NAME_CHARS], known, n=1)
    listed = ", ".join(known) or "none"
    return f"only the fields {listed}" + (f" (did you mean {near[0]}?)" if near else "")


def _shown(name: str) -> str:
    return visible(json.dumps(truncate_safely(name, _NAME_CHARS), ensure_ascii=False))
