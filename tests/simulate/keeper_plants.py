"""Planted bugs of the memory, of compactions and of branches; see `plants`."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import trio

from palyra.core.context import entries
from palyra.core.context import session_compaction as window
from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import receipt_for
from palyra.core.journal.purged_row import make_tombstone
from palyra.core.memory.items import MemoryForgotten, MemoryPurged
from palyra.core.model.summary import Entry
from palyra.core.session import purge
from palyra.core.tape import events as ev
from palyra.operations.purge import DataRights
from palyra.services.context.history import ConversationHistory
from palyra.services.memory.items import Memories
from palyra.services.memory.search import MemorySearch
from palyra.store.sqlite import memories
from palyra.store.sqlite.journal import SqliteJournal
from tests.simulate.plants import Plant, both


def recall_for_everybody() -> Plant:
    """Results are kept by query and number of changes, whoever asked."""

    async def careless(self: MemorySearch, query: str, asked: Any, generation: int) -> Any:
        key = msgspec.json.encode((query, generation))
        found = self._cache.get(key)
        if found is None:
            found = await self._search(query, msgspec.structs.replace(asked, now_ms=self._now_ms()))
            self._cache[key] = found
        return found

    return patch.object(MemorySearch, "_search_once", careless)


def recall_everywhere() -> Plant:
    """An item of one session is found from every session."""
    search = MemorySearch._search

    async def careless(self: MemorySearch, query: str, wanted: Any) -> Any:
        return await search(self, query, msgspec.structs.replace(wanted, place=None))

    return patch.object(MemorySearch, "_search", careless)


def keep_results() -> Plant:
    """Nothing drops cached results or hides what is being forgotten."""

    @contextmanager
    def careless(*_: Any) -> Generator[None]:
        yield

    stale = patch.object(MemorySearch, "invalidate", lambda *_: None)
    shown = both(
        patch.object(MemorySearch, "hiding", careless),
        patch.object(MemorySearch, "hiding_all", careless),
    )
    return both(stale, shown)


def keep_text_entries() -> Plant:
    """To forget deletes the row of an item, and not its entry of the text index."""
    delete = memories._delete_rows

    def careless(connection: Any, gone: Sequence[Any]) -> None:
        delete(connection, gone)
        for row, *_ in gone:
            connection.execute(
                'INSERT INTO memory_fts (rowid, text, "when") VALUES (?, ?, ?)', (row, "left", "")
            )

    return patch.object(memories, "_delete_rows", careless)


def forget_until_restart() -> Plant:
    """An item is hidden, and its deletion is never written."""

    async def careless(self: Memories, principal: str, memory_ids: list[str], **_: Any) -> Any:
        with self.search.hiding(principal, memory_ids):
            await trio.lowlevel.checkpoint()
            return MemoryForgotten(memory_ids=tuple(memory_ids))

    return patch.object(Memories, "_forget", careless)


def answer_early() -> Plant:
    """A change of the memory is acknowledged before it is on disk."""

    async def careless(
        self: Memories, principal: str, records: Any, result: Any, receipt: Any
    ) -> None:
        kept = [] if receipt is None else [receipt_for(receipt, result, self.now_ms())]
        self.journal.append(Change(records=(*records, *kept)))
        self.search.invalidate(principal)
        await trio.lowlevel.checkpoint()

    return patch.object(Memories, "_commit", careless)


def store_twice() -> Plant:
    """An item is stored whatever is there, also when the request is repeated after a crash."""
    commit = Memories._commit

    async def careless(self: Memories, principal: str, records: Any, result: Any, _: Any) -> None:
        await commit(self, principal, records, result, None)

    return patch.object(Memories, "_commit", careless)


def recall_expired() -> Plant:
    """A search does not look at the clock."""
    search, shown = MemorySearch._search, MemorySearch.is_shown

    async def careless(self: MemorySearch, query: str, wanted: Any) -> Any:
        return await search(self, query, msgspec.structs.replace(wanted, now_ms=1))

    def careless_shown(self: MemorySearch, item: Any) -> bool:
        return shown(self, msgspec.structs.replace(item, expires_ms=None))

    return both(
        patch.object(MemorySearch, "_search", careless),
        patch.object(MemorySearch, "is_shown", careless_shown),
    )


def recall_hidden() -> Plant:
    """A search finds what is never to be recalled."""
    search = MemorySearch._search

    async def careless(self: MemorySearch, query: str, wanted: Any) -> Any:
        return await search(self, query, msgspec.structs.replace(wanted, with_hidden=True))

    return patch.object(MemorySearch, "_search", careless)


def purge_until_restart() -> Plant:
    """A purge hides the items of a principal for a moment and writes nothing."""

    async def careless(
        self: Memories, _caller: Any, principal: str, *, dry_run: bool = False
    ) -> Any:
        counts = await self.journal.read(lambda s: s.count_memories(principal, now_ms=0))
        if not dry_run:
            with self.search.hiding_all(principal):
                await trio.lowlevel.checkpoint()
        return MemoryPurged(principal=principal, items=counts.total, dry_run=dry_run)

    return patch.object(Memories, "purge", careless)


def purge_sessions_until_restart() -> Plant:
    """A purge of a session hides its payloads from readers and writes nothing."""
    hidden: set[str] = set()
    read, reopen = SqliteJournal.read_tape, SqliteJournal.open

    async def careless(_: DataRights, run: Any, _purge: Any) -> int:
        await trio.lowlevel.checkpoint()
        hidden.add(run.run_id)
        return int(run.head_seq) + 1

    def hide(self: SqliteJournal, run_id: str, **options: Any) -> Any:
        page = read(self, run_id, **options)
        if run_id not in hidden:
            return page
        rows = [msgspec.structs.replace(r, data=make_tombstone(r.data, 0)) for r in page.rows]
        return msgspec.structs.replace(page, rows=rows)

    def forget(self: SqliteJournal) -> Any:
        hidden.clear()
        return reopen(self)

    return both(
        patch.object(DataRights, "purge_run", careless),
        both(
            patch.object(SqliteJournal, "read_tape", hide),
            patch.object(SqliteJournal, "open", forget),
        ),
    )


def purge_tapes_alone() -> Plant:
    """A purge of a session leaves the items that came from it."""
    return patch.object(purge, "_is_only_from", lambda *_: False)


def drop_pins() -> Plant:
    """A summary has no pinned messages; its check does not miss them."""
    return patch.object(entries._Builder, "replace_pins", lambda *_: None)


def drop_rules() -> Plant:
    """A ledger keeps the last rule alone; its check does not miss the others."""
    make = entries._Builder.ledger

    def careless(self: Any) -> Any:
        made = make(self)
        rules = [each for each in made.entries if each.kind == "constraint"]
        kept = tuple(each for each in made.entries if each not in rules[:-1])
        return msgspec.structs.replace(made, entries=kept)

    return patch.object(entries._Builder, "ledger", careless)


def show_no_rules() -> Plant:
    """The ledger has the rules, and the prompt does not show them."""
    line = window._line

    def careless(entry: Entry, fence_key: bytes) -> str:
        return "-" if fence_key and entry.kind == "constraint" else line(entry, fence_key)

    return patch.object(window, "_line", careless)


def restore_too_much() -> Plant:
    """A branch has the runs of its session that began after the mark, too."""
    view = ConversationHistory.view

    async def careless(self: ConversationHistory, run: Any, _run_ids: Any) -> Any:
        return await view(self, run, None)

    return patch.object(ConversationHistory, "view", careless)


def restore_too_little() -> Plant:
    """A branch has only the run of its mark."""
    view = ConversationHistory.view

    async def careless(self: ConversationHistory, run: Any, _run_ids: Any) -> Any:
        return await view(self, run, ())

    return patch.object(ConversationHistory, "view", careless)


def clean_tapes_up() -> Plant:
    """A compaction takes the messages that it covers off the tape."""
    commit, read = SqliteJournal.commit, SqliteJournal.read_tape
    covered: set[str] = set()

    def note(self: SqliteJournal, changes: Any) -> Any:
        for row in (row for change in changes for row in change.rows):
            event = ev.decode_event(row.kind, row.data)
            if isinstance(event, ev.CompactionApplied):
                covered.update(each.run_id for each in event.summary.covers)
        return commit(self, changes)

    def careless(self: SqliteJournal, run_id: str, **options: Any) -> Any:
        page = read(self, run_id, **options)
        if run_id not in covered:
            return page
        rows = [row for row in page.rows if row.kind != ev.TurnCompleted.KIND]
        return msgspec.structs.replace(page, rows=rows)

    return both(
        patch.object(SqliteJournal, "commit", note),
        patch.object(SqliteJournal, "read_tape", careless),
    )


# The bug, and the invariants of which one has to break.
KEEPER_PLANTS: list[tuple[Callable[[], Plant], set[str]]] = [
    (recall_for_everybody, {"scope isolation"}),
    (recall_everywhere, {"scope isolation"}),
    (keep_results, {"what is forgotten does not come back", "the newest revision is shown"}),
    (keep_text_entries, {"to forget leaves nothing"}),
    (
        forget_until_restart,
        {"a forgotten item is gone", "what is forgotten does not come back"},
    ),
    (answer_early, {"an item that is told is durable", "a forgotten item is gone"}),
    (
        store_twice,
        {
            "an acknowledged item is there once",
            "what is there is found",
            "a request is answered alike",
            "an import stores all of it",
        },
    ),
    (recall_expired, {"what has expired stays away"}),
    (recall_hidden, {"what is never recalled stays away"}),
    (purge_until_restart, {"what is purged does not come back"}),
    (purge_sessions_until_restart, {"what is purged does not come back"}),
    (purge_tapes_alone, {"what is purged does not come back"}),
    (drop_pins, {"pins survive as data"}),
    (drop_rules, {"obligations survive as data", "obligations survive"}),
    (show_no_rules, {"obligations survive"}),
    (restore_too_much, {"a branch ends at its mark"}),
    (restore_too_little, {"a branch holds its transcript"}),
    (clean_tapes_up, {"what is committed never changes"}),
]
