"""Own commands of `palyra chat`: Markdown files whose text is sent as a message.

`NAME.md` in `commands` of the home, in `.palyra/commands` or in `.claude/commands` of the workspace is the
command `/NAME`.  `$ARGUMENTS` is what follows the name, `$1` to `$9` are its words.  Of two with one name
the first counts, so that no workspace replaces a command of the person.

A file is read by the person's own process.  Links, second names and other kinds of files are refused: the
workspace may come from elsewhere, and what such a name leads to would be sent to the model.  Folders and
files are opened name by name, so that a program which puts a link there meanwhile gains nothing.
"""

import errno
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from palyra.cli.command.errors import CommandFailed
from palyra.core.text.front_matter import read_front_matter
from palyra.core.text.visible import visible
from palyra.tools.files.workspace import READ_FLAGS, walk

MAX_BYTES = 65_536  # of one file
MAX_FILES = 200  # entries of one folder that are looked at
DESCRIPTION_CHARS = 100
HOME_FOLDER = "commands"
FOLDERS = (".palyra/commands", ".claude/commands")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
_PLACE = re.compile(r"\$(?:(ARGUMENTS)|([1-9]))(?![A-Za-z0-9_])")


class OwnCommand(NamedTuple):
    """A command that a file defines."""

    name: str
    description: str
    body: str
    path: Path

    def expand(self, typed: str) -> str:
        """Return the message; arguments without a place in it are appended."""
        try:
            words = shlex.split(typed)
        except ValueError:  # a quotation mark that is not closed
            words = typed.split()

        def fill(place: re.Match[str]) -> str:
            if place[1]:
                return typed
            at = int(place[2]) - 1
            return words[at] if at < len(words) else ""

        text, count = _PLACE.subn(fill, self.body.strip())
        return text if count or not typed else f"{text}\n\n{typed}"


class RefusedFile(NamedTuple):
    """A file that is no command, and why."""

    path: Path
    reason: str


def find_commands(
    workspace: Path | None, home: Path, taken: Collection[str]
) -> tuple[list[OwnCommand], list[RefusedFile]]:
    """Return the commands by name, and the files that are none; `taken` names cannot be used."""
    found: dict[str, OwnCommand] = {}
    refused: list[RefusedFile] = []
    roots = [(home, HOME_FOLDER)]
    roots += [(workspace, folder) for folder in FOLDERS if workspace is not None]
    for root, folder in roots:
        for each in _read_folder(root, folder, taken):
            if isinstance(each, RefusedFile):
                refused.append(each)
                continue
            first = found.setdefault(each.name, each)
            if first is not each:
                refused.append(RefusedFile(each.path, f"{first.path} has the name already"))
    return [found[name] for name in sorted(found)], refused


def _read_folder(
    root: Path, folder: str, taken: Collection[str]
) -> Iterator[OwnCommand | RefusedFile]:
    """Yield what a folder holds; nothing if there is none."""
    place = root / folder
    try:
        fd = _open_folder(root, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = f"the folder cannot be read: {error.strerror}"
        if error.errno == errno.ELOOP:
            reason = "a link leads to the folder, or it is none: make it one of its own"
        yield RefusedFile(place, reason)
        return
    try:
        for name in _list_names(fd):
            try:
                yield _read_command(fd, place / name, taken)
            except CommandFailed as failed:
                yield RefusedFile(place / name, failed.message)
    finally:
        os.close(fd)


def _open_folder(root: Path, folder: str) -> int:
    """Open a folder below the root, following no link.  Raises OSError: ELOOP for a link, or a file."""
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return walk(top, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(top)


def _list_names(fd: int) -> list[str]:
    """Return the names of the Markdown files of a folder."""
    with os.scandir(fd) as entries:
        names = sorted(each.name for each in islice(entries, MAX_FILES))
    return [name for name in names if name.endswith(".md") and name[0] != "."]


def _read_command(fd: int, path: Path, taken: Collection[str]) -> OwnCommand:
    """Return the command of a file in the folder.  Raises CommandFailed if it is none."""
    name = path.name.removesuffix(".md")
    if not _NAME.match(name):
        raise CommandFailed(
            "a name is a letter, then letters, digits, `.`, `_` and `-`", "rename it"
        )
    if name in taken:
        raise CommandFailed(f"/{name} is a command of the conversation", "rename it")
    matter = read_front_matter(_read_text(fd, path.name))
    if matter.problem:
        raise CommandFailed(matter.problem, "correct its front matter")
    if not matter.body.strip():
        raise CommandFailed("it has no text", "write one")
    first = matter.body.strip().partition("\n")[0].lstrip("# ")
    description = visible(matter.fields.get("description") or first)
    return OwnCommand(name, description[:DESCRIPTION_CHARS], matter.body, path)


def _read_text(folder_fd: int, name: str) -> str:
    """Return the text of a regular file.  Raises CommandFailed."""
    try:
        data = _read_regular(folder_fd, name)
    except OSError as error:
        reason = "a link" if error.errno == errno.ELOOP else error.strerror
        raise CommandFailed(f"it cannot be read: {reason}", "copy the file") from None
    if len(data) > MAX_BYTES:
        raise CommandFailed(f"it has more than {MAX_BYTES} bytes", "shorten it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandFailed("it is not UTF-8", "convert it") from None


def _read_regular(folder_fd: int, name: str) -> bytes:
    """Return the content, one byte more than is allowed at most.  Raises CommandFailed, OSError."""
    fd = os.open(name, READ_FLAGS, dir_fd=folder_fd)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise CommandFailed("no regular file, or one with a second name", "copy the file")
        return file.read(MAX_BYTES + 1)
