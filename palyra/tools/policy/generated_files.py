"""Policy files that the program writes: presets and applied suggestions.

The first line of such a file has its origin and the SHA-256 of the rest, so that an undo removes
exactly what was written and never an edited file.  All functions block.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Conflict, NotFound, Unavailable
from palyra.tools.policy.rules import MAX_FILES

_HEAD = re.compile(r"// palyra ([^\r\n]+), sha256 ([0-9a-f]{64})\n")
_MODE = 0o600


class GeneratedFile(NamedTuple):
    """Content of a policy file; `origin` is None if its first line is not as expected."""

    origin: re.Match[str] | None
    body: str
    is_edited: bool


def write_generated(path: Path, origin: str, body: str, *, exists: str) -> None:
    """Write a new policy file durably: complete or not at all.

    Raises Conflict for a full folder and, with the message `exists`, for an existing file;
    Unavailable.
    """
    if path.exists():
        raise Conflict(exists)
    if len(list(path.parent.glob("*.cedar"))) >= MAX_FILES:
        raise Conflict(
            f"{path.parent} has {MAX_FILES} policy files, which is the limit: join or remove some"
        )
    head = f"// palyra {origin}, sha256 {sha256_hex(body.encode())}\n"
    try:
        is_new = _create(path, (head + body).encode())
    except OSError as error:
        raise Unavailable(f"{path} could not be written: {error}") from error
    if not is_new:
        raise Conflict(exists)


def read_generated(path: Path, origin: re.Pattern[str]) -> GeneratedFile:
    """Read a policy file; without a first line with this origin it is edited.  Raises Unavailable."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} could not be read: {error}") from error
    head = _HEAD.match(text)
    found = origin.fullmatch(head[1]) if head else None
    if head is None or found is None:
        return GeneratedFile(None, text, is_edited=True)
    body = text[head.end() :]
    return GeneratedFile(found, body, is_edited=head[2] != sha256_hex(body.encode()))


def remove_generated(path: Path, origin: re.Pattern[str]) -> GeneratedFile:
    """Remove an unedited file durably.  Raises NotFound, Conflict for an edited file, Unavailable."""
    if not path.exists():
        raise NotFound(f"{path} does not exist: nothing to undo")
    found = read_generated(path, origin)
    if found.is_edited:
        raise Conflict(f"{path} was edited since it was written: remove the file by hand")
    try:
        path.unlink()
        _sync(path.parent)
    except OSError as error:
        raise Unavailable(f"{path} could not be removed: {error}") from error
    return found


def _create(path: Path, data: bytes) -> bool:
    """Create the file with its data; False if it exists.  Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.parent / f".{path.stem}.{os.getpid()}.tmp"
    draft.unlink(missing_ok=True)  # of a process that was killed
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
