"""Retrieval from the memory: recall of labelled evidence, speed and size.

Prints one JSON line.

`conversations`: evidence recall@1, @5, @10, @20 and by category on a corpus of labelled conversations
(LoCoMo's form: `--corpus DIR`, or `locomo` in PALYRA_CORPORA; one memory a conversation); `all@10`: of
the questions with several pieces of evidence, those that find all of them among ten hits; `pack`: the
share of the evidence that a pack of 1 500 tokens holds.
`development`: the same on the conversations of `bench/dev/recall.json`, each asked at its time.
`agent_tapes`: the same on generated tapes of agent work (`_agent_tapes.py`).
`partial`: recall@10 and pack by the share of the items that have vectors (with `--only partial`).
`speed`: search (wall clock, and time of its thread: on a busy machine they differ), build, add and
size at 1 000, 10 000 and 100 000 synthetic items.

Each for words only, words with hashed n-grams, and words with MiniLM (`--minilm WHEEL_OR_DIR`, or
the installed one), beside the libraries alone: `fts5` is bm25 of FTS5 over single turns with all
words of the question, `faiss` is FAISS over the vectors of single turns.
"""

import argparse
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol, Self

import faiss
import msgspec
import numpy as np
from _agent_tapes import make_tapes
from _machine import calibrate
from _memory_store import PRINCIPAL, MemoryFile, make_item
from numpy.typing import NDArray

from palyra.core.journal.changes import MemoryFilter
from palyra.core.journal.records import FROM_THE_START, MemoryRecord, MemoryReindex
from palyra.core.memory.dates import day_of
from palyra.core.memory.items import MemoryHit, MemoryHits
from palyra.core.memory.packing import pack_hits
from palyra.core.memory.query import analyse
from palyra.core.memory.ranking import PARTS_OF_WORDS, SEMANTIC, rank
from palyra.core.memory.vectors import StoredVector, VectorSpace, quantise
from palyra.core.ports import Embedder
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from palyra.models.minilm import files
from palyra.store.sqlite.memories import match_any
from palyra.store.vectors.index import MemoryIndex

CORPUS = Path(os.environ.get("PALYRA_CORPORA", "corpora")) / "locomo"
DEVELOPMENT = Path(__file__).resolve().parent / "dev" / "recall.json"
CUTS = (1, 5, 10, 20)
MAX_RANK = 200
ONLY = ("conversations", "development", "agent_tapes", "partial", "speed")
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of items with vectors
SIZES = (1_000, 10_000, 100_000)
QUERIES = 200  # per size
VOCABULARY = 30_000
BATCH = 500
INDEX_TABLES = ["memory_vectors", *(f"memory_fts_{part}" for part in ("data", "docsize", "idx"))]
SPACE = VectorSpace("synthetic", 384)


@dataclass(frozen=True)
class LabelledQuestion:
    text: str
    category: str
    evidence: frozenset[int]  # rows
    asked: date | None = None  # None: on the day of the last item


@dataclass(frozen=True)
class LabelledMemory:
    items: list[MemoryRecord]  # row n + 1 is item n
    questions: list[LabelledQuestion]


Ranker = Callable[[str, date | None], list[tuple[int, float]]]  # rows and scores, best first


# --- corpora -------------------------------------------------------------------------------------


def read_corpus(folder: Path) -> list[LabelledMemory]:
    """Read conversations in the form of LoCoMo."""
    return [_read_conversation(path) for path in sorted(folder.glob("conv-*.json"))]


