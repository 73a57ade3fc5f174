"""The index of memory in service: embedded in steps, saved, built again, never in the way."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.memory import RETRY_S, keep_memory_index
from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.journal.records import MemoryRemoval
from palyra.core.memory.items import MemoryDraft
from palyra.core.ports import JournalStore
from palyra.errors import Unavailable
from palyra.store.vectors.search import IndexedMemory
from tests.services.memory_kit import ANN, OP, MemoryKit

T = TypeVar("T")
WANTED = MemoryFilter(principal="", now_ms=0)


@pytest.fixture
def kit(tmp_path: Path) -> MemoryKit:
    return MemoryKit(tmp_path, is_indexed=True)


async def mode(kit: MemoryKit, query: str = "cmake") -> tuple[str, bool]:
    """Mode of a search, and whether a part of it was left out."""
    kit.search.invalidate(None)
    found = await kit.search.search(ANN, query, WANTED)
    assert found.hits
    return found.mode, bool(found.degraded)


def count_vectors(kit: MemoryKit) -> int:
    found: int = kit.store._read(lambda c: c.execute("SELECT count(*) FROM memory_vectors").get)
    return found


@pytest.mark.real
async def test_search_answers_before_the_vectors_are_there(kit: MemoryKit) -> None:
    """A new item is found by its words at once, and by its vector after the upkeep."""
    await kit.add("cmake builds the project")
    assert ("lexical", True) == await mode(kit)
    await kit.keep_up()
    assert 1 == count_vectors(kit)
    assert ("hybrid", False) == await mode(kit)
    await kit.add("cmakes are many")
    assert 2 == len(await kit.found("cmakes"))


@pytest.mark.real
async def test_a_result_from_before_the_vector_is_not_given_after_it(kit: MemoryKit) -> None:
    """A question that was asked too early finds the item once its vector is there."""
    await kit.add("ninja builds the project")
    await kit.keep_up()
    own = await kit.add("kindergarten opening hours")
    assert own not in await kit.found("kindergarden")
    await kit.keep_up()
    assert own in await kit.found("kindergarden")


@pytest.mark.real
async def test_a_degraded_result_is_not_given_after_the_build(kit: MemoryKit) -> None:
    """The same question is searched by words and vectors once the index is whole."""
    await kit.add("cmake builds the project")
    assert (await kit.search.search(ANN, "cmake", WANTED)).degraded
    await kit.keep_up()
    found = await kit.search.search(ANN, "cmake", WANTED)
    assert ("hybrid", "") == (found.mode, found.degraded)


@pytest.mark.real
async def test_a_relative_date_is_not_that_of_the_day_before(kit: MemoryKit) -> None:
    """The result for "yesterday" is made again on the next day."""
    day_ms = 86_400_000
    first = await kit.add("the gauge read seven units")
    kit.clock.now_ms += day_ms
    second = await kit.add("the gauge read nine units")
    await kit.keep_up()

    async def best() -> str:
        found = await kit.search.search(ANN, "what did the gauge read yesterday?", WANTED)
        return found.hits[0].item.memory_id

    assert first == await best()
    kit.clock.now_ms += day_ms
    assert second == await best()


@pytest.mark.real
async def test_a_single_character_and_a_symbol_are_found(kit: MemoryKit) -> None:
    """Wherever the character stands in its run, and whatever the tone of the skin."""
    first = await kit.add("\u732b\u304c\u597d\u304d")
    last = await kit.add("\u79c1\u306e\u732b")
    emoji = await kit.add("The launch went well \U0001f44d\U0001f3fd")
    await kit.add("nothing of the kind")
    assert {first, last} == set(await kit.found("\u732b"))
    assert [last] == await kit.found("\u306e\u732b")
    assert [emoji] == await kit.found("\U0001f44d")
    await kit.keep_up()
    hits = (await kit.search.search(ANN, "\U0001f44d", WANTED)).hits
    assert emoji == hits[0].item.memory_id
    assert {first, last} <= set(await kit.found("\u732b"))


@pytest.mark.real
async def test_entries_of_an_older_version_are_written_again(kit: MemoryKit) -> None:
    """In the background: an item is found by its words meanwhile, as a duplicate afterwards."""
    await kit.add("The user prefers dark mode", kind="preference")
    for statement in (
        "DELETE FROM memory_fts",
        "INSERT INTO memory_fts (rowid, text) VALUES (1, 'The user prefers dark mode')",
        "UPDATE memory_mark SET row = 0, through_row = 1",
    ):
        kit.store._get_opened().writer._connection.execute(statement)
    assert 1 == len(await kit.found("dark mode"))
    await kit.keep_up()
    assert "updated" == await kit.put("User really prefers the dark mode", kind="preference")


@pytest.mark.real
async def test_a_question_of_a_day_finds_what_is_of_it(kit: MemoryKit) -> None:
    """With vectors too: a day without a word of the item is enough, and other days are left out."""
    day_ms = 86_400_000
    first = await kit.add("the gauge read seven units")
    kit.clock.now_ms += day_ms
    await kit.add("the mast fell")
    await kit.keep_up()
    assert [first] == await kit.found("what happened yesterday?")
    assert [first] == await kit.found("gestern")


@pytest.mark.real
async def test_a_question_about_a_person_alone_finds_what_is_of_them(kit: MemoryKit) -> None:
    """Without a word of the items: what the person wrote first, then what has the name; a day narrows it."""
    said = [("Stairs mounted at the Grubers", "Toni Wagner"), ("Window brought", "Eva Bauer")]
    for number, (text, author) in enumerate(said):
        await kit.add(text, author=author, at_ms=number)
    await kit.add("My apprentice Toni drinks no coffee", at_ms=2)
    await kit.add("The saw is loud", at_ms=3)
    await kit.keep_up()
    stairs, window, coffee = said[0][0], said[1][0], "My apprentice Toni drinks no coffee"
    for query, expected in [
        ("was hat toni gemacht", [stairs, coffee]),
        ("Toni", [stairs, coffee]),
        ("wagner", [stairs]),
        ("EVA", [window]),
        ("notes by Eva Bauer", [window]),
        ("What did Eva do on 1 January 1970?", [window, "The saw is loud", coffee, stairs]),
        ("does eva like granite", []),
    ]:
        hits = (await kit.search.search(ANN, query, WANTED)).hits
        assert expected == [hit.item.text for hit in hits], query


async def test_the_newer_of_two_values_comes_first(kit: MemoryKit) -> None:
    """Also where an import superseded nothing; the earlier one names it."""
    day_ms = 86_400_000
    drafts = [
        MemoryDraft(text="Our standup is at 9:15", kind="fact", at_ms=day_ms),
        MemoryDraft(text="standup moved to 9:45", kind="fact", at_ms=90 * day_ms),
    ]
    await kit.memories.import_items(ANN, drafts)
    await kit.keep_up()
    hits = (await kit.search.search(ANN, "when is our standup", WANTED)).hits
    assert ["standup moved to 9:45", "Our standup is at 9:15"] == [each.item.text for each in hits]
    assert [None, hits[0].item.memory_id] == [each.later for each in hits]
    assert [pytest.approx(sum(each.parts.values())) for each in hits] == [e.score for e in hits]


@pytest.mark.real
async def test_a_change_of_the_text_is_embedded_again(kit: MemoryKit) -> None:
    """The vector of an earlier text is gone with the edit, and made again by the upkeep."""
    own = await kit.add("cmake builds the project")
    await kit.keep_up()
    await kit.memories.edit(ANN, own, {"text": "ninja builds the project"})
    assert 0 == count_vectors(kit)
    await kit.keep_up()
    assert 1 == count_vectors(kit)
    await kit.memories.forget(ANN, [own])
    assert 0 == count_vectors(kit)
    assert [] == await kit.found("ninja builds")
    before = kit.index_file.stat().st_size
    await kit.keep_up()
    assert kit.index_file.stat().st_size < before  # written again without the vector


@pytest.mark.real
async def test_an_item_forgotten_during_a_save_leaves_the_file(
    kit: MemoryKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was written with its vector, and is written again without it."""
    first, second = [await kit.add(f"cmake builds {name}") for name in ("parsers", "lexers")]
    await kit.keep_up()
    whole = kit.index_file.stat().st_size
    save = IndexedMemory.save

    def save_and_forget(index: IndexedMemory) -> None:
        monkeypatch.undo()
        save(index)
        removal = MemoryRemoval(principal="ann", memory_ids=(second,), at_ms=1, by="ann")
        assert [None] == kit.store.commit([Change(records=(removal,))])
        assert kit.index is not None
        kit.index.notify(is_removal=True)

    monkeypatch.setattr(IndexedMemory, "save", save_and_forget)
    await kit.memories.forget(ANN, [first])
    await kit.keep_up()
    one = kit.index_file.stat().st_size
    await kit.keep_up()
    assert whole > one > kit.index_file.stat().st_size


