"""Outline of a tape: for a strip of buckets, the events of each family and the marks.

An event has a code, one character made of its kind and two flags, so that a tape of 100 000 events
is a text of 100 000 characters that a store makes in one statement.  A store finds a flag by a
needle in the payload: JSON escapes the quotes of its strings, so a needle with a quote never occurs
inside of one.  Arguments and attachments are chosen by others, so a taint found in them is looked at again
(`doubtful`, `marks_of_event`).
"""

from collections import Counter
from typing import Literal

import msgspec

from palyra.core.journal.purged_row import PREFIX as PURGED
from palyra.core.tape import events as ev
from palyra.core.tape.taint import TAINTING, brings_taint

Mark = Literal["approval", "denial", "failure", "guard", "recovery", "taint"]

FIRST = 0x100  # of the codes; four for each kind
KINDS = tuple(sorted(ev.KINDS))
UNKNOWN = chr(FIRST - 1)  # a kind of a newer version
IS_BAD, IS_TAINTED = 1, 2

# Kinds whose payload decides, with needles of the payloads that are good and of those that are bad.
GOOD: dict[str, tuple[bytes, ...]] = {
    ev.ToolCompleted.KIND: (b'"status":"succeeded"', b'"status":"handed_over"'),
    ev.ToolDecided.KIND: (b'"verdict":"allow"',),
    ev.DelegationEnded.KIND: (b'"state":"done"', b'"state":"partial"'),
}
TAINTS = (b'"findings":["', b'"is_tainted":true')
TAINTED = tuple(sorted(TAINTING - {ev.ToolProposed.KIND}))

_MARKS: dict[str, Mark] = {
    ev.ApprovalRequested.KIND: "approval",
    ev.TurnFailed.KIND: "failure",
    ev.RunFailed.KIND: "failure",
    ev.ToolRejected.KIND: "failure",
    ev.AnswerRejected.KIND: "failure",
    ev.ItemRefused.KIND: "failure",
    ev.BudgetExceeded.KIND: "failure",
    ev.GuardWarned.KIND: "guard",
    ev.GuardBlocked.KIND: "guard",
    ev.RunRecovered.KIND: "recovery",
}
_BAD: dict[str, Mark] = {
    ev.ToolCompleted.KIND: "failure",
    ev.ToolDecided.KIND: "denial",
    ev.DelegationEnded.KIND: "failure",
}


class OutlineMark(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one mark in one bucket; a bucket without them has no such item."""

    mark: Mark
    bucket: int
    seq: int  # of the first one
    count: int


class TapeOutline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tape in buckets of `width` events; the first one begins at `floor`.

    In `codes` an event is one character: 256 + 4 * the index of its kind in `kinds`, + 1 if it is a
    failure or a denial, + 2 if it may have brought taint; 255 is a kind of a newer version.
    """

    run_id: str
    floor: int
    head: int
    width: int
    buckets: list[dict[str, int]]  # by family, the first word of a kind: number of events
    marks: list[OutlineMark]
    kinds: tuple[str, ...] | None = None
    codes: str | None = None


def code_of(kind: str, data: bytes) -> str:
    """Return the code of an event."""
    if kind not in ev.KINDS:
        return UNKNOWN
    is_bad = kind in GOOD and not any(needle in data for needle in GOOD[kind])
    is_bad = is_bad and not data.startswith(PURGED)  # how it ended is not known any more
    is_tainted = kind in TAINTED and any(needle in data for needle in TAINTS)
    flags = (IS_BAD if is_bad else 0) + (IS_TAINTED if is_tainted else 0)
    return chr(FIRST + 4 * KINDS.index(kind) + flags)


def marks_of(code: str) -> tuple[Mark, ...]:
    """Return the marks of an event with that code."""
    if code == UNKNOWN:
        return ()
    number, flags = divmod(ord(code) - FIRST, 4)
    kind = KINDS[number]
    own = (_BAD if flags & IS_BAD else _MARKS).get(kind)
    marks = () if own is None else (own,)
    return (*marks, "taint") if flags & IS_TAINTED else marks


def codes_with(marks: tuple[Mark, ...]) -> str:
    """Return the codes that have one of the marks."""
    every = map(chr, range(FIRST, FIRST + 4 * len(KINDS)))
    return "".join(code for code in every if {*marks}.intersection(marks_of(code)))


def doubtful(codes: str) -> list[int]:
    """Return the places whose payload must be decoded to know whether the event brought taint."""
    found = list(filter(_is_doubtful, {*codes}))
    return [] if not found else [at for at, code in enumerate(codes) if code in found]


def _is_doubtful(code: str) -> bool:
    return "taint" in marks_of(code) and kind_of(code) != ev.ToolCompleted.KIND


def marks_of_event(kind: str, data: bytes) -> tuple[Mark, ...]:
    """Return the marks of an event, of which a doubtful taint is confirmed."""
    code = code_of(kind, data)
    is_taint = not _is_doubtful(code) or brings_taint(kind, data)
    return marks_of(code if is_taint else without_taint(code))


def without_taint(code: str) -> str:
    """Return the code without that flag."""
    return chr(ord(code) & ~IS_TAINTED)


def kind_of(code: str) -> str:
    """Return the kind; "unknown" for one of a newer version."""
    return "unknown" if code == UNKNOWN else KINDS[(ord(code) - FIRST) // 4]


def make_outline(run_id: str, codes: str, *, floor: int, buckets: int) -> TapeOutline:
    """Sum up the codes of a tape from `floor` on in at most so many buckets."""
    width = max(1, -(-len(codes) // buckets))
    sums: list[dict[str, int]] = []
    marks: list[OutlineMark] = []
    for bucket, start in enumerate(range(0, len(codes), width)):
        part = codes[start : start + width]
        families = Counter[str]()
        spots: dict[Mark, list[int]] = {}  # first place and number
        for code, number in Counter(part).items():
            families[kind_of(code).partition(".")[0]] += number
            for mark in marks_of(code):
                spot = spots.setdefault(mark, [width, 0])
                spot[0] = min(spot[0], part.index(code))
                spot[1] += number
        sums.append(dict(sorted(families.items())))
        marks += [
            OutlineMark(mark=mark, bucket=bucket, seq=floor + start + first, count=number)
            for mark, (first, number) in sorted(spots.items())
        ]
    head = floor + len(codes) - 1
    return TapeOutline(
        run_id=run_id, floor=floor, head=head, width=width, buckets=sums, marks=marks
    )
