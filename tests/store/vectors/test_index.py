"""The memory index over a real file: filters, changes, damage, and agreement with a plain model."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palyra.core.journal.changes import MemoryPlace
from palyra.core.memory.items import revise, supersede
from palyra.core.memory.vectors import StoredVector, VectorSpace
from palyra.store.vectors import index as vector_index
from palyra.store.vectors.flat import DIRECT_SLOTS, FlatVectors, decode, direction
from palyra.store.vectors.rows import read_numbers
from tests.store.kit import memory
from tests.store.vectors.kit import EMBEDDER, NOW_MS, Memory, axis, random_vector

pytestmark = pytest.mark.real


@pytest.fixture
def kept(tmp_path: Path) -> Memory:
    return Memory(tmp_path)


# --- search by words ------------------------------------------------------------------------------


def test_rare_words_count_more(kept: Memory) -> None:
    """The item with the rarer word of the question is first."""
    kept.say("the build is green", "the build uses bazel", "a build log", "a tree")
    assert ["m1", "m2", "m0"] == kept.ids("bazel build")


def test_neighbours_share_their_words(kept: Memory) -> None:
    """An answer is found by the words of the question before it in its conversation."""
    kept.say("Which mountain did you climb?", "It was Zugspitze.", "Nice.", session_id="s")
    kept.say("It was late.", "Far away.", session_id="other")
    assert "m1" in kept.ids("mountain climb")[:2]
    assert not {"m3", "m4"} & set(kept.ids("mountain climb"))


def test_items_of_a_named_author_are_candidates(kept: Memory) -> None:
    """The item of the named author is found behind many better matches of another."""
    kept.say(*("port port" for _ in range(400)), author="Bob")
    kept.say("a port of ships", author="Ann")
    assert ["m400"] == kept.ids("What is Ann's port?")[:1]


def test_symbols_and_operators_are_only_text(kept: Memory) -> None:
    """Syntax of the full-text index in a question is harmless."""
    kept.say('a "quoted" port: 8080')
    for text in (
        '"',
        "port OR",
        "NEAR(port",
        "text : port",
        "port*",
        "-port",
        "\0port",
        "(",
        "{text}",
    ):
        kept.ids(text)
    assert ["m0"] == kept.ids('AND "port" NOT')


def test_irregular_forms_are_one_word(kept: Memory) -> None:
    """A question in one form finds the statement in another, which the stemmer does not join."""
    kept.say("Ann bought a boat", "the children swam", "a boat sank")
    assert "m0" == kept.ids("what did Ann buy?")[0]
    assert "m1" == kept.ids("which child can swim?")[0]


def test_a_word_that_occurs_nowhere_closes_nothing(kept: Memory) -> None:
    """It counts for nothing: the other words find what they find alone."""
    kept.say(*(f"the lamp in room {number} is broken" for number in range(10)))
    for more in ("", " in the cellar", " quartz zirconium"):
        assert 10 == len(kept.ids(f"lamps{more}"))


def test_gibberish_finds_nothing(kept: Memory) -> None:
    """Words that no item has give no hit."""
    kept.say("the deploy port is 8080", "the cat sleeps")
    assert [] == kept.ids("xyzzy frobnicate")
    assert [] == kept.ids("?!")


def test_dates_of_a_question_prefer_statements_of_that_day(kept: Memory) -> None:
    """Items stated on the day, and items that name the day, are before others."""
    day = 86_400_000
    kept.say("dinner with Ann", at_ms=NOW_MS - 40 * day)
    kept.say("dinner with Bob", at_ms=NOW_MS - 30 * day)
    kept.say("dinner with Cem ten days ago", at_ms=NOW_MS - 20 * day)
    assert {"m1", "m2"} == set(kept.ids("dinner on 16 May 2025")[:2])


def test_a_question_prefers_and_excludes_nothing(kept: Memory) -> None:
    """Another author, day, kind and session than the named ones: behind the named, but found."""
    day = 86_400_000
    kept.say("dinner by the port", author="Ann", at_ms=NOW_MS - 30 * day)
    kept.say("dinner by the lake", author="Bob", kind="fact", session_id="s", tags=("x",))
    kept.say("dinner by the hill")
    question = "what did Ann say about dinner on 16 May 2025"
    assert ["m0", {"m1", "m2"}] == [kept.ids(question)[0], set(kept.ids(question)[1:])]
    assert ["m1"] == kept.ids(question, author="Bob"), "what is given as a filter does exclude"


def test_frequencies_of_others_do_not_show(tmp_path: Path) -> None:
    """The scores of a principal are the same with and without the items of another."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone, beside = Memory(tmp_path / "one"), Memory(tmp_path / "two")
    for each in (alone, beside):
        each.say("the build uses bazel", "the build is green")
    beside.say("bazel", "bazel again", "build", principal="bob")
    scores = [
        [(hit.text, hit.lexical) for hit in each.find("bazel build")[0].candidates]
        for each in (alone, beside)
    ]
    assert scores[0] == scores[1]


