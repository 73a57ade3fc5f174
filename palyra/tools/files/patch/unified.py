"""Unified diffs, as `diff -u` and `git diff` write them.

Headers of git are understood: new and deleted files, renames, the executable bit.  The counts of a
hunk's header must be right; an empty line inside a hunk is an empty context line.  Binary patches,
copies, links and submodules are refused.  Source: diff(1), git-diff(1).
"""

import re
from dataclasses import dataclass
from typing import Literal

from palyra.tools.files.patch.model import (
    FilePatch,
    Hunk,
    Lines,
    Op,
    PatchError,
    PatchLine,
    checked_hunk,
    checked_path,
    encoded,
)

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NOTHING = "/dev/null"
_NO_LINE_FEED = "\\"  # begins the line that says so
_OPS: dict[str, Op] = {" ": "context", "-": "remove", "+": "add", "": "context"}
_MODE_WORDS: dict[str, Literal["create", "delete"] | None] = {
    "old": None,
    "new": None,
    "new file": "create",
    "deleted file": "delete",
}
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_ESCAPED = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


@dataclass(slots=True)
class _Header:
    """Header of a file, before its hunks."""

    line: int
    old: str | None = None  # None: not said, or there is none
    new: str | None = None
    kind: Literal["create", "update", "delete"] = "update"
    is_executable: bool | None = None
    is_renamed: bool = False


def is_header(line: str) -> bool:
    """True if a file of a unified diff begins here."""
    return line.startswith(("diff --git ", "--- "))


def parse_unified(lines: Lines) -> list[FilePatch]:
    """Parse the files of the patch.  Raises PatchError."""
    files: list[FilePatch] = []
    while (line := lines.peek()) is not None:
        if not is_header(line):
            raise PatchError(lines.number, "expected `diff --git a/… b/…` or `--- …`")
        files.append(_parse_file(lines))
        lines.skip_blank()
    return files


def _parse_file(lines: Lines) -> FilePatch:
    header = _Header(lines.number)
    if (lines.peek() or "").startswith("diff --git "):
        _parse_git_line(lines, header)
        while (line := lines.peek()) is not None and _parse_git_header(line, lines, header):
            lines.take()
    if (lines.peek() or "").startswith("--- "):
        _parse_names(lines, header)
    hunks: list[Hunk] = []
    has_marks = False
    while (lines.peek() or "").startswith("@@"):
        hunk, is_marked = _parse_hunk(lines)
        hunks.append(hunk)
        has_marks |= is_marked
    return _file(header, tuple(hunks), has_marks=has_marks)


def _file(header: _Header, hunks: tuple[Hunk, ...], *, has_marks: bool) -> FilePatch:
    path = header.new if header.kind == "create" else header.old
    if path is None:
        raise PatchError(header.line, "neither side of the header names a file")
    new_path = header.new if header.kind == "update" and header.new != path else None
    if new_path is not None and not header.is_renamed:
        raise PatchError(
            header.line, "the two sides name different files: a rename has git's `rename` lines"
        )
    if header.kind == "create" and any(line.op != "add" for hunk in hunks for line in hunk.lines):
        raise PatchError(header.line, "a new file has added lines only")
    if header.kind == "update" and not (hunks or new_path) and header.is_executable is None:
        raise PatchError(header.line, "nothing is said to change: expected `@@ … @@`")
    return FilePatch(
        header.line, header.kind, path, new_path, hunks, header.is_executable, has_marks
    )


# --- headers -------------------------------------------------------------------------------------


def _parse_git_line(lines: Lines, header: _Header) -> None:
    """Return the name in `diff --git a/X b/X`, used if no other line has it."""
    number, line = lines.number, lines.take()
    start = len("diff --git ")
    rest = line[start:]
    middle = len(rest) // 2
    if rest.startswith('"'):
        old, at = _quoted(rest, number, start)
    elif rest.endswith('"') and ' "' in rest:
        at = rest.index(' "')
        old = rest[:at]
    elif rest[middle : middle + 1] == " ":  # the same name twice
        old, at = rest[:middle], middle
    else:  # the lines that follow say which names
        return
    new = rest[at + 1 :]
    new = _quoted(new, number, start + at + 1)[0] if new.startswith('"') else new
    if old.startswith("a/") and new.startswith("b/"):
        header.old = checked_path(old[2:], number, start + 1)
        header.new = checked_path(new[2:], number, start + at + 2)


