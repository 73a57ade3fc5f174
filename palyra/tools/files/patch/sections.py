"""Patches in sections: `*** Begin Patch`, then files, then `*** End Patch`.

    *** Add File: PATH          lines that begin with `+`
    *** Delete File: PATH
    *** Update File: PATH       an optional `*** Move to: PATH`, then hunks: lines that begin with
                                a blank (context), `-` (removed) or `+` (added)

A hunk may begin with `@@ LINE`, a line above it in the file; several narrow the position down.
`*** End of File` anchors its last line to the end of the file.  Context lines determine the
position, so line numbers are not needed.  An empty line inside a hunk is an empty context line.
"""

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

BEGIN, END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"
_OPS: dict[str, Op] = {" ": "context", "-": "remove", "+": "add"}


def parse_sections(lines: Lines) -> list[FilePatch]:
    """Parse the files of the patch.  Raises PatchError."""
    lines.take()  # the beginning, by which the format was known
    files: list[FilePatch] = []
    while (line := lines.peek()) is not None and line.rstrip() != END:
        files.append(_parse_file(lines))
        lines.skip_blank()
    if line is None:
        raise PatchError(lines.number, f"the patch does not end with `{END}`")
    lines.take()
    lines.skip_blank()
    if lines.peek() is not None:
        raise PatchError(lines.number, f"nothing may follow `{END}`")
    return files


def _parse_file(lines: Lines) -> FilePatch:
    number, line = lines.number, lines.take()
    if line.startswith(_ADD):
        added = tuple(_added(lines))
        hunks = (Hunk(number, added, start=0),) if added else ()
        return FilePatch(number, "create", _path(line, _ADD, number), hunks=hunks)
    if line.startswith(_DELETE):
        return FilePatch(number, "delete", _path(line, _DELETE, number))
    if line.startswith(_UPDATE):
        return _parse_update(lines, number, _path(line, _UPDATE, number))
    raise PatchError(number, f"expected `{_ADD}…`, `{_UPDATE}…`, `{_DELETE}…` or `{END}`")


def _path(line: str, start: str, number: int) -> str:
    return checked_path(line[len(start) :].strip(), number, len(start) + 1)


def _added(lines: Lines) -> list[PatchLine]:
    added: list[PatchLine] = []
    while (line := lines.peek()) is not None and not line.startswith("*** "):
        if not line.startswith("+"):
            raise PatchError(lines.number, "each line of a new file begins with `+`")
        added.append(PatchLine("add", line=lines.number, text=encoded(lines)))
    return added


def _parse_update(lines: Lines, number: int, path: str) -> FilePatch:
    new_path = None
    line = lines.peek()
    if line is not None and line.startswith(_MOVE):
        new_path = _path(line, _MOVE, lines.number)
        lines.take()
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and _is_in_update(line):
        hunks.append(_parse_hunk(lines))
    if not hunks and new_path is None:
        raise PatchError(lines.number, f"the update of {path!r} changes nothing: expected a hunk")
    return FilePatch(number, "update", path, new_path, tuple(hunks))


def _is_in_update(line: str) -> bool:
    return not line.startswith("*** ") or line.rstrip() == _END_OF_FILE


def _parse_hunk(lines: Lines) -> Hunk:
    number = lines.number
    anchors = _parse_anchors(lines)
    found: list[PatchLine] = []
    while (op := _op(lines.peek())) is not None:
        found.append(PatchLine(op, line=lines.number, text=encoded(lines)))
    line = lines.peek()
    is_at_end = line is not None and line.rstrip() == _END_OF_FILE
    if is_at_end:
        lines.take()
    elif not found and line is not None and _is_in_update(line):
        raise PatchError(lines.number, "a line of a hunk begins with a blank, `-`, `+` or `@@`")
    while found and not is_at_end and found[-1][:2] == ("context", b"\n"):
        found.pop()  # a blank line that sets sections apart
    return checked_hunk(Hunk(number, tuple(found), anchors=anchors, is_at_end=is_at_end))


def _parse_anchors(lines: Lines) -> tuple[bytes, ...]:
    anchors: list[bytes] = []
    while (line := lines.peek()) is not None and line.startswith("@@"):
        text = line.removeprefix("@@").removesuffix("@@").strip()
        if text:
            anchors.append(text.encode("utf-8", "surrogatepass"))
        lines.take()
    return tuple(anchors)


def _op(line: str | None) -> Op | None:
    """Return the operation of a hunk line; None for a line outside of it."""
    if line is None:
        return None
    return _OPS.get(line[0]) if line else "context"