# --- filters --------------------------------------------------------------------------------------


PLACES = [
    MemoryPlace(principal=principal, channel=channel, session_id=session, only_session=only)
    for principal in ("alice", "bob")
    for channel in (None, "c1", "c2")
    for session in (None, "s1", "s2")
    for only in (False, True)
]


def fill_places(kept: Memory) -> list[Any]:
    items = [
        memory(
            f"m{number}", f"port {number}", principal=principal, scope=scope, channel=channel,
            session_id=session, at_ms=NOW_MS + number,
        )
        for number, (principal, scope, channel, session) in enumerate(
            (principal, scope, channel, session)
            for principal in ("alice", "bob")
            for scope in ("principal", "channel", "session")
            for channel in (None, "c1", "c2")
            for session in (None, "s1", "s2")
        )
    ]  # fmt: skip
    kept.file.put(*items)
    kept.file.embed(**{item.memory_id: axis(0) for item in items})
    kept.build()
    return items


def test_each_place_sees_its_items_and_no_others(kept: Memory) -> None:
    """For every pair of places, words and vectors find what `MemoryPlace.sees` allows."""
    items = fill_places(kept)
    for place in PLACES:
        expected = {item.memory_id for item in items if place.sees(item)}
        fields: dict[str, Any] = {"principal": place.principal, "place": place}
        assert expected == set(kept.ids("port", **fields)), place
        assert expected == set(kept.ids("zzz", [axis(0)], **fields)), place


def test_a_foreign_place_sees_nothing(kept: Memory) -> None:
    """A filter of one principal from the place of another matches nothing."""
    fill_places(kept)
    place = MemoryPlace(principal="bob")
    assert [] == kept.ids("port", [axis(0)], principal="alice", place=place)


def test_filters_are_inside_the_search(kept: Memory) -> None:
    """The one allowed item is found behind more matches than the search has candidates."""
    kept.say(*("port port port" for _ in range(450)))
    kept.say("a port far from all", author="Ann", kind="fact", tags=("net",), at_ms=NOW_MS - 10)
    rows = {f"m{at}": axis(0) for at in range(450)}
    kept.file.embed(**rows, m450=axis(1, 0.8))
    kept.build()
    for fields in (
        {"author": "Ann"}, {"kinds": ("fact", "decision")}, {"tags": ("net",)},
        {"until_ms": NOW_MS - 5}, {"as_of_ms": NOW_MS, "author": "Ann"},
    ):  # fmt: skip
        assert ["m450"] == kept.ids("port", [axis(0)], **fields), fields
    assert [] == kept.ids("port", since_ms=NOW_MS + 10_000)
    assert [] == kept.ids("port", author="Bob")
    assert [] == kept.ids("port", channel="c")


def test_ended_items_are_never_found(kept: Memory) -> None:
    """Expired, superseded and hidden items are out, unless the filter asks for them."""
    kept.file.put(
        memory("m0", "port old", expires_ms=NOW_MS),
        memory("m1", "port new", expires_ms=NOW_MS + 1),
        memory("m2", "port hidden", never_recall=True),
    )
    old = memory("m3", "port wrong")
    kept.file.put(old)
    kept.file.put((new := memory("m4", "port right")), supersede(old, new))
    assert {"m1", "m4"} == set(kept.ids("port"))
    assert {"m1", "m2", "m4"} == set(kept.ids("port", with_hidden=True))
    assert {"m1", "m3", "m4"} == set(kept.ids("port", with_superseded=True))


