"""How much room the disks a command can write to lose while it runs.

No kernel limit bounds what one command writes into a workspace; so it is looked at, a few times a
second, and who has used up the allowance is stopped.  Others may write meanwhile: the allowance is
generous.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from palyra.tools.sandbox.command import Command, SandboxFailure

LOOK_S = 0.25
ALLOWED_BYTES = 1_073_741_824
ALLOWED_FILES = 200_000


@dataclass(frozen=True, slots=True)
class _Free:
    """What a disk has left."""

    size_bytes: int
    files: int


class DiskWatch:
    """The disks of some folders, as they were."""

    def __init__(self, *folders: Path, allowed_bytes: int = ALLOWED_BYTES) -> None:
        """Raises SandboxFailure for one that cannot be looked at, as one that is gone."""
        self._allowed_bytes = allowed_bytes
        self._before = {folder: _first_look(folder) for folder in folders}

    def find_limit(self) -> str:
        """What it must be stopped for; "" for nothing.

        `disk` or `inodes`: more than the allowance is gone from one of them; `folder`: one cannot
        be looked at any more.
        """
        for folder, before in self._before.items():
            try:
                now = _look(folder)
            except OSError:
                return "folder"
            if before.size_bytes - now.size_bytes > self._allowed_bytes:
                return "disk"
            if before.files - now.files > ALLOWED_FILES:
                return "inodes"
        return ""


def disks_of(command: Command) -> list[Path]:
    """Folders on the host's disks that the command can write to."""
    folders = [command.workspace or Path("/")]
    if command.least == "B":  # where its HOME and TMPDIR lie
        folders.append(Path(tempfile.gettempdir()))
    return folders


def _first_look(folder: Path) -> _Free:
    try:
        return _look(folder)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise SandboxFailure(f"{folder} cannot be written to by a program: {why}") from None


def _look(folder: Path) -> _Free:
    found = os.statvfs(folder)
    return _Free(found.f_bavail * found.f_frsize, found.f_favail)
