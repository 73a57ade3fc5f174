"""Changes of files as blocks: unified diffs with line numbers and changed words.

Both sides are redacted before they are compared, so a changed secret shows as two equal marks; the
block then says that redaction hides a difference.  The comparison is bounded (`core.text.diff`).
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from palyra.core.preview.blocks import DiffHunk, DiffLine, FileBlock, FileChange
from palyra.core.preview.spelling import Speller, spell_out
from palyra.core.text.diff import Same, find_same
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.targets import FileTarget

CONTEXT_LINES = 3
PROBE_BYTES = 8_192  # read to tell a text from a binary file
MAX_DIFF_BYTES = 4_194_304  # of both sides; larger files are named with size and digest
MAX_LINE_CHARS = 20_000  # shown of one line
MAX_CHARS = 2_000_000  # shown of all files of a preview; a reply has to fit a message of a client
_PAIR_CHARS = 2_000  # of two lines whose words are compared
_WORD_STEPS = 400  # of one pair of lines
_MAX_PAIRS = 500  # of one file
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_FILE_MODE, _EXECUTABLE_MODE = 0o644, 0o755

Redact = Callable[[str], tuple[str, bool]]


class _Edit(NamedTuple):
    """Old lines, and the new lines in their place."""

    old: range
    new: range


def file_block(
    target: FileTarget, *, redact: Redact, spell: Speller, expected: str | None, max_lines: int
) -> FileBlock:
    """Return the block of a file; `expected` is the recorded digest of the content before, or `missing`."""
    before, after = target.before, target.after
    digest = _digest(before)
    block = FileBlock(
        path=spell(target.path),
        change=_change(before, after),
        is_stale=expected is not None and expected != (digest or "missing"),
        before_bytes=None if before is None else len(before.data),
        after_bytes=None if after is None else len(after.data),
        before_sha256=digest,
        after_sha256=_digest(after),
        before_mode=_mode(before),
        after_mode=_mode(after),
    )
    old_text, new_text = _text(before), _text(after)
    if old_text is None or new_text is None:
        return replace(block, is_binary=True)
    if len(old_text) + len(new_text) > MAX_DIFF_BYTES:
        return replace(block, notes=("too large to compare: only sizes and digests are shown",))
    sides = redact(old_text), redact(new_text)
    old, new = (_lines(text) for text, _ in sides)
    is_redacted = any(has_mark for _, has_mark in sides)
    edits = _edits(find_same(old, new), len(old), len(new))
    notes: tuple[str, ...] = ()
    if is_redacted:
        more = "; all differences are in them" if old_text != new_text and not edits else ""
        notes = (f"secrets are replaced by marks; changes inside of them are not shown{more}",)
    hunks, cut = _hunks(edits, old, new, spell, max_lines)
    return replace(
        block,
        added=sum(len(edit.new) for edit in edits),
        removed=sum(len(edit.old) for edit in edits),
        hunks=hunks,
        cut=cut,
        is_redacted=is_redacted,
        notes=notes,
    )


def _digest(content: Content | None) -> str:
    return "" if content is None else hashlib.sha256(content.data).hexdigest()


def _mode(content: Content | None) -> str:
    if content is None:
        return ""
    mode = content.mode
    if mode is None:
        mode = _EXECUTABLE_MODE if content.is_executable else _FILE_MODE
    return f"{mode:04o}"


def _change(before: Content | None, after: Content | None) -> FileChange:
    if before is None:
        return "unchanged" if after is None else "created"
    if after is None:
        return "deleted"
    if before.data != after.data:
        return "updated"
    return "unchanged" if _mode(before) == _mode(after) else "mode"


def _text(content: Content | None) -> str | None:
    """Return the text, "" for no file; None for a binary file."""
    if content is None:
        return ""
    if b"\0" in content.data[:PROBE_BYTES]:
        return None
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Return the lines with their line feeds, so that a missing last one is a difference."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _edits(same: Sequence[Same], old_count: int, new_count: int) -> list[_Edit]:
    stops = [Same(0, 0, 0), *same, Same(old_count, new_count, 0)]
    found = [
        _Edit(range(left.old + left.length, right.old), range(left.new + left.length, right.new))
        for left, right in pairwise(stops)
    ]
    return [edit for edit in found if edit.old or edit.new]


def _hunks(
    edits: Sequence[_Edit], old: list[str], new: list[str], spell: Speller, max_lines: int
) -> tuple[tuple[DiffHunk, ...], int]:
    """Return the hunks with at most that many lines, and the number of lines left out."""
    hunks: list[DiffHunk] = []
    left, cut, pairs = max_lines, 0, _MAX_PAIRS
    for group in _groups(edits):
        first, last = group[0], group[-1]
        before = min(CONTEXT_LINES, first.old.start)
        after = min(CONTEXT_LINES, len(old) - last.old.stop)
        old_range = range(first.old.start - before, last.old.stop + after)
        new_range = range(first.new.start - before, last.new.stop + after)
        size = len(old_range) + sum(len(edit.new) for edit in group)
        if left <= 0 or spell.chars > MAX_CHARS:
            cut += size
            continue
        lines: list[DiffLine] = []
        chars = 0
        for line in _walk(group, old_range, new_range, old, new):
            chars += min(len(line.text), MAX_LINE_CHARS)
            if len(lines) == left or spell.chars + chars > MAX_CHARS:
                break
            lines.append(line)
        pairs -= sum(min(len(edit.old), len(edit.new)) for edit in group)
        shown = _mark_words(lines) if pairs > 0 else lines
        left -= len(lines)
        cut += size - len(lines)
        hunks.append(
            DiffHunk(
                old_start=old_range.start + bool(old_range),
                old_lines=len(old_range),
                new_start=new_range.start + bool(new_range),
                new_lines=len(new_range),
                lines=tuple(_spelled(line, spell) for line in shown),
            )
        )
    return tuple(hunks), cut


def _groups(edits: Sequence[_Edit]) -> Iterator[list[_Edit]]:
    """Yield the edits that share a hunk: their lines of context touch."""
    group: list[_Edit] = []
    for edit in edits:
        if group and edit.old.start - group[-1].old.stop > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _walk(
    group: Sequence[_Edit], old_range: range, new_range: range, old: list[str], new: list[str]
) -> Iterator[DiffLine]:
    """Yield the lines of a hunk, not yet spelled."""
    at_old, at_new = old_range.start, new_range.start
    for edit in [*group, _Edit(range(old_range.stop, 0), range(new_range.stop, 0))]:
        for at in range(edit.old.start - at_old):
            number = at_old + at + 1
            yield DiffLine(op="same", text=old[number - 1], old=number, new=at_new + at + 1)
        for at in edit.old:
            yield DiffLine(op="removed", text=old[at], old=at + 1)
        for at in edit.new:
            yield DiffLine(op="added", text=new[at], new=at + 1)
        at_old, at_new = edit.old.stop, edit.new.stop


def _mark_words(lines: Sequence[DiffLine]) -> list[DiffLine]:
    """Return the lines with the words marked that differ between a removed line and the added one."""
    found = list(lines)
    at = 0
    while at < len(found):
        start = at
        while at < len(found) and found[at].op == "removed":
            at += 1
        middle = at
        while at < len(found) and found[at].op == "added":
            at += 1
        for old, new in zip(range(start, middle), range(middle, at), strict=False):
            found[old], found[new] = _mark_pair(found[old], found[new])
        at += at == start
    return found


def _mark_pair(old: DiffLine, new: DiffLine) -> tuple[DiffLine, DiffLine]:
    if len(old.text) + len(new.text) > _PAIR_CHARS:
        return old, new
    words = _WORD.findall(old.text.rstrip("\n")), _WORD.findall(new.text.rstrip("\n"))
    same = find_same(*words, _WORD_STEPS)
    if not any(words[0][x : x + n] != [" "] for x, _, n in same):
        return old, new  # nothing in common: marks on everything show nothing
    edits = _edits(same, len(words[0]), len(words[1]))
    return (
        replace(old, spans=_spans(words[0], [edit.old for edit in edits])),
        replace(new, spans=_spans(words[1], [edit.new for edit in edits])),
    )


def _spans(words: Sequence[str], parts: Sequence[range]) -> tuple[tuple[int, int], ...]:
    ends = [0, *accumulate(map(len, words))]
    return tuple((ends[part.start], ends[part.stop]) for part in parts if part)


def _spelled(line: DiffLine, spell: Speller) -> DiffLine:
    """Return the line safe to show; the spans move with the text."""
    whole = line.text.removesuffix("\n")
    text = whole[:MAX_LINE_CHARS]
    line = replace(line, cut_chars=len(whole) - len(text))
    is_open = not line.text.endswith("\n")
    shown = spell(text)
    if shown == text:
        return replace(line, text=text, no_newline=is_open)
    spans = tuple(
        (len(spell_out(text[:start])), len(spell_out(text[:end]))) for start, end in line.spans
    )
    return replace(line, text=shown, spans=spans, no_newline=is_open)
