"""Validation of a proposed call's name and arguments against the catalogue, before any other check.

The schema is JSON Schema cut down to what can be checked exactly and in linear time (`KEYWORDS`);
unknown fields are refused.  A scalar in the wrong dress (`"25"` for 25) is put right and the
change recorded, except in arguments where the text itself is the point (paths, commands, URLs,
bodies, secrets).  Of values only numbers appear in a refusal, of all others their kind: they may be secret.
"""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from palyra.core.text.argument_schema import TYPES, expected_text
from palyra.core.text.canonical_json import MAX_SAFE_INTEGER, NotCanonical, canonical_json
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.spec import Catalogue, ToolSpec

MAX_DEPTH = 16
MAX_NODES = 2_000  # bounds each later traversal to about a millisecond
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
    try:
        proposed = _check_shape(arguments, spec.input_cap_bytes)
        checker = _Checker(spec)
        checked = checker.check_fields(spec.parameters, proposed, ())
        canonical = _canonical(checked, spec.input_cap_bytes)
    except _Mismatch as found:
        return refusal(found.reason, found.expected)
    return Accepted(arguments=checked, canonical=canonical, coercions=tuple(checker.coercions))


class _Mismatch(Exception):
    def __init__(self, path: tuple[str | int, ...], expected: str, got: str) -> None:
        self.expected = expected
        self.reason = f"{_position(path)}: got {got}"  # `arguments: …` for the whole
        super().__init__(self.reason)


# --- shape and size ------------------------------------------------------------------------------


def _check_shape(arguments: object, cap_bytes: int) -> dict[str, Any]:
    """Parse the arguments with bounds on depth, number of values and text."""
    if not isinstance(arguments, dict):
        raise _Mismatch((), "a JSON object", _kind(arguments))
    level: list[Any] = [arguments]
    nodes = chars = depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise _Mismatch((), f"at most {MAX_DEPTH} levels", "deeper nesting")
        if nodes > MAX_NODES:
            raise _Mismatch((), f"at most {MAX_NODES} values", "more")
        chars += sum(_text_chars(item) for item in level)
        if chars > cap_bytes:
            raise _Mismatch((), f"at most {cap_bytes} bytes", "more")
        level = [part for item in level for part in _parts(item)]
    return arguments


def _parts(item: object) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _text_chars(item: object) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(len(key) for key in item) if isinstance(item, dict) else 0


def _canonical(arguments: dict[str, Any], cap_bytes: int) -> bytes:
    try:
        canonical = canonical_json(arguments)
    except NotCanonical:
        raise _Mismatch((), "numbers within ±(2^53-1) and valid Unicode", "others") from None
    if len(canonical) > cap_bytes:
        raise _Mismatch((), f"at most {cap_bytes} bytes", pluralize(len(canonical), "byte"))
    return canonical


# --- values against schemas ----------------------------------------------------------------------


class _Checker:
    """Traversal of value and schema; records coercions."""

    def __init__(self, spec: ToolSpec) -> None:
        self.never_coerced = spec.never_coerced
        self.coercions: list[str] = []

    def check(
        self, schema: Mapping[str, Any], value: object, path: tuple[str | int, ...]
    ) -> object:
        """Return the value, coerced where that is safe.  Raises _Mismatch."""
        if not TYPES[schema["type"]](value):
            value = self._coerce(schema, value, path)
        if not _is_within(schema, value):
            raise _Mismatch(path, expected_text(schema), _kind(value))
        if isinstance(value, dict):
            return self.check_fields(schema, value, path)
        if isinstance(value, list) and "items" in schema:
            inner = schema["items"]
            return [self.check(inner, item, (*path, index)) for index, item in enumerate(value)]
        return value

    def check_fields(
        self, schema: Mapping[str, Any], value: dict[str, Any], path: tuple[str | int, ...]
    ) -> dict[str, Any]:
        """Return the object with all fields checked.  Raises _Mismatch."""
        known: Mapping[str, Any] = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in value]
        is_open = schema.get("additionalProperties", False)
        unknown = [] if is_open else [name for name in value if name not in known]
        if missing:
            got = f"nothing, but the field {_shown(unknown[0])}" if unknown else "nothing"
            raise _Mismatch((*path, missing[0]), expected_text(known[missing[0]]), got)
        if unknown:
            got = f"the field {_shown(unknown[0])}"
            raise _Mismatch(path, _fields_text(known, unknown[0]), got)
        return {
            name: self.check(known[name], item, (*path, name)) if name in known else item
            for name, item in value.items()
        }

    def _coerce(
        self, schema: Mapping[str, Any], value: object, path: tuple[str | int, ...]
    ) -> object:
        wanted = schema["type"]
        coerced = _COERCIONS[wanted](value) if wanted in _COERCIONS else None
        if coerced is None or (path and path[0] in self.never_coerced):
            raise _Mismatch(path, expected_text(schema), _kind(value))
        shown = f"{json.dumps(value)} -> {json.dumps(coerced)}"
        self.coercions.append(f"{_position(path)}: {shown}")
        return coerced


def _is_within(schema: Mapping[str, Any], value: object) -> bool:
    """Check enumeration, bounds and lengths of a value of the right type."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return _is_between(len(value), schema, "minLength", "maxLength")
    if isinstance(value, list):
        return _is_between(len(value), schema, "minItems", "maxItems")
    if isinstance(value, int | float):
        return _is_between(value, schema, "minimum", "maximum")
    return True


def _is_between(size: float, schema: Mapping[str, Any], low: str, high: str) -> bool:
    return (low not in schema or size >= schema[low]) and (
        high not in schema or size <= schema[high]
    )


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


_COERCIONS = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "string": _to_string,
}

# --- error texts ---------------------------------------------------------------------------------------


def _position(path: tuple[str | int, ...]) -> str:
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
