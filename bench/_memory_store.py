"""A journal file with items of memory for benchmarks, written in one thread without the daemon."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from palyra.core.journal.records import MemoryKind, MemoryRecord, MemoryReindex
from palyra.core.memory.items import hash_text
from palyra.core.memory.vectors import StoredVector
from palyra.store.files.disk import REAL_DISK
from palyra.store.sqlite import memories
from palyra.store.sqlite.connection import open_writer, transaction
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.memory_search import MemorySearchQueries, append_vectors
from palyra.store.sqlite.schema import migrate

T = TypeVar("T")
PRINCIPAL = "operator"


class MemoryFile(MemorySearchQueries):
    """Items in one file, read and written by one connection."""

    damaged = DamageNotes()

    def __init__(self, path: Path) -> None:
        self.connection = open_writer(path, REAL_DISK, "full")
        migrate(self.connection)

    def append(self, items: Sequence[MemoryRecord] | Sequence[MemoryReindex]) -> None:
        with transaction(self.connection):
            memories.append(self.connection, items)

    def append_vectors(self, embedder: str, vectors: Sequence[tuple[int, StoredVector]]) -> None:
        with transaction(self.connection):
            append_vectors(self.connection, embedder, vectors)

    def close(self) -> None:
        self.connection.close()

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return query(self.connection)


def make_item(
    number: int,
    text: str,
    *,
    at_ms: int,
    author: str | None = None,
    session_id: str | None = None,
    kind: MemoryKind = "turn",
) -> MemoryRecord:
    return MemoryRecord(
        memory_id=f"mem_0190a000-0000-7000-8000-{number:012d}",
        principal=PRINCIPAL,
        kind=kind,
        text=text,
        session_id=session_id,
        author=author,
        at_ms=at_ms,
        valid_from_ms=at_ms,
        text_hash=hash_text(text),
        created_ms=at_ms,
        changed_ms=at_ms,
        changed_by=PRINCIPAL,
    )
