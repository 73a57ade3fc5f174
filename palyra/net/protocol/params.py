"""Typed parameters: conversion of a JSON object to a method's struct, with errors naming the field.

Unknown fields are refused everywhere: a misspelt option that is silently ignored is worse than an
error.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from palyra.core.text.validation_errors import WORDS, explain, show
from palyra.errors import InvalidParams

SLUG = msgspec.Meta(  # a name chosen by an operator
    max_length=64,
    pattern=r"^[a-z0-9][a-z0-9._-]*$",
    extra={WORDS: "lowercase letters, digits and . _ -, a letter or digit first"},
)
LINE = msgspec.Meta(  # a text that fits into one line of a list or log
    pattern=r"^[^\x00-\x1f\x7f]+$", extra={WORDS: "not empty, no line breaks or control characters"}
)

# Format and bidirectional characters, zero-width and blank ones, tags: a name that has them looks like
# another one, or turns the text next to it.  Source: Unicode Standard Annex 9 and the property
# Default_Ignorable_Code_Point.
NAME = msgspec.Meta(  # a name that a person chooses and reads in lists
    pattern=r"^[^\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    r"\U000e0000-\U000e0fff]+$",
    extra={WORDS: "not empty, no line breaks, control characters or invisible ones"},
)


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parameter structs."""

    renamed: ClassVar[Mapping[str, str]] = {}  # earlier names, which are refused with the new one


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
        new = kind.renamed.get(fault.field)
        message = fault.message if new is None else f"{fault.message}: it is called {show(new)} now"
        raise InvalidParams(message, field=fault.field) from None
