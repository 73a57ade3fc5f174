"""Answers in Markdown at a terminal: rendered by blocks, live, and nothing hidden."""

import re

import pytest

from palyra.cli.command import output
from palyra.cli.command.output import fit_cells, fold, safe, wrap_words
from palyra.cli.view import prose
from palyra.cli.view.prose import MARK, Prose, lay_out, render_markdown, split_blocks

TEXT = """# Title

Some **bold** text.

1. one

   more of one
2. two

```python
x = 1

y = 2
```

| a | b |
|---|---|
| 1 | 2 |

The end.
"""


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_blocks_are_the_same_however_the_text_arrives(step: int) -> None:
    """What is printed does not depend on the pieces; the last block is rendered at the end."""
    printed: list[str] = []
    live: list[list[str]] = []
    prose = Prose(printed.append, lambda lines: live.append([*lines]), lambda: (60, 8))
    for at in range(0, len(TEXT), step):
        prose.add(TEXT[at : at + step])
    prose.end()
    shown = "".join(printed)
    whole = "\n".join(render_markdown(TEXT, 60))
    assert re.sub(r"\n+", "\n", f"{whole}\n") == re.sub(r"\n+", "\n", shown)
    assert [] == live[-1]
    assert "**" not in shown
    assert "```" not in shown


def test_last_block_is_raw_until_it_is_finished() -> None:
    """A block is printed when the next one begins; what came is in the live lines before."""
    printed: list[str] = []
    live: list[list[str]] = []
    prose = Prose(printed.append, lambda lines: live.append([*lines]), lambda: (60, 8), MARK)
    prose.add("first **part")
    assert (["", "● first **part"], []) == (live[-1], printed)
    prose.add("**\n\nsecond")
    assert "\n● first part\n" == "".join(printed)
    assert ["", "  second"] == live[-1]
    prose.end()
    assert "\n● first part\n\n  second\n\n" == "".join(printed)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b>tag</b> and List<int>", "a <b>tag</b> and List<int>"),
        ("<div>\nblock\n</div>", "<div> block </div>"),
        ("see inflection/__init__.py and _x_", "see inflection/__init__.py and _x_"),
        ("[name](http://evil.example/x)", "name (http://evil.example/x)"),
        ("![alt](http://evil.example/x)", "!alt (http://evil.example/x)"),
        ("[name][1]\n\n[1]: http://x", "[name][1] [1]: http://x"),
        ("left &#x202e; right", "left \\u202e right"),
        ("red \x1b[31m text \u202e", "red \\u001b[31m text \\u202e"),
        ("`code \x9b2J`", "code \\u009b2J"),
    ],
)
def test_nothing_is_hidden_and_nothing_steers(text: str, shown: str) -> None:
    """Tags, underscores, addresses and definitions stay, controls are escapes, also those of entities."""
    lines = render_markdown("\n".join(map(safe, text.split("\n"))), 78)
    assert shown == " ".join(" ".join(lines).split())


def test_text_behind_a_gap_is_seen_and_not_printed() -> None:
    """Who joins a stream late, or loses a piece of it, sees it go on; what is printed has its place."""
    printed: list[str] = []
    live: list[list[str]] = []
    prose = Prose(printed.append, lambda lines: live.append([*lines]), lambda: (60, 8), MARK)
    prose.add("one ")
    for piece in ("four ", "five"):
        prose.show_behind_gap(piece)
    assert ["", "● one  … four five"] == live[-1]
    prose.add("two three four five", is_live=False)
    prose.end()
    assert ("\n● one two three four five\n\n", []) == ("".join(printed), live[-1])


def test_open_fence_is_one_block() -> None:
    """Empty lines within code end no block."""
    finished, rest = split_blocks("before\n\n```\na\n\nb")
    assert ("before\n", "```\na\n\nb") == (finished, rest)


def test_words_are_not_cut() -> None:
    """A raw line wraps between words and keeps its indentation; a word alone may be longer."""
    assert ["  see inflection/", "__init__.py"] != wrap_words(
        "  see inflection/__init__.py now", 22
    )
    assert ["  see", "inflection/__init__.py", "now"] == wrap_words(
        "  see inflection/__init__.py now", 22
    )


def test_lines_of_a_paragraph_stay_lines() -> None:
    """A text that is no Markdown, as a poem or a list of names, keeps its lines."""
    assert ["one", "two  three"] == render_markdown("one\ntwo  three", 60)


def test_code_keeps_its_indentation() -> None:
    """Blanks at the beginning of a line of code are a part of it."""
    lines = render_markdown("```python\ndef f():\n    return 1\n```", 60)
    assert ["def f():", "    return 1"] == [
        re.sub(r"\x1b\[[0-9;]*m", "", line)[2:] for line in lines
    ]


def test_lines_are_broken_between_words_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What continues a line is indented; a pipe gets the line as it is."""
    text = "? " + "word " * 30 + "end"
    assert text == fold(text)
    monkeypatch.setattr(output, "_is_terminal", lambda *, err: not err)
    monkeypatch.setenv("COLUMNS", "40")
    rows = fold(text).split("\n")
    assert max(map(len, rows)) < 40
    assert all(row.startswith("  word") for row in rows[1:])
    assert text.split() == " ".join(rows).split()


def test_work_for_a_long_block_does_not_grow_with_its_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of thousand lines is parsed a few times, and of the part in progress only its end is wrapped."""
    parsed: list[int] = []
    wrapped: list[int] = []

    def split(text: str) -> tuple[str, str]:
        parsed.append(len(text))
        return split_blocks(text)

    def wrap(text: str, width: int) -> list[str]:
        wrapped.append(len(text))
        return wrap_words(text, width)

    monkeypatch.setattr(prose, "split_blocks", split)
    monkeypatch.setattr(prose, "wrap_words", wrap)
    printed: list[str] = []
    shown = Prose(printed.append, lambda _lines: None, lambda: (60, 8))
    line = "- a point with **bold** words\n"
    for _ in range(1_000):
        shown.add(line)
    whole = 1_000 * len(line)
    assert sum(parsed) < 30 * whole  # each time: 500 times
    assert max(wrapped) <= 60 * 9
    shown.end()
    assert 1_000 == re.sub(r"\x1b\[[0-9;]*m", "", "".join(printed)).count("a point with bold words")


def test_whole_answer_is_laid_out_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe and NO_COLOR get the text as it is, with controls as escapes."""
    text = "some **bold** text\x1b[2J\n\n"
    plain = ["some **bold** text\\u001b[2J"]
    assert plain == lay_out(text)
    monkeypatch.setattr(output, "_is_terminal", lambda *, err: not err)
    assert ["some bold text\\u001b[2J"] == [
        re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lay_out(text)
    ]
    monkeypatch.setenv("NO_COLOR", "1")
    assert plain == lay_out(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\tb\tc", "a       b "), ("日本語日本語", "日本語日本"), ("x" * 11, "x" * 10), ("", "")],
)
def test_line_in_progress_takes_one_row(text: str, shown: str) -> None:
    """Tabs and letters of two cells count as what they take, so that the row can be replaced."""
    assert shown == fit_cells(text, 10)
