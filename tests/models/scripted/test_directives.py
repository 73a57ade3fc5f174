"""Directives: each line gives its step; a malformed line is reported and never raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.messages import FAILURE_CLASSES
from palyra.models.scripted.directives import (
    DIRECTIVES,
    CallTool,
    Delay,
    Directives,
    FailTurn,
    Step,
    TextDelta,
    WordDeltas,
    parse_directives,
)
from tests.rows import every_row


@every_row(
    ("expected", "line"),
    [
        (TextDelta("hello there"), "/say hello there"),
        (TextDelta(""), "/say"),
        (TextDelta("/call x"), "  /say /call x  "),
        (TextDelta("a\u2028b\rc"), "/say a\u2028b\rc\r"),
        (CallTool("echo", {}), "/call echo"),
        (CallTool("echo", {}), "/call echo   "),
        (CallTool("mcp:a.b", {"path": "README.md"}), '/call mcp:a.b {"path": "README.md"}'),
        (CallTool("echo", [1, None]), "/call echo [1, null]"),
        (CallTool("echo", {"a": "\u2028"}), '/call echo {"a": "\u2028"}'),
        (CallTool("x", [{"a": [[]]}]), '/call x [{"a": [[]]}]'),
        (WordDeltas(100_000), "/tokens 100000"),
        (Delay(0), "/delay 0"),
        (Delay(3_600_000, 2), "/delay  3600000  2 "),
        (FailTurn("transient"), "/fail transient"),
        (FailTurn("rate_limited", 2), "/fail rate_limited 2"),
    ],
)
def test_line_gives_its_step(expected: Step, line: str) -> None:
    """A well-formed line is the one step of the one turn."""
    assert Directives(((expected,),)) == parse_directives(line)


def test_then_divides_turns() -> None:
    """Steps keep their order, turns begin at /then, and other lines are ignored."""
    text = "Please:\n/say a\n/call x\n/call y {}\n/then\nnow\n/then\n/say b"
    expected = ((TextDelta("a"), CallTool("x", {}), CallTool("y", {})), (), (TextDelta("b"),))
    assert Directives(expected) == parse_directives(text)


def test_each_say_is_a_line() -> None:
    """A /say after other text in the same turn begins a new line."""
    expected = (
        (TextDelta("a"), TextDelta("\nb"), WordDeltas(2), TextDelta("\nc")),
        (TextDelta("d"),),
    )
    found = parse_directives("/say a\n/say b\n/tokens 2\n/say c\n/then\n/say d")
    assert Directives(expected) == found


@every_row(
    "text",
    ["", "hello", "either/or", "/etc/passwd is a file", "// comment", "/Say x", "a /say b", "/2"],
)
def test_plain_text_has_no_directives(text: str) -> None:
    """Only a slash and a lower-case word at the beginning of a line make a directive."""
    assert parse_directives(text) is None


@every_row(
    ("problem", "text"),
    [
        ("line 1: there is no directive /cal", "/cal echo"),
        ("line 2: expected /call NAME {json}, got no name", "hi\n/call"),
        ("line 1: the arguments of echo are not JSON: ", "/call echo {a: 1}"),
        ("line 1: the arguments of echo are not JSON: ", "/call echo {} {}"),
        ("line 1: the arguments of echo are not JSON: ", '/call echo "\ud800"'),
        ("line 1: the arguments of echo are not JSON: ", "/call echo " + "[" * 100_000),
        (
            "line 1: the arguments of x are nested more than 64 deep",
            f"/call x {'[' * 65}{']' * 65}",
        ),
        ("line 1: expected a whole number from 1 to 100000, got ''", "/tokens"),
        ("line 1: expected a whole number from 1 to 100000, got '0'", "/tokens 0"),
        ("line 1: expected a whole number from 1 to 100000, got '100001'", "/tokens 100001"),
        ("line 1: expected a whole number from 1 to 100000, got '٣'", "/tokens ٣"),
        ("line 1: expected a whole number from 1 to 100000, got '999", "/tokens " + "9" * 5000),
        ("line 1: expected a whole number from 0 to 3600000, got '1.5'", "/delay 1.5"),
        ("line 1: expected a whole number from 0 to 3600000, got ''", "/delay"),
        ("line 1: expected a whole number from 1 to 100000, got '0'", "/delay 5 0"),
        ("line 1: expected a failure class (auth, quota, ", "/fail"),
        ("line 1: expected a failure class (auth, quota, ", "/fail always 3"),
        ("line 1: expected a whole number from 1 to 100000, got 'x'", "/fail auth x"),
        ("line 1: expected nothing after /then, got 'go'", "/then go"),
    ],
)
def test_malformed_line_is_reported(problem: str, text: str) -> None:
    """A malformed line is reported with its number, and no directive of the text runs."""
    found = parse_directives(f"{text}\n/say x")
    assert found is not None
    assert ((), 1, True) == (
        found.turns,
        len(found.problems),
        found.problems[0].startswith(problem),
    )


def test_every_problem_is_reported() -> None:
    """Two malformed lines are two problems."""
    found = parse_directives("/tokens x\n/say fine\n/delay x")
    assert found is not None
    assert ["line 1", "line 3"] == [problem[:6] for problem in found.problems]


@pytest.mark.parametrize("failure_class", FAILURE_CLASSES)
def test_every_failure_class_can_be_asked_for(failure_class: str) -> None:
    """/fail knows each class there is."""
    found = parse_directives(f"/fail {failure_class}")
    assert found is not None
    assert [failure_class] == [
        step.failure_class for step in found.turns[0] if type(step) is FailTurn
    ]


LINES = st.sampled_from([f"/{name}" for name in DIRECTIVES] + ["", "x", "/x"])


@given(st.lists(st.tuples(LINES, st.text(st.characters(codec=None)))))
def test_nothing_is_ever_raised(lines: list[tuple[str, str]]) -> None:
    """Any text gives turns, problems or nothing."""
    found = parse_directives("\n".join(f"{name} {operands}" for name, operands in lines))
    assert found is None or bool(found.turns) != bool(found.problems)
