"""Search by words and meaning: a question and its vectors in, ranked and explained items out.

Owns: the index of memory (`index`) of one journal file.  Talks to: its queries.  Never: embeds; an
embedder may be at a provider (`services.memory.embedders`).

All methods block.  They are called by one thread at a time, but for the job of `plan_build`, which
any thread may call.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from palyra.core.journal.changes import MemoryFilter, UnembeddedItem
from palyra.core.journal.records import MemoryRecord, MemoryVectors
from palyra.core.memory.dates import day_of
from palyra.core.memory.items import FILE_GONE, MemoryHits
from palyra.core.memory.query import SearchQuestion, analyse
from palyra.core.memory.ranking import PARTS_OF_WORDS, SEMANTIC, rank, relate
from palyra.core.memory.succession import list_hits
from palyra.core.memory.vectors import StoredVector, VectorSpace
from palyra.core.ports import MemoryEmbedder
from palyra.errors import Unavailable
from palyra.store.vectors.index import BuiltVectors, Coverage, MemoryIndex, MemorySource

ANOTHER_VECTOR = "the vector of the question cannot be compared with those of the items"


class ItemSource(MemorySource, Protocol):
    """Reads of the journal; implemented by `store.sqlite.memory_search`."""

    @property
    def private_author(self) -> str | None: ...
    def get_memories(
        self, wanted: MemoryFilter, rows: Sequence[int]
    ) -> list[tuple[int, MemoryRecord]]: ...
    def find_dimensions(self, embedder: str) -> int | None: ...
    def get_unembedded(self, rows: Sequence[int]) -> list[UnembeddedItem]: ...


@dataclass(frozen=True, slots=True)
class Build:
    """Vectors of a finished build, for `IndexedMemory.adopt`."""

    vectors: BuiltVectors


class IndexedMemory:
    """`core.ports.MemoryIndexing` over one journal file."""

    def __init__(self, source: ItemSource, path: Path, embedder: MemoryEmbedder) -> None:
        """Of the embedder, only its description is used."""
        self._source = source
        self._is_semantic = embedder.is_semantic
        dimensions = embedder.dimensions or source.find_dimensions(embedder.name)
        space = None if dimensions is None else VectorSpace(embedder.name, dimensions)
        private = None if embedder.is_local else source.private_author
        self._index = MemoryIndex(source, path, space, private)
        self._coverage = Coverage(0, 0)  # of all items, at the last look

    @property
    def degraded(self) -> str:
        """Reason why only words are searched; "" for none."""
        if self._index.degraded:
            return self._index.degraded
        return "" if self._coverage.is_enough else self._coverage.degraded

    @property
    def damage(self) -> str:
        """Reason why vectors are not searched or not in their file; "" for none."""
        return self._index.degraded or (FILE_GONE if self._index.is_file_gone else "")

    @property
    def vectors(self) -> int:
        """Number of vectors that are compared."""
        return self._index.vectors

    def ask(self, query: str, wanted: MemoryFilter) -> tuple[SearchQuestion, Sequence[str]]:
        """See `core.ports.MemoryIndexing.ask`."""
        authors = self._index.list_authors(wanted)
        question = analyse(query, authors, day_of(wanted.now_ms))
        if self._index.degraded or not self._index.coverage(wanted).is_enough:
            return question, ()
        return question, question.texts_for(is_semantic=self._is_semantic)

    def find(
        self, question: SearchQuestion, wanted: MemoryFilter, vectors: Sequence[StoredVector]
    ) -> MemoryHits:
        """Return the best items, checked against their rows.  Raises Unavailable."""
        found = self._index.search(question, wanted, vectors)
        weights = SEMANTIC if self._is_semantic else PARTS_OF_WORDS
        relation = relate(question, found.candidates, found.known, weights)
        ranked = rank(question, found.candidates, weights)[: wanted.limit]
        items = dict(self._source.get_memories(wanted, [hit.row for hit in ranked]))
        degraded = found.degraded
        if not degraded and not found.is_hybrid:  # also while the size of vectors is unknown
            degraded = self._index.coverage(wanted).degraded
        if vectors and not found.is_hybrid:
            degraded = degraded or ANOTHER_VECTOR
        return MemoryHits(
            hits=list_hits(ranked, items, question),
            mode="hybrid" if found.is_hybrid else "lexical",
            degraded=degraded,
            is_related=relation.is_related,
            noise=relation.noise,
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
        self._coverage = self._index.coverage()

    def list_unembedded(
        self, limit: int, *, without: Collection[str] = (), but: Collection[int] = ()
    ) -> list[UnembeddedItem]:
        """See `core.ports.MemoryIndexing.list_unembedded`."""
        self._coverage = self._index.coverage()
        rows = self._index.list_unembedded(limit, without=without, but=but)
        return self._source.get_unembedded(rows) if rows else []

    def refresh(self, batch: MemoryVectors) -> None:
        """Read the vectors of the rows; those of another size replace the ones that are compared."""
        space = VectorSpace(batch.embedder, len(batch.vectors[0].values))
        if space != self._index.space:
            self._index.use(space)
        self._index.refresh_vectors([each.row for each in batch.vectors])

    def save(self) -> None:
        """Write the file of the index.  Raises Unavailable."""
        try:
            self._index.save()
        except OSError as error:
            raise Unavailable(f"the memory index was not saved: {error.strerror}") from error