@pytest.mark.real
async def test_a_save_that_fails_is_repeated(
    kit: MemoryKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it succeeds the file is due, and a failure leaves the former one."""
    own = await kit.add("cmake builds parsers")
    await kit.keep_up()
    before = kit.index_file.stat().st_size

    def fail(_: IndexedMemory) -> None:
        monkeypatch.undo()
        raise Unavailable("disk full")

    monkeypatch.setattr(IndexedMemory, "save", fail)
    await kit.memories.forget(ANN, [own])
    with pytest.raises(Unavailable, match="disk full"):
        await kit.keep_up()
    assert before == kit.index_file.stat().st_size
    await kit.keep_up()
    assert before > kit.index_file.stat().st_size


@pytest.mark.real
@pytest.mark.parametrize("damage", ["none", "missing", "truncated", "flipped", "foreign"])
async def test_a_damaged_file_is_noticed_and_made_again(tmp_path: Path, damage: str) -> None:
    """Whatever happened to the file, search answers, and is whole again after the upkeep."""
    kit = MemoryKit(tmp_path, is_indexed=True)
    texts = [f"cmake item about topic{n}" for n in range(40)]
    await kit.memories.import_items(ANN, [MemoryDraft(text=text) for text in texts])
    await kit.keep_up()
    file = kit.index_file
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif damage == "foreign":
        file.write_bytes(b"something else")
    kit.index = kit.build_index()
    kit.search._index = kit.index
    expected = ("hybrid", False) if damage == "none" else ("lexical", True)
    assert expected == await mode(kit)
    assert kit.search.mode == ("hybrid" if damage == "none" else "lexical")
    await kit.keep_up()
    assert ("hybrid", False) == await mode(kit)
    assert 10 == len((await kit.search.search(ANN, "topic7 cmake", MemoryFilter(
        principal="", now_ms=0, limit=10))).hits)  # fmt: skip
    assert len(data) == len(file.read_bytes())


@pytest.mark.real
async def test_few_new_vectors_do_not_rewrite_a_large_file(tmp_path: Path) -> None:
    """The file waits until one vector in fifty is new; a start before that reads them from the journal."""
    kit = MemoryKit(tmp_path, is_indexed=True)
    drafts = [MemoryDraft(text=f"cmake item about topic{n}") for n in range(100)]
    await kit.memories.import_items(ANN, drafts)
    await kit.keep_up()
    before = kit.index_file.read_bytes()
    await kit.add("ninja builds the project")
    await kit.keep_up()
    assert before == kit.index_file.read_bytes()
    kit.index = kit.build_index()
    kit.search._index = kit.index
    assert ("hybrid", False) == await mode(kit, "ninja")
    assert 101 == kit.index._get().vectors
    for text in ("make builds the docs", "tox runs the tests", "ruff checks the style"):
        await kit.add(text)
    await kit.keep_up()
    assert len(before) < len(kit.index_file.read_bytes())


@pytest.mark.real
async def test_an_index_of_nothing_is_never_made(kit: MemoryKit) -> None:
    """Without items and searches no index is loaded."""
    assert kit.index is not None
    assert kit.index._index is None
    await kit.memories.count(OP, "ann")
    assert kit.index._index is None


class Steps:
    """An index whose steps are scripted: True, False or an error."""

    def __init__(self, steps: list[bool | Unavailable]) -> None:
        self.steps = steps
        self.taken_s: list[float] = []
        self.needed = trio.Event()

    @contextmanager
    def at_home(self, _nursery: trio.Nursery) -> Generator[None]:
        yield

    async def wait_needed(self) -> None:
        await self.needed.wait()
        self.needed = trio.Event()

    async def upkeep(self) -> bool:
        self.taken_s.append(trio.current_time())
        step = self.steps.pop(0)
        if isinstance(step, Unavailable):
            raise step
        return step


async def search_for_2_s(kit: MemoryKit) -> None:
    with trio.move_on_after(2):
        await kit.search.search(ANN, "cmake", WANTED)
        raise AssertionError


async def test_a_blocked_thread_holds_up_no_cancelled_search(
    kit: MemoryKit, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search ends at its deadline though its thread does not; the turn stays taken until it does."""
    await kit.add("cmake builds the project")
    index, read = kit.index, kit.journal.read
    unblocked = trio.Event()
    under_way = most = 0

    async def slow_read(query: Callable[[JournalStore], T]) -> T:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        with trio.CancelScope(shield=True):  # as a call in a thread
            await unblocked.wait()
        under_way -= 1
        return await read(query)

    assert index is not None
    async with trio.open_nursery() as nursery:
        await nursery.start(keep_memory_index, index)
        with monkeypatch.context() as patched:
            patched.setattr(kit.journal, "read", slow_read)
            began_s = trio.current_time()
            for _ in range(2):
                await search_for_2_s(kit)
            assert 4 == trio.current_time() - began_s
            unblocked.set()
            await wait_all_tasks_blocked()
        assert (1, 0) == (most, under_way)
        assert 1 == len((await kit.search.search(ANN, "cmake", WANTED)).hits)
        nursery.cancel_scope.cancel()
    assert 1 == len((await kit.search.search(ANN, "cmake", WANTED)).hits), "it needs no upkeep"


async def test_the_upkeep_waits_until_it_is_needed(autojump_clock: MockClock) -> None:
    """It begins with the first use, goes on while there is work, and survives a failure."""
    index = Steps([True, Unavailable("disk"), False, False])
    async with trio.open_nursery() as nursery:
        await nursery.start(keep_memory_index, index)
        await wait_all_tasks_blocked()
        assert [] == index.taken_s
        start_s = trio.current_time()
        index.needed.set()
        await trio.sleep(2 * RETRY_S)
        assert 3 == len(index.taken_s)
        assert index.taken_s[2] - start_s >= RETRY_S
        index.needed.set()
        await wait_all_tasks_blocked()
        assert [] == index.steps
        nursery.cancel_scope.cancel()
