"""References in a message: which spans of a text they are, and the text without them."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.references import (
    KINDS,
    MAX_SCANNED,
    MAX_TARGET_CHARS,
    MAX_TRIED,
    has_references,
    parse_prompt,
    parse_references,
    remove_references,
    render_prompt,
)
from tests.rows import every_row


def names(text: str) -> list[str]:
    """The references of a text in plain form."""
    return [each.name for each in parse_references(text)]


@every_row(
    ("text", "expected"),
    [
        ("read @file:a.py", ["@file:a.py"]),
        ("@file:src/a.py#L10-40", ["@file:src/a.py#L10-40"]),
        ("@file:src/a.py#L10-L40", ["@file:src/a.py#L10-40"]),
        ("@file:src/a.py#L7", ["@file:src/a.py#L7"]),
        ("@file:src/a.py#heading", ["@file:src/a.py#heading"]),
        ("@folder:src", ["@folder:src"]),
        ("@folder:src/", ["@folder:src/"]),
        ("list @folder:. and @folder:./", ["@folder:.", "@folder:./"]),
        ("@diff", ["@diff"]),
        ("@diff:src/a.py", ["@diff:src/a.py"]),
        ("@staged", ["@staged"]),
        ("@staged:src", ["@staged:src"]),
        ("@diff:.github/x.yml @diff:../x", ["@diff:.github/x.yml", "@diff:../x"]),
        ('@diff:"a b"', ["@diff:a b"]),
        ('say "@diff:"', ["@diff"]),
        ("@diff:... and @staged:.", ["@diff", "@staged"]),
        ("@url:https://example.org/?q=1#top", ["@url:https://example.org/?q=1#top"]),
        ("@memory:deploys", ["@memory:deploys"]),
        ("@run:run_1 @session:main", ["@run:run_1", "@session:main"]),
        ("@mcp:docs/note://a/b?c#d.", ["@mcp:docs/note://a/b?c#d"]),
        ('@mcp:"docs/note://a b"', ["@mcp:docs/note://a b"]),
        ("@prompt:docs/review?code=a+b, please", ["@prompt:docs/review?code=a+b"]),
        ("me@mcp:docs/a @@prompt:docs/b", []),
        # quoting
        ('@file:"a b.py"', ["@file:a b.py"]),
        ("@file:'a b.py'#L2-3", ["@file:a b.py#L2-3"]),
        ("@memory:`what did we decide?`", ["@memory:what did we decide?"]),
        ('@file:"it\'s.py"', ["@file:it's.py"]),
        ('@file:"x#L3"', ["@file:x#L3"]),
        # punctuation of the sentence
        ("see @file:a.py.", ["@file:a.py"]),
        ("@file:a.py, @file:b.py; @file:c.py!", ["@file:a.py", "@file:b.py", "@file:c.py"]),
        ("@file:a.py,@file:b.py", ["@file:a.py", "@file:b.py"]),
        ("(see @file:a.py)", ["@file:a.py"]),
        ("(@url:https://x.org/a_(b))", ["@url:https://x.org/a_(b)"]),
        ("**@file:a.py**", ["@file:a.py"]),
        ("the `x` of @file:a.py and `y`", ["@file:a.py"]),
        ("@file:`a b.py` and `x`, @diff", ["@file:a b.py", "@diff"]),
        ("one ` alone, @file:a.py", ["@file:a.py"]),
        ("`open\n@file:a.py` is of another line", ["@file:a.py"]),
        ("<@file:a.py>", ["@file:a.py"]),
        ("what is @file:a.py?…", ["@file:a.py"]),
        ("@diff: and @staged.", ["@diff", "@staged"]),
        ("看@file:a.py。谢谢", ["@file:a.py"]),
        ("@file:Makefile\n@file:.gitignore\n", ["@file:Makefile", "@file:.gitignore"]),
    ],
)
def test_what_is_a_reference(text: str, expected: list[str]) -> None:
    """Each kind, quoted or bare, with line ranges, without the punctuation of its sentence."""
    assert expected == names(text)


@every_row(
    "text",
    [
        "me@file:x",
        "write to ann@diff.example",
        "ann_@run:x",
        "@@file:a.py",
        "@@diff",
        "@foo:bar",
        "@todo:later",
        "@File:a.py",
        "@file:",
        "@file: a.py",
        "@file:...",
        "@file:'open",
        "@file:''",
        '@file:" "',
        "@file:'a\nb'",
        "@differ",
        "@diff-tool",
        "@diff.com",
        "@stagedness",
        "@scope/file:x",
        "x/@file:y",
        "@@ -1,3 +1,4 @@",
        '```kotlin\n@file:JvmName("A")\n```',
        "~~~\n@diff\n~~~",
        "````\n```\n@diff\n```\n````",
        "```\n@file:a.py",
        "`@file:a.py`",
        "use `@file:a.py#L3 or @diff`, as in ``@run:`x` ``",
        "`@file:`a b``",
        "> `x` see @file:a.py",
        "```\n`x`\n@file:a.py\n```",
        "> see @file:a.py",
        "Ann wrote:\n>> @url:https://x.org/\n   > @diff\n>@run:run_1",
        "> ```\n> @file:a.py\n> ```",
        "@folder:...",
        "@file:" + "a" * (MAX_TARGET_CHARS + 1),
    ],
)
def test_what_is_none(text: str) -> None:
    """E-mail addresses, literals, unknown kinds, empty or open targets and pasted code."""
    assert [] == names(text)
    assert not has_references(text)
    assert text.replace("@@file", "@file").replace("@@diff", "@diff") == remove_references(text)


def test_text_after_a_code_block_counts_again() -> None:
    """A closed block ends the literal part, and so does the end of a quoted line."""
    assert ["@diff"] == names("```\n@staged\n```\nexplain @diff")
    assert ["@diff"] == names("> fix @staged\nexplain @diff")
    assert ["@diff"] == names("```\n> x\n@staged\n```\n> @staged\n1 > 0, so @diff")
    assert ["@file:a.py"] == names("    > indented code is text @file:a.py")


@every_row(
    ("text", "expected"),
    [
        ("compare @file:a.py with @file:b.py please", "compare  with  please"),
        ("@file:a.py", ""),
        ("look:\n\n    if x:\n\treturn  @file:a.py\n\n", "look:\n\n    if x:\n\treturn  \n\n"),
        ("see @file:'a b.py'#L1-2, then", "see , then"),
        ("literal @@file:a.py and @file:b.py", "literal @file:a.py and "),
        ("ann@file:x @run:run_1", "ann@file:x "),
    ],
)
def test_removal_leaves_all_other_characters(text: str, expected: str) -> None:
    """Only tokens and the first `@` of a literal go; blanks and indentation stay."""
    assert expected == remove_references(text)


def test_many_references_are_bounded() -> None:
    """Beyond the bound the tokens are text."""
    text = "@run:a " * (2 * MAX_SCANNED)
    assert MAX_SCANNED == len(parse_references(text))
    assert "@run:a " * MAX_SCANNED == remove_references(text).lstrip(" ")


_PIECES = st.lists(
    st.sampled_from([*(f"@{kind}:" for kind in KINDS), "@", "@@", "a", " ", "\n", "'", '"', "`", "```\n",
                     "(", ")", "#L1", "-2", ".", ",", "é", "。"]),
    max_size=30,
).map("".join)  # fmt: skip


@given(_PIECES)
def test_spans_are_in_order_and_the_rest_stays(text: str) -> None:
    """Whatever the text: spans do not overlap, and the removal keeps the characters between them."""
    found = parse_references(text)
    ends = [0, *(each.end for each in found)]
    assert all(end <= each.start < each.end for end, each in zip(ends, found, strict=False))
    assert all(text[each.start] == "@" and each.kind in KINDS for each in found)
    assert has_references(text) == bool(found)
    if not found and "@@" not in text:
        assert text == remove_references(text)


@given(st.sampled_from(["file", "folder", "url", "memory"]), st.text(max_size=40))
def test_any_text_without_the_quote_can_be_quoted(kind: str, target: str) -> None:
    """The text between quotes is the target, character by character."""
    quote = next((mark for mark in "\"'`" if mark not in target), None)
    if quote is None or "\n" in target or not target.strip():
        return
    found = parse_references(f"see @{kind}:{quote}{target}{quote} now")
    assert [(kind, target)] == [(each.kind, each.target) for each in found]


def test_places_that_are_looked_at_are_bounded() -> None:
    """A text full of openings without a target is given up, so that its time stays linear."""
    assert ["@file:a"] == names("@file:. " * (MAX_TRIED - 1) + "@file:a")
    assert [] == names("@file:. " * MAX_TRIED + "@file:a")


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
)
def test_a_prompt_is_read_as_it_was_written(arguments: dict[str, str]) -> None:
    """Any arguments survive the reference of their prompt, which is one reference."""
    text = render_prompt("docs", "re-view", arguments)
    if len(text) < MAX_TARGET_CHARS:
        (found,) = parse_references(f"use {text}.")
        assert ("prompt", ("docs", "re-view", arguments)) == (
            found.kind,
            parse_prompt(found.target),
        )


@every_row(
    ("target", "expected"),
    [
        ("docs/review", ("docs", "review", {})),
        ("docs/review?code=", ("docs", "review", {"code": ""})),
        ("docs/review?code=a&code=b", ("docs", "review", {"code": "b"})),
        ("docs", ("docs", "", {})),
        ("/review", ("", "review", {})),
        ("?a=b", ("", "", {"a": "b"})),
    ],
)
def test_parts_of_a_prompt(target: str, expected: tuple[str, str, dict[str, str]]) -> None:
    """Server, name and arguments; missing ones are empty."""
    assert expected == parse_prompt(target)
