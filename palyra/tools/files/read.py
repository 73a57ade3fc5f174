"""The tools `read_file` and `list_dir`.

Every page fits the excerpt of one output, so none is truncated later.  The text of an incomplete page
ends with the arguments for the next one.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from time import monotonic
from typing import IO, Any

from palyra.core.memory.documents import MAX_DOCUMENT_BYTES, without_blocks
from palyra.core.model.images import MAX_PICTURE_BYTES, check_picture
from palyra.core.model.picture_files import BrokenPicture, media_type_of
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.paths import MAX_PATH_BYTES, is_private
from palyra.core.tool.spec import ToolFailure, ToolOutput, ToolSpec
from palyra.tools.files.ignores import NAMES, STORES, Ignores, PersonalExcludes
from palyra.tools.files.workspace import Workspace, equal_names_note
from palyra.tools.toolbox import Arguments, ThreadTool, Tool

EXCERPT_BYTES = 16_384  # of an output in the model's context
PAGE_BYTES = EXCERPT_BYTES - 384  # leaves room for the closing note
MAX_LINES = 2_000  # of one page
MAX_READ_BYTES = 16_777_216  # of a larger file only the part that a call names is read
READ_S = 5.0  # to reach a line, and to count those after it: half of the tool's deadline
MAX_ENTRIES = 10_000  # of a folder that is listed
IGNORES_S = 5.0  # for ignore files of a listing: half of the tool's deadline
_LINE_BYTES = PAGE_BYTES + 4  # of a line are read at once; what is cut off lies behind the page
_CHUNK_BYTES = 262_144  # of lines that are passed
_PROBE_BYTES = 8_192  # read to tell a text from a binary file

PATH: dict[str, Any] = {
    "type": "string",
    "maxLength": MAX_PATH_BYTES,
    "description": "Relative to the workspace, without `..`.",
}
INCLUDE_IGNORED: dict[str, Any] = {
    "type": "boolean",
    "description": "Also what .gitignore and .ignore files leave out.",
}


def reading_spec(
    name: str,
    description: str,
    properties: dict[str, Any],
    enforcement: str,
    required: Sequence[str] = (),
) -> ToolSpec:
    """Return the specification of a read-only tool; its string arguments are never coerced."""
    texts = (key for key, schema in properties.items() if schema["type"] == "string")
    parameters = {"type": "object", "properties": properties}
    return ToolSpec(
        name=name,
        version="1",
        description=description,
        parameters={**parameters, "required": list(required)} if required else parameters,
        tool_class="read_only_safe",
        risk="low",
        capabilities=("fs.read",),
        deadline_s=10.0,
        path_argument="path",
        never_coerced=tuple(texts),
        excerpt_bytes=EXCERPT_BYTES,
        executor="thread",
        enforcement=enforcement,
    )


def read_file_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `read_file`."""
    return reading_spec(
        "read_file",
        "Read a text file of the workspace, a page of lines at a time, or see a picture.",
        {
            "path": {**PATH, "minLength": 1},
            "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES,
                      "description": "Most lines to read."},
        },
        enforcement,
        ["path"],
    )  # fmt: skip


