"""Display of untrusted text: complete and without hidden characters."""

# Ambiguous characters are what these tests are about.
# ruff: noqa: RUF001

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.text import visible as display
from palyra.core.text.visible import (
    SUMMARY_CHARS,
    describe_call,
    exact,
    render_call,
    show_json,
    visible,
)
from tests.rows import every_row

TEXT = st.text(st.characters() | st.sampled_from("\u202e\u200b\ufeff\x1b\n\u0430a\uff41\U000e0041"))
HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u2800\u3164\uffa0\ufe0f\U000e0100")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@every_row(
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
        ("p\u0251th", "p\\u0251th"),
        # signs of a script without its letters: digits as letters of a host, punctuation as colons
        ("g\u0ed0\u0ed0gle.com", "g\\u0ed0\\u0ed0gle.com"),
        ("g\u0c66\u0ce6gle \u06f5", "g\\u0c66\\u0ce6gle \\u06f5"),
        ("http\u05c3//a http\u1365//b", "http\\u05c3//a http\\u1365//b"),
        ("http\u0903//a http\u0589//b", "http\\u0903//a http\\u0589//b"),
        ("http\ufe30//a\u205ab\u204f", "http\\ufe30//a\\u205ab\\u204f"),
        ("ls\u061b rm a\u06d4b 5\u066a\u066d", "ls\\u061b rm a\\u06d4b 5\\u066a\\u066d"),
        ("a\u05f3b a\u0964b a\u30fbb", "a\\u05f3b a\\u0964b a\\u30fbb"),
        (
            "cat a \u1433 b \U00016f3f c \u146d\u14aa",
            "cat a \\u1433 b \\ud81b\\udf3f c \\u146d\\u14aa",
        ),
        # beside their letters, and without any ASCII letter, they stay
        (
            "\u0645\u0644\u0641\u060c \u0643\u062a\u0627\u0628\u061b git",
            "\u0645\u0644\u0641\u060c \u0643\u062a\u0627\u0628\u061b git",
        ),
        ("\u0661\u0662\u0663", "\u0661\u0662\u0663"),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940\u0964 git \u0967",
            "\u0939\u093f\u0928\u094d\u0926\u0940\u0964 git \u0967",
        ),
        ("\u09ac\u09be\u0982\u09b2\u09be\u0964 git", "\u09ac\u09be\u0982\u09b2\u09be\u0964 git"),
        (
            "git \u30c6\u30b9\u30c8\u30fb\u30c7\u30fc\u30bf",
            "git \u30c6\u30b9\u30c8\u30fb\u30c7\u30fc\u30bf",
        ),
        ("\u05e9\u05dc\u05d5\u05dd\u05c3 git", "\u05e9\u05dc\u05d5\u05dd\u05c3 git"),
        # blank, ignorable and unassigned characters
        ("a\u2800b\u180eb\u2065c\U0001d159d", "a\\u2800b\\u180eb\\u2065c\\ud834\\udd59d"),
        ("\ue000\uffff\ufffc\u1680\u202f\u2007", "\\ue000\\uffff\\ufffc\\u1680\\u202f\\u2007"),
        # marks that strike through, enclose, stack, or follow no letter
        ("a\u0338b a\u20dd /\u0301 1\u0300", "a\\u0338b a\\u20dd /\\u0301 1\\u0300"),
        ("e\u0301\u0302\u0303\u0304", "e\u0301\u0302\u0303\\u0304"),
        # look-alikes: within a word, as a whole word, as punctuation
        ("rm \u0441\u043e\u0440\u0443", "rm \\u0441\\u043e\\u0440\\u0443"),
        (
            "\u041f\u0440\u0438\u0432\u0435\u0442 | \u0441\u043e\u0440\u0443",
            "\u041f\u0440\u0438\u0432\u0435\u0442 | \\u0441\\u043e\\u0440\\u0443",
        ),
        ("\u03bfpen \u0410\u0392", "\\u03bfpen \\u0410\\u0392"),
        ("a\u2236b a\u01c3 x\ufb01le", "a\\u2236b a\\u01c3 x\\ufb01le"),
        ("\u200bпривет", "\\u200bпривет"),
        # runs of blanks are counted, short ones are not
        ("a" + " " * 200 + "b", "a[200 spaces]b"),
        ("a" + "\t" * 9 + "b" + " " * 8 + "c", "a[9 tabs]b" + " " * 8 + "c"),
        ("a" + "\n \t" * 4 + "b", "a[12 blanks]b"),
        ("a" + "\u2800" * 50 + "b", "a[50 times \\u2800]b"),
        ("a" + "\u00a0 " * 50 + "b", "a[100 blanks]b"),
        ("世" * 20, "世" * 20),
        # text in one language stays as it is
        (
            "Да, о нём я и сам хотел сор вынести: а с кем?",
            "Да, о нём я и сам хотел сор вынести: а с кем?",
        ),
        ("日本語のＴ", "日本語の\\uff34"),
        ("はい（Tシャツ）！どう？", "はい（Tシャツ）！どう？"),
        ("می\u200cخواهم क्\u200dष", "می\u200cخواهم क्\u200dष"),
        ("👩\u200d💻 ❤\ufe0f 👍🏽 1\ufe0f\u20e3 ①", "👩\u200d💻 ❤\ufe0f 👍🏽 1\ufe0f\u20e3 ①"),
        ("👩🏽\u200d💻 a\U0001f3fd\u200db", "👩🏽\u200d💻 a\U0001f3fd\\u200db"),
        (
            "Tiếng Việt, naïve, Îles, İstanbul ışık, שָׁלוֹם, สวัสดีครับ",
            "Tiếng Việt, naïve, Îles, İstanbul ışık, שָׁלוֹם, สวัสดีครับ",
        ),
        ("x² + 5 m³, ½", "x² + 5 m³, ½"),
        # small capitals and other letters that differ from ASCII by a detail
        ("\u0280\u1d0d -\u0280\ua730", "\\u0280\\u1d0d -\\u0280\\ua730"),
        ("\u0251\u0261 a\u0237b", "\\u0251\\u0261 a\\u0237b"),
        ("paypa\u0131 \u0131f", "paypa\\u0131 \\u0131f"),
        ("kapı açık değil, çıkış", "kapı açık değil, çıkış"),
        # dots and lines
        ("a\u2025b\u2024c\u2026", "a\\u2025b\\u2024c\u2026"),
        ("evil\u3002com evil\uff61com", "evil\\u3002com evil\\uff61com"),
        ("はい。そうです。「一つ」コーヒー", "はい。そうです。「一つ」コーヒー"),
        ("a \u2016 b \u23b8 c \u2502 d \u2225 e", "a \\u2016 b \\u23b8 c \\u2502 d \\u2225 e"),
        ("rm \u4e00rf a \u4e28 b usr\u30cebin", "rm \\u4e00rf a \\u4e28 b usr\\u30cebin"),
        ("第 一 步", "第 一 步"),
        # marks that no other letter of the text explains
        ("co\u1e43 com\u0323 c\u0323o", "co\\u1e43 com\\u0323 c\\u0323o"),
        ("pay\u030dpal", "pay\\u030dpal"),
        ("saṃskāra, mẹ, cafe\u0301, Àṣà ṣe", "saṃskāra, mẹ, cafe\u0301, Àṣà ṣe"),
        # numbers stay behind what they follow
        ("א 1 ב 2", "\\u05d0 1 \\u05d1 2"),
        ("שלום עולם", "שלום עולם"),
        ('["\u05d0\u05d1", 10] x', '["\\u05d0\\u05d1", 10] x'),
        ("مرحبا ١", "\\u0645\\u0631\\u062d\\u0628\\u0627 ١"),
        ("1 שלום, x 2", "1 שלום, x 2"),
    ],
)
def test_visible(text: str, expected: str) -> None:
    """Hidden, directional and imitating characters are escaped; honest text is left alone."""
    assert expected == visible(text)


