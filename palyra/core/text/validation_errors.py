"""Readable validation errors: path of the invalid value, allowed values, received value.

msgspec reports the first invalid value, but never the members of an enumeration, and of a pattern
only the expression.  Both are looked up by the path in its error.  The author of a pattern
describes it in words: `Meta(pattern=…, extra={WORDS: "…"})`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from palyra.core.text.visible import pluralize

WORDS = "words"  # key of `Meta.extra`: the values that a pattern allows
SHOWN_CHARS = 96  # of an invalid value; the redactor would not recognize a token cut shorter
MAX_FIELD_CHARS = 128  # a peer may send a name of any length

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMED = re.compile(
    r"^Object (?:contains unknown|missing required) field `(?P<name>.*)`$", re.DOTALL
)
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
    inspect.TypedDictType: "an object",
}
_ANY_KEY = "..."  # in msgspec's paths: any key of a mapping


class ValidationFault(NamedTuple):
    """An invalid value: its path ("" for the whole) and the error text."""

    field: str
    message: str


class _Found(NamedTuple):
    """Type and value at the end of a path."""

    kind: inspect.Type | None
    value: object = msgspec.UNSET  # unset where the path is ambiguous


def explain(
    error: msgspec.ValidationError,
    kind: type,
    given: object,
    secret: frozenset[str] = frozenset(),
) -> ValidationFault:
    """Return the fault of `given` (plain JSON) as a `kind`; `secret` values are hidden."""
    parts = _PATH.match(str(error))
    what, path = (parts["what"], parts["path"] or "") if parts else (str(error), "")
    named = _NAMED.match(what)
    if named:
        verb = "unknown field" if "unknown" in what else "missing field"
        field = f"{path}.{named['name']}".lstrip(".")[:MAX_FIELD_CHARS]
        return ValidationFault(field, f"{verb} {show(field)}")
    found = _find(inspect.type_info(kind), given, path)
    wanted = None if found.kind is None else allowed(found.kind)
    problem = what[:1].lower() + what[1:] if wanted is None else f"expected {wanted}"
    is_told = found.value is not msgspec.UNSET and path not in secret
    got = f", got {_measured(found.value)}" if is_told else ""
    return ValidationFault(path, f"{path}: {problem}{got}" if path else f"{problem}{got}")


def allowed(kind: inspect.Type) -> str | None:
    """Describe the values that the type allows; None if there is no description."""
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            plain = allowed(inner)
            words = (extra or {}).get(WORDS)
            return f"{plain}: {words}" if words and plain else plain
        case inspect.UnionType(types=types):
            return _allowed_of_many(types)
        case _:
            return _allowed_of_one(kind)


def _allowed_of_one(kind: inspect.Type) -> str | None:
    match kind:
        case inspect.LiteralType(values=values):
            return _list([show(value) for value in values])
        case inspect.IntType() | inspect.FloatType():
            noun = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            return f"{noun}{_range(kind.ge, kind.le)}"
        case inspect.StrType(min_length=least, max_length=most):
            return f"a text{_length(least, most, 'character')}"
        case inspect.ListType() | inspect.VarTupleType():
            return f"a list{_length(kind.min_length, kind.max_length, 'member')}"
        case _:
            return _PLAIN.get(type(kind))


def show(value: object, limit_chars: int = SHOWN_CHARS) -> str:
    """Render a value for an error message: JSON-like, truncated."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            cut = value if len(value) <= limit_chars else f"{value[:limit_chars]}…"
            return json.dumps(cut)
        case _:
            text = json.dumps(value)
            return text if len(text) <= limit_chars else f"{text[:limit_chars]}…"


def _measured(value: object) -> str:
    """Render a value, with its size where the size may be the error and is not visible."""
    if isinstance(value, list):
        return pluralize(len(value), "member")
    if isinstance(value, str) and len(value) > SHOWN_CHARS:
        return f"{len(value)} characters: {show(value)}"
    return show(value)


def _find(kind: inspect.Type, given: object, path: str) -> _Found:
    """Return the type and the value at that path."""
    found = _Found(kind, given)
    for name, index in _STEP.findall(path):
        if found.kind is None:
            break
        found = _descend(found, name or index)
    return found


def _descend(found: _Found, step: str) -> _Found:
    value = found.value
    for kind in _alternatives(found.kind):
        match kind:
            case inspect.StructType(fields=fields):
                inner = next((each.type for each in fields if each.encode_name == step), None)
                if inner is not None and isinstance(value, Mapping):
                    return _Found(inner, value.get(step, msgspec.UNSET))
            case inspect.ListType() | inspect.VarTupleType() if step.isdecimal():
                is_there = isinstance(value, list | tuple) and int(step) < len(value)
                return _Found(kind.item_type, value[int(step)] if is_there else msgspec.UNSET)  # type: ignore[index]  # looked at above
            case inspect.DictType() if step == _ANY_KEY:
                return _Found(kind.value_type)
            case _:
                pass
    return _Found(None)


def _alternatives(kind: inspect.Type | None) -> tuple[inspect.Type, ...]:
    """Return the members of a union, or the type itself, without metadata."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return tuple(inner for each in kind.types for inner in _alternatives(each))
    return () if kind is None else (kind,)


def _allowed_of_many(types: tuple[inspect.Type, ...]) -> str | None:
    """Describe the union's values except null: omitting the field means the same."""
    kinds = [each for each in types if not isinstance(each, inspect.NoneType)]
    literals = [each for each in kinds if isinstance(each, inspect.LiteralType)]
    if literals and len(literals) == len(kinds):
        return _list([show(value) for each in literals for value in each.values])
    words = [allowed(each) for each in kinds]
    return None if None in words else _list([word for word in words if word])


def _list(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _range(least: Any, most: Any) -> str:  # noqa: ANN401 - numbers of either kind
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f" of at least {least}"
        case None, _:
            return f" of at most {most}"
        case _:
            return f" from {least} to {most}"


def _length(least: int | None, most: int | None, noun: str) -> str:
    if most is None:
        return "" if least is None else f" of at least {pluralize(least, noun)}"
    return f" of {least} to {most} {noun}s" if least else f" of at most {pluralize(most, noun)}"