def list_dir_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `list_dir`."""
    description = "List a folder of the workspace by name, a page of entries at a time: names, kinds and sizes."
    parameters = {
        "path": PATH,
        "offset": {"type": "integer", "minimum": 1, "description": "First entry, from 1."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES,
                  "description": "Most entries to list."},
        "include_ignored": INCLUDE_IGNORED,
    }  # fmt: skip
    return reading_spec("list_dir", description, parameters, enforcement)


def file_tools(workspace: Workspace, personal: PersonalExcludes | None = None) -> list[Tool]:
    """Return both tools for one workspace; `personal` excludes hold in all of it."""
    enforcement = workspace.enforcement
    return [
        ThreadTool(
            read_file_spec(enforcement),
            lambda call: read_file(
                workspace, call.arguments, is_confined=call.audience.is_confined
            ),
        ),
        ThreadTool(
            list_dir_spec(enforcement), lambda call: list_dir(workspace, call.arguments, personal)
        ),
    ]


# --- read_file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Page:
    lines: list[str]
    is_cut: bool  # the only line is longer than a page
    left: int | None  # lines after the page, to the end of the file; None: not counted in time


def read_file(
    workspace: Workspace, arguments: Arguments, *, is_confined: bool = False
) -> ToolOutput:
    """Return lines from `offset` on, as many as fit, or a picture.  Blocks.  Raises ToolFailure.

    Memory is bounded by a page and a chunk, however large the file and its lines are.  A confined run
    is not shown the managed blocks of a document, which hold memory of its principal.
    """
    first = arguments.get("offset", 1)
    path = workspace.resolve(arguments["path"])
    ends_s = monotonic() + READ_S
    with workspace.open_file(path) as fd, os.fdopen(fd, "rb", closefd=False) as opened:
        file: IO[bytes] = opened
        size_bytes = os.fstat(fd).st_size
        head = file.read(_PROBE_BYTES)
        file.seek(0)
        if b"\0" in head and media_type_of(head) is not None:
            return _picture_output(file, size_bytes)
        if is_confined and size_bytes <= MAX_DOCUMENT_BYTES:
            file = BytesIO(without_blocks(file.read()))
        _check_text(head, size_bytes, is_part=bool({"offset", "limit"} & arguments.keys()))
        passed = _pass_lines(file, first - 1, ends_s)
        if passed is None:
            raise ToolFailure(
                f"line {first} was not reached within {READ_S:g} s: a smaller offset, or `search_text` "
                "or a program for a place so deep in the file"
            )
        page = _read_page(file, arguments.get("limit", MAX_LINES), ends_s)
    if not page.lines and first > 1:
        lines = pluralize(passed, "line")
        raise ToolFailure(f"offset {first} is past the end: the file has {lines}")
    return _page_output(page, first, equal_names_note(workspace.find_equals(path)))


def _picture_output(file: IO[bytes], size_bytes: int) -> ToolOutput:
    if size_bytes > MAX_PICTURE_BYTES:
        raise ToolFailure(f"a picture of {size_bytes} bytes; at most {MAX_PICTURE_BYTES} are shown")
    data = file.read(MAX_PICTURE_BYTES)
    try:
        check_picture(data)
    except BrokenPicture as broken:
        raise ToolFailure(f"a picture that cannot be shown: {broken.message}") from None
    return ToolOutput(text="", pictures=(data,))


def _check_text(head: bytes, size_bytes: int, *, is_part: bool) -> None:
    if b"\0" in head:
        size = pluralize(size_bytes, "byte")
        raise ToolFailure(f"a binary file of {size}; only text and pictures are read")
    if size_bytes > MAX_READ_BYTES and not is_part:
        raise ToolFailure(
            f"the file has {size_bytes} bytes; of more than {MAX_READ_BYTES} a part is read: give "
            "`offset` and `limit`"
        )


def _read_page(file: IO[bytes], limit: int, ends_s: float) -> _Page:
    lines: list[str] = []
    room, is_cut = PAGE_BYTES, False
    while len(lines) < limit and (line := file.readline(_LINE_BYTES)):
        text = line.decode("utf-8", "replace")  # may grow: an invalid byte becomes three
        room -= len(text.encode())
        if room < 0:
            file.seek(-len(line), os.SEEK_CUR)
            if not lines:
                lines.append(text.encode()[:PAGE_BYTES].decode("utf-8", "ignore"))
                is_cut = True
                _pass_lines(file, 1, ends_s)
            break
        lines.append(text)
    return _Page(lines, is_cut=is_cut, left=_pass_lines(file, None, ends_s))


def _pass_lines(file: IO[bytes], count: int | None, ends_s: float) -> int | None:
    """Move past so many lines, None for all, and return how many there were; None: not in time.

    The last line may lack its line feed.
    """
    passed, is_open = 0, False
    while passed != count and (chunk := file.read(_CHUNK_BYTES)):
        if monotonic() > ends_s:
            return None
        ends = chunk.count(b"\n")
        if count is not None and passed + ends >= count:
            rest = chunk.split(b"\n", count - passed)[-1]
            file.seek(-len(rest), os.SEEK_CUR)
            return count
        passed += ends
        is_open = not chunk.endswith(b"\n")
    return passed + is_open


def _page_output(page: _Page, first: int, notes: list[str]) -> ToolOutput:
    text = "".join(page.lines)
    last = first + len(page.lines) - 1
    if not page.lines:
        notes.append("the file is empty")
    if page.is_cut:
        notes.append(f"line {first} is longer than {PAGE_BYTES} bytes and was cut")
    if page.left != 0:
        total = " and more" if page.left is None else f" of {last + page.left}"
        notes.append(f"lines {first} to {last}{total}; go on with offset {last + 1}")
    if notes:
        text = f"{text}\n" if text and not text.endswith("\n") else text
        text += f"[{'; '.join(notes)}]"
    return ToolOutput(text=text, is_truncated=page.is_cut or page.left != 0)


# --- list_dir ------------------------------------------------------------------------------------


def list_dir(
    workspace: Workspace, arguments: Arguments, personal: PersonalExcludes | None = None
) -> ToolOutput:
    """Return one line per entry from `offset` on, sorted by name, as many as fit.

    Blocks.  Raises ToolFailure.
    """
    first, most = arguments.get("offset", 1), arguments.get("limit", MAX_LINES)
    path = workspace.resolve(arguments.get("path", ""))
    ignores = None if arguments.get("include_ignored", False) else Ignores(workspace, personal)
    with workspace.open_folder(path) as fd, os.scandir(fd) as found:
        entries = sorted(islice(found, MAX_ENTRIES + 1), key=lambda entry: entry.name)
        is_cut = len(entries) > MAX_ENTRIES
        if ignores is not None:
            entries = _kept(ignores, path, entries)
        page = entries[first - 1 : first - 1 + most]
        shown = list(_fitting(_entry_text(path, entry) for entry in page))
    if first > 1 and first > len(entries):
        raise ToolFailure(f"offset {first} is past the end: entries shown: {len(entries)}")
    after = first + len(shown)
    left = len(entries) - after + 1
    notes: list[str] = []
    if left:
        least = "at least " if is_cut else ""
        notes.append(f"{least}{left} more entries are not shown; go on with offset {after}")
    if not entries:
        hidden = ignores is not None and ignores.has_left
        notes.append("nothing to show" if hidden else "the folder is empty")
    notes += equal_names_note(entry.name for entry in entries)
    notes += [] if ignores is None else ignores.notes()
    text = "\n".join([*shown, *([f"[{'; '.join(notes)}]"] if notes else [])])
    return ToolOutput(text=text, is_truncated=left > 0)


def _kept(ignores: Ignores, folder: str, entries: list[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Return the entries that are not ignored; stores of version control are left out."""
    scope = ignores.above(folder)
    scope = ignores.enter(scope, folder, NAMES.intersection(entry.name for entry in entries))
    prefix = f"{folder}/" if folder else ""
    kept: list[os.DirEntry[str]] = []
    ends_s = monotonic() + IGNORES_S
    for at, entry in enumerate(entries):
        if monotonic() > ends_s:
            ignores.problems.append(f"the ignore files took {IGNORES_S:g} s: not used from here on")
            return [*kept, *entries[at:]]
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in STORES:
            ignores.stores += 1
        elif not ignores.leaves_out(scope, prefix + entry.name, entry.name, is_folder=is_folder):
            kept.append(entry)
    return kept


def _fitting(lines: Iterator[str]) -> Iterator[str]:
    size_bytes = 0
    for line in lines:
        size_bytes += len(line.encode()) + 1
        if size_bytes > PAGE_BYTES:
            return
        yield line


def _entry_text(folder: str, entry: os.DirEntry[str]) -> str:
    name = visible(entry.name)
    if is_private(f"{folder}/{entry.name}"):
        return f"{name}  private"
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:  # removed since the folder was read
        return f"{name}  gone"
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFREG:
        return f"{name}  {pluralize(found.st_size, 'byte')}"
    return f"{name}/" if kind == stat.S_IFDIR else f"{name}  {_KINDS.get(kind, 'device')}"


_KINDS = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
