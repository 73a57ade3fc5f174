"""Files of applied suggestions: one `suggested-ID.cedar` for each, among the user policies.

The first line holds the SHA-256 of the rest, so that an undo removes exactly what was applied and
never what a person has written since.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from palyra.core.policy.views import AppliedSuggestion
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.text.visible import visible
from palyra.errors import Conflict, NotFound, Unavailable
from palyra.tools.policy.rules import MAX_FILES

_HEAD = re.compile(r"// palyra suggestion, applied at (\d{1,16}) ms, sha256 ([0-9a-f]{64})\n")
_ID = re.compile(r"sug_[0-9a-f]{16}")
_MODE = 0o600


class SuggestedPolicyFiles:
    """`core.ports.SuggestedFiles` over the folder of user policies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_applied(self) -> list[AppliedSuggestion]:
        """Return the applied suggestions, the newest first (blocks).  Raises Unavailable."""
        try:
            paths = sorted(self._folder.glob("suggested-sug_*.cedar"))
            found = [_parse(path, path.read_text(encoding="utf-8")) for path in paths]
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self._folder}: {error}") from error
        return sorted(found, key=lambda each: (each.applied_ms, each.suggestion_id), reverse=True)

    def apply(
        self, suggestion_id: str, cedar: str, notes: Sequence[str], at_ms: int
    ) -> AppliedSuggestion:
        """Write the rule durably, or nothing (blocks).  Raises Conflict, Unavailable."""
        path = self._path(suggestion_id)
        if len(list(self._folder.glob("*.cedar"))) >= MAX_FILES:
            raise Conflict(
                f"{self._folder} has {MAX_FILES} policy files, which is the limit: join or undo some"
            )
        body = "".join(f"// {visible(note)}\n" for note in notes) + cedar
        head = f"// palyra suggestion, applied at {at_ms} ms, sha256 {sha256_hex(body.encode())}\n"
        try:
            create_file(path, (head + body).encode())
        except FileExistsError:
            raise Conflict(f"{suggestion_id} is applied already: {path}") from None
        except OSError as error:
            raise Unavailable(f"{path} could not be written: {error}") from error
        return _parse(path, head + body)

    def undo(self, suggestion_id: str | None) -> AppliedSuggestion:
        """Remove the file of a suggestion, by default of the newest (blocks).

        Raises NotFound, Unavailable, Conflict for a file that was edited since.
        """
        applied = self.list_applied()
        wanted = [each for each in applied if suggestion_id in {None, each.suggestion_id}]
        if not wanted:
            none = (
                f"{suggestion_id} is not applied" if suggestion_id else "no suggestion is applied"
            )
            raise NotFound(
                f"{none}; `palyra policy suggest` lists those that are", field="suggestion_id"
            )
        found = wanted[0]
        path = self._path(found.suggestion_id)
        if found.is_edited:
            raise Conflict(f"{path} was edited since it was applied: remove the file by hand")
        try:
            remove_file(path)
        except OSError as error:
            raise Unavailable(f"{path} could not be removed: {error}") from error
        return found

    def _path(self, suggestion_id: str) -> Path:
        if _ID.fullmatch(suggestion_id) is None:
            raise NotFound(f"{suggestion_id!r} is no id of a suggestion", field="suggestion_id")
        return self._folder / f"suggested-{suggestion_id}.cedar"


def _parse(path: Path, text: str) -> AppliedSuggestion:
    head = _HEAD.match(text)
    body = text[head.end() :] if head else text
    return AppliedSuggestion(
        suggestion_id=path.stem.removeprefix("suggested-"),
        file=str(path),
        cedar=body,
        applied_ms=int(head[1]) if head else 0,
        is_edited=head is None or head[2] != sha256_hex(body.encode()),
    )


def create_file(path: Path, data: bytes) -> None:
    """Write a new file durably: complete or not at all.  Raises OSError, FileExistsError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.parent / f".{path.stem}.{os.getpid()}.tmp"
    draft.unlink(missing_ok=True)  # of a process that was killed
    try:
        _write(draft, data)
        os.link(draft, path)  # fails if it exists
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file durably.  Raises OSError."""
    path.unlink()
    _sync(path.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