# --- vectors --------------------------------------------------------------------------------------


def test_vectors_find_what_words_do_not(kept: Memory) -> None:
    """A search with a vector returns near items without a common word, and says it is hybrid."""
    kept.say("feline", "canine", "bovine")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    kept.build()
    found, ids = kept.find("cat", [axis(0)])
    assert ["m0"] == ids[:1]
    assert (True, "") == (found.is_hybrid, found.degraded)
    assert [] == kept.ids("cat", [axis(6)])


def test_neighbours_lean_a_vector(kept: Memory) -> None:
    """The vector of an item has a quarter of its neighbours' in its conversation."""
    kept.say("one", "two", "three", session_id="s")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    kept.build()
    found, _ = kept.find("cat", [axis(2)])
    cosines = {each.text: round(each.cosine or 0, 2) for each in found.candidates}
    assert {"one": 0.24, "two": 0.94, "three": 0.24} == cosines


def test_a_search_without_vectors_says_why(kept: Memory) -> None:
    """Before the vectors are built, search answers by words and is degraded."""
    kept.say("port 8080")
    kept.file.embed(m0=axis(0))
    found, ids = kept.find("port", [axis(0)])
    assert ["m0"] == ids
    assert not found.is_hybrid
    assert found.degraded is not None
    assert "missing" in found.degraded
    kept.open_index(None)
    found, ids = kept.find("port", [axis(0)])
    assert (["m0"], False, "") == (ids, found.is_hybrid, found.degraded)


def test_vectors_of_another_embedder_are_not_used(kept: Memory) -> None:
    """Vectors of another name or size are left out, the words still answer."""
    kept.say("port 8080")
    kept.file.embed(m0=axis(0))
    kept.open_index(VectorSpace("test/other", 8))
    kept.build()
    assert 0 == kept.index.vectors
    found, ids = kept.find("port", [StoredVector(1.0, b"\1\2\3")])
    assert (["m0"], False) == (ids, found.is_hybrid)


def test_the_search_of_all_slots_agrees_with_numpy() -> None:
    """FAISS with a filter and the direct comparison return the same slots and cosines."""
    rng = np.random.default_rng(1)
    count = DIRECT_SLOTS * 3
    vectors = direction(rng.standard_normal((count, 16)).astype(np.float32))
    flat = FlatVectors(16, 1.0)
    flat.grow(count)
    flat.put(np.arange(count), vectors)
    flat.drop(np.arange(0, count, 7))
    for _ in range(20):
        allowed = rng.random(count) < 0.8
        query = direction(rng.standard_normal(16).astype(np.float32))
        slots, cosines = flat.search(query, allowed, 50)
        expected = np.where(allowed & flat.has_vector, vectors @ query, -2)
        assert (expected[slots] > -2).all()
        assert np.allclose(expected[slots], cosines, atol=0.02)
        assert np.sort(expected)[-50:].mean() - expected[slots].mean() < 0.005


def test_clusters_find_what_all_vectors_find() -> None:
    """With clusters nearly all of the best are found, new and moved vectors included."""
    rng = np.random.default_rng(2)
    centres = direction(rng.standard_normal((40, 16)).astype(np.float32))

    def draw(count: int) -> Any:
        spread = rng.standard_normal((count, 16)).astype(np.float32) * 0.15
        return direction(centres[rng.integers(0, 40, count)] + spread)

    vectors = draw(5_000)
    flat = FlatVectors(16, 1.0, clustered_slots=3_000)
    flat.grow(5_000)
    flat.put(np.arange(5_000), vectors)
    was_due = flat.is_clustering_due
    flat.make_clusters()
    assert (True, False) == (was_due, flat.is_clustering_due)
    flat.grow(5_500)
    more = draw(600)
    flat.put(np.arange(4_900, 5_500), more)
    vectors = np.concatenate([vectors[:4_900], more])
    allowed = rng.random(5_500) < 0.9
    found = 0
    for query in draw(30):
        slots, _ = flat.search(query, allowed, 10)
        assert allowed[slots].all()
        best = np.argsort(-np.where(allowed, vectors @ query, -2))[:10]
        found += len(set(best.tolist()) & set(slots.tolist()))
    assert found >= 0.9 * 300


