"""A patch as data: its files, and the change of each.

Two formats are parsed into it: unified diffs (`unified`) and sections (`sections`); `apply` applies it
to contents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from palyra.core.tool.paths import MAX_PATH_BYTES

MAX_PATCH_BYTES = 262_144
MAX_LINES = 10_000  # the rules read every patch on the event loop: two microseconds a line
MAX_FILES = 64
MAX_HUNKS = 1_000  # of all files; each may look through its whole file
Op = Literal["context", "remove", "add"]


class PatchError(ValueError):
    """An error in a patch, with its position: lines and columns count from 1."""

    def __init__(self, line: int, text: str, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {text}")
        self.line = line
        self.column = column


class PatchLine(NamedTuple):
    """One line of a hunk: operation, text with line feed, line number in the patch."""

    op: Op
    text: bytes
    line: int


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines to find and their replacement."""

    line: int  # of the patch
    lines: tuple[PatchLine, ...]
    start: int | None = None  # index of the first old line; None: wherever the lines are
    anchors: tuple[bytes, ...] = ()  # lines that stand above, one after the other
    is_at_end: bool = False  # the old lines are the file's last

    @property
    def old(self) -> list[PatchLine]:
        """Lines that must be in the file."""
        return [line for line in self.lines if line.op != "add"]


@dataclass(frozen=True, slots=True)
class FilePatch:
    """Change of one file."""

    line: int  # of the patch
    kind: Literal["create", "update", "delete"]
    path: str
    new_path: str | None = None  # of an update that renames
    hunks: tuple[Hunk, ...] = ()
    is_executable: bool | None = None  # None: as it is
    has_eof_marks: bool = False  # says itself which line has no line feed

    @property
    def paths(self) -> Iterator[str]:
        """All paths it names."""
        yield self.path
        if self.new_path is not None:
            yield self.new_path


@dataclass(slots=True)
class Lines:
    """Reader of the patch's text, line by line."""

    texts: list[str]  # without line feeds
    at: int = 0

    @property
    def number(self) -> int:
        """Number of the next line, from 1."""
        return self.at + 1

    def peek(self) -> str | None:
        """Return the next line without advancing; None at the end."""
        return self.texts[self.at] if self.at < len(self.texts) else None

    def take(self) -> str:
        """Return the next line and advance; only after a `peek` that was not None."""
        self.at += 1
        return self.texts[self.at - 1]

    def skip_blank(self) -> None:
        """Skip empty lines."""
        while (line := self.peek()) is not None and not line.strip():
            self.at += 1


def encoded(lines: Lines) -> bytes:
    """Return the next line without its sign, with a line feed, and advance."""
    number, line = lines.number, lines.take()
    try:
        return f"{line[1:]}\n".encode()
    except UnicodeEncodeError as error:
        raise PatchError(number, "half of a surrogate pair is no text", error.start + 2) from None


def checked_hunk(hunk: Hunk) -> Hunk:
    """Return the hunk; raise PatchError if it changes nothing."""
    if all(line.op == "context" for line in hunk.lines):
        raise PatchError(
            hunk.line, "the hunk changes nothing: expected a line that begins with + or -"
        )
    return hunk


def checked_path(path: str, line: int, column: int) -> str:
    """Return the path; raise PatchError if it is none.  Tool and rules decide about its use."""
    if not path or "\0" in path or len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise PatchError(line, f"a path has 1 to {MAX_PATH_BYTES} bytes and no NUL", column)
    return path
