"""Search by words and meaning: a question in, ranked and explained items out.

Owns: the index of memory (`index`) of one journal file.  Talks to: its queries, the embedder (port).

All methods block.  `find`, `plan_build`, `adopt`, `refresh` and `save` are called by one thread at a
time, `embed_next` and the job of `plan_build` by any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from palyra.core.journal.changes import MemoryFilter
from palyra.core.journal.records import MemoryRecord, MemoryVector, MemoryVectors
from palyra.core.memory.dates import day_of
from palyra.core.memory.items import MemoryHit, MemoryHits
from palyra.core.memory.query import analyse
from palyra.core.memory.ranking import PARTS_OF_WORDS, SEMANTIC, rank
from palyra.core.ports import Embedder
from palyra.errors import Unavailable
from palyra.store.vectors.index import BuiltVectors, MemoryIndex, MemorySource

EMBED_BATCH, HASHED_BATCH = 32, 256  # texts: MiniLM takes about 0.4 s, hashing 0.1 s


class ItemSource(MemorySource, Protocol):
    """Reads of the journal; implemented by `store.sqlite.memory_search`."""

    def get_memories(
        self, wanted: MemoryFilter, rows: Sequence[int]
    ) -> list[tuple[int, MemoryRecord]]: ...
    def list_unembedded(self, embedder: str, limit: int) -> list[tuple[int, str, str]]: ...


@dataclass(frozen=True, slots=True)
class Build:
    """Vectors of a finished build, for `IndexedMemory.adopt`."""

    vectors: BuiltVectors


class IndexedMemory:
    """`core.ports.MemoryIndexing` over one journal file."""

    def __init__(self, source: ItemSource, path: Path, embedder: Embedder) -> None:
        self._source = source
        self._embedder = embedder
        self._weights = SEMANTIC if embedder.is_semantic else PARTS_OF_WORDS
        self._batch = EMBED_BATCH if embedder.is_semantic else HASHED_BATCH
        self._index = MemoryIndex(source, path, (embedder.name, embedder.dimensions))

    @property
    def degraded(self) -> str:
        """Reason why only words are searched; "" for none."""
        return self._index.degraded or ""

    @property
    def damage(self) -> str:
        """Reason why vectors are not searched or not in their file; "" for none."""
        return self.degraded or ("its file is gone" if self._index.is_file_gone else "")

    def find(self, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Return the best items, checked against their rows.  Raises Unavailable."""
        authors = self._index.list_authors(wanted)
        question = analyse(query, authors, day_of(wanted.now_ms))
        failure = ""
        try:
            vectors = self._embedder.embed(
                question.texts_for(is_semantic=self._embedder.is_semantic)
            )
        except Unavailable as error:
            vectors, failure = [], error.message
        found = self._index.search(question, wanted, vectors)
        ranked = rank(question, found.candidates, self._weights)[: wanted.limit]
        items = dict(self._source.get_memories(wanted, [hit.row for hit in ranked]))
        return MemoryHits(
            hits=tuple(
                MemoryHit(
                    item=items[hit.row], score=hit.score, parts=msgspec.structs.asdict(hit.parts)
                )
                for hit in ranked
                if hit.row in items
            ),
            mode="hybrid" if found.is_hybrid else "lexical",
            degraded=failure or found.degraded or "",
        )

    def plan_build(self) -> Callable[[], Build] | None:
        """Return a job that makes the vectors of the index from the stored ones, if one is due."""
        self._index.catch_up()
        job = self._index.plan_build() if self._index.is_build_due else None
        return None if job is None else lambda: Build(job.run())

    def adopt(self, build: object) -> None:
        """Use the vectors of a finished job."""
        assert isinstance(build, Build)  # noqa: S101 - what `plan_build` gave
        self._index.adopt(build.vectors)

    def embed_next(self) -> MemoryVectors | None:
        """Embed some of the items without a vector; None if there are none.  Raises Unavailable."""
        found = self._source.list_unembedded(self._embedder.name, self._batch)
        if not found:
            return None
        vectors = self._embedder.embed([text for _, _, text in found])
        return MemoryVectors(
            embedder=self._embedder.name,
            vectors=tuple(
                MemoryVector(row, text_hash, vector.scale, vector.values)
                for (row, text_hash, _), vector in zip(found, vectors, strict=True)
            ),
        )

    def refresh(self, rows: Sequence[int]) -> None:
        """Read the stored vectors of these rows into the index."""
        self._index.refresh_vectors(rows)

    def save(self) -> None:
        """Write the file of the index.  Raises Unavailable."""
        try:
            self._index.save()
        except OSError as error:
            raise Unavailable(f"the memory index was not saved: {error.strerror}") from error
