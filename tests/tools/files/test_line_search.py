"""Line search: which lines are found, and how they are shown."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.tools.files import line_search
from palyra.tools.files.line_search import (
    LINE_BYTES,
    BadQuery,
    compile_query,
    compile_text,
    find_hits,
    render_hits,
)
from tests.rows import every_row


def lines_found(
    content: bytes, query: str, *, regex: bool = True, ignore: bool = False
) -> list[int]:
    """The numbers of the lines the query is found in."""
    find = compile_query(query, is_regex=regex, ignores_case=ignore)
    return [hit.number for hit in find_hits(content, find)]


def re2_size(query: str) -> int:
    """The instructions of the query, in the direction that has more."""
    expression = compile_text(query)
    return max(expression.programsize, expression.reverseprogramsize)


def shown(content: bytes, query: str, context: int = 0) -> list[str]:
    """The hits as they are shown."""
    find = compile_query(query, is_regex=False, ignores_case=False)
    return render_hits("f", content, list(find_hits(content, find)), context)


@every_row(
    ("query", "expected"),
    [
        ("b", [2, 4]), ("^b$", [2]), ("^$", [3]), ("a|q", [1, 4]), (r"a\s+b", []), ("[^z]+", [1, 2, 4]),
        ("x*", [1, 2, 3, 4]), ("(?s)a.*b", []), (r"\n", []), ("B", []), (r"a\nb", []), ("é", [1]),
        ("a.$", [1]),
    ],
)  # fmt: skip
def test_expressions_stay_in_a_line(query: str, expected: list[int]) -> None:
    """No expression, however written, finds anything across a line end."""
    assert expected == lines_found("aé\nb\n\nqb\n".encode(), query)


def test_a_literal_has_no_signs() -> None:
    """Signs of an expression are themselves, in a literal."""
    assert [1] == lines_found(b"a.c(\nabc(\n", "a.c(", regex=False)


def test_case_is_ignored_on_request() -> None:
    """Also outside of ASCII."""
    assert [1, 2] == lines_found("É.x\né.X\n".encode(), "é.x", regex=False, ignore=True)
    assert [2] == lines_found("É.x\né.x\n".encode(), "é.x", regex=False)


@every_row(
    ("query", "said"),
    [("", "1 to 1000"), ("x" * 1001, "1 to 1000"), ("a\nb", "line end"), ("(a", r"missing \)"),
     ("\ud800", "UTF-8"), (r"(a)\1", "invalid escape"), ("x{1000}{1000}", "bad repetition")],
)  # fmt: skip
def test_a_query_that_cannot_be(query: str, said: str) -> None:
    """It is refused, and the text says why."""
    with pytest.raises(BadQuery, match=said):
        compile_query(query, is_regex=True, ignores_case=False)


@every_row(
    ("query", "said"),
    [
        (r"(\pL|\pN){200}", "instructions, at most 20000"),
        (r"((\pL\pN\pS){10}|\pL){99}", "too large"),
    ],
)
def test_an_expression_has_a_bound_of_instructions(query: str, said: str) -> None:
    """What it compiles to is bounded, and the text says by what."""
    with pytest.raises(BadQuery, match=said):
        compile_query(query, is_regex=True, ignores_case=False)


@pytest.mark.parametrize("piece_bytes", [1, 4, 7, 1000])
@pytest.mark.parametrize("query", ["b", "^b$", "^$", "a|q", "[^z]+", "x*", "a.$", r"\bq"])
def test_a_search_in_pieces_finds_the_same(
    query: str, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the pieces end, the hits are those of one call of the engine."""
    content = "aé\nb\n\nqb\n\n\nbbb".encode()
    expected = lines_found(content, query)
    passed: list[int] = []
    size = max(re2_size(query), 1)
    monkeypatch.setattr(line_search, "MAX_STEPS", size * piece_bytes)
    find = compile_query(
        query, is_regex=True, ignores_case=False, pass_line=lambda: passed.append(1)
    )
    found = [hit.number for hit in find_hits(content, find)]
    lengths = [len(line) for line in content.split(b"\n")]
    assert [at for at in expected if lengths[at - 1] <= piece_bytes] == found
    assert bool(passed) is any(length > piece_bytes for length in lengths)


def test_a_search_that_is_over_finds_nothing_more() -> None:
    """Between two pieces it ends."""
    times = iter([False, True])
    find = compile_query("b", is_regex=True, ignores_case=False, is_over=lambda: next(times))
    assert [1] == [hit.number for hit in find_hits(b"b\nb\n", find)]


def test_a_hostile_expression_is_linear() -> None:
    """An expression that explodes in a backtracking engine takes linear time."""
    assert [] == lines_found(b"a" * 100_000 + b"!\n", "(a+)+$")


@given(
    st.lists(st.text("ab \r", max_size=5), max_size=6), st.sampled_from(["a", "^b", "a?b$", "^$"])
)
def test_every_line_is_judged_alone(lines: list[str], query: str) -> None:
    """The lines found are those in which the query is found on their own."""
    content = "".join(f"{line}\n" for line in lines)
    expected = [number for number, line in enumerate(lines, 1) if re.search(query, line)]
    assert expected == lines_found(content.encode(), query)


def test_a_last_line_without_end() -> None:
    """It is a line; behind a last line end there is none."""
    assert [2] == lines_found(b"a\nb", "b$")
    assert [1] == lines_found(b"b\n", "x*")
    assert [] == lines_found(b"", "x*")


def test_context_is_shown_once() -> None:
    """Overlapping context runs together, a gap is marked, the ends of the file bound it."""
    content = b"x\n1\n2\n3\nx\n4\nx\n5\n6\n7\n8\nx"
    assert [
        "f:1:x", "f-2-1", "--", "f-4-3", "f:5:x", "f-6-4", "f:7:x", "f-8-5", "--", "f-11-8", "f:12:x",
    ] == shown(content, "x", 1)  # fmt: skip
    assert ["f:1:x", "f:5:x", "f:7:x", "f:12:x"] == shown(content, "x")


def test_a_long_line_is_shown_round_the_hit() -> None:
    """As much as the bound allows, with marks where it is cut, never half a character."""
    line = "é" * 500 + "needle" + "é" * 500
    (text,) = shown(line.encode(), "needle")
    assert "needle" in text
    assert text.startswith("f:1:…é")
    assert text.endswith("é…")
    assert len(text.encode()) <= LINE_BYTES + 20
    (early,) = shown(b"needle" + b"x" * 500, "needle")
    assert early.startswith("f:1:needlex")
    (late,) = shown(b"x" * 500 + b"needle", "needle")
    assert late.endswith("xneedle")


def test_invalid_utf8_is_replaced() -> None:
    """Such a byte does not stop the search."""
    assert ["f:1:\ufffdx"] == shown(b"\xffx\n", "x")
