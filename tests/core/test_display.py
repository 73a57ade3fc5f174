"""What a person is shown: everything, and nothing that lies."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.display import (
    SUMMARY_CHARS,
    describe_call,
    render_call,
    render_json,
    visible,
)

TEXT = st.text(st.characters() | st.sampled_from("\u202e\u200b\ufeff\x1b\n\u0430a\uff41\U000e0041"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, 1+1=2", "plain text, 1+1=2"),
        ("Grüße, 世界, привет, γειά", "Grüße, 世界, привет, γειά"),
        ("emoji 😀 and …", "emoji 😀 and …"),
        ("a\nb", "a\\u000ab"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\x7f\x85", "\\u007f\\u0085"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\u2066\u2069\u200e\u061c", "\\u2066\\u2069\\u200e\\u061c"),
        ("zero\u200bwidth\u200d\ufeff\u2060", "zero\\u200bwidth\\u200d\\ufeff\\u2060"),
        ("soft\u00adhyphen", "soft\\u00adhyphen"),
        ("line\u2028par\u2029", "line\\u2028par\\u2029"),
        ("odd\u00a0space\u3000", "odd\\u00a0space\\u3000"),
        ("filler\u3164\u115f", "filler\\u3164\\u115f"),
        ("selector\ufe0f\U000e0100", "selector\\ufe0f\\udb40\\udd00"),
        ("tag\U000e0041", "tag\\udb40\\udc41"),
        ("lone\ud800", "lone\\ud800"),
        ("\uff52\uff4d", "\\uff52\\uff4d"),
        ("\U0001d42b\U0001d426", "\\ud835\\udc2b\\ud835\\udc26"),
        ("a\u2215b\u2044c\u2212d", "a\\u2215b\\u2044c\\u2212d"),
        ("p\u0430ypal", "p\\u0430ypal"),
        ("\u0430pp.py", "\\u0430pp.py"),
        ("p\u0251th", "p\u0251th"),
    ],
)
def test_visible(text: str, expected: str) -> None:
    """Hidden, directional and imitating characters are escaped; honest text is left alone."""
    assert expected == visible(text)


@settings(derandomize=True, max_examples=300)
@given(VALUES)
def test_rendered_json_is_still_the_value(value: object) -> None:
    """What is shown of a value reads back as exactly that value."""
    assert value == json.loads(render_json(value))


@settings(derandomize=True, max_examples=300)
@given(VALUES)
def test_rendered_json_hides_nothing(value: object) -> None:
    """Each line of what is shown is visible to begin with."""
    lines = render_json(value).split("\n")
    assert lines == [visible(line) for line in lines]


def test_a_call_on_one_line() -> None:
    """A short call is shown whole, in the model's order."""
    shown = render_call("write_file", {"path": "a\u202eb", "content": "x\ny", "n": 1})
    assert shown == r'write_file(path="a\u202eb", content="x\ny", n=1)'


def test_a_long_value_says_that_it_is_cut() -> None:
    """A cut value tells how much is missing."""
    assert render_call("echo", {"text": "x" * 100}) == f'echo(text="{"x" * 59}… (+42 characters))'


def test_a_long_call_says_that_it_is_cut() -> None:
    """A cut line tells how much is missing."""
    shown = render_call("echo", {f"name{n}": n for n in range(100)})
    assert shown[SUMMARY_CHARS:].startswith("… (+")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [({"a": 1}, "t(a=1)"), ([1, "\u202e"], 't([1, "\\u202e"])'), ("x" * 90, f'"{"x" * 59}…')],
)
def test_a_call_is_described_whatever_its_arguments_are(arguments: object, shown: str) -> None:
    """A model may write anything where an object belongs."""
    assert shown in describe_call("t", arguments)