def _read_conversation(path: Path) -> LabelledMemory:
    content = json.loads(path.read_text(encoding="utf-8"))
    items, rows = [], {}
    for number, turn in enumerate(content["turns"]):
        at = datetime.strptime(turn["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        rows[turn["id"]] = number + 1
        items.append(
            make_item(
                number,
                turn["text"],
                at_ms=int(at.timestamp() * 1000) + number,
                author=turn["speaker"],
                session_id=f"ses_{turn['session']}",
            )
        )
    questions = [
        LabelledQuestion(
            each["question"],
            each["category"],
            frozenset(rows[turn] for turn in each["evidence"] if turn in rows),
        )
        for each in content["questions"]
    ]
    return LabelledMemory(items, [each for each in questions if each.evidence])


def read_development(path: Path) -> list[LabelledMemory]:
    """Read the conversations of a development set."""
    return [_read_case(case) for case in json.loads(path.read_text(encoding="utf-8"))]


def _read_case(case: dict[str, Any]) -> LabelledMemory:
    items, rows = [], {}
    for number, turn in enumerate(case["turns"]):
        rows[turn["id"]] = number + 1
        at = datetime.fromisoformat(turn["at"]).replace(tzinfo=UTC)
        items.append(
            make_item(
                number,
                turn["text"],
                at_ms=int(at.timestamp() * 1000) + number,
                author=turn["author"],
                session_id=f"ses_{turn['session']}",
            )
        )
    questions = [
        LabelledQuestion(
            each["question"],
            case["kind"],
            frozenset(rows[turn] for turn in each["evidence"]),
            datetime.fromisoformat(each["at"]).date(),
        )
        for each in case["questions"]
    ]
    return LabelledMemory(items, questions)


def read_tapes(seed: int) -> LabelledMemory:
    tapes = make_tapes(seed)
    rows = {turn.id: number + 1 for number, turn in enumerate(tapes.turns)}
    items = [
        make_item(number, turn.text, at_ms=turn.at_ms, author=turn.author, session_id=turn.session)
        for number, turn in enumerate(tapes.turns)
    ]
    questions = [
        LabelledQuestion(each.text, each.category, frozenset(rows[turn] for turn in each.evidence))
        for each in tapes.questions
    ]
    return LabelledMemory(items, questions)


# --- ways to search ------------------------------------------------------------------------------


class Way(Protocol):
    """One way to search; `over` prepares it for a memory."""

    name: str

    def over(self, memory: LabelledMemory, store: MemoryFile, folder: Path) -> Ranker: ...


class Ours:
    """The memory index with or without an embedder."""

    def __init__(
        self, name: str, embedder: Embedder | None, share: float = 1.0, order: str = "random"
    ) -> None:
        """`share` of the items has vectors: a random one, or the newest or oldest by `order`."""
        self.name = name
        self._embedder = embedder
        self._share, self._order = share, order

    def over(self, memory: LabelledMemory, store: MemoryFile, folder: Path) -> Ranker:
        embedder = self._embedder
        if embedder is not None:
            vectors = embedder.embed([item.text for item in memory.items])
            stored = list(enumerate(vectors, 1))
            if self._order == "random":
                random.Random(1).shuffle(stored)
            if self._order == "newest":
                stored.reverse()
            store.append_vectors(embedder.name, stored[: round(self._share * len(stored))])
        index = open_index(store, folder / f"{self.name}.vectors", embedder)
        wanted = MemoryFilter(principal=PRINCIPAL, now_ms=0)
        today = day_of(max(item.at_ms for item in memory.items))
        weight = SEMANTIC if embedder is None or embedder.is_semantic else PARTS_OF_WORDS

        def search(text: str, asked_on: date | None = None) -> list[tuple[int, float]]:
            question = analyse(text, index.list_authors(wanted), asked_on or today)
            asked: Sequence[StoredVector] = ()
            if embedder is not None:
                texts = question.texts_for(is_semantic=embedder.is_semantic)
                asked = embedder.embed(texts)
            found = index.search(question, wanted, asked)
            return [(hit.row, hit.score) for hit in rank(question, found.candidates, weight)]

        return search


def open_index(store: MemoryFile, path: Path, embedder: Embedder | None) -> MemoryIndex:
    space = None if embedder is None else VectorSpace(embedder.name, embedder.dimensions)
    index = MemoryIndex(store, path, space)
    job = index.plan_build()
    if job is not None:
        index.adopt(job.run())
        assert index.degraded is None
    return index


def measure_partial(
    embedder: Embedder, memories: Sequence[LabelledMemory], shares: Iterable[float]
) -> dict[str, dict[str, float]]:
    """Return recall@10 and the pack while vectors are being made, by order and share of items."""
    found = {}
    for order in ("random", "newest", "oldest"):
        for share in shares:
            whole = measure_recall(Ours("partial", embedder, share, order), memories)
            found[f"{order} {share}"] = {name: whole[name] for name in ("recall@10", "pack")}
    return found


class RawFts5:
    """bm25 of FTS5 over single turns, with all words of the question."""

    name = "fts5"

    def over(  # noqa: PLR6301 - one way of several
        self, memory: LabelledMemory, store: MemoryFile, folder: Path
    ) -> Ranker:
        del memory, folder

        def search(text: str, _: date | None = None) -> list[tuple[int, float]]:
            return [
                (row, -bm25)
                for row, bm25 in store.connection.execute(
                    "SELECT rowid, bm25(memory_fts) AS s FROM memory_fts WHERE memory_fts MATCH ?"
                    " ORDER BY s LIMIT ?",
                    (match_any(text.split()), MAX_RANK),
                )
            ]

        return search


class RawFaiss:
    """FAISS over the vectors of single turns."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = "faiss"
        self._embedder = embedder

    def over(self, memory: LabelledMemory, store: MemoryFile, folder: Path) -> Ranker:
        del store, folder
        embedder = self._embedder
        index = faiss.IndexFlatIP(embedder.dimensions)
        index.add(_floats(embedder.embed([item.text for item in memory.items])))

        def search(text: str, _: date | None = None) -> list[tuple[int, float]]:
            cosines, found = index.search(_floats(embedder.embed([text])), MAX_RANK)
            return [
                (int(at) + 1, float(cosine))
                for at, cosine in zip(found[0], cosines[0], strict=True)
                if at >= 0
            ]

        return search


class Remembering:
    """An embedder that embeds each text once."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimensions = embedder.name, embedder.dimensions
        self.is_semantic = embedder.is_semantic
        self._embedder = embedder
        self._known: dict[str, StoredVector] = {}

    def embed(self, texts: Sequence[str]) -> list[StoredVector]:
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(missing, self._embedder.embed(missing), strict=True))
        return [self._known[text] for text in texts]


def _floats(vectors: Sequence[StoredVector]) -> NDArray[np.float32]:
    data = np.frombuffer(b"".join(each.values for each in vectors), np.int8)
    floats = data.reshape(len(vectors), -1).astype(np.float32)
    return np.asarray(floats / np.linalg.norm(floats, axis=1, keepdims=True), np.float32)


# --- recall --------------------------------------------------------------------------------------


def measure_recall(way: Way, memories: Iterable[LabelledMemory]) -> dict[str, Any]:
    """Return the mean share of the evidence among the first hits, in percent."""
    shares: dict[str, list[float]] = defaultdict(list)
    for memory in memories:
        with tempfile.TemporaryDirectory() as folder:
            store = MemoryFile(Path(folder) / "journal.sqlite3")
            store.append(memory.items)
            search = way.over(memory, store, Path(folder))
            for question in memory.questions:
                _score(shares, memory, question, search(question.text, question.asked))
            store.close()
    return {name: round(100 * statistics.fmean(values), 1) for name, values in shares.items()}


def _score(
    shares: dict[str, list[float]],
    memory: LabelledMemory,
    question: LabelledQuestion,
    ranked: list[tuple[int, float]],
) -> None:
    wanted, rows = question.evidence, [row for row, _ in ranked]

    def share(found: Iterable[int]) -> float:
        return len(wanted & set(found)) / len(wanted)

    for cut in CUTS:
        shares[f"recall@{cut}"].append(share(rows[:cut]))
    shares[f"recall@10 {question.category}"].append(share(rows[:10]))
    if len(wanted) > 1:
        shares["all@10"].append(float(wanted <= set(rows[:10])))
    shares["pack"].append(share(_packed(memory, ranked)))


def _packed(memory: LabelledMemory, ranked: Sequence[tuple[int, float]]) -> list[int]:
    """Return the rows that fit into a pack."""
    row_of = {memory.items[row - 1].memory_id: row for row, _ in ranked}
    hits = [MemoryHit(item=memory.items[row - 1], score=score, parts={}) for row, score in ranked]
    return [row_of[hit.item.memory_id] for hit in pack_hits(MemoryHits(hits=tuple(hits))).hits]


# --- speed and size ------------------------------------------------------------------------------


def measure_speed(size: int) -> dict[str, Any]:
    """Fill a memory with synthetic items and measure it; times in milliseconds."""
    rng = random.Random(size)
    words = [
        f"{rng.choice('bdfgklmnprst')}{rng.choice('aeiou')}{number:x}"
        for number in range(VOCABULARY)
    ]
    weights = [1 / (rank_ + 10) for rank_ in range(VOCABULARY)]  # Zipf's law
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite3"
        store = MemoryFile(path)
        texts = [" ".join(rng.choices(words, weights, k=rng.randrange(8, 30))) for _ in range(size)]
        items = [
            make_item(
                number,
                text,
                at_ms=1_700_000_000_000 + 60_000 * number,
                author=("ann", "bob")[number % 2],
                session_id=f"ses_{number // 40}",
                kind="fact",
            )
            for number, text in enumerate(texts)
        ]
        for start in range(0, size, BATCH):
            store.append(items[start : start + BATCH])
        vectors = _synthetic_vectors(size)
        for start in range(0, size, BATCH):
            store.append_vectors(SPACE.embedder, vectors[start : start + BATCH])
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        result: dict[str, Any] = {
            "disk_bytes_per_item": round(path.stat().st_size / size),
            "text_bytes_per_item": round(statistics.fmean(map(len, texts))),
        }
        queries = [" ".join(rng.choices(words, weights, k=8)) for _ in range(QUERIES)]
        result |= _measure_index(store, Path(folder), queries)
        result |= _measure_raw(store, vectors, queries)
        result |= _measure_add(store, size, rng, words, weights)
        result |= _measure_reindex(store, size)
        store.close()
    return result


def _measure_index(store: MemoryFile, folder: Path, queries: list[str]) -> dict[str, Any]:
    wanted = MemoryFilter(principal=PRINCIPAL, now_ms=0)
    before, path = _resident_bytes(), folder / "vectors"
    index = MemoryIndex(store, path, SPACE)
    with Stopwatch() as load:
        index.catch_up()
    with Stopwatch() as build:
        job = index.plan_build()
        assert job is not None
        index.adopt(job.run())
    result: dict[str, Any] = {
        "memory_bytes_per_item": round(index.memory_bytes / index.items),
        "resident_bytes_per_item": round(max(0, _resident_bytes() - before) / index.items),
    }
    with Stopwatch() as save:
        index.save()
    again = MemoryIndex(store, path, SPACE)
    with Stopwatch() as open_saved:
        again.catch_up()
    assert again.degraded is None
    result["index_bytes_per_item"] = round(
        (_table_bytes(store, INDEX_TABLES) + path.stat().st_size) / index.items
    )
    watches = {"load": load, "build": build, "save": save, "open_saved": open_saved}
    result |= {f"{name}_ms": _ms(each.wall_s) for name, each in watches.items()}
    result |= {f"{name}_thread_ms": _ms(each.thread_s) for name, each in watches.items()}
    rng = np.random.default_rng(1)
    for name, asked in (("lexical", False), ("hybrid", True)):

        def search(text: str, *, asked: bool = asked) -> None:
            question = analyse(text, index.list_authors(wanted), day_of(1_700_000_000_000))
            vector = quantise(rng.standard_normal(384).tolist())
            found = index.search(question, wanted, [vector] if asked else ())
            rank(question, found.candidates)

        result[name] = _percentiles(search, queries)
    return result


def _measure_raw(
    store: MemoryFile, vectors: list[tuple[int, StoredVector]], queries: list[str]
) -> dict[str, Any]:
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(384)
    flat.add(_floats([vector for _, vector in vectors]))
    rng = np.random.default_rng(1)
    raw = RawFts5().over(LabelledMemory([], []), store, Path())
    return {
        "fts5": _percentiles(lambda text: raw(text, None), queries),
        "faiss": _percentiles(
            lambda _: flat.search(rng.standard_normal((1, 384), np.float32), 200), queries
        ),
    }


def _measure_add(
    store: MemoryFile, size: int, rng: random.Random, words: list[str], weights: list[float]
) -> dict[str, float]:
    """Add facts as the service does: search for duplicates, then write."""
    result: dict[str, float] = {}
    for name, principal in (("add", PRINCIPAL), ("add_other", "another principal")):
        watches = []
        for number in range(size, size + 200):
            text = " ".join(rng.choices(words, weights, k=20))
            item = make_item(
                number,
                text,
                at_ms=1_700_000_000_000 + 60_000 * number,
                author="ann",
                session_id=f"ses_{number // 40}",
                kind="fact",
            )
            item = msgspec.structs.replace(
                item, principal=principal, memory_id=f"{item.memory_id}_{name}"
            )
            with Stopwatch() as watch:
                store.find_alike(item, now_ms=0, limit=20)
                store.append([item])
            watches.append(watch)
        result |= {
            f"{name}_ms": _ms(statistics.median(watch.wall_s for watch in watches)),
            f"{name}_thread_ms": _ms(statistics.median(watch.thread_s for watch in watches)),
        }
    return result


def _measure_reindex(store: MemoryFile, size: int) -> dict[str, float]:
    """Make the text index again, in the steps of a rebuild."""
    part: MemoryReindex | None = MemoryReindex(after_row=FROM_THE_START)
    with Stopwatch() as watch:
        while part is not None:
            store.append([part])
            part = store.plan_reindex()
    return {
        "reindex_ms_per_1000": _ms(watch.wall_s * 1_000 / size),
        "reindex_thread_ms_per_1000": _ms(watch.thread_s * 1_000 / size),
    }


def _synthetic_vectors(size: int) -> list[tuple[int, StoredVector]]:
    rng = np.random.default_rng(size)
    found = []
    for start in range(0, size, 10_000):
        floats = rng.standard_normal((min(10_000, size - start), 384), np.float32)
        floats /= np.linalg.norm(floats, axis=1, keepdims=True)
        scales = np.abs(floats).max(axis=1) / 127
        values = np.rint(floats / scales[:, None]).astype(np.int8)
        found += [
            (start + at + 1, StoredVector(float(scale), row.tobytes()))
            for at, (scale, row) in enumerate(zip(scales, values, strict=True))
        ]
    return found


def _percentiles(search: Callable[[str], object], queries: Sequence[str]) -> dict[str, float]:
    walls, threads = [], []
    for text in queries:
        began, began_thread = time.perf_counter(), time.thread_time()
        search(text)
        threads.append(time.thread_time() - began_thread)
        walls.append(time.perf_counter() - began)
    return {
        f"{name}{percent}": _ms(sorted(took)[len(took) * percent // 100])
        for name, took in (("p", walls), ("thread_p", threads))
        for percent in (50, 95)
    }


class Stopwatch:
    """Wall clock and processor time of this thread in a block."""

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._began[0]
        self.thread_s = time.thread_time() - self._began[1]


def _table_bytes(store: MemoryFile, names: Sequence[str]) -> int:
    """Return the size of these tables and indexes in the file."""
    found: int = store.connection.execute(
        "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT value FROM json_each(?))",
        (json.dumps(names),),
    ).get
    return found


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


# --- the report ----------------------------------------------------------------------------------


def find_minilm(given: Path | None, folder: Path) -> Embedder | None:
    """Return MiniLM from a data directory or a wheel; None if there is none."""
    if given is not None and given.suffix == ".whl":
        files.install_wheel(given, folder)
        given = folder
    if given is None or files.find_fault(given):
        print("MiniLM is not installed: its rows are left out (--minilm)", file=sys.stderr)
        return None
    return Remembering(MiniLmEmbedder(given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--minilm", type=Path, default=os.environ.get("PALYRA_MINILM"))
    parser.add_argument("--only", choices=ONLY)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    result: dict[str, Any] = {"bench": "recall"}
    with tempfile.TemporaryDirectory() as folder:
        minilm = find_minilm(options.minilm, Path(folder))
        ways: list[Way] = [
            RawFts5(), Ours("lexical", None), Ours("hashed", Remembering(HashedEmbedder())),
        ]  # fmt: skip
        if minilm is not None:
            ways += [RawFaiss(minilm), Ours("minilm", minilm)]
        conversations = read_corpus(Path(options.corpus))
        if not conversations:
            print(f"no corpus in {options.corpus}: recall is not measured", file=sys.stderr)
        if conversations and options.only in {None, "conversations"}:
            result["conversations"] = {way.name: measure_recall(way, conversations) for way in ways}
        if options.only == "partial":
            embedder = minilm or Remembering(HashedEmbedder())
            result["partial"] = measure_partial(embedder, conversations, SHARES)
        if options.only in {None, "development"}:
            chats = read_development(DEVELOPMENT)
            result["development"] = {way.name: measure_recall(way, chats) for way in ways}
        if options.only in {None, "agent_tapes"}:
            tapes = [read_tapes(options.seed)]
            result["agent_tapes"] = {way.name: measure_recall(way, tapes) for way in ways}
    if options.only in {None, "speed"}:
        result["speed"] = {str(size): measure_speed(size) for size in options.sizes}
    print(json.dumps({**result, "calibration_ms": calibrate()}))


if __name__ == "__main__":
    main()
