"""The journal of a world whose story is about the memory: a real file, with its indexes."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from palyra.core.ports import MemoryEmbedder, NowMs
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.vectors.search import IndexedMemory, ItemSource
from tests.store.orphans import find_orphans

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it


class Archive:
    """One directory, which outlives the daemon's lives and goes with the world."""

    def __init__(self, keys: KeyRing, now_ms: NowMs) -> None:
        base = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="palyra-simulated-", dir=base))
        self.path = self._folder / "journal.sqlite3"
        self.journal = SqliteJournal(self.path, keys, now_ms=now_ms, synchronous="normal")

    def make_index(self, source: ItemSource, name: str, embedder: MemoryEmbedder) -> IndexedMemory:
        """Return an index of memory as a new life opens it."""
        return IndexedMemory(source, self._folder / name, embedder)

    def find_orphans(self) -> Iterator[str]:
        """Return what is in one table and not in the one that it belongs to."""
        return find_orphans(self.path)

    def remove(self) -> None:
        """Close and delete everything."""
        if self.journal._opened is not None:
            self.journal.close()
        shutil.rmtree(self._folder)
