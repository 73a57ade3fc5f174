"""Typed parameters: a JSON object to a method's struct, with messages that name the field.

Unknown fields are refused everywhere: a misspelt option that is silently ignored is worse than an
error.
"""

from typing import Any, TypeVar

import msgspec

from palyra.core.text.validation_errors import WORDS, explain
from palyra.errors import InvalidParams

SLUG = msgspec.Meta(  # a name that somebody chooses
    max_length=64,
    pattern=r"^[a-z0-9][a-z0-9._-]*$",
    extra={WORDS: "lowercase letters, digits and . _ -, a letter or digit first"},
)
LINE = msgspec.Meta(  # what must not spoil a list or a log
    pattern=r"^[^\x00-\x1f\x7f]+$", extra={WORDS: "not empty, no line breaks or control characters"}
)


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parameter structs."""


class NoParams(Params, frozen=True, kw_only=True):
    """A method that takes nothing."""


P = TypeVar("P", bound=Params)

_SECRET = frozenset({"token"})


def convert_params(kind: type[P], params: dict[str, Any]) -> P:
    """The typed parameters.  Raises InvalidParams with the field, what it takes and what came."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        fault = explain(error, kind, params, _SECRET)
        raise InvalidParams(fault.message, field=fault.field) from None
