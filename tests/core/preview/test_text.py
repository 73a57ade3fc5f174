"""Text of previews: every fact of a block has its line, and no line is wider than the terminal."""

from typing import Any

import msgspec
import pytest

from palyra.core.preview.blocks import (
    Block,
    DiffHunk,
    DiffLine,
    FieldsBlock,
    FileBlock,
    Hidden,
    Preview,
    TextBlock,
    WordsBlock,
)
from palyra.core.preview.text import render_blocks, render_preview
from palyra.core.tape.taint import TaintSource
from tests.rows import every_row

PREVIEW = Preview(
    approval_id="apr_1", run_id="run_1", digest="ab" * 32, state="pending", tool="shell",
    summary="shell", why="asks", risk="high", scopes=("once",), blocks=(),
)  # fmt: skip
FILE = FileBlock(
    path="a.md", change="updated", before_bytes=1, after_bytes=2, before_sha256="ab" * 32,
    after_sha256="cd" * 32, before_mode="0644", after_mode="0644",
)  # fmt: skip


def notes(**facts: Any) -> list[str]:
    """The lines of a preview of these facts alone."""
    lines = render_preview(msgspec.structs.replace(PREVIEW, **facts), 200)
    return ["".join(part.text for part in line) for line in lines]


def shown(block: Block) -> list[str]:
    """The lines of one block."""
    return ["".join(part.text for part in line) for line in render_blocks([block], 200)]


def changed(**facts: Any) -> list[str]:
    """The lines of the block of a file with these facts."""
    return shown(msgspec.structs.replace(FILE, **facts))


@pytest.mark.parametrize(("count", "ending"), [(8, "x1"), (9, "x1, and 1 more")])
def test_eight_hidden_characters_are_named_and_the_others_counted(count: int, ending: str) -> None:
    """The sum is that of all of them."""
    hidden = tuple(Hidden(character=f"U+{at}", name="N", count=1) for at in range(count))
    (line,) = notes(hidden=hidden)
    assert line.startswith(f"! {count} characters spelled out: U+0 N x1, ")
    assert line.endswith(f"U+7 N {ending}")


@pytest.mark.parametrize(("count", "marks"), [(1, "1 mark"), (2, "2 marks")])
def test_redacted_texts_are_counted(count: int, marks: str) -> None:
    """A person sees that a secret is in the call, and never which."""
    assert [f"! {marks} [redacted:…] in place of secrets"] == notes(redacted=count)


def test_eight_sources_of_taint_are_named_and_the_others_counted() -> None:
    """A source without tool has its kind; one without findings has none."""
    taint = tuple(TaintSource(seq=at, kind="run.started") for at in range(10))
    lines = notes(taint=taint)
    assert "! tainted by run.started (event 0)" == lines[0]
    assert (9, "! tainted by 2 more events") == (len(lines), lines[-1])
    assert 8 == len(notes(taint=taint[:8]))


@every_row(
    ("block", "line"),
    [
        (WordsBlock(title="argv", words=("a",), cut=2), "     … 2 words left out"),
        (TextBlock(title="body", lines=("a",), cut=1), "     … 1 line left out"),
        (FieldsBlock(title="more", rows=(("a", "b"),), cut=3), "     … 3 rows left out"),
        (msgspec.structs.replace(FILE, cut=4), "     … 4 lines left out"),
    ],
)
def test_what_a_block_leaves_out_is_its_last_line(block: Block, line: str) -> None:
    """With the noun of its parts; a whole block has no such line."""
    assert line == shown(block)[-1]
    assert not any("left out" in each for each in shown(msgspec.structs.replace(block, cut=0)))


def test_tabs_are_seen() -> None:
    """In words, lines, rows and changes of files."""
    hunk = DiffHunk(
        old_start=1, old_lines=0, new_start=1, new_lines=1,
        lines=(DiffLine(op="added", text="a\tb", new=1, spans=((0, 2),)),),
    )  # fmt: skip
    blocks: list[Block] = [
        WordsBlock(title="w", words=("a\tb",)),
        TextBlock(title="t", lines=("a\tb",)),
        FieldsBlock(title="f", rows=(("a\tb", "a\tb"),)),
        msgspec.structs.replace(FILE, hunks=(hunk,)),
    ]
    for block in blocks:
        assert "a→   b" in shown(block)[-1]
        assert "\t" not in "".join(shown(block))


def test_a_file_without_content_is_named_by_its_facts() -> None:
    """A changed mode, a binary file, its notes, and a side that does not exist."""
    assert "── a.md  mode changed" == changed(change="mode")[0]
    assert "── a.md  updated   +1 -0" == changed(added=1)[0]
    assert any("binary" in line for line in changed(is_binary=True))
    assert "   a note" in changed(notes=("a note",))
    created = changed(change="created", before_bytes=None, before_mode="", before_sha256="")
    assert f"   no file → 2 bytes 0644 {'cd' * 6}" == created[1]
    gone = changed(change="deleted", after_bytes=None, after_mode="", after_sha256="")
    assert f"   1 byte 0644 {'ab' * 6} → no file" == gone[1]
    assert changed(change="unchanged")[1].endswith(", no difference")


def test_a_line_of_a_change_says_what_it_lacks() -> None:
    """Characters that were cut, and the line feed at the end of the file."""
    line = DiffLine(op="removed", text="ab", old=1, spans=((1, 2),), cut_chars=5, no_newline=True)
    hunk = DiffHunk(old_start=1, old_lines=1, new_start=1, new_lines=0, lines=(line,))
    assert [
        "@@ -1,1 +1,0 @@",
        "1   -ab",
        "     … 5 characters of this line left out",
        "    \\ no newline at the end of the file",
    ] == changed(hunks=(hunk,))[-4:]


def test_cells_are_counted_and_not_characters() -> None:
    """A wide character takes two cells, a combining mark none."""
    lines = render_blocks([TextBlock(title="t", lines=("字" * 30, "e\u0301" * 30))], 40)
    texts = ["".join(part.text for part in line) for line in lines]
    assert 3 == sum("字" in text for text in texts) + sum("\u0301" in text for text in texts)
    assert max(text.count("字") for text in texts) * 2 + 5 <= 40
