"""How much room the workspace's disk loses while a command runs.

No kernel limit bounds what one command writes into a workspace; so it is looked at, a few times a
second, and who has used up the allowance is stopped.  Others may write meanwhile: the allowance is
generous.
"""

import os
from pathlib import Path

LOOK_S = 0.25
ALLOWED_BYTES = 1_073_741_824
ALLOWED_FILES = 200_000


class DiskWatch:
    """The disk as it was."""

    def __init__(self, folder: Path, allowed_bytes: int = ALLOWED_BYTES) -> None:
        self._folder = folder
        self._allowed_bytes = allowed_bytes
        found = os.statvfs(folder)
        self._free_bytes = found.f_bavail * found.f_frsize
        self._free_files = found.f_favail

    def find_limit(self) -> str:
        """`disk` or `inodes` when more than the allowance is gone, else ""."""
        found = os.statvfs(self._folder)
        if self._free_bytes - found.f_bavail * found.f_frsize > self._allowed_bytes:
            return "disk"
        return "inodes" if self._free_files - found.f_favail > ALLOWED_FILES else ""
