"""The work of a redaction grows with the text: counted in bytes that expressions and checks read."""

from collections.abc import Iterator

import pytest

from palyra.core.redaction.grammar import ANYWHERE, Rule
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.redaction.scanner import FirstLook, Part, Scanner, Span

TEXTS = [
    ("", "a."),
    ("", "9"),
    ("", "x"),
    ("", "aB3"),
    ("", "a="),
    ("", "a-"),
    ("", "%41"),
    ("", "%20-p"),
    ("mysql", "+-p"),
    ("https://x/?token=", "a."),
    ("Bearer ", "a."),
    ("", "--password"),
    ("", " -a.password=aaaaaaaaaaaaaaaa"),
    ("", 'password" { default = "'),
    ('variable "password" {', "default = "),
    ("", "['password'] = "),
    ("", ":secret => "),
    ("", "://" + "0123456789abcdef" * 2 + "@a/1"),
    ("https://" + "0123456789abcdef" * 2 + "@", "a."),
    ("", 'key" value="'),
    ("", " password=hunter2x"),
    ("", " password: hunter"),
    ("", "mysqladmin password     -"),
    ("", 'PDO(a, "aaaaaaaa"'),
    ("", 'assword send "aaa'),
]
BYTES = 20_000
REDACTOR = Redactor([])


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number per step: how many bytes it read."""
    steps: list[int] = []
    look, place, spans, viable = (
        FirstLook.__call__, Part.next_place, Part.spans, Scanner.find_viable,
    )  # fmt: skip

    def count_look(self: FirstLook, data: bytes) -> object:
        steps.append(len(data))
        return look(self, data)

    def count_place(self: Part, data: bytes, pos: int) -> tuple[int, int] | None:
        found = place(self, data, pos)
        steps.append((len(data) if found is None else found[1]) - pos)
        return found

    def count_spans(self: Part, data: bytes, at: int, end: int) -> Iterator[Span]:
        steps.append(end - at)
        return spans(self, data, at, end)

    def count_viable(self: Scanner, data: bytes, pos: int) -> int:
        found = viable(self, data, pos)
        steps.append(len(data) - found)
        return found

    monkeypatch.setattr(FirstLook, "__call__", count_look)
    monkeypatch.setattr(Part, "next_place", count_place)
    monkeypatch.setattr(Part, "spans", count_spans)
    monkeypatch.setattr(Scanner, "find_viable", count_viable)
    return steps


@pytest.mark.parametrize(("before", "unit"), TEXTS)
@pytest.mark.parametrize("is_stream", [False, True], ids=["text", "stream"])
def test_twice_the_text_is_twice_the_work(
    before: str, unit: str, work: list[int], *, is_stream: bool
) -> None:
    """Whatever repeats itself, whole or fed at once to a stream."""
    once, twice = (
        work_for(before + unit * (size // len(unit)), work, is_stream=is_stream)
        for size in (BYTES, 2 * BYTES)
    )
    assert twice <= 2.5 * once


def work_for(text: str, work: list[int], *, is_stream: bool) -> int:
    work.clear()
    if is_stream:
        stream = StreamRedactor(REDACTOR)
        stream.feed(text)
        stream.flush()
    else:
        REDACTOR.redact_text(text)
    return sum(work)


def test_the_count_sees_quadratic_work(work: list[int]) -> None:
    """A scan from each place of a text to its end is not taken for linear."""
    part = Part([Rule("x", ANYWHERE, "ab", "c")])
    counts = []
    for size in (100, 200):
        work.clear()
        for pos in range(size):
            part.next_place(b"\n" * size, pos)
        counts.append(sum(work))
    assert counts[1] > 2.5 * counts[0]
