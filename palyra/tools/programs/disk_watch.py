"""Watch on the free space of the disks a command can write to.

No kernel limit bounds the bytes one command writes into a workspace.  So the free space is checked
several times a second, and a command that has used its allowance is killed.  Other programs may
write at the same time, so the allowance is generous.
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
    """Free space of a disk."""

    size_bytes: int
    files: int


class DiskWatch:
    """Free space of some folders' disks at the start, to compare with later."""

    def __init__(self, *folders: Path, allowed_bytes: int = ALLOWED_BYTES) -> None:
        """Raises SandboxFailure for a folder whose disk cannot be read, such as a missing one."""
        self._allowed_bytes = allowed_bytes
        self._before = {folder: _measure_first(folder) for folder in folders}

    def find_limit(self) -> str:
        """Return the limit for which to kill the command; "" for none.

        `disk` or `inodes`: more than the allowance of one disk is used; `folder`: a folder cannot be
        read any more.
        """
        for folder, before in self._before.items():
            try:
                now = _measure(folder)
            except OSError:
                return "folder"
            if before.size_bytes - now.size_bytes > self._allowed_bytes:
                return "disk"
            if before.files - now.files > ALLOWED_FILES:
                return "inodes"
        return ""


def disks_of(command: Command) -> list[Path]:
    """Return the folders on the host's disks that the command can write to."""
    folders = [command.workspace or Path("/")]
    if command.least == "B":  # its HOME and TMPDIR lie there
        folders.append(Path(tempfile.gettempdir()))
    return folders


def _measure_first(folder: Path) -> _Free:
    try:
        return _measure(folder)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise SandboxFailure(f"{folder} cannot be written to by a program: {why}") from None


def _measure(folder: Path) -> _Free:
    found = os.statvfs(folder)
    return _Free(found.f_bavail * found.f_frsize, found.f_favail)
