"""Typed parameters: a JSON object to a method's struct, with messages that name the field.

Unknown fields are refused everywhere: a misspelt option that is silently ignored is worse than an
error.
"""

import re
from typing import Any, TypeVar

import msgspec

from palyra.errors import InvalidParams
from palyra.net.rpc import show


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parameter structs."""


class NoParams(Params, frozen=True, kw_only=True):
    """A method that takes nothing."""


P = TypeVar("P", bound=Params)

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMED = re.compile(
    r"^Object (?:contains unknown|missing required) field `(?P<name>.*)`$", re.DOTALL
)
MAX_FIELD_CHARS = 128  # a peer may have sent a name of any length
_SECRET = frozenset({"token"})


def convert_params(kind: type[P], params: dict[str, Any]) -> P:
    """The typed parameters.  Raises InvalidParams with the field and the offending value."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), params) from None


def _explain(text: str, params: dict[str, Any]) -> InvalidParams:
    parts = _PATH.match(text)
    what, path = (parts["what"], parts["path"] or "") if parts else (text, "")
    named = _NAMED.match(what)
    if named:
        verb = "unknown field" if "unknown" in what else "missing field"
        field = f"{path}.{named['name']}".lstrip(".")[:MAX_FIELD_CHARS]
        return InvalidParams(f"{verb} {show(field)}", field=field)
    what = what[:1].lower() + what[1:]
    return InvalidParams(f"{path}: {what}{_given(path, params)}", field=path)


def _given(path: str, params: dict[str, Any]) -> str:
    """`, got …` for a field at the top; deeper values and secrets are not repeated."""
    if path in _SECRET or path not in params:
        return ""
    return f" ({show(params[path])})"