def test_a_filter_below_the_limit_is_searched_whole() -> None:
    """A narrow filter is exact although the vectors are in clusters."""
    rng = np.random.default_rng(3)
    vectors = direction(rng.standard_normal((4_000, 8)).astype(np.float32))
    flat = FlatVectors(8, 1.0, clustered_slots=3_000)
    flat.grow(4_000)
    flat.put(np.arange(4_000), vectors)
    flat.make_clusters()
    allowed = np.zeros(4_000, np.bool_)
    allowed[::3] = True
    query = direction(rng.standard_normal(8).astype(np.float32))
    slots, cosines = flat.search(query, allowed, 20)
    expected = np.sort(np.where(allowed, vectors @ query, -2))[::-1][:20]
    assert np.allclose(expected, cosines, atol=0.02)
    assert (slots % 3 == 0).all()


def test_a_narrow_filter_finds_every_vector() -> None:
    """With fewer allowed vectors than the limit, all of them are returned and no other slot."""
    flat = FlatVectors(4, 1.0)
    flat.grow(DIRECT_SLOTS + 100)
    every = np.arange(DIRECT_SLOTS + 100)
    flat.put(every, direction(np.ones((every.size, 4), np.float32)))
    allowed = np.zeros(every.size, np.bool_)
    allowed[[3, 5]] = True
    slots, _ = flat.search(direction(np.ones(4, np.float32)), allowed, 10)
    assert [3, 5] == slots.tolist()


# --- changes --------------------------------------------------------------------------------------


def test_a_new_item_is_found_at_once(kept: Memory) -> None:
    """An item is found by words after its commit and by its vector after it was embedded."""
    kept.say("port 8080")
    kept.file.embed(m0=axis(0))
    kept.build()
    assert ["m0"] == kept.ids("port")
    kept.say("a harbour", session_id="s")
    assert ["m1"] == kept.ids("harbour")
    kept.index.refresh_vectors(kept.file.embed(m1=axis(4)))
    assert ["m1"] == kept.ids("zzz", [axis(4)])[:1]


def test_a_forgotten_item_is_gone_everywhere(kept: Memory) -> None:
    """Neither words nor vectors find a forgotten item, and its neighbours lean on it no more."""
    kept.say("apple", "port 8080", "pear", session_id="s")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    kept.build()
    assert "m1" in kept.ids("port")
    kept.file.forget("m1")
    assert [] == kept.ids("port")
    found, _ = kept.find("zzz", [axis(2)])
    assert {"apple": 0.0, "pear": 0.0} == {
        each.text: round(each.cosine or 0, 2) for each in found.candidates
    }
    assert (2, 2) == (kept.index.items, kept.index.vectors)


def test_an_edit_changes_words_and_drops_the_vector(kept: Memory) -> None:
    """An edited text is found by its new words; its vector is missing until the next embedding."""
    item = memory("m0", "port 8080")
    kept.file.put(item)
    kept.file.embed(m0=axis(0))
    kept.build()
    kept.file.put(revise(item, "edited", by="alice", now_ms=NOW_MS, text="harbour", text_hash="x"))
    assert [] == kept.ids("port", [axis(0)])
    assert ["m0"] == kept.ids("harbour", [axis(0)])
    assert 0 == kept.index.vectors


def test_any_changes_leave_the_index_as_a_new_one(tmp_path: Path) -> None:
    """After random additions, edits and removals the index answers as one loaded from the file."""
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kept, rng = Memory(folder), random.Random(seed)
        kept.build()
        alive: dict[str, Any] = {}
        for number in range(60):
            _change(kept, rng, alive, number)
            if rng.random() < 0.3:
                kept.ids("port", [random_vector(rng)])
        query = random_vector(rng)
        first = answers(kept, query)
        kept.open_index()
        kept.build()
        assert first == answers(kept, query), seed