@settings(derandomize=True, max_examples=300)
@given(TEXT)
def test_nothing_hidden_is_left(text: str) -> None:
    """No character of a category that is not drawn, but for what joins emoji and some scripts."""
    for shown in (visible(text), exact(text)):
        hidden = {char for char in shown if unicodedata.category(char) in HIDDEN} - {" "}
        assert hidden <= set("\u200c\u200d")
        assert shown == visible(shown) or len(shown) < len(visible(shown)) or shown == exact(text)


def test_each_character_that_is_not_drawn_is_escaped() -> None:
    """Every code point of the hidden categories and blank letters, alone and within a word."""
    of_planes = range(0x10000, sys.maxunicode + 1, 89)  # most of them unassigned or private
    for number in (*range(0x80, 0x10000), *range(0xE0000, 0xE0200), *of_planes):
        char = chr(number)
        if unicodedata.category(char) in HIDDEN or char in BLANKS:
            assert visible(f"a{char}b").isascii(), hex(number)


def test_a_value_for_a_screen_counts_blanks() -> None:
    """Long runs of blanks are shown by their number, also escaped ones; structure is indented."""
    value = {"text": "a" + " " * 200 + "b\\n" + "\n" * 40 + "c", "deep": [[[[["x"]]]]]}
    shown = show_json(value)
    assert '"a[200 spaces]b\\\\n[40 newlines]c"' in shown
    assert '            "x"' in shown


