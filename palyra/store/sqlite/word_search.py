"""Search of the memory by words alone, for a daemon without the packages of `store.vectors`.

Owns: nothing; each search reads the text index.  Talks to: the queries of one index.  Never: stores
or compares vectors.  Items are ranked as with vectors, with these differences: a word counts the
same in short and in long items, names of authors in a question are words, and a date is a hint
between items that share a word with the question, unless this asks for a day alone.

A search lists the rows that match its filter, so that the frequencies of words say nothing about
items of others: its time grows with them.

All methods block.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from heapq import nlargest
from pathlib import Path

import msgspec

from palyra.core.journal.changes import MemoryFilter, UnembeddedItem
from palyra.core.journal.records import MemoryVectors
from palyra.core.memory.dates import DAY_MS, day_of, start_ms
from palyra.core.memory.fields import date_words
from palyra.core.memory.items import MemoryHits
from palyra.core.memory.query import SearchQuestion, analyse
from palyra.core.memory.ranking import PARTS_OF_WORDS, Candidate, rank, relate
from palyra.core.memory.succession import list_hits
from palyra.core.memory.vectors import StoredVector
from palyra.core.memory.word_forms import forms_of
from palyra.errors import Unavailable
from palyra.store.sqlite.memory_search import IndexQueries, MemoryFacts

CANDIDATES = 120  # as many as `store.vectors.index` takes by words
LEADING = 10  # whose neighbours are candidates
WORD_POSTINGS = 60_000  # of one word, the newest


class WordSearch:
    """`core.ports.MemoryIndexing` without vectors."""

    def __init__(self, source: IndexQueries, path: Path, reason: str) -> None:
        """`path` is the file of an earlier index with vectors; `reason` is why there are none now."""
        self._source = source
        self._path = path
        self.degraded = reason
        self.damage = ""
        self.vectors = 0

    def ask(self, query: str, wanted: MemoryFilter) -> tuple[SearchQuestion, Sequence[str]]:
        """See `core.ports.MemoryIndexing.ask`; nothing is to be embedded."""
        del self
        return analyse(query, (), day_of(wanted.now_ms)), ()

    def find(
        self, question: SearchQuestion, wanted: MemoryFilter, vectors: Sequence[StoredVector]
    ) -> MemoryHits:
        """Return the best items.  Raises Unavailable."""
        del vectors
        scores, known = self._score(question, wanted)
        if question.is_of_days:
            scores = dict.fromkeys(self._list_dated(question, wanted), 1.0)
        rows = self._with_neighbours(nlargest(CANDIDATES, scores, key=lambda row: scores[row]))
        candidates = self._read_candidates(question, wanted, rows, scores)
        ranked = rank(question, candidates, PARTS_OF_WORDS)[: wanted.limit]
        items = dict(self._source.get_memories(wanted, [hit.row for hit in ranked]))
        return MemoryHits(
            hits=list_hits(ranked, items, question),
            degraded=self.degraded,
            is_related=relate(question, candidates, known, PARTS_OF_WORDS).is_related,
        )

    def _score(
        self, question: SearchQuestion, wanted: MemoryFilter
    ) -> tuple[dict[int, float], float]:
        """Return the share of the words' idf that each row has, and the share of words that occur."""
        seen = set(_read_numbers(self._source.list_matching_rows(wanted)))
        sums: defaultdict[int, float] = defaultdict(float)
        mass, known = 0.0, 0
        for word in question.terms:
            found = self._source.list_postings("text", forms_of(word), WORD_POSTINGS)
            rows = [row for row in _read_numbers(found) if row in seen]
            if not rows:
                continue  # a word that no item has says nothing about any of them
            known += 1
            idf = math.log(1 + (len(seen) - len(rows) + 0.5) / (len(rows) + 0.5))
            mass += idf
            for row in rows:
                sums[row] += idf
        scores = {row: total / mass for row, total in sums.items()}
        return scores, known / len(question.terms) if known else 0.0

    def _list_dated(self, question: SearchQuestion, wanted: MemoryFilter) -> list[int]:
        """Return the rows that match the filter and are of the days of the question, newest last."""
        words = date_words(question.dates)
        rows = set(_read_numbers(self._source.list_postings("when", words, WORD_POSTINGS)))
        rows &= set(_read_numbers(self._source.list_matching_rows(wanted)))
        for span in question.dates:
            since_ms = max(start_ms(span.first), wanted.since_ms or 0)
            until_ms = start_ms(span.last) + DAY_MS
            until_ms = min(until_ms, until_ms if wanted.until_ms is None else wanted.until_ms)
            within = msgspec.structs.replace(wanted, since_ms=since_ms, until_ms=until_ms)
            rows.update(_read_numbers(self._source.list_matching_rows(within)))
        return sorted(rows)[-CANDIDATES:]

    def _with_neighbours(self, rows: list[int]) -> dict[int, MemoryFacts]:
        """Return the facts of the rows and, of the leading ones, of their neighbours."""
        around = {
            row
            for each in self._source.get_memory_facts(rows[:LEADING])
            for row in (each.previous_row, each.next_row)
            if row is not None
        }
        facts = self._source.get_memory_facts(sorted({*rows, *around}))
        return {each.row: each for each in facts}

    def _read_candidates(
        self,
        question: SearchQuestion,
        wanted: MemoryFilter,
        facts: dict[int, MemoryFacts],
        scores: dict[int, float],
    ) -> list[Candidate]:
        """Return those of the rows that match the filter, as `rank` needs them."""
        words = date_words(question.dates)
        named = set(_read_numbers(self._source.list_postings("when", words, WORD_POSTINGS)))
        spans = [(start_ms(each.first), start_ms(each.last) + DAY_MS) for each in question.dates]
        return [
            Candidate(
                row=each.row,
                text=each.text,
                author=each.author,
                session=each.session_id,
                at_ms=each.at_ms,
                lexical=scores.get(each.row, 0.0),
                has_date=each.row in named
                or any(first <= each.at_ms < end for first, end in spans),
                previous=facts[each.row].previous_row,
                next=facts[each.row].next_row,
            )
            for each in self._source.list_candidates(wanted, list(facts))
        ]

    # --- nothing to keep up

    def plan_build(self) -> Callable[[], object] | None:
        """Return None: there are no vectors to build."""

    def adopt(self, build: object) -> None:
        """Ignore the result of a job: none is planned."""

    def list_unembedded(
        self, limit: int, *, without: Collection[str] = (), but: Collection[int] = ()
    ) -> list[UnembeddedItem]:
        """Return nothing: no item is embedded."""
        del self, limit, without, but
        return []

    def refresh(self, batch: MemoryVectors) -> None:
        """Ignore stored vectors."""

    def save(self) -> None:
        """Delete the file of an earlier index: it may hold the vector of a forgotten item.

        Raises Unavailable.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"{self._path} was not deleted: {error.strerror}") from error


def _read_numbers(text: str) -> list[int]:
    """Return the numbers of a text that separates them by commas."""
    return [int(each) for each in text.split(",")] if text else []
