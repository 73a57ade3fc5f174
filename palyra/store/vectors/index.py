"""The memory index: candidates of a question by words and by vectors, inside its filter.

Owns: the table of rows, the vectors and their file.  Talks to: the queries of the journal.  Never:
returns an item that the journal would not return now; each candidate is read again under the
filter before it leaves.

Everything is a projection of the journal.  `search` first catches up with the log of memory: it
reads the facts of what changed, and nothing if nothing did.  A crash between a commit and a save
leaves an older file, and the log entry in its header says from where to catch up.

Without usable vectors (no embedder, or a file that is missing, damaged, of another embedder, or of
rows that are gone) search is lexical, and says so; `plan_build` returns a job that makes vectors
from the stored ones and can run in another thread meanwhile.

All methods block, and are called by one thread at a time; only `BuildJob.run` may run beside them.
Restart: make a new one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from palyra.core.journal.changes import MemoryFilter
from palyra.core.memory.dates import DAY_MS, start_ms
from palyra.core.memory.fields import date_words
from palyra.core.memory.query import SearchQuestion
from palyra.core.memory.ranking import AUTHOR_LEXICAL, OF_AUTHOR, Candidate
from palyra.core.memory.vectors import StoredVector, VectorSpace
from palyra.core.memory.word_forms import forms_of
from palyra.store.sqlite.memory_search import (
    CandidateRow,
    MemoryChanges,
    MemoryFacts,
    VectorRow,
)
from palyra.store.vectors.flat import (
    BUILD_SLOTS,
    NEIGHBOUR,
    FlatVectors,
    Floats,
    decode,
    direction,
    mix,
)
from palyra.store.vectors.rows import NO_SLOT, Mask, RowTable, Slots, read_numbers
from palyra.store.vectors.snapshot import (
    FORMAT,
    Snapshot,
    SnapshotError,
    SnapshotHeader,
    read_snapshot,
    write_snapshot,
)
from palyra.store.vectors.words import Scores, word_scores

COVERED = (
    0.8  # share of the items in reach that have vectors, below which words alone answer: at half
)
# of them, the estimates of the missing cosines cost as much as the others gain (`bench/recall.py`)
CANDIDATES = 120  # by words, and as many by vectors; 80 already rank the corpus as all items do
LEADING = 10  # of each, whose neighbours are candidates: the context of the best hits
MAX_POSTINGS = 200_000  # of one question: about 15 ms
WORD_POSTINGS = 60_000  # of one word, the newest
FREQUENT, FREQUENT_WORDS = 2_000, 32  # postings of a word that are kept, and words: up to 8 MB
KNOWN_WORDS = 8_192  # whose frequency is remembered, so that rare words are read first
# In the choice of candidates by words only; `ranking` weighs dates and authors itself.
DATE_BONUS, AUTHOR_FACTOR = 0.25, 1 + AUTHOR_LEXICAL
_FACTS_PAGE = 5_000
# Components beyond the largest of the build, of later vectors and of sums, are cut at this many
# times it.  An index that was built from few vectors has the widest span and is soon built again.
_HEADROOM = 1.5
_FEW_VECTORS = 1_000
_OUTGROWN = 4  # times as many vectors as in the build


class MemorySource(Protocol):
    """Reads of the journal; implemented by `store.sqlite.memory_search`."""

    def last_memory_entry(self) -> int: ...
    def list_memory_changes(self, after_entry: int) -> MemoryChanges: ...
    def list_memory_facts(self, *, after_row: int, limit: int) -> list[MemoryFacts]: ...
    def get_memory_facts(self, rows: Sequence[int]) -> list[MemoryFacts]: ...
    def list_memory_rows(self) -> str: ...
    def list_matching_rows(self, wanted: MemoryFilter) -> str: ...
    def is_text_whole(self) -> bool: ...
    def list_postings(
        self, column: str, words: Sequence[str], limit: int, *, after_row: int = 0
    ) -> str: ...
    def list_candidates(self, wanted: MemoryFilter, rows: Sequence[int]) -> list[CandidateRow]: ...
    def list_vectors(
        self, space: VectorSpace, *, after_row: int, limit: int
    ) -> list[VectorRow]: ...
    def get_vectors(self, space: VectorSpace, rows: Sequence[int]) -> list[VectorRow]: ...
    def list_vector_rows(self, space: VectorSpace) -> str: ...


class Coverage(NamedTuple):
    """Number of items that a search may return and that are to have vectors, and of those that do."""

    embedded: int
    items: int

    @property
    def is_enough(self) -> bool:
        """True if vectors are compared: a missing one is estimated then (`ranking`)."""
        return self.embedded >= COVERED * self.items

    @property
    def degraded(self) -> str:
        """Statement of what is missing; "" for nothing."""
        return f"{self.embedded} of {self.items} embedded" if self.embedded < self.items else ""


class _Frequent(NamedTuple):
    """Slots with a word, of the rows up to `last_row`."""

    last_row: int
    slots: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates of a question in no order.  `degraded` says why vectors were not used."""

    candidates: list[Candidate]
    known: float  # share of the question's words that occur in an item
    is_hybrid: bool
    degraded: str