def test_the_tail_of_a_summary_cannot_be_pushed_out_by_blanks() -> None:
    """A number takes their place before anything is cut."""
    shown = render_call("shell", {"command": "ls" + " " * 500 + "; rm -rf ."})
    assert shown == 'shell(command="ls[500 spaces]; rm -rf .")'


def test_long_hostile_texts_grow_by_a_constant_factor() -> None:
    """An escape has at most twelve characters, and no character is escaped twice."""
    for unit in (
        " " * 9 + "x",
        "\u0430p",
        "\u200b",
        "e\u0301\u0302",
        "привет ",
        "\\\\",
        "\u2800\u3164",
    ):
        assert len(visible(unit * 5_000)) <= 12 * len(unit) * 5_000


@pytest.mark.parametrize(
    "unit", ["\u0430p", "\u0301", "\u200b", "\u0430|", "e\u0301\u0302", "\u05d0 1 ", "世"]
)
def test_a_summary_looks_no_further_than_what_it_shows(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hostile value and name only the beginning is looked at, a character at a time."""
    looked = 0

    def look(text: str) -> str:
        nonlocal looked
        looked += len(text)
        return text

    monkeypatch.setattr(display, "_escaped_long", look)
    monkeypatch.setattr(display, "_escaped_short", look)
    text = unit * (100_000 // len(unit))
    shown = describe_call("t", {"a": text, text: [text]} | {f"{text}{n}": n for n in range(50)})
    assert looked < 10 * SUMMARY_CHARS
    assert len(shown) < 2 * SUMMARY_CHARS
    visible(text)  # the control: all of it is shown, and looked at once
    assert looked < 101_000 + 10 * SUMMARY_CHARS


def test_a_call_on_one_line() -> None:
    """A short call is shown whole, in the model's order."""
    shown = render_call("write_file", {"path": "a\u202eb", "content": "x\ny", "n": 1})
    assert shown == r'write_file(path="a\u202eb", content="x\ny", n=1)'


def test_a_long_value_says_that_it_is_cut() -> None:
    """A cut value ends with the number of missing characters."""
    assert render_call("echo", {"text": "x" * 100}) == f'echo(text="{"x" * 59}… (+42 characters))'


def test_a_long_call_says_that_it_is_cut() -> None:
    """A cut line ends with the number of missing characters."""
    shown = render_call("echo", {f"name{n}": n for n in range(100)})
    assert shown[SUMMARY_CHARS:].startswith("… (+")


@every_row(
    ("arguments", "shown"),
    [({"a": 1}, "t(a=1)"), ([1, "\u202e"], 't([1, "\\u202e"])'), ("x" * 90, f'"{"x" * 59}…')],
)
def test_a_call_is_described_whatever_its_arguments_are(arguments: object, shown: str) -> None:
    """A model may write anything where an object belongs."""
    assert shown in describe_call("t", arguments)
