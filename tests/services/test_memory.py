"""Items of memory: stored once, corrected, changed, undone, forgotten, and never shown elsewhere."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from palyra.core.journal.changes import Change, MemoryPlace
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import ItemScope, Lineage, MemoryRecord
from palyra.core.memory.items import MAX_IMPORT, TRANSIENT_TTL_MS, MemoryDraft, RecallUse, revise
from palyra.errors import (
    Conflict,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    TooLarge,
    Unavailable,
)
from palyra.services.memory.search import QUESTION_CHARS
from tests.services.memory_kit import ANN, BOB, OP, SECRET, MemoryKit, caller, place

pytestmark = pytest.mark.real


@pytest.fixture(params=["words", "index"])
def kit(tmp_path: Path, request: pytest.FixtureRequest) -> MemoryKit:
    """The memory, searched by the text index alone and by the index of memory."""
    return MemoryKit(tmp_path, is_indexed=request.param == "index")


async def get(kit: MemoryKit, memory_id: str) -> MemoryRecord:
    return await kit.memories.get(OP, memory_id)


# --- storing -------------------------------------------------------------------------------------


async def test_an_exact_repetition_updates(kit: MemoryKit) -> None:
    """The same words are one item, whatever their case and punctuation; tags and trust add up."""
    first = await kit.add("The office is closed on Friday", tags=("a",), confidence_bps=6_000)
    added = await kit.memories.add(
        ANN, MemoryDraft(text="the office is closed, on friday!", kind="fact", tags=("b",),
                         confidence_bps=9_000, trust="workspace"),
    )  # fmt: skip
    assert (first, "updated") == (added.memory_id, added.disposition)
    item = await get(kit, first)
    assert (("a",), 6_000, "trusted_local") == (item.tags, item.confidence_bps, item.trust)
    await kit.add("The office is closed on Friday", tags=("c",), confidence_bps=9_500)
    item = await get(kit, first)
    assert (("a", "c"), 9_500, 3) == (item.tags, item.confidence_bps, item.revision)


async def test_a_near_repetition_of_the_same_kind_updates(kit: MemoryKit) -> None:
    """A rewording of the same kind is taken in; of another kind it is an item of its own."""
    assert "added" == await kit.put("The user prefers dark mode", kind="preference")
    assert "updated" == await kit.put("User really prefers the dark mode", kind="preference")
    assert "added" == await kit.put("User really prefers the dark mode", kind="note")
    assert ["User really prefers the dark mode"] * 2 == await kit.texts()


async def test_unlike_preferences_coexist(kit: MemoryKit) -> None:
    """Two preferences about different things are two items."""
    for text in ("I prefer tea in the morning", "I prefer coffee in the evening", "I like jazz"):
        assert "added" == await kit.put(text, kind="preference")


async def test_a_correction_supersedes_and_keeps_the_history(kit: MemoryKit) -> None:
    """The corrected item is found no more, is in the history, and was true at its time."""
    old = await kit.add("The deploy port is 8080")
    kit.clock.now_ms += 1_000
    added = await kit.memories.add(ANN, MemoryDraft(text="The deploy port is 9090", kind="fact"))
    assert ("superseded", old) == (added.disposition, added.superseded)
    assert [added.memory_id] == await kit.found("deploy port")
    assert [old] == await kit.found("deploy port", as_of_ms=kit.clock.now_ms - 1)
    versions, superseded, log = await kit.memories.history(ANN, added.memory_id)
    assert ([added.memory_id], [old]) == (
        [item.memory_id for item in versions],
        [item.memory_id for item in superseded],
    )
    assert ["added"] == [line.action for line in log]
    assert added.memory_id == (await get(kit, old)).superseded_by


async def test_a_correction_may_name_what_it_corrects(kit: MemoryKit) -> None:
    """An explicit reference supersedes whatever the words are, once."""
    old = await kit.add("Lunch at noon")
    assert "superseded" == await kit.put("Nobody eats before one", supersedes=old)
    with pytest.raises(IllegalState, match="is superseded by"):
        await kit.add("Third", supersedes=old)
    with pytest.raises(NotFound):
        await kit.add("Fourth", supersedes="mem_none")
    theirs = await kit.add("Lunch at noon", BOB)
    with pytest.raises(NotFound):
        await kit.add("Fifth", supersedes=theirs)


async def test_less_trusted_text_changes_nothing(kit: MemoryKit) -> None:
    """Untrusted text becomes an item of its own; it neither rewords nor corrects a trusted one."""
    own = await kit.add("The deploy port is 8080")
    assert "added" == await kit.put("The deploy port is 6666", trust="external_untrusted")
    assert "updated" == await kit.put("the deploy port is 8080", trust="external_untrusted")
    item = await get(kit, own)
    assert ("The deploy port is 8080", "trusted_local", None) == (
        item.text, item.trust, item.superseded_by,
    )  # fmt: skip


async def test_a_pinned_item_is_not_superseded_by_words(kit: MemoryKit) -> None:
    """A pin holds against a correction, unless the correction names the item."""
    own = await kit.add("The deploy port is 8080")
    await kit.memories.pin(ANN, own, pinned=True)
    assert "added" == await kit.put("The deploy port is 9090")
    assert "superseded" == await kit.put("The deploy port is 7070", supersedes=own)


async def test_turns_of_a_conversation_are_not_merged(kit: MemoryKit) -> None:
    """The same words at another time of a conversation are another item; at the same time one."""
    turn: dict[str, Any] = {"kind": "turn", "session_id": "ses_1", "author": "Bob"}
    assert "added" == await kit.put("Yes!", at_ms=10, **turn)
    assert "added" == await kit.put("Yes!", at_ms=20, **turn)
    assert "updated" == await kit.put("Yes!", at_ms=20, **turn)
    assert "added" == await kit.put("Yes!", at_ms=20, **{**turn, "author": "Ann"})
    assert "added" == await kit.put("Yes!", at_ms=20, **{**turn, "session_id": "ses_2"})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": " \n"}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"tags": ("",)}, "tags"),
        ({"tags": ("a\nb",)}, "tags"),
        ({"tags": tuple("abcdefghijklmnopqrstuvwxyz0123456789")}, "tags"),
        ({"author": "a\tb"}, "author"),
        ({"scope": "session"}, "session_id"),
        ({"scope": "channel"}, "channel"),
        ({"ttl_ms": 0}, "ttl_ms"),
        ({"confidence_bps": 10_001}, "confidence_bps"),
        ({"at_ms": -1}, "at_ms"),
        ({"text": f"the key is {SECRET}"}, "text"),
    ],
)
async def test_what_cannot_be_an_item_is_refused(
    kit: MemoryKit, fields: dict[str, Any], field: str
) -> None:
    """The error names the field; nothing is stored."""
    draft = MemoryDraft(**{"text": "fine", **fields})
    with pytest.raises(InvalidParams) as caught:
        await kit.memories.add(ANN, draft)
    assert field == caught.value.field
    with pytest.raises(InvalidParams) as caught:
        await kit.memories.import_items(ANN, [MemoryDraft(text="fine"), draft])
    assert f"items[1].{field}" == caught.value.field
    assert [] == await kit.texts()


async def test_a_text_has_a_limit(kit: MemoryKit) -> None:
    """16 KiB of UTF-8 are stored, one byte more is not."""
    assert "added" == await kit.put("ä" * 8_192)
    with pytest.raises(TooLarge, match="16385 bytes"):
        await kit.add("ä" * 8_192 + "a")


async def test_a_repeated_request_has_one_effect(kit: MemoryKit) -> None:
    """The receipt is committed with the item."""
    key = IdempotencyKey(principal="ann", key="k", body_sha256="0")
    await kit.memories.add(ANN, MemoryDraft(text="once"), receipt=key)
    found = kit.store.find_receipt("ann", "k", now_ms=kit.clock.now_ms)
    assert found is not None
    assert b'"added"' in bytes(found.result)


async def test_concurrent_repetitions_are_one_item(kit: MemoryKit) -> None:
    """Writes of one principal take turns, so each sees the item of the one before."""
    done: list[str] = []

    async def add() -> None:
        done.append(await kit.put("The office is closed on Friday"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(add)
    assert ["added", *["updated"] * 4] == sorted(done)
    assert 1 == len(await kit.texts())


# --- importing -----------------------------------------------------------------------------------


def turns(count: int, **fields: Any) -> list[MemoryDraft]:
    return [
        MemoryDraft(**{"text": f"turn number {n}", "session_id": "ses_1", "at_ms": n, **fields})
        for n in range(count)
    ]


async def test_an_import_can_be_repeated(kit: MemoryKit) -> None:
    """What is there is skipped, or updated if asked; ids come in the order of the items."""
    first = await kit.memories.import_items(ANN, turns(3, source="import"))
    assert (3, 0, 0) == (first.added, first.updated, first.skipped)
    again = await kit.memories.import_items(ANN, turns(4))
    assert (1, 0, 3) == (again.added, again.updated, again.skipped)
    assert first.memory_ids == again.memory_ids[:3]
    updated = await kit.memories.import_items(ANN, turns(4, tags=("x",)), updates=True)
    assert (0, 4, 0, again.memory_ids) == (
        updated.added, updated.updated, updated.skipped, updated.memory_ids,
    )  # fmt: skip
    assert ("x",) == (await get(kit, first.memory_ids[0])).tags


async def test_an_import_may_repeat_itself(kit: MemoryKit) -> None:
    """Equal items within one import are one item."""
    drafts = [MemoryDraft(text=text) for text in ("a b", "A b.", "c")]
    done = await kit.memories.import_items(ANN, drafts)
    assert (2, 1) == (done.added, done.skipped)
    assert done.memory_ids[0] == done.memory_ids[1]
    done = await kit.memories.import_items(ANN, drafts, updates=True)
    assert 3 == done.updated
    assert ["A b.", "c"] == await kit.texts()


async def test_an_import_is_all_or_nothing(kit: MemoryKit) -> None:
    """One bad item refuses the import and is named; so does a number beyond the limit."""
    with pytest.raises(InvalidParams) as caught:
        await kit.memories.import_items(ANN, [*turns(3), MemoryDraft(text="")])
    assert "items[3].text" == caught.value.field
    for count in (0, MAX_IMPORT + 1):
        with pytest.raises(InvalidParams, match="1 to 500"):
            await kit.memories.import_items(ANN, turns(count))
    assert [] == await kit.texts()
    done = await kit.memories.import_items(ANN, turns(MAX_IMPORT))
    assert MAX_IMPORT == done.added


# --- changing ------------------------------------------------------------------------------------


async def test_edit_and_undo(kit: MemoryKit) -> None:
    """An edit is a revision; undo brings the content before back, and undoes itself."""
    own = await kit.add("The deploy port is 8080", tags=("a",))
    await kit.memories.edit(ANN, own, {"text": "The deploy port is 9090", "tags": ("b", "b")})
    assert ([own], []) == (await kit.found("9090"), await kit.found("8080"))
    assert 3 == (await kit.memories.undo(ANN, own)).revision
    undone = await get(kit, own)
    assert ("The deploy port is 8080", ("a",), 3) == (undone.text, undone.tags, undone.revision)
    assert ([], [own]) == (await kit.found("9090"), await kit.found("8080"))
    await kit.memories.undo(ANN, own)
    assert "The deploy port is 9090" == (await get(kit, own)).text
    versions, _, log = await kit.memories.history(ANN, own)
    assert [1, 2, 3, 4] == [item.revision for item in versions]
    assert ["undone", "undone", "edited", "added"] == [line.action for line in log]


async def test_undo_of_a_correction(kit: MemoryKit) -> None:
    """The corrected item is current again, the correction is superseded by it."""
    old = await kit.add("The deploy port is 8080")
    new = await kit.add("The deploy port is 9090")
    await kit.memories.undo(ANN, new)
    assert [old] == await kit.found("deploy port")
    assert old == (await get(kit, new)).superseded_by
    alone = await kit.add("Something else entirely")
    with pytest.raises(IllegalState, match="no earlier state"):
        await kit.memories.undo(ANN, alone)


async def test_a_later_version_supersedes_the_earlier(kit: MemoryKit) -> None:
    """What a machine runs has one version; a second product on it, or another machine, is a second fact."""
    await kit.add("The staging server runs Debian 11.")
    await kit.add("The staging server runs Debian 12.")
    await kit.add("The staging server runs PostgreSQL 14.")
    await kit.add("The production server runs Debian 11.")
    current = {"The staging server runs Debian 12.", "The staging server runs PostgreSQL 14.",
               "The production server runs Debian 11."}  # fmt: skip
    assert current == set(await kit.texts())


async def test_edits_are_checked(kit: MemoryKit) -> None:
    """An edit is held to the rules of a new item; a superseded one is not edited."""
    own = await kit.add("The deploy port is 8080")
    bad: list[dict[str, Any]] = [
        {}, {"text": ""}, {"tags": ("",)}, {"confidence_bps": -1}, {"text": SECRET},
    ]  # fmt: skip
    for fields in bad:
        with pytest.raises(InvalidParams):
            await kit.memories.edit(ANN, own, fields)
    with pytest.raises(TooLarge):  # before it is searched for secrets
        await kit.memories.edit(ANN, own, {"text": SECRET.rjust(20_000)})
    await kit.add("The deploy port is 9090")
    with pytest.raises(IllegalState, match="was superseded by"):
        await kit.memories.edit(ANN, own, {"text": "x"})


async def test_hidden_items_are_never_recalled(kit: MemoryKit) -> None:
    """A hidden item is in no search and no recall until it is shown again; marks are idempotent."""
    own = await kit.add("The deploy port is 8080")
    for _ in range(2):
        hidden = await kit.memories.never_recall(ANN, own, hidden=True)
    assert 2 == hidden.revision
    assert [] == await kit.found("deploy port")
    assert () == (await kit.search.recall("deploy port", place())).hits
    assert ([], ["The deploy port is 8080"]) == (
        await kit.texts(),
        await kit.texts(with_hidden=True),
    )
    await kit.memories.never_recall(ANN, own, hidden=False)
    assert [own] == await kit.found("deploy port")


# --- forgetting ----------------------------------------------------------------------------------


async def test_forgetting_takes_everything(kit: MemoryKit) -> None:
    """The item, its revisions, what it superseded and cached results are gone; the log is not."""
    old = await kit.add("The deploy port is 8080")
    new = await kit.add("The deploy port is 9090")
    assert [new] == await kit.found("deploy port")
    planned = await kit.memories.forget(ANN, [new], dry_run=True)
    assert (planned.memory_ids, [new]) == ((new, old), await kit.found("deploy port"))
    gone = await kit.memories.forget(ANN, [new])
    assert [new, old] == [*gone.memory_ids]
    assert [] == await kit.found("deploy port")
    for memory_id in (old, new):
        with pytest.raises(NotFound):
            await kit.memories.get(OP, memory_id)
    lines = await kit.memories.audit(ANN, None, before=None, limit=9)
    assert {(old, "forgotten"), (new, "forgotten")} == {
        (line.memory_id, line.action) for line in lines[:2]
    }


async def test_forgetting_reaches_a_search_under_way(kit: MemoryKit) -> None:
    """From the moment of the request no result has the item, not even one read before it."""
    own = await kit.add("The deploy port is 8080")
    asked: list[list[str]] = []

    async def search() -> None:
        asked.append(await kit.found("deploy port"))

    async with trio.open_nursery() as nursery:

        def interrupt() -> None:  # the search has read the store; the item is forgotten now
            kit.journal.after_read = lambda: None
            nursery.start_soon(kit.memories.forget, ANN, [own])

        kit.journal.after_read = interrupt
        nursery.start_soon(search)
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([*kit.search._forgotten])

    other = await kit.add("The office is closed on Friday")
    kit.journal.before_commit = look
    await kit.memories.forget(ANN, [other])
    assert [[own, other]] == seen
    assert [] == await kit.found("deploy port office")


@pytest.mark.parametrize("deletes", ["item", "all"])
async def test_an_item_that_is_being_deleted_is_shown_nowhere(kit: MemoryKit, deletes: str) -> None:
    """Between the request and the commit lists, searches, gets and changes know it no more."""
    own = await kit.add("The deploy port is 8080")
    theirs = await kit.add("The deploy port is 9090", BOB)
    looks = 0

    async def look(memory_ids: Sequence[str], _by: str) -> None:
        nonlocal looks
        assert [own] == [*memory_ids]
        assert kit.store.find_memory(own) is not None, "not committed yet"
        assert ([], []) == (await kit.texts(), await kit.found("deploy port"))
        for use in (kit.memories.get(ANN, own), kit.memories.history(ANN, own)):
            with pytest.raises(NotFound):
                await use
        assert [theirs] == await kit.found("deploy port", BOB)
        looks += 1

    kit.memories.forgotten.append(look)
    if deletes == "all":
        await kit.memories.purge(ANN, "ann")
    else:
        await kit.memories.forget(ANN, [own])
    assert 1 == looks


async def test_a_change_cut_short_in_the_commit_is_searched(kit: MemoryKit) -> None:
    """Who is cancelled while the journal writes leaves no cached result of before behind."""
    own = await kit.add("The deploy port is 8080")
    assert [own] == await kit.found("deploy port")
    commit = kit.journal.commit

    async def commit_and_be_cancelled(change: Change) -> None:
        await commit(change)
        scope.cancel()
        await trio.lowlevel.checkpoint()

    kit.journal.commit = commit_and_be_cancelled  # type: ignore[method-assign]
    with trio.CancelScope() as scope:
        await kit.memories.edit(ANN, own, {"text": "The office is closed"})
        await trio.lowlevel.checkpoint()
    kit.journal.commit = commit  # type: ignore[method-assign]
    assert scope.cancelled_caught
    assert ([], [own]) == (await kit.found("deploy port"), await kit.found("office closed"))


async def test_a_failed_forget_shows_the_item_again(kit: MemoryKit) -> None:
    """If the store refuses, the item is where it was."""
    own = await kit.add("The deploy port is 8080")
    kit.journal.refusal = Unavailable("disk")
    with pytest.raises(Unavailable):
        await kit.memories.forget(ANN, [own])
    assert [own] == await kit.found("deploy port")


async def test_one_unknown_id_forgets_nothing(kit: MemoryKit) -> None:
    """Foreign and unknown ids give the same answer, and nothing is deleted."""
    own, theirs = await kit.add("one"), await kit.add("two", BOB)
    for bad in (theirs, "mem_none"):
        with pytest.raises(NotFound, match="no memory"):
            await kit.memories.forget(ANN, [own, bad])
    with pytest.raises(InvalidParams, match="several principals"):
        await kit.memories.forget(OP, [own, theirs])
    assert ["one"] == await kit.texts()


async def test_a_purge_counts_expired_items(kit: MemoryKit) -> None:
    """They are stored until something deletes them, so the dry run and the purge count them alike."""
    await kit.add("kept for a moment", ttl_ms=10)
    await kit.add("hidden", scope="session", session_id="ses_9")
    await kit.add("The deploy port is 8080")
    await kit.add("The deploy port is 9090")
    kit.clock.now_ms += 1_000
    planned = await kit.memories.purge(ANN, "ann", dry_run=True)
    stored = kit.store._read(lambda c: c.execute("SELECT count(*) FROM memories").get)
    done = await kit.memories.purge(ANN, "ann")
    assert (4, 4, 4) == (stored, planned.items, done.items)


async def test_purge(kit: MemoryKit) -> None:
    """A purge leaves nothing of a principal but one line; a dry run only counts."""
    await kit.add("The deploy port is 8080")
    await kit.add("The deploy port is 9090")
    await kit.add("Bob's port is 1", BOB)
    with pytest.raises(Forbidden):
        await kit.memories.purge(BOB, "ann")
    assert 2 == (await kit.memories.purge(OP, "ann", dry_run=True)).items
    assert 1 == len(await kit.found("port"))
    assert 2 == (await kit.memories.purge(ANN, "ann")).items
    assert ([], ["Bob's port is 1"]) == (await kit.texts(), await kit.texts(BOB))
    assert [] == await kit.found("port")
    lines = await kit.memories.audit(ANN, None, before=None, limit=9)
    assert [("*", "purged")] == [(line.memory_id, line.action) for line in lines]


async def test_a_search_during_a_purge_returns_nothing_purged(kit: MemoryKit) -> None:
    """A search that read the store before the purge is made again."""
    await kit.add("The deploy port is 8080")
    found: list[list[str]] = []

    async def search() -> None:
        found.append(await kit.found("deploy port"))

    async with trio.open_nursery() as nursery:
        kit.journal.after_read = lambda: None
        reads = itertools.count()

        def purge_now() -> None:
            if next(reads) == 0:
                with kit.search.hiding_all("ann"):
                    kit.store.commit([])

        kit.journal.after_read = purge_now
        nursery.start_soon(search)
    assert 1 == len(found)
    assert next(reads) > 1  # read again


# --- time ----------------------------------------------------------------------------------------


async def test_expired_items_never_appear(kit: MemoryKit) -> None:
    """At the end of its life an item is in no search, cached or not, no list, and not found by id."""
    own = await kit.add("The deploy port is 8080", is_transient=True)
    item = await get(kit, own)
    assert kit.clock.now_ms + TRANSIENT_TTL_MS == item.expires_ms
    assert [own] == await kit.found("deploy port")
    kit.clock.now_ms += TRANSIENT_TTL_MS
    assert ([], []) == (await kit.found("deploy port"), await kit.texts())
    assert [] == await kit.found("deploy port", as_of_ms=item.created_ms)
    with pytest.raises(NotFound):
        await get(kit, own)
    with pytest.raises(NotFound):
        await kit.memories.edit(ANN, own, {"text": "x"})
    assert "added" == await kit.put("The deploy port is 8080")


# --- places --------------------------------------------------------------------------------------

PLACES: tuple[dict[str, Any], ...] = (
    {},
    {"channel": "chat"},
    {"session_id": "ses_1"},
    {"channel": "chat", "session_id": "ses_1"},
    {"channel": "mail", "session_id": "ses_2"},
)
SCOPES: tuple[ItemScope, ...] = ("principal", "channel", "session")


async def test_every_pair_of_places_is_isolated(kit: MemoryKit) -> None:
    """Search and recall, cached or not, and get return an item where its place is seen only."""
    items: list[MemoryRecord] = []
    number = itertools.count()
    for who, scope, fields in itertools.product((ANN, BOB), SCOPES, PLACES):
        if (
            scope != "principal"
            and {"channel": "channel", "session": "session_id"}[scope] not in fields
        ):
            continue
        memory_id = await kit.add(f"cmake {next(number)} item", who, scope=scope, **fields)
        items.append(await get(kit, memory_id))
    assert len(items) > 10
    for _ in range(2):  # the second time from the cache
        for who, fields in itertools.product((ANN, BOB), PLACES):
            here = place(who.principal, **fields)
            expected = sorted(item.memory_id for item in items if here.sees(item))
            assert expected
            assert expected == await kit.found("cmake", who, place=here)
            pack = await kit.search.recall("cmake", here)
            assert set(expected) >= {hit.item.memory_id for hit in pack.hits}
            assert pack.hits
    for item, who, fields in itertools.product(items, (ANN, BOB), PLACES):
        here = place(who.principal, **fields)
        if here.sees(item):
            assert item == await kit.memories.get(who, item.memory_id, here)
        else:
            with pytest.raises(NotFound):
                await kit.memories.get(who, item.memory_id, here)


async def test_a_client_cannot_borrow_another_principal(kit: MemoryKit) -> None:
    """No filter, place or option of a client reaches the items of somebody else."""
    theirs = await kit.add("cmake", BOB)
    assert [] == await kit.found("cmake", place=place("bob"))
    with pytest.raises(Forbidden):
        await kit.memories.add(ANN, MemoryDraft(text="x"), principal="bob")
    for act in (
        kit.memories.get(ANN, theirs),
        kit.memories.history(ANN, theirs),
        kit.memories.edit(ANN, theirs, {"text": "x"}),
        kit.memories.pin(ANN, theirs, pinned=True),
        kit.memories.undo(ANN, theirs),
        kit.memories.forget(ANN, [theirs]),
        kit.memories.forget_in(place("ann"), [theirs]),
    ):
        with pytest.raises(NotFound):
            await act
    with pytest.raises(Forbidden):
        await kit.memories.audit(ANN, "bob", before=None, limit=1)
    with pytest.raises(Forbidden):
        await kit.memories.count(ANN, "bob")
    with pytest.raises(Forbidden):
        await kit.memories.rebuild(ANN)
    assert 1 == (await kit.memories.count(OP, "bob")).items


async def test_roles_without_the_scope_are_refused(kit: MemoryKit) -> None:
    """Approvers and observers neither read nor write memories."""
    for role in ("approver", "observer"):
        who = caller("eve", role)
        with pytest.raises(Forbidden, match="memory:read"):
            await kit.found("x", who)
        with pytest.raises(Forbidden, match="memory:write"):
            await kit.add("x", who)


async def test_a_run_forgets_in_its_own_place_only(kit: MemoryKit) -> None:
    """A tool cannot delete an item that the run could not have recalled."""
    own = await kit.add("cmake", scope="session", session_id="ses_1")
    with pytest.raises(NotFound):
        await kit.memories.forget_in(place(session_id="ses_2"), [own])
    gone = await kit.memories.forget_in(place(session_id="ses_1"), [own])
    assert (own,) == gone.memory_ids


# --- recall --------------------------------------------------------------------------------------


def use(session_id: str = "ses_1") -> RecallUse:
    return RecallUse(
        run_id="run_1", session_id=session_id, principal="ann", way="auto", question="which port?"
    )


async def retain(kit: MemoryKit, text: str, session_id: str = "ses_1") -> str:
    draft = MemoryDraft(text=text, kind="fact", source="tool")
    done = await kit.memories.retain(draft, MemoryPlace(principal="ann", session_id=session_id))
    return done.disposition


async def test_recalled_text_is_not_stored_again(kit: MemoryKit) -> None:
    """A session cannot store what a recall gave it; new statements and other sessions can."""
    await kit.add("The deploy port of the staging cluster is 8080")
    pack = await kit.search.recall("deploy port", place())
    kit.search.note_use(use(), pack.hits)
    for text in (
        "The deploy port of the staging cluster is 8080",
        "the staging cluster's deploy port: 8080",
        "deploy port is 8080",
    ):
        with pytest.raises(IllegalState, match="came from the memory"):
            await retain(kit, text)
    assert "superseded" == await retain(kit, "The deploy port of the staging cluster is 9090")
    assert "added" == await retain(kit, "deploy port is 8080", "ses_2")


async def test_a_recall_packs_facts_first(kit: MemoryKit) -> None:
    """Facts come first, then turns in the order of their time; gibberish recalls nothing."""
    for n, kind in enumerate(("turn", "turn", "fact")):
        await kit.add(f"cmake {n}", kind=kind, session_id="ses_1", at_ms=100 - n)
    pack = await kit.search.recall("tell me about cmake", place())
    assert ["cmake 2", "cmake 1", "cmake 0"] == [hit.item.text for hit in pack.hits]
    assert 0 < pack.tokens < 100
    assert () == (await kit.search.recall("xyzzy plugh", place())).hits


async def test_an_empty_memory_is_asked_once(kit: MemoryKit) -> None:
    """Without items a recall reads nothing from the second time on, until an item is stored."""
    reads: list[int] = []
    kit.journal.after_read = lambda: reads.append(1)
    for _ in range(3):
        assert () == (await kit.search.recall("cmake", place())).hits
    assert 1 == len(reads)
    await kit.add("cmake")
    assert 1 == len((await kit.search.recall("cmake", place())).hits)


async def test_a_recall_survives_a_closed_store(kit: MemoryKit) -> None:
    """A prompt is assembled without memory, and says so, if the store cannot be read."""
    kit.store.close()
    pack = await kit.search.recall("cmake", place())
    assert ((), "journal: it is closed") == (pack.hits, pack.degraded)


async def test_uses_are_recorded(kit: MemoryKit) -> None:
    """What a run was given is on record with its scores, without secrets."""
    own = await kit.add("cmake")
    pack = await kit.search.recall("cmake", place())
    asked = RecallUse(run_id="run_1", session_id="s", principal="ann", way="auto",
                      question=f"cmake {SECRET}")  # fmt: skip
    kit.search.note_use(asked, pack.hits)
    kit.search.note_use(asked, ())
    long = msgspec.structs.replace(asked, run_id="run_2", question="q" * (QUESTION_CHARS + 1))
    kit.search.note_use(long, pack.hits)
    assert "q" * QUESTION_CHARS == kit.store.list_memory_uses(run_id="run_2")[0].question
    (found,) = kit.store.list_memory_uses(run_id="run_1")
    assert (own,) == tuple(item.memory_id for item in found.items)
    assert SECRET not in found.question
    with pytest.raises(NotFound):
        await kit.memories.used(ANN, "run_1")  # no such run


async def test_rebuild_restores_the_text_index(kit: MemoryKit) -> None:
    """A damaged text index is written again from the rows; searches go on."""
    own = await kit.add("cmake", session_id="ses_1")
    kit.store._get_opened().writer._connection.execute("DELETE FROM memory_fts")
    kit.search.invalidate(None)
    assert [] == await kit.found("cmake")
    assert 1 == await kit.memories.rebuild(OP)
    assert [own] == await kit.found("cmake")


async def test_a_concurrent_change_is_refused(kit: MemoryKit) -> None:
    """A writer that overtakes the service makes its change fail, not vanish."""
    own = await kit.add("cmake")
    item = await get(kit, own)

    def overtake() -> None:
        kit.journal.before_commit = lambda: None
        change = revise(item, "edited", by="ann", now_ms=1, text="ninja")
        assert [None] == kit.store.commit([Change(records=(change,))])

    kit.journal.before_commit = overtake
    with pytest.raises(Conflict, match="changed meanwhile"):
        await kit.memories.edit(ANN, own, {"text": "make"})
    assert "ninja" == (await get(kit, own)).text


async def test_a_session_takes_what_came_from_it_alone(kit: MemoryKit) -> None:
    """Items of the session go, others stay, and what a gone item had corrected is current again."""
    told: list[str] = []

    async def note(memory_ids: Sequence[str], principal: str) -> None:
        await trio.lowlevel.checkpoint()
        assert "op" == principal
        told.extend(memory_ids)

    kit.memories.forgotten.append(note)
    here, there = Lineage(run_id="run_a"), Lineage(run_id="run_z")
    old = await kit.memories.add(ANN, MemoryDraft(text="the port is 8080", lineage=(there,)))
    new = await kit.memories.add(
        ANN, MemoryDraft(text="the port is 9090", lineage=(here,), supersedes=old.memory_id)
    )
    both = await kit.memories.add(ANN, MemoryDraft(text="the sky is blue", lineage=(here, there)))
    foreign = await kit.memories.add(BOB, MemoryDraft(text="mine", lineage=(here,)))
    count = await kit.memories.purge_session("ann", "ses_a", ["run_a"], by="op")
    assert (1, [new.memory_id]) == (count, told)
    with pytest.raises(NotFound):
        await kit.memories.get(ANN, new.memory_id)
    again = await kit.memories.get(ANN, old.memory_id)
    assert (None, None, "undone") == (again.superseded_by, again.superseded_ms, again.action)
    assert (there,) == (await kit.memories.get(ANN, both.memory_id)).lineage
    assert (here,) == (await kit.memories.get(BOB, foreign.memory_id)).lineage
    assert 0 == await kit.memories.purge_session("ann", "ses_a", ["run_a"], by="op")