def _parse_git_header(line: str, lines: Lines, header: _Header) -> bool:
    """Parse one of git's extended header lines; False if it is none."""
    word, _, value = line.partition(" mode ")
    if word in _MODE_WORDS and value:
        is_executable = _is_executable(value, lines.number, len(line) - len(value) + 1)
        if word in {"new", "new file"}:
            header.is_executable = is_executable
        header.kind = _MODE_WORDS[word] or header.kind
        return True
    if line.startswith(("rename from ", "rename to ")):
        header.is_renamed = True
        column = line.index(" ", 7) + 2
        path = _unquoted(line[column - 1 :], lines.number, column)
        side = "old" if line.startswith("rename from ") else "new"
        setattr(header, side, checked_path(path, lines.number, column))
        return True
    if line.startswith(("copy from ", "copy to ")):
        raise PatchError(lines.number, "copies are not done: create the file instead")
    if line.startswith(("GIT binary patch", "Binary files ")):
        raise PatchError(lines.number, "binary patches are refused: only text files are patched")
    return line.startswith(("index ", "similarity index ", "dissimilarity index "))


def _is_executable(value: str, number: int, column: int) -> bool:
    if value not in {"100644", "100755"}:
        raise PatchError(
            number, f"mode {value[:20]!r}: only plain files are patched, 100644 or 100755", column
        )
    return value == "100755"


def _parse_names(lines: Lines, header: _Header) -> None:
    """Parse the lines `--- OLD` and `+++ NEW`."""
    old = _name(lines)
    if not (lines.peek() or "").startswith("+++ "):
        raise PatchError(lines.number, "expected `+++ …` after `--- …`")
    number = lines.number
    new = _name(lines)
    if _is_side(old, "a/") and _is_side(new, "b/"):
        old, new = old.removeprefix("a/"), new.removeprefix("b/")
    header.kind = "create" if old == _NOTHING else "delete" if new == _NOTHING else header.kind
    header.old = None if old == _NOTHING else checked_path(old, number - 1, 5)
    header.new = None if new == _NOTHING else checked_path(new, number, 5)


def _is_side(name: str, prefix: str) -> bool:
    return name == _NOTHING or name.startswith(prefix)


def _name(lines: Lines) -> str:
    number, line = lines.number, lines.take()
    return _unquoted(line[4:].partition("\t")[0].rstrip(), number, 5)


def _unquoted(text: str, number: int, column: int) -> str:
    return _quoted(text, number, column - 1)[0] if text.startswith('"') else text


def _quoted(text: str, number: int, before: int) -> tuple[str, int]:
    """Unquote a name in git's quotes; return it and its end."""
    end = 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise PatchError(number, "a quoted name does not end", before + 1)
    raw = text[1:end].encode("utf-8", "surrogatepass")
    try:
        return _ESCAPE.sub(_unescape, raw).decode(), end + 1
    except UnicodeDecodeError:
        raise PatchError(number, "a quoted name is no UTF-8", before + 1) from None


def _unescape(match: re.Match[bytes]) -> bytes:
    said = match.group(1)
    code = int(said, 8) & 0xFF if said.isdigit() else _ESCAPED.get(said[0], said[0])
    return bytes([code])


# --- hunks ---------------------------------------------------------------------------------------


def _parse_hunk(lines: Lines) -> tuple[Hunk, bool]:
    number, line = lines.number, lines.take()
    found = _HUNK.match(line)
    if found is None:
        raise PatchError(number, "expected `@@ -LINE,COUNT +LINE,COUNT @@`", 1)
    start, old, _, new = (1 if part is None else int(part) for part in found.groups())
    body, is_marked = _parse_lines(lines, old, new)
    # Without old lines the header names the line before; else the first of them.
    return checked_hunk(Hunk(number, tuple(body), start=max(0, start - (old > 0)))), is_marked


def _parse_lines(lines: Lines, old: int, new: int) -> tuple[list[PatchLine], bool]:
    found: list[PatchLine] = []
    is_marked = False
    while (line := lines.peek()) is not None:
        if line.startswith(_NO_LINE_FEED) and found:
            lines.take()
            found[-1] = found[-1]._replace(text=found[-1].text.removesuffix(b"\n"))
            is_marked = True
        elif not old and not new:
            break
        else:
            op = _op(lines, old, new)
            old -= op != "add"
            new -= op != "remove"
            found.append(PatchLine(op, line=lines.number, text=encoded(lines)))
    if old or new:
        raise PatchError(lines.number, _missing(old, new))
    if line is not None and line[:1] in {" ", "+", "-"} and not line.startswith("--- "):
        raise PatchError(lines.number, "the hunk has more lines than its header says")
    return found, is_marked


def _op(lines: Lines, old: int, new: int) -> Op:
    kind = _OPS.get((lines.peek() or "")[:1])
    if kind is None:
        raise PatchError(
            lines.number, f"{_missing(old, new)}: expected a line that begins with a blank, - or +"
        )
    if (kind != "add" and not old) or (kind != "remove" and not new):
        side = "old" if kind != "add" and not old else "new"
        raise PatchError(lines.number, f"the hunk has more {side} lines than its header says")
    return kind


def _missing(old: int, new: int) -> str:
    return f"the hunk's header promises {old} more old and {new} more new lines"
