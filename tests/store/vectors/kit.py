"""A memory of items and vectors for the tests of the index."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from palyra.core.journal.changes import MemoryFilter
from palyra.core.journal.records import MemoryRecord, MemoryRemoval
from palyra.core.memory.dates import day_of
from palyra.core.memory.query import analyse
from palyra.core.memory.ranking import Hit, rank
from palyra.core.memory.vectors import StoredVector, VectorSpace, quantise
from palyra.store.files.disk import REAL_DISK
from palyra.store.sqlite import memories
from palyra.store.sqlite.connection import open_writer, transaction
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.memory_search import MemorySearchQueries, append_vectors
from palyra.store.sqlite.schema import migrate
from palyra.store.vectors.index import Found, MemoryIndex
from tests.store.kit import memory

T = TypeVar("T")
NOW_MS = 1_750_000_000_000
DIMENSIONS = 8
EMBEDDER = VectorSpace("test/words", DIMENSIONS)


class MemoryFile(MemorySearchQueries):
    damaged = DamageNotes()

    """Items in one file, read and written by one connection."""

    def __init__(self, folder: Path) -> None:
        self.connection = open_writer(folder / "journal.sqlite3", REAL_DISK, "normal")
        migrate(self.connection)
        self.rows: dict[str, int] = {}

    def put(self, *items: MemoryRecord) -> None:
        with transaction(self.connection):
            memories.append(self.connection, items)
        for item in items:
            self.rows[item.memory_id] = self.connection.execute(
                "SELECT row FROM memories WHERE memory_id = ?", (item.memory_id,)
            ).get

    def forget(self, *memory_ids: str) -> None:
        removal = MemoryRemoval(principal="alice", memory_ids=memory_ids, at_ms=NOW_MS, by="alice")
        with transaction(self.connection):
            memories.append(self.connection, [removal])

    def embed(self, **vectors: StoredVector) -> list[int]:
        """Store vectors by memory id; return the rows."""
        rows = [self.rows[memory_id] for memory_id in vectors]
        with transaction(self.connection):
            append_vectors(
                self.connection, EMBEDDER[0], list(zip(rows, vectors.values(), strict=True))
            )
        return rows

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return query(self.connection)


class Memory:
    """A file, and an index over it that a test can make again."""

    def __init__(self, folder: Path) -> None:
        self.file = MemoryFile(folder)
        self.path = folder / "vectors" / "memory.index"
        self.index = self.open_index()

    def open_index(self, space: VectorSpace | None = EMBEDDER) -> MemoryIndex:
        self.index = MemoryIndex(self.file, self.path, space)
        return self.index

    def build(self) -> None:
        job = self.index.plan_build()
        assert job is not None
        self.index.adopt(job.run())

    def say(self, *texts: str, **fields: Any) -> list[str]:
        """Store texts as items that follow each other; return their ids."""
        start = len(self.file.rows)
        items = [
            memory(f"m{start + at}", text, **{"at_ms": NOW_MS + start + at, **fields})
            for at, text in enumerate(texts)
        ]
        self.file.put(*items)
        return [item.memory_id for item in items]

    def find(
        self, text: str, vectors: Sequence[StoredVector] = (), **fields: Any
    ) -> tuple[Found, list[str]]:
        """Search and rank; the ids of the hits, best first."""
        wanted = MemoryFilter(**{"principal": "alice", "now_ms": NOW_MS, **fields})
        question = analyse(text, self.index.list_authors(wanted), day_of(NOW_MS))
        found = self.index.search(question, wanted, vectors)
        return found, [self.name(hit) for hit in rank(question, found.candidates)]

    def ids(self, text: str, vectors: Sequence[StoredVector] = (), **fields: Any) -> list[str]:
        return self.find(text, vectors, **fields)[1]

    def name(self, hit: Hit) -> str:
        return next(name for name, row in self.file.rows.items() if row == hit.row)


def axis(number: int, lean: float = 0.0) -> StoredVector:
    """A vector along one axis, leaning to the next one."""
    values = [0.0] * DIMENSIONS
    values[number % DIMENSIONS] = 1.0
    values[(number + 1) % DIMENSIONS] = lean
    return quantise(values)


def random_vector(rng: random.Random) -> StoredVector:
    return quantise([rng.gauss(0, 1) for _ in range(DIMENSIONS)])
