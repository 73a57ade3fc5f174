"""Typed parameters: conversion of a JSON object to a method's struct, with errors naming the field.

Unknown fields are refused everywhere: a misspelt option that is silently ignored is worse than an
error.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from palyra.core.text.validation_errors import WORDS, explain
from palyra.errors import InvalidParams

SLUG = msgspec.Meta(  # a name chosen by an operator
    max_length=64,
    pattern=r"^[a-z0-9][a-z0-9._-]*$",
    extra={WORDS: "lowercase letters, digits and . _ -, a letter or digit first"},
)
LINE = msgspec.Meta(  # a text that fits into one line of a list or log
    pattern=r"^[^\x00-\x1f\x7f]+$", extra={WORDS: "not empty, no line breaks or control characters"}
)


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parameter structs."""


class NoParams(Params, frozen=True, kw_only=True):
    """Params of a method without any."""


P = TypeVar("P", bound=Params)

# Largest integer that every JSON parser holds exactly.  A larger one does not fit into the journal, so
# each integer of a parameter has a bound: this one, unless its meaning has a smaller one.
MAX_INTEGER = 2**53 - 1
Integer = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]

_SECRET = frozenset({"token"})


def convert_params(kind: type[P], params: dict[str, Any]) -> P:
    """Convert params.  Raises InvalidParams naming the field, its constraint and the value given."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        fault = explain(error, kind, params, _SECRET)
        raise InvalidParams(fault.message, field=fault.field) from None
