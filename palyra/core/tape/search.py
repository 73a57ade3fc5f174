"""Search in one tape: what is asked, which event answers, and the excerpt that shows it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from palyra.core.tape.outline import Mark, marks_of_event

BEFORE_CHARS, AFTER_CHARS = 60, 140  # of an excerpt, round the begin of the match
MAX_DEPTH = 32  # of a payload


class TapeSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the events of one tape; empty and None mean all, and each given one must fit."""

    text: str = ""  # in a value; ASCII letters in either case
    kinds: tuple[str, ...] = ()
    call_id: str | None = None
    marks: tuple[Mark, ...] = ()
    from_seq: int | None = None  # None: the first, or the last when backwards
    backwards: bool = False
    limit: int = 50


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as a search reads it."""

    seq: int
    at_ms: int
    kind: str
    data: bytes


class TapeHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that fits, with the place of the text in it."""

    seq: int
    at_ms: int
    kind: str
    call_id: str | None = None
    marks: tuple[Mark, ...] = ()
    field: str = ""  # of the text: names and indexes joined by dots
    excerpt: str = ""
    at: int = 0  # characters of the excerpt before the text


class TapeFound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events that fit, in the order of the search, and where to go on; no `next_seq`: all was searched."""

    hits: list[TapeHit]
    head_seq: int
    next_seq: int | None = None


def find_hit(row: EventRow, wanted: TapeSearch) -> TapeHit | None:
    """Return the hit if the event fits, else None."""
    if wanted.kinds and row.kind not in wanted.kinds:
        return None
    marks = marks_of_event(row.kind, row.data)
    if wanted.marks and not {*wanted.marks}.intersection(marks):
        return None
    try:
        payload = msgspec.json.decode(row.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # purged, or damaged
        payload = {}
    own = payload.get("call_id") if isinstance(payload, dict) else None
    if wanted.call_id is not None and own != wanted.call_id:
        return None
    hit = TapeHit(
        seq=row.seq,
        at_ms=row.at_ms,
        kind=row.kind,
        call_id=own if isinstance(own, str) else None,
        marks=marks,
    )
    return hit if not wanted.text else _with_excerpt(hit, payload, _fold(wanted.text))


def _with_excerpt(hit: TapeHit, payload: Any, text: str) -> TapeHit | None:  # noqa: ANN401 - plain JSON
    for field, value in _values(payload, "", MAX_DEPTH):
        at = _fold(value).find(text)
        if at >= 0:
            first = max(0, at - BEFORE_CHARS)
            excerpt = value[first : at + max(AFTER_CHARS, len(text))]
            return msgspec.structs.replace(hit, field=field, excerpt=excerpt, at=at - first)
    return None


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _fold(text: str) -> str:
    """Lower the ASCII letters, as LIKE compares; every character keeps its place."""
    return text.translate(_LOWER)


def _values(value: Any, field: str, depth: int) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - plain JSON
    """Yield each text and number of a payload with its place."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, bool) or value is None or not depth:
        return
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _values(each, f"{field}.{name}".lstrip("."), depth - 1)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _values(each, f"{field}.{number}".lstrip("."), depth - 1)
    else:
        yield field, str(value)