def _change(kept: Memory, rng: random.Random, alive: dict[str, Any], number: int) -> None:
    choice = rng.random()
    if choice < 0.6 or not alive:
        item = memory(
            f"m{number}", f"{rng.choice(('port', 'dock', 'pier'))} {number}",
            session_id=rng.choice((None, "s1", "s2")), at_ms=NOW_MS + rng.randrange(1_000),
        )  # fmt: skip
        kept.file.put(item)
        alive[item.memory_id] = item
    elif choice < 0.8:
        kept.file.forget(name := rng.choice(sorted(alive)))
        del alive[name]
        return
    else:
        name = rng.choice(sorted(alive))
        item = revise(
            alive[name], "edited", by="alice", now_ms=NOW_MS, text=f"port {number} again",
            text_hash=str(number), at_ms=NOW_MS + rng.randrange(1_000),
        )  # fmt: skip
        kept.file.put(item)
        alive[name] = item
    if rng.random() < 0.8:
        kept.index.refresh_vectors(kept.file.embed(**{item.memory_id: random_vector(rng)}))


def answers(kept: Memory, query: StoredVector) -> list[tuple[int, float, float]]:
    found, _ = kept.find("port dock", [query])
    return sorted(
        (each.row, round(each.lexical, 4), round(each.cosine or 0.0, 1))
        for each in found.candidates
    )


# --- the file -------------------------------------------------------------------------------------


def saved(kept: Memory) -> Memory:
    kept.say("port 8080", "a harbour", "a pier", session_id="s")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    kept.build()
    kept.index.save()
    return kept


def test_a_saved_index_is_opened_without_a_build(kept: Memory) -> None:
    """The file holds the vectors; opening it gives the same answers."""
    saved(kept)
    before = answers(kept, axis(2))
    kept.open_index()
    kept.index.catch_up()
    assert (None, 3) == (kept.index.degraded, kept.index.vectors)
    assert before == answers(kept, axis(2))
    assert 0o600 == kept.path.stat().st_mode & 0o777


def test_only_a_file_that_was_there_is_gone(kept: Memory) -> None:
    """A new index has no file yet, which is no damage; one that was saved or read has lost it."""
    assert not kept.index.is_file_gone
    saved(kept)
    kept.open_index()
    kept.index.catch_up()
    for index in (kept.index, saved(kept).index):
        found = [index.is_file_gone]
        content = kept.path.read_bytes()
        kept.path.unlink()
        assert [False, True] == [*found, index.is_file_gone]
        kept.path.write_bytes(content)


def test_an_older_file_catches_up(kept: Memory) -> None:
    """Items and vectors of after the save are read from the journal, edited ones included."""
    saved(kept)
    kept.say("a quay")
    kept.file.embed(m3=axis(6))
    item = memory("m2", "a pier", session_id="s", at_ms=NOW_MS + 2)
    kept.file.put(revise(item, "edited", by="alice", now_ms=NOW_MS, text="a jetty", text_hash="j"))
    kept.file.embed(m2=axis(1))
    kept.open_index()
    assert ["m3"] == kept.ids("zzz", [axis(6)])[:1]
    assert ["m2"] == kept.ids("zzz", [axis(1)])[:1]
    found, _ = kept.find("zzz", [axis(4)])
    assert all((each.cosine or 0) < 0.1 for each in found.candidates)


def test_a_file_with_forgotten_items_is_not_used(kept: Memory) -> None:
    """Vectors of items that are gone never come back from an old file."""
    saved(kept)
    kept.file.forget("m1")
    kept.open_index()
    found, ids = kept.find("port", [axis(2)])
    assert ["m0", "m2"] == ids
    assert "stale" in str(found.degraded)
    kept.build()
    assert None is kept.index.degraded
    assert [] == kept.ids("zzz", [axis(2)])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "no header": lambda path: path.write_bytes(b"\xff" * 5_000),
    "of another embedder": lambda path: path.write_bytes(
        path.read_bytes().replace(b"test/words", b"test/wordz", 1)
    ),
    "of another format": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"format":1', b'"format":9', 1)
    ),
    "a folder": make_folder,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_cannot_be_used_is_as_good_as_none(kept: Memory, name: str) -> None:
    """Each kind of damage is noticed; words answer meanwhile, and a build repairs it."""
    saved(kept)
    DAMAGES[name](kept.path)
    kept.open_index()
    found, ids = kept.find("port", [axis(0)])
    assert (["m0"], False) == (ids[:1], found.is_hybrid)
    assert found.degraded is not None
    kept.build()
    assert kept.find("zzz", [axis(4)])[0].is_hybrid


