"""Text of a preview: lines of segments with styles, for any terminal.

A line wider than the terminal continues on the next one; nothing is cut off.  Width is that of the
terminal's cells: characters of East Asia take two.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, assert_never

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.preview.blocks import (
    Block,
    DiffLine,
    FieldsBlock,
    FileBlock,
    Preview,
    TextBlock,
    WordsBlock,
)
from palyra.core.text.visible import pluralize

MIN_WIDTH = 40
_TAB = "→   "
_DIGEST_CHARS = 12
_NAMES_SHOWN = 8  # of hidden characters and of taint
_SIGNS = {"same": " ", "removed": "-", "added": "+"}
Style = Literal[
    "plain", "title", "dim", "removed", "added", "removed_word", "added_word", "warning"
]
_STYLES: dict[str, Style] = {"same": "plain", "removed": "removed", "added": "added"}
_WORD_STYLES: dict[str, Style] = {"removed": "removed_word", "added": "added_word"}


class StyledText(NamedTuple):
    """A piece of one line."""

    text: str
    style: Style = "plain"


Line = tuple[StyledText, ...]
# Begins every line that continues one: content cannot be at the place where titles begin.
_CONTINUES = StyledText("  ↪ ", "dim")


def render_preview(preview: Preview, width: int) -> list[Line]:
    """Return the preview as lines of at most `width` cells, and at least `MIN_WIDTH`."""
    width = max(width, MIN_WIDTH)
    return [line for logical in _lines(preview) for line in _wrap(logical, width)]


def render_blocks(blocks: Sequence[Block], width: int) -> list[Line]:
    """Return blocks without a preview as lines, as `render_preview` does."""
    width = max(width, MIN_WIDTH)
    return [line for block in blocks for each in _block(block) for line in _wrap(each, width)]


def _lines(preview: Preview) -> Iterator[Line]:
    for change in preview.stale:
        yield (
            StyledText(f"! {change}: an answer now is about a call that will not run", "warning"),
        )
    if preview.workspace != DEFAULT_WORKSPACE:
        yield (StyledText(f"in the workspace {preview.workspace}"),)
    for block in preview.blocks:
        yield from _block(block)
    yield from _notes(preview)


def _notes(preview: Preview) -> Iterator[Line]:
    if preview.hidden:
        named = [
            f"{each.character} {each.name} x{each.count}" for each in preview.hidden[:_NAMES_SHOWN]
        ]
        more = len(preview.hidden) - len(named)
        total = sum(each.count for each in preview.hidden)
        text = ", ".join([*named, *([f"and {more} more"] if more else [])])
        yield (StyledText(f"! {pluralize(total, 'character')} spelled out: {text}", "warning"),)
    if preview.redacted:
        marks = pluralize(preview.redacted, "mark")
        yield (StyledText(f"! {marks} [redacted:…] in place of secrets", "warning"),)
    for source in preview.taint[:_NAMES_SHOWN]:
        by = f"{source.tool or source.kind} (event {source.seq})"
        what = f": {', '.join(source.findings)}" if source.findings else ""
        yield (StyledText(f"! tainted by {by}{what}", "warning"),)
    if len(preview.taint) > _NAMES_SHOWN:
        left = len(preview.taint) - _NAMES_SHOWN
        yield (StyledText(f"! tainted by {pluralize(left, 'more event')}", "warning"),)
    if preview.cut:
        yield (
            StyledText(f"! {pluralize(preview.cut, 'line')} left out; all of it: ", "warning"),
            StyledText(f"palyra approvals show --all {preview.approval_id}", "title"),
        )


def _block(block: Block) -> Iterator[Line]:
    match block:
        case FileBlock():
            yield from _file(block)
        case WordsBlock():
            yield (StyledText(f"── {block.title}, one word a line", "title"),)
            for at, word in enumerate(block.words):
                yield StyledText(f"{at:>4} ", "dim"), StyledText(_tabs(word))
            yield from _cut(block.cut, "word")
        case TextBlock():
            size = pluralize(block.size_bytes, "byte")
            yield (StyledText(f"── {block.title}, {size}", "title"),)
            for at, line in enumerate(block.lines, 1):
                yield StyledText(f"{at:>4} ", "dim"), StyledText(_tabs(line))
            yield from _cut(block.cut, "line")
        case FieldsBlock():
            yield (StyledText(f"── {block.title}", "title"),)
            for name, value in block.rows:
                yield StyledText(f"     {_tabs(name)}: ", "dim"), StyledText(_tabs(value))
            yield from _cut(block.cut, "row")
        case _:
            assert_never(block)


def _file(block: FileBlock) -> Iterator[Line]:
    counts = f"   +{block.added} -{block.removed}" if block.added or block.removed else ""
    yield (
        StyledText(f"── {block.path}", "title"),
        StyledText(f"  {'mode changed' if block.change == 'mode' else block.change}{counts}"),
    )
    yield (StyledText(f"   {_sizes(block)}", "dim"),)
    if block.is_binary:
        yield (StyledText("   a binary file: only sizes and digests are shown", "warning"),)
    for note in block.notes:
        yield (StyledText(f"   {note}", "warning"),)
    digits = max((len(str(hunk.old_start + hunk.old_lines + hunk.new_lines + hunk.new_start))
                  for hunk in block.hunks), default=1)  # fmt: skip
    for hunk in block.hunks:
        at = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@"
        yield (StyledText(at, "dim"),)
        for line in hunk.lines:
            yield from _diff_line(line, digits)
    yield from _cut(block.cut, "line")


def _sizes(block: FileBlock) -> str:
    before = [
        *([] if block.before_bytes is None else [pluralize(block.before_bytes, "byte")]),
        block.before_mode,
        block.before_sha256[:_DIGEST_CHARS],
    ]
    after = [
        *([] if block.after_bytes is None else [pluralize(block.after_bytes, "byte")]),
        block.after_mode,
        block.after_sha256[:_DIGEST_CHARS],
    ]
    sides = " → ".join(" ".join(filter(None, side)) or "no file" for side in (before, after))
    return sides if block.change != "unchanged" else f"{sides}, no difference"


def _diff_line(line: DiffLine, digits: int) -> Iterator[Line]:
    old = "" if line.old is None else str(line.old)
    new = "" if line.new is None else str(line.new)
    style = _STYLES[line.op]
    number = StyledText(f"{old:>{digits}} {new:>{digits}} ", "dim")
    yield number, StyledText(_SIGNS[line.op], style), *_marked(line, style)
    if line.cut_chars:
        left = pluralize(line.cut_chars, "character")
        yield (StyledText(f"     … {left} of this line left out", "warning"),)
    if line.no_newline:
        yield (StyledText(f"{'':>{2 * digits + 2}}\\ no newline at the end of the file", "dim"),)


def _marked(line: DiffLine, style: Style) -> Iterator[StyledText]:
    at = 0
    for start, end in line.spans:
        yield StyledText(_tabs(line.text[at:start]), style)
        yield StyledText(_tabs(line.text[start:end]), _WORD_STYLES[line.op])
        at = end
    yield StyledText(_tabs(line.text[at:]), style)


def _tabs(text: str) -> str:
    return text.replace("\t", _TAB)


def _cut(count: int, noun: str) -> Iterator[Line]:
    if count:
        yield (StyledText(f"     … {pluralize(count, noun)} left out", "warning"),)


def _wrap(line: Sequence[StyledText], width: int) -> Iterator[Line]:
    if sum(len(segment.text) for segment in line) * 2 <= width:
        yield tuple(line)
        return
    row: list[StyledText] = []
    used = 0
    for segment in line:
        start = 0
        for at, char in enumerate(segment.text):
            cells = _cells(char)
            if used + cells > width:
                row.append(segment._replace(text=segment.text[start:at]))
                yield tuple(row)
                row, used, start = [_CONTINUES], len(_CONTINUES.text), at
            used += cells
        row.append(segment._replace(text=segment.text[start:]))
    yield tuple(row)


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
