"""Identifiers: a UUIDv7 behind a prefix that says what it names (`run_018f…`).

Ids arrive as arguments; `core` never makes one.  UUIDv7 sorts by creation time, which keeps the
journal's indexes local, and lists are in the order of the ids.  Whatever makes ids makes each later than
the newest of the journal, so that a clock that was ahead for a while leaves nothing at the head of a list.
"""

import re
from collections.abc import Callable
from typing import Literal

Prefix = Literal[
    "run",
    "ses",
    "apr",
    "call",
    "tsk",
    "mem",
    "ckp",
    "inc",
    "tok",
    "sub",
    "pai",
    "proc",
    "emb",
    "cmp",
    "use",
    "scp",
    "ent",
    "pur",
    "can",
    "bak",
    "ret",
    "sch",
]
NewId = Callable[[Prefix], str]

_UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ID = re.compile(
    rf"(run|ses|apr|call|tsk|mem|ckp|inc|tok|sub|pai|proc|emb|cmp|use|scp|ent|pur|bak|ret|sch|can)_{_UUID7}"
)


def is_any_id(text: str) -> bool:
    """Return True if the text has the form of an id, whatever it names."""
    return _ID.fullmatch(text) is not None


def time_ms_of(text: str) -> int:
    """Return the Unix time at which an id was made, in milliseconds; 0 for another text."""
    return int(text.partition("_")[2][:13].replace("-", ""), 16) if is_any_id(text) else 0


def is_id(text: str, prefix: Prefix) -> bool:
    """Return True if `text` is a well-formed id of that kind."""
    match = _ID.fullmatch(text)
    return match is not None and match.group(1) == prefix