def test_every_flipped_byte_is_noticed(kept: Memory) -> None:
    """No single changed byte of the file gives another answer."""
    saved(kept)
    whole = kept.path.read_bytes()
    expected = answers(kept, axis(2))
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        kept.path.write_bytes(damaged)
        kept.open_index()
        kept.index.catch_up()
        if kept.index.degraded is None:
            assert expected == answers(kept, axis(2)), at


def test_an_interrupted_save_leaves_the_old_file(kept: Memory) -> None:
    """A temporary file of a crash is ignored and replaced."""
    saved(kept)
    draft = kept.path.with_name(f".{kept.path.name}.draft")
    draft.write_bytes(b"half")
    kept.open_index()
    kept.index.catch_up()
    assert None is kept.index.degraded
    kept.index.save()
    assert not draft.exists()


def test_a_file_of_a_newer_journal_is_not_used(kept: Memory, tmp_path: Path) -> None:
    """After the journal was restored from a backup, a file with later entries is not trusted."""
    saved(kept)
    content = kept.path.read_bytes()
    kept.file.connection.execute("DELETE FROM memory_log WHERE entry > 1")
    assert content == kept.path.read_bytes()
    kept.open_index()
    kept.index.catch_up()
    assert "newer" in str(kept.index.degraded)


def test_changes_during_a_build_are_in_its_result(kept: Memory) -> None:
    """Items that are added, embedded and forgotten while a build runs are right after it."""
    kept.say("port 8080", "a harbour", "a pier")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    job = kept.index.plan_build()
    assert job is not None
    kept.say("a quay")
    kept.file.embed(m3=axis(6))
    built = job.run()
    kept.file.forget("m1")
    kept.index.adopt(built)
    assert ["m3"] == kept.ids("zzz", [axis(6)])[:1]
    assert [] == kept.ids("zzz", [axis(2)])
    assert 3 == kept.index.vectors


def test_a_build_of_another_index_is_not_used(kept: Memory) -> None:
    """A rebuild meanwhile has numbered the slots again: its vectors would be those of other items."""
    kept.say("port 8080", "a harbour", "a pier")
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4))
    kept.build()
    kept.file.forget("m0")
    job = kept.index.plan_build()
    assert job is not None
    built = job.run()
    kept.open_index()
    kept.say("a quay")
    kept.file.embed(m3=axis(6))
    kept.index.adopt(built)
    assert kept.index.is_build_due
    kept.build()
    for name, at in (("m1", 2), ("m2", 4), ("m3", 6)):
        assert [name] == kept.ids("zzz", [axis(at)])[:1]


@pytest.mark.parametrize(
    "damaged",
    [StoredVector(scale, b"\1" * 8) for scale in (math.inf, -math.inf, 1e300, -1.0)]
    + [StoredVector(0.5, b""), StoredVector(0.5, b"\1" * 7)],
)
def test_a_damaged_vector_is_as_good_as_none(kept: Memory, damaged: StoredVector) -> None:
    """It spoils neither its neighbours nor the size of all, and its item is embedded again."""
    kept.say("port 8080", "a harbour", "a pier", session_id="s")
    others = kept.say(*["a boat"] * 20)
    kept.file.embed(m0=axis(0), m1=axis(2), m2=axis(4), **dict.fromkeys(others, axis(6)))
    kept.build()
    kept.index.refresh_vectors(kept.file.embed(m2=damaged))
    for _ in range(2):
        assert ["m0", "m1"] == sorted(kept.ids("zzz", [axis(1, 1.0)])[:2])
        assert 22 == kept.index.vectors
        assert [3] == kept.index.list_unembedded(9, without=(), but=())
        kept.build()
    assert 0 != kept.file.find_dimensions(EMBEDDER[0])


