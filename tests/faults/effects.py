"""Real effects in a folder, counted from outside the daemon: inotify(7)."""

import ctypes
import os
import struct
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

IN_MOVED_TO = 0x80
HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
READ_BYTES = 1_048_576


class Renames:
    """Counts of renames into place, by name; the kernel queues those not yet read."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.counts: Counter[str] = Counter()
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watch = libc.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_MOVED_TO)
        if self._descriptor < 0 or watch < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def collect(self) -> None:
        """Count what has happened since the last call.  Its queue holds 16 384: call it often."""
        try:
            while data := os.read(self._descriptor, READ_BYTES):
                self._count(data)
        except BlockingIOError:
            return

    def _count(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            _, mask, _, size = HEAD.unpack_from(data, offset)
            offset += HEAD.size
            assert mask & IN_MOVED_TO, f"events were lost: mask {mask:#x}"
            self.counts[os.fsdecode(data[offset : offset + size].rstrip(b"\0"))] += 1
            offset += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
