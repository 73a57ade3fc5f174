"""Outlines and searches of tapes: codes, buckets, marks, hits and excerpts."""

from typing import Any

import msgspec
import pytest

from palyra.core.tape import events as ev
from palyra.core.tape.outline import (
    KINDS,
    OutlineMark,
    code_of,
    codes_with,
    kind_of,
    make_outline,
    marks_of,
)
from palyra.core.tape.search import EventRow, TapeSearch, find_hit

DONE = ev.ToolCompleted(call_id="c1", status="succeeded", output="The Quick\nbrown fox")
FAILED = ev.ToolCompleted(call_id="c1", status="failed", output="x", findings=("hidden",))


def event(made: ev.Event, seq: int = 0) -> EventRow:
    return EventRow(seq=seq, at_ms=7, kind=made.KIND, data=ev.encode_event(made))


def code(made: ev.Event) -> str:
    return code_of(made.KIND, ev.encode_event(made))


@pytest.mark.parametrize(
    ("made", "marks"),
    [
        (DONE, ()),
        (FAILED, ("failure", "taint")),
        (msgspec.structs.replace(DONE, output='"findings":["x"] "status":"failed"'), ()),
        (msgspec.structs.replace(DONE, status="handed_over"), ()),
        (msgspec.structs.replace(FAILED, output='"status":"succeeded"'), ("failure", "taint")),
        (ev.GuardBlocked(rule="denial", call="c1", count=3), ("guard",)),
        (ev.RunCancelled(reason="", by="ann"), ()),
    ],
)
def test_an_event_has_the_marks_of_its_payload(made: ev.Event, marks: tuple[str, ...]) -> None:
    """A needle inside of a text of the payload, which others write, changes no mark."""
    assert marks == marks_of(code(made))


def test_every_kind_has_a_code_of_its_own() -> None:
    """The code of an empty payload names the kind; a kind of a newer version is unknown."""
    assert [*KINDS] == [kind_of(code_of(kind, b"")) for kind in KINDS]
    assert "unknown" == kind_of(code_of("dream.begun", b"{}"))
    assert () == marks_of(code_of("dream.begun", b"{}"))
    assert code(FAILED) in codes_with(("taint",))


def test_an_outline_counts_families_and_marks() -> None:
    """Buckets are of equal width; a mark names its first event and its number in the bucket."""
    outline = make_outline(
        "run_1",
        code(DONE) * 3 + code(FAILED) * 3 + code_of("dream.begun", b""),
        floor=10,
        buckets=2,
    )
    assert (10, 16, 4) == (outline.floor, outline.head, outline.width)
    assert [{"tool": 4}, {"tool": 2, "unknown": 1}] == outline.buckets
    assert [
        ("failure", 0, 13, 1),
        ("taint", 0, 13, 1),
        ("failure", 1, 14, 2),
        ("taint", 1, 14, 2),
    ] == [(each.mark, each.bucket, each.seq, each.count) for each in outline.marks]
    assert isinstance(outline.marks[0], OutlineMark)
    empty = make_outline("run_1", "", floor=0, buckets=9)
    assert ([], [], -1) == (empty.buckets, empty.marks, empty.head)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, True),
        ({"text": "quick\nBROWN"}, True),
        ({"text": "succeeded"}, True),
        ({"text": "output"}, False),
        ({"text": "call_id"}, False),
        ({"kinds": ("tool.completed",), "call_id": "c1"}, True),
        ({"kinds": ("turn.started",)}, False),
        ({"call_id": "c2"}, False),
        ({"marks": ("failure",)}, False),
    ],
)
def test_a_search_looks_at_values(wanted: dict[str, Any], found: bool) -> None:  # noqa: FBT001 - a row
    """A text is found in a value, in either case, and not in the name of a field."""
    assert found is (find_hit(event(DONE), TapeSearch(**wanted)) is not None)


def test_an_excerpt_shows_the_place() -> None:
    """A long text is cut round the match, and the field is named, also in nested arguments."""
    made = ev.ToolProposed(
        call_id="c1", tool="t", arguments={"list": ["a" * 500 + "needle" + "b" * 500, 42]},
        digest="", tool_class="read_only",
    )  # fmt: skip
    hit = find_hit(event(made, 3), TapeSearch(text="needle"))
    assert hit is not None
    assert ("arguments.list.0", 60, "aneedleb") == (hit.field, hit.at, hit.excerpt[59:67])
    assert 200 == len(hit.excerpt)
    number = find_hit(event(made), TapeSearch(text="42"))
    assert number is not None
    assert ("arguments.list.1", "42") == (number.field, number.excerpt)


@pytest.mark.parametrize("data", [b"", b"\xff{", b'"text"', b"null"])
def test_a_payload_that_is_no_object_has_no_text(data: bytes) -> None:
    """A purged or damaged event is found by its kind only."""
    row = EventRow(seq=0, at_ms=0, kind="run.started", data=data)
    assert find_hit(row, TapeSearch(kinds=("run.started",))) is not None
    assert find_hit(row, TapeSearch(call_id="c1")) is None