def test_kept_postings_follow_the_items(kept: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added, edited and deleted items are found, or not, as without the postings of frequent words."""
    monkeypatch.setattr(vector_index, "FREQUENT", 2)
    monkeypatch.setattr(vector_index, "FREQUENT_WORDS", 1)
    kept.say("a red boat", "a blue boat", "a green house")
    for _ in range(2):
        assert ["m0", "m1"] == sorted(kept.ids("boat"))
    kept.say("a white boat")
    assert ["m0", "m1", "m3"] == sorted(kept.ids("boat"))
    edited = memory("m0", "a red house", at_ms=NOW_MS, revision=2)
    kept.file.put(edited)
    assert ["m1", "m3"] == sorted(kept.ids("boat"))
    assert ["m0", "m2"] == sorted(kept.ids("house"))
    kept.file.forget("m1")
    assert ["m3"] == kept.ids("boat")


def test_words_alone_answer_until_nearly_all_items_have_vectors(kept: Memory) -> None:
    """The result says how many are embedded; items without a vector do not lose to the others."""
    ids = kept.say("the cat sleeps", *[f"boat {number}" for number in range(9)])
    kept.file.embed(**{name: axis(0) for name in ids[5:]})
    kept.build()
    found, best = kept.find("cat boat", [axis(0)])
    assert (False, "5 of 10 embedded", ids[0]) == (found.is_hybrid, found.degraded, best[0])
    kept.index.refresh_vectors(kept.file.embed(**{name: axis(0) for name in ids[1:5]}))
    found, best = kept.find("cat boat", [axis(0)])
    assert (True, "9 of 10 embedded", ids[0]) == (found.is_hybrid, found.degraded, best[0])
    kept.index.refresh_vectors(kept.file.embed(m0=axis(4)))
    assert (True, "") == (kept.find("cat", [axis(0)])[0].is_hybrid, kept.find("cat")[0].degraded)


def test_the_coverage_is_that_of_the_scope(kept: Memory) -> None:
    """Items of others, superseded and hidden ones count for nothing."""
    kept.say("the cat sleeps")
    kept.say("a dog", principal="bob")
    kept.say("an old cat", superseded_by="m0", superseded_ms=NOW_MS)
    kept.say("a hidden cat", never_recall=True)
    kept.file.embed(m0=axis(0))
    kept.build()
    found, _ = kept.find("cat", [axis(0)])
    assert (True, "") == (found.is_hybrid, found.degraded)
    assert "0 of 1 embedded" == kept.find("dog", [axis(0)], principal="bob")[0].degraded


def test_a_vector_of_zeros_is_none_and_is_not_made_again(kept: Memory) -> None:
    """Its text means nothing to the embedder: it is compared by its words, after a build too."""
    kept.say("!!!", "a cat", session_id="s")
    kept.file.embed(m0=StoredVector(0.0, bytes(8)), m1=axis(0))
    for _ in range(2):
        kept.build()
        kept.index.refresh_vectors([1, 2])
        assert (1, []) == (kept.index.vectors, kept.index.list_unembedded(9, without=(), but=()))
        assert not kept.find("cat", [axis(0)])[0].degraded
    kept.index.save()
    kept.open_index()
    assert "m1" == kept.ids("zzz", [axis(0)])[0]
    assert (1, []) == (kept.index.vectors, kept.index.list_unembedded(9, without=(), but=()))


def test_no_embedder_has_nothing_to_build_or_save(kept: Memory) -> None:
    """An index without an embedder writes no file."""
    kept.open_index(None)
    assert None is kept.index.plan_build()
    kept.index.save()
    assert not kept.path.exists()


def test_numbers_and_vectors_are_read_as_stored() -> None:
    """Helpers of the store keep order and sign."""
    assert [] == read_numbers("").tolist()
    assert [3, 1, 2] == read_numbers("3,1,2").tolist()
    assert [[0.5, -1.0]] == decode([StoredVector(0.5, b"\x01\xfe")]).tolist()
    assert 8 == EMBEDDER[1]


def test_a_build_is_due_when_the_index_has_outgrown_it(kept: Memory) -> None:
    """Without vectors, and with many more than at the last build, a build is due."""

    def is_due() -> bool:
        return kept.index.is_build_due

    assert is_due()
    kept.build()
    assert not is_due()
    kept.say(*("port" for _ in range(1_001)))
    kept.index.refresh_vectors(kept.file.embed(**{f"m{at}": axis(at) for at in range(1_001)}))
    assert is_due()
    kept.build()
    assert not is_due()
    kept.open_index(None)
    assert not is_due()
