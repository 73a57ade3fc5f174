"""Blocks of files: what a person sees of a change is the change."""

import re

import pytest

from palyra.core.preview.blocks import FileBlock
from palyra.core.preview.files import MAX_CHARS, MAX_DIFF_BYTES, MAX_LINE_CHARS, file_block
from palyra.core.preview.spelling import Speller
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.targets import FileTarget

SECRET = re.compile(r"hunter\d")


def redact(text: str) -> tuple[str, bool]:
    """The text with marks in place of `hunter1`."""
    shown = SECRET.sub("[redacted:known]", text)
    return shown, shown != text


def block(
    before: bytes | Content | None,
    after: bytes | Content | None,
    *,
    expected: str | None = None,
    max_lines: int = 400,
) -> FileBlock:
    """The block of one file."""
    sides = [Content(side, 0o644) if isinstance(side, bytes) else side for side in (before, after)]
    return file_block(
        FileTarget("notes.md", *sides),
        redact=redact,
        spell=Speller(),
        expected=expected,
        max_lines=max_lines,
    )


def lines(found: FileBlock) -> list[tuple[str, int | None, int | None, str]]:
    """All lines of the hunks."""
    return [(line.op, line.old, line.new, line.text) for hunk in found.hunks for line in hunk.lines]


def test_a_changed_line_is_shown_with_both_numbers() -> None:
    """Removed and added lines have the number of their side, lines around them both."""
    found = block(b"one\ntwo\nthree\n", b"one\nTWO words\nthree\n")
    assert [
        ("same", 1, 1, "one"),
        ("removed", 2, None, "two"),
        ("added", None, 2, "TWO words"),
        ("same", 3, 3, "three"),
    ] == lines(found)
    assert ("updated", 1, 1, 0) == (found.change, found.added, found.removed, found.cut)


def test_changed_words_are_marked() -> None:
    """The spans of both lines have the words that differ, and nothing else."""
    found = block(b"return left + right\n", b"return left - right\n")
    removed, added = found.hunks[0].lines
    assert ["+"] == [removed.text[start:end] for start, end in removed.spans]
    assert ["-"] == [added.text[start:end] for start, end in added.spans]


def test_spans_move_with_spelled_characters() -> None:
    """A hidden character before a changed word does not shift its mark."""
    found = block("a\u202eb old x\n".encode(), "a\u202eb new x\n".encode())
    removed, added = found.hunks[0].lines
    assert ["old"] == [removed.text[start:end] for start, end in removed.spans]
    assert ["new"] == [added.text[start:end] for start, end in added.spans]
    assert r"a\u202eb new x" == added.text


def test_new_deleted_and_unchanged_files() -> None:
    """The change of a file has a name, and a file that is absent has no digest."""
    created, deleted, same = block(None, b"x\n"), block(b"x\n", None), block(b"x\n", b"x\n")
    assert ("created", "", None) == (created.change, created.before_sha256, created.before_bytes)
    assert [("added", None, 1, "x")] == lines(created)
    assert ("deleted", "", None) == (deleted.change, deleted.after_sha256, deleted.after_bytes)
    assert [("removed", 1, None, "x")] == lines(deleted)
    assert ("unchanged", ()) == (same.change, same.hunks)


def test_a_missing_newline_is_a_difference() -> None:
    """Two texts that differ in their last newline alone differ in their last line."""
    found = block(b"one\ntwo", b"one\ntwo\n")
    assert [
        ("same", False),
        ("removed", True),
        ("added", False),
    ] == [(line.op, line.no_newline) for line in found.hunks[0].lines]


def test_a_changed_mode_is_named() -> None:
    """A file that becomes executable is not unchanged."""
    found = block(Content(b"x\n", 0o644), Content(b"x\n", 0o755))
    assert ("mode", "0644", "0755") == (found.change, found.before_mode, found.after_mode)


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfe\xfd"])
def test_binary_files_have_sizes_and_digests(data: bytes) -> None:
    """A file that is no text has no diff, on either side."""
    for found in (block(data, b"text\n"), block(b"text\n", data)):
        assert (True, (), "updated") == (found.is_binary, found.hunks, found.change)
        assert found.before_sha256 != found.after_sha256


def test_a_file_over_the_bound_is_named_as_such() -> None:
    """A file too large to compare has sizes, digests and the reason."""
    found = block(b"x\n" * MAX_DIFF_BYTES, b"y\n")
    assert ((), 1) == (found.hunks, len(found.notes))


def test_a_change_since_the_question_is_stale() -> None:
    """The content now is compared with the digest of the question."""
    digest = block(b"x\n", None).before_sha256
    assert not block(b"x\n", b"y\n", expected=digest).is_stale
    assert block(b"z\n", b"y\n", expected=digest).is_stale
    assert block(b"x\n", b"y\n", expected="missing").is_stale
    assert not block(None, b"y\n", expected="missing").is_stale
    assert block(None, b"y\n", expected=digest).is_stale


def test_lines_beyond_the_bound_are_counted() -> None:
    """Shown and left out lines are all lines of the diff."""
    text = b"".join(b"line %d\n" % at for at in range(100))
    whole, part = block(None, text), block(None, text, max_lines=7)
    assert (100, 0) == (len(lines(whole)), whole.cut)
    assert (7, 93, 100) == (len(lines(part)), part.cut, part.added)
    assert 100 == block(None, text, max_lines=0).cut


def test_distant_changes_are_hunks_of_their_own() -> None:
    """Changes with more than six lines between them do not share a hunk."""
    old = [f"line {at}\n" for at in range(40)]
    new = [*old]
    new[2], new[30] = "a\n", "b\n"
    found = block("".join(old).encode(), "".join(new).encode())
    assert [(1, 6, 1, 6), (28, 7, 28, 7)] == [
        (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) for hunk in found.hunks
    ]


def test_secrets_are_marks_on_both_sides() -> None:
    """No secret is in a block, and a difference that is only in secrets is named."""
    found = block(b"key = hunter1\n", b"key = hunter2\n")
    assert found.hunks == ()
    assert "all differences are in them" in found.notes[0]
    other = block(b"key = hunter1\na\n", b"key = hunter1\nb\n")
    assert "hunter" not in str(other)
    assert "all differences" not in other.notes[0]


def test_long_lines_and_many_characters_are_bounded() -> None:
    """A line is shown up to its bound, all files of a preview up to theirs, and the rest is counted."""
    found = block(None, b"x" * (MAX_LINE_CHARS + 5) + b"\n")
    assert (MAX_LINE_CHARS, 5) == (len(lines(found)[0][3]), found.hunks[0].lines[0].cut_chars)
    wide = "".join(f"{at}" + "\u202e" * 9_000 + "\n" for at in range(100))
    many = block(None, wide.encode(), max_lines=20_000)
    shown = lines(many)
    assert 100 == len(shown) + many.cut
    assert sum(len(line[3]) for line in shown) <= 6 * MAX_CHARS
    tiny = Speller()
    tiny.chars = MAX_CHARS
    none = file_block(
        FileTarget("a", None, Content(b"x\n")),
        redact=redact,
        spell=tiny,
        expected=None,
        max_lines=9,
    )
    assert ((), 1) == (none.hunks, none.cut)


def test_words_of_lines_too_long_to_compare_are_not_marked() -> None:
    """Both lines are shown; up to the bound their words are marked."""
    for count, is_marked in ((10, True), (1_000, False)):
        rest = b"x" * count + b"\n"
        found = block(b"one " + rest, b"two " + rest)
        assert {is_marked} == {bool(line.spans) for line in found.hunks[0].lines}
