"""Marks: words that say whose a text is, so that any answer or prompt can be searched for them.

A mark of the memory (`zzannx7q`) is in one item; one of a rule (`ruannx7q`) or of a saying
(`saannx7q`) is in one message; one that a tool or another run told (`toannx7q`) is nobody's statement.
"""

import re
from typing import Literal

Kind = Literal["zz", "ru", "sa", "to"]
_MARK = re.compile(r"\b(?:zz|ru|sa|to)[a-z]+x\d+q\b")


def make_mark(kind: Kind, principal: str, number: int) -> str:
    """Return the mark with that number of a principal."""
    return f"{kind}{principal}x{number}q"


def owner_of(mark: str) -> str:
    """Return the principal that a mark belongs to."""
    return mark[2:].partition("x")[0]


def find_marks(text: str, kind: Kind | None = None) -> set[str]:
    """Return the marks of a text, or those of one kind."""
    found = set(_MARK.findall(text))
    return found if kind is None else {mark for mark in found if mark.startswith(kind)}