class MemoryIndex:
    """See the module."""

    def __init__(
        self,
        source: MemorySource,
        path: Path,
        space: VectorSpace | None,
        private_author: str | None = None,
    ) -> None:
        """`space` is that of the vectors; None: search by words only.

        Texts of `private_author` are not to be embedded.
        """
        self._source = source
        self._private_author = private_author
        self._path = path
        self._space = space
        self._table = RowTable()
        self._entry = -1  # of the log; nothing is loaded yet
        self._vectors: FlatVectors | None = None
        self._degraded: str | None = None if space is None else "not loaded"
        self._refused: frozenset[int] = frozenset()
        self._built = 0  # vectors at the last build or opening
        self._has_file = False  # it was read or written
        self._frequencies: dict[str, int] = {}
        self._frequent: dict[tuple[str, ...], _Frequent] = {}  # the least recently used first

    @property
    def degraded(self) -> str | None:
        """Reason why search is lexical although there is an embedder."""
        return self._degraded

    @property
    def is_file_gone(self) -> bool:
        """True if the file that was read or written is not there any more."""
        return self._has_file and not self._path.exists()

    @property
    def space(self) -> VectorSpace | None:
        """Space of the vectors that are compared."""
        return self._space

    @property
    def is_build_due(self) -> bool:
        """True if there are no usable vectors, or many more than when they were built."""
        if self._vectors is None:
            return self._space is not None
        if self._vectors.is_clustering_due:
            return True
        return self._vectors.count > _OUTGROWN * max(self._built, _FEW_VECTORS // _OUTGROWN)

    @property
    def items(self) -> int:
        return int(np.count_nonzero(self._table.column("is_alive")))

    @property
    def vectors(self) -> int:
        return 0 if self._vectors is None else self._vectors.count

    @property
    def memory_bytes(self) -> int:
        """Bytes of the facts and vectors in memory."""
        vectors = 0 if self._vectors is None else self._vectors.codes.nbytes + self._vectors.slots
        return self._table.memory_bytes + vectors

    # --- search ----------------------------------------------------------------------------------

    def list_authors(self, wanted: MemoryFilter) -> list[str]:
        """Return the authors of all items that the search may see."""
        self.catch_up()
        return self._table.authors(self._table.visible(wanted))

    def search(
        self, question: SearchQuestion, wanted: MemoryFilter, vectors: Sequence[StoredVector] = ()
    ) -> Found:
        """Return the items that may answer; `vectors` are those of the question's texts."""
        self.catch_up()
        visible = self._table.visible(wanted)
        allowed = self._table.narrowed(visible, wanted)
        coverage = self._count_embedded(allowed)
        if wanted.tags or wanted.as_of_ms is not None:
            matching = self._table.find_all(read_numbers(self._source.list_matching_rows(wanted)))
            allowed &= _mask(matching, self._table.count)
        scores, known = word_scores(self._table, self._read_postings(question), visible)
        has_date = self._find_dated(question) & allowed
        chances = np.where(allowed, scores + DATE_BONUS * has_date, 0)
        if len(question.authors) == 1:
            chances[self._table.is_by(question.authors[0])] *= AUTHOR_FACTOR
        if question.is_of_author:
            chances[self._table.is_by(question.authors[0]) & allowed] += OF_AUTHOR
        slots = _best(chances, CANDIDATES)
        leading = _best(chances, LEADING)
        query = self._query(vectors) if coverage.is_enough else None
        if query is not None and self._vectors is not None:
            near, _ = self._vectors.search(query, allowed, CANDIDATES)
            slots = np.union1d(slots, near)
            leading = np.union1d(leading, near[:LEADING])
        slots = np.union1d(slots, self._around(leading, allowed))
        found = self._candidates(wanted, slots, scores, has_date, query)
        degraded = "" if self._space is None else self._degraded or coverage.degraded
        return Found(found, known, query is not None, degraded)

    def coverage(self, wanted: MemoryFilter | None = None) -> Coverage:
        """Count the items that a search with this filter may return, but for its tags; None: all."""
        self.catch_up()
        if wanted is None:
            return self._count_embedded(self._table.column("is_alive"))
        return self._count_embedded(self._table.narrowed(self._table.visible(wanted), wanted))

    def _count_embedded(self, allowed: Mask) -> Coverage:
        wanted = allowed & self._table.embeddable(self._private_author)
        if self._refused:
            wanted &= ~np.isin(self._table.column("row"), list(self._refused))
        items = int(np.count_nonzero(wanted))
        if self._vectors is None:
            return Coverage(0, items)
        wanted = wanted[: self._vectors.slots] & self._vectors.is_embedded
        return Coverage(int(np.count_nonzero(wanted)), items)

    def list_unembedded(
        self, limit: int, *, without: Collection[str], but: Collection[int]
    ) -> list[int]:
        """Return the newest rows of one principal that are to have a vector and have none.

        `but` are rows whose texts the embedder refuses; no search waits for their vectors.
        """
        self.catch_up()
        self._refused = frozenset(but)
        if self._vectors is None and self._space is not None:
            return []  # the build tells
        missing = self._table.embeddable(self._private_author)
        if self._vectors is not None:
            missing[: self._vectors.slots] &= ~self._vectors.is_embedded
        for principal in without:
            missing &= ~self._table.is_of(principal)
        rows, principals = self._table.column("row"), self._table.column("principal")
        slots = np.flatnonzero(missing)[::-1]
        slots = slots[~np.isin(rows[slots], list(but))]
        if not slots.size:
            return []
        found: list[int] = rows[slots[principals[slots] == principals[slots[0]]][:limit]].tolist()
        return found

    def _around(self, slots: Slots, allowed: Mask) -> Slots:
        """Return the allowed slots next to these in their conversations, and those next to them."""
        around = self._neighbours(slots)
        around = np.union1d(around, self._neighbours(around))
        return np.asarray(around[allowed[around]])

    def _candidates(
        self,
        wanted: MemoryFilter,
        slots: Slots,
        scores: Scores,
        has_date: Mask,
        query: Floats | None,
    ) -> list[Candidate]:
        cosines: list[float | None] = [None] * slots.size
        if query is not None and self._vectors is not None:
            (at,) = np.nonzero(self._vectors.has_vector[slots])
            found = self._vectors.cosines(query, slots[at])
            for place, cosine in zip(at.tolist(), found.tolist(), strict=True):
                cosines[place] = cosine
        rows: list[int] = self._table.column("row")[slots].tolist()
        facts = zip(
            scores[slots].tolist(),
            cosines,
            has_date[slots].tolist(),
            self._table.neighbours("previous", slots),
            self._table.neighbours("next", slots),
            strict=True,
        )
        facts_of = dict(zip(rows, facts, strict=True))
        return [
            Candidate(
                each.row, each.text, each.author, each.session_id, each.at_ms, *facts_of[each.row]
            )
            for each in self._source.list_candidates(wanted, rows)
        ]

    def _read_postings(self, question: SearchQuestion) -> list[Slots]:
        """Read the slots of each word, the rarest first, until the budget is spent."""
        known = self._frequencies
        postings = []
        left = MAX_POSTINGS
        for word in sorted(question.terms, key=lambda word: known.get(word, 0)):
            if left <= 0:
                break
            slots = self._read_slots(forms_of(word), min(WORD_POSTINGS, left))
            left -= slots.size
            if len(known) >= KNOWN_WORDS:
                known.clear()
            known[word] = slots.size
            postings.append(slots)
        return postings

    @property
    def _last_row(self) -> int:
        return int(self._table.column("row")[-1]) if self._table.count else 0

    def _read_slots(self, forms: tuple[str, ...], limit: int) -> Slots:
        """Return the newest slots with one of the forms; of a frequent word, only the new ones are read."""
        last_row = self._last_row
        kept = self._frequent.pop(forms, None)
        after_row = 0 if kept is None else kept.last_row
        slots = np.empty(0, np.int64) if kept is None else kept.slots.astype(np.int64)
        if after_row < last_row:
            wanted = limit if kept is None else WORD_POSTINGS
            found = self._source.list_postings("text", forms, wanted, after_row=after_row)
            added = self._table.find_all(np.sort(read_numbers(found)))
            slots = np.concatenate([slots, added])[-WORD_POSTINGS:]
        is_cut = kept is None and slots.size >= limit < WORD_POSTINGS
        if slots.size >= FREQUENT and not is_cut and self._source.is_text_whole():
            self._frequent[forms] = _Frequent(last_row, slots.astype(np.int32))
            if len(self._frequent) > FREQUENT_WORDS:
                del self._frequent[next(iter(self._frequent))]
        return slots[-limit:]

    def _find_dated(self, question: SearchQuestion) -> Mask:
        mask = np.zeros(self._table.count, np.bool_)
        if not question.dates:
            return mask
        at_ms = self._table.column("at_ms")
        for span in question.dates:
            mask |= (at_ms >= start_ms(span.first)) & (at_ms < start_ms(span.last) + DAY_MS)
        words = date_words(question.dates)
        rows = read_numbers(self._source.list_postings("when", words, WORD_POSTINGS))
        mask[self._table.find_all(np.sort(rows))] = True
        return mask

    def _query(self, vectors: Sequence[StoredVector]) -> Floats | None:
        """Return the direction of the question; None without usable vectors on either side."""
        if not vectors or self._vectors is None:
            return None
        floats = decode(vectors)
        if floats.shape[1] != self._vectors.dimensions:
            return None
        query = direction(direction(floats).mean(axis=0))
        return query if query.any() else None

    # --- catching up -----------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Read what changed since the last call; everything on the first one."""
        if self._entry < 0:
            self._load()
            return
        changes = self._source.list_memory_changes(self._entry)
        if changes.last_entry == self._entry:
            return
        gone = self._follow(changes)
        self._entry = changes.last_entry
        if self._vectors is not None:
            self._vectors.grow(self._table.count)
            slots = self._table.find_all(np.array(sorted(changes.rows), np.int64))
            self._refresh(np.union1d(slots, gone))

    def refresh_vectors(self, rows: Sequence[int]) -> None:
        """Read the stored vectors of these rows again, after an embedding task wrote them."""
        self.catch_up()
        if self._vectors is not None:
            self._refresh(self._table.find_all(np.array(sorted(rows), np.int64)))

    def _load(self) -> None:
        self._entry = self._source.last_memory_entry()
        after = 0
        while page := self._source.list_memory_facts(after_row=after, limit=_FACTS_PAGE):
            self._table.put(page)
            after = page[-1].row
        self._load_vectors()

    def _follow(self, changes: MemoryChanges) -> Slots:
        """Update the table; return the slots whose neighbours are gone."""
        touched = np.empty(0, np.int64)
        if changes.is_lossy:
            rows = read_numbers(self._source.list_memory_rows())
            doomed = self._table.column("is_alive") & ~np.isin(self._table.column("row"), rows)
            touched = self._neighbours(np.flatnonzero(doomed))
            self._table.remove_all_but(rows)
            if self._vectors is not None:
                self._vectors.drop(np.flatnonzero(doomed[: self._vectors.slots]))
            touched = touched[self._table.column("is_alive")[touched]]
        if changes.is_lossy or min(changes.rows, default=0) <= self._last_row:
            self._frequent.clear()  # texts that were known have changed
        slots = self._table.find_all(np.array(sorted(changes.rows), np.int64))
        linked = self._table.column("row")[self._neighbours(slots)].tolist()
        self._table.put(self._source.get_memory_facts(sorted({*changes.rows, *linked})))
        return touched

    def _neighbours(self, slots: Slots) -> Slots:
        found = np.concatenate(
            [self._table.column(name)[slots] for name in ("previous", "next")]
        ).astype(np.int64)
        return np.unique(found[found != NO_SLOT])

    def _refresh(self, slots: Slots) -> None:
        """Compute the vectors of the slots and their neighbours again."""
        if self._vectors is None or self._space is None or not slots.size:
            return
        changed = np.union1d(slots, self._neighbours(slots))
        needed = np.union1d(changed, self._neighbours(changed))
        stored = self._source.get_vectors(self._space, self._table.column("row")[needed].tolist())
        self._vectors.drop(changed)
        if stored:
            _put_mixed(self._vectors, self._table, stored, changed)

    def use(self, space: VectorSpace) -> None:
        """Compare vectors of another space from now on; `plan_build` makes the index of them."""
        self._space, self._vectors = space, None
        self._degraded = f"the vector index is of another size than {space.dimensions}; it is built"

    # --- the vectors and their file --------------------------------------------------------------

    def _load_vectors(self) -> None:
        if self._space is None:
            return
        try:
            snapshot = read_snapshot(self._path, self._space)
            self._adopt_snapshot(snapshot, self._space)
        except SnapshotError as error:
            self._degraded = f"the vector index is {error}; it is built again"

    def _adopt_snapshot(self, snapshot: Snapshot, space: VectorSpace) -> None:
        """Use the vectors of a file, and read those that changed since.  Raises SnapshotError."""
        slots = self._table.find_all(snapshot.rows)
        stored = read_numbers(self._source.list_vector_rows(space))
        if slots.size < snapshot.rows.size or not np.isin(snapshot.rows, stored).all():
            raise SnapshotError("stale: items of it are gone")
        if self._entry < snapshot.header.last_entry:
            raise SnapshotError("newer than the journal")
        changes = self._source.list_memory_changes(snapshot.header.last_entry)
        vectors = FlatVectors(space.dimensions, snapshot.header.span)
        vectors.grow(self._table.count)
        vectors.put_codes(slots, snapshot.codes)
        self._vectors, self._degraded, self._built = vectors, None, vectors.count
        self._has_file = True
        missing = np.setdiff1d(stored, snapshot.rows)
        self._refresh(self._table.find_all(np.union1d(missing, np.array(changes.rows, np.int64))))

    def save(self) -> None:
        """Write the file.  Raises OSError."""
        if self._vectors is None or self._space is None:
            return
        slots = np.flatnonzero(self._vectors.has_vector)
        rows = self._table.column("row")[slots]
        header = SnapshotHeader(
            format=FORMAT,
            embedder=self._space.embedder,
            dimensions=self._space.dimensions,
            count=rows.size,
            last_entry=self._entry,
            high_water_row=int(rows[-1]) if rows.size else 0,
            span=self._vectors.span,
            sha256="",
        )
        write_snapshot(
            self._path, Snapshot(header=header, rows=rows, codes=self._vectors.codes[slots])
        )
        self._has_file = True

    def plan_build(self) -> "BuildJob | None":
        """Return the job that makes the vectors from the stored ones; None without an embedder."""
        if self._space is None:
            return None
        self.catch_up()
        table = self._table
        return BuildJob(
            source=self._source,
            space=self._space,
            entry=self._entry,
            rows=table.column("row").copy(),
            previous=table.column("previous").copy(),
            following=table.column("next").copy(),
        )

    def adopt(self, built: "BuiltVectors") -> None:
        """Use the vectors of a finished job, and read those that changed since it was planned."""
        self.catch_up()
        rows = self._table.column("row")[: built.rows.size]
        if built.space != self._space or not np.array_equal(built.rows, rows):
            return  # planned before `use`, or by another index, whose slots are of other rows
        built.vectors.grow(self._table.count)
        self._vectors, self._degraded, self._built = built.vectors, None, built.vectors.count
        alive = self._table.column("is_alive")
        built.vectors.drop(np.flatnonzero(~alive))
        changes = self._source.list_memory_changes(built.entry)
        stored = read_numbers(self._source.list_vector_rows(built.space))
        missing = np.setdiff1d(stored, self._table.column("row")[built.vectors.has_vector])
        changed = np.union1d(missing, np.array(changes.rows, np.int64))
        self._refresh(self._table.find_all(changed))


@dataclass(frozen=True, slots=True)
class BuiltVectors:
    vectors: FlatVectors
    space: VectorSpace
    entry: int
    rows: NDArray[np.int64]  # by slot


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Make the vectors of these rows from the stored ones; touches nothing of the index."""

    source: MemorySource
    space: VectorSpace
    entry: int
    rows: NDArray[np.int64]
    previous: NDArray[np.int32]
    following: NDArray[np.int32]

    def run(self) -> BuiltVectors:
        """Return the vectors; 100 000 take about a second.  Raises Unavailable."""
        count, dimensions = self.rows.size, self.space.dimensions
        own = np.zeros((count, dimensions), np.int8)
        scales = np.full(count, -1, np.float32)  # of a slot without a vector
        after = 0
        while page := self.source.list_vectors(self.space, after_row=after, limit=BUILD_SLOTS):
            after = page[-1].row
            slots, kept = _slots_of(self.rows, page)
            own[slots] = np.frombuffer(b"".join(each.vector for each in kept), np.int8).reshape(
                len(kept), dimensions
            )
            scales[slots] = [each.scale for each in kept]
        return self._mixed(own, scales)

    def _mixed(self, own: NDArray[np.int8], scales: NDArray[np.float32]) -> BuiltVectors:
        count, dimensions = own.shape
        (blank,) = np.nonzero(scales == 0)
        scales = np.maximum(scales, 0)
        largest = float(scales.max(initial=0.0)) * 127
        is_few = np.count_nonzero(scales) < _FEW_VECTORS
        vectors = FlatVectors(dimensions, 1.0 if is_few else min(largest * _HEADROOM, 1.0))
        vectors.grow(count)
        for start in range(0, count, BUILD_SLOTS):
            part = slice(start, min(start + BUILD_SLOTS, count))
            mixed = own[part] * scales[part, None]
            for neighbours in (self.previous[part], self.following[part]):
                has_one = neighbours != NO_SLOT
                at = neighbours[has_one]
                mixed[has_one] += NEIGHBOUR * (own[at] * scales[at, None])
            has_vector = np.flatnonzero(scales[part] > 0)
            vectors.put(start + has_vector, direction(mixed[has_vector]))
        vectors.put_blank(blank)
        if vectors.is_clustering_due:
            vectors.make_clusters()
        return BuiltVectors(vectors, self.space, self.entry, self.rows)


def _slots_of(rows: NDArray[np.int64], page: Sequence[VectorRow]) -> tuple[Slots, list[VectorRow]]:
    wanted = np.array([each.row for each in page], np.int64)
    slots = np.minimum(np.searchsorted(rows, wanted), max(rows.size - 1, 0))
    is_known = rows[slots] == wanted if rows.size else np.zeros(len(page), np.bool_)
    return slots[is_known], [each for each, known in zip(page, is_known, strict=True) if known]


def _put_mixed(
    vectors: FlatVectors, table: RowTable, stored: Sequence[VectorRow], changed: Slots
) -> None:
    """Set the vectors of the changed slots from stored ones, which include their neighbours'."""
    slots = table.find_all(np.array([each.row for each in stored], np.int64))
    own = decode(stored)
    position = np.full(table.count, NO_SLOT, np.int64)
    position[slots] = np.arange(slots.size)
    targets = changed[position[changed] != NO_SLOT]
    at = []
    for name in ("previous", "next"):
        neighbours = table.column(name)[targets]
        at.append(np.where(neighbours == NO_SLOT, NO_SLOT, position[neighbours]))
    mixed = mix(own[position[targets]], at[0], at[1], own)
    has_direction = own[position[targets]].any(axis=1)
    vectors.put(targets[has_direction], mixed[has_direction])
    vectors.put_blank(targets[~has_direction])


def _mask(slots: Slots, count: int) -> Mask:
    mask = np.zeros(count, np.bool_)
    mask[slots] = True
    return mask


def _best(scores: Scores, limit: int) -> Slots:
    """Return the slots of the largest positive scores, in no order."""
    slots = np.flatnonzero(scores > 0)
    if slots.size > limit:
        slots = slots[np.argpartition(-scores[slots], limit)[:limit]]
    return slots
