"""Items of memory in dictionaries; mirrors `palyra/store/sqlite/memories`."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.journal.changes import (
    MemoryCounts,
    MemoryFilter,
    MemoryLogLine,
    ScoredMemory,
)
from palyra.core.journal.records import (
    LineageTrim,
    MemoryAction,
    MemoryRecord,
    MemoryReindex,
    MemoryRemoval,
    MemoryUseRecord,
    Record,
    TurnIndexing,
)
from palyra.errors import Conflict
from tests.store.memory.queries import MemoryQueries


def words_of(text: str) -> set[str]:
    """Whole words: no stemming, unlike the text index."""
    return set(re.findall(r"\w+", text.casefold()))


class StoredItems(MemoryQueries):
    """The queries of `core.ports.MemoryStore`."""

    def __init__(self) -> None:
        self._items: dict[str, MemoryRecord] = {}
        self._item_rows: dict[str, int] = {}
        self._versions: dict[str, list[MemoryRecord]] = {}
        self._log: list[MemoryLogLine] = []
        self._last_row = 0

    @abstractmethod
    def _require_open(self) -> None: ...

    # --- writing

    def append_items(self, records: Iterable[Record]) -> None:
        """Write items and removals, all or none.  Raises Conflict."""
        before = dict(self._items), {key: [*kept] for key, kept in self._versions.items()}
        rows, last_row, logged = dict(self._item_rows), self._last_row, len(self._log)
        try:
            for record in records:
                self._append_one(record)
        except Conflict:
            self._items, self._versions = before
            self._item_rows, self._last_row = rows, last_row
            del self._log[logged:]
            raise

    def _append_one(self, record: Record) -> None:
        match record:
            case MemoryRecord():
                self._put(record)
            case MemoryRemoval(memory_ids=None):
                self._purge(record)
            case MemoryRemoval():
                self._remove(record)
            case _:
                assert isinstance(record, MemoryReindex | TurnIndexing), record

    def _put(self, item: MemoryRecord) -> None:
        old = self._items.get(item.memory_id)
        if old is not None:
            if item.revision != old.revision + 1:
                raise Conflict("the memory was changed meanwhile; the first change stands")
            self._versions.setdefault(item.memory_id, []).append(old)
        else:
            self._last_row += 1
            self._item_rows[item.memory_id] = self._last_row
        self._items[item.memory_id] = item
        self._note(item.principal, item.memory_id, item.action, item.changed_ms, item.changed_by)

    def _remove(self, removal: MemoryRemoval) -> None:
        wanted = set(removal.memory_ids or ())
        more = True
        while more:
            found = {key for key, item in self._items.items() if item.superseded_by in wanted}
            more = not found <= wanted
            wanted |= found
        for key, item in [*self._items.items()]:
            if key in wanted and item.principal == removal.principal:
                del self._items[key]
                self._versions.pop(key, None)
                self.drop_learned(key)
                self._note(removal.principal, key, removal.action, removal.at_ms, removal.by)

    def _purge(self, removal: MemoryRemoval) -> None:
        principal = removal.principal
        for key, item in [*self._items.items()]:
            if item.principal == principal:
                del self._items[key]
                self._versions.pop(key, None)
        self._log = [line for line in self._log if line.principal != principal]
        self.drop_traces(principal)
        self._note(principal, "*", removal.action, removal.at_ms, removal.by)

    @abstractmethod
    def drop_traces(self, principal: str) -> None:
        """Delete the recorded recalls and the candidates of a principal."""

    @abstractmethod
    def drop_learned(self, memory_id: str) -> None:
        """Delete the candidates that an item shows."""

    def _note(
        self, principal: str, memory_id: str, action: MemoryAction, at_ms: int, by: str
    ) -> None:
        entry = self._log[-1].entry + 1 if self._log else 1
        line = MemoryLogLine(
            entry=entry, principal=principal, memory_id=memory_id, action=action, at_ms=at_ms, by=by
        )
        self._log.append(line)

    def trim(self, trims: Iterable[LineageTrim]) -> None:
        """Shorten lineages and drop the earlier revisions of these items."""
        for trim in trims:
            item = self._items.get(trim.memory_id)
            if item is not None:
                self._items[trim.memory_id] = msgspec.structs.replace(item, lineage=trim.lineage)
                self._versions.pop(trim.memory_id, None)

    def delete_expired(self, now_ms: int) -> None:
        """Delete items whose time to live has ended."""
        ended = [
            item
            for item in self._items.values()
            if item.expires_ms is not None and item.expires_ms <= now_ms
        ]
        for principal in sorted({item.principal for item in ended}):
            ids = tuple(item.memory_id for item in ended if item.principal == principal)
            self._remove(
                MemoryRemoval(
                    principal=principal, memory_ids=ids, at_ms=now_ms, by="", action="expired"
                )
            )

    # --- queries

    def find_memory(self, memory_id: str) -> MemoryRecord | None:
        self._require_open()
        return self._items.get(memory_id)

    def list_taken_from(
        self, principal: str, session_id: str, run_ids: Sequence[str]
    ) -> list[MemoryRecord]:
        self._require_open()
        return [
            item
            for _, item in sorted(self._items.items())
            if item.principal == principal
            and (
                item.session_id == session_id
                or any(each.run_id in run_ids for each in item.lineage)
            )
        ]

    def list_memories(self, wanted: MemoryFilter) -> list[MemoryRecord]:
        self._require_open()
        found = [item for _, item in sorted(self._items.items()) if _matches(item, wanted)]
        before = wanted.before
        return [item for item in found[::-1] if before is None or item.memory_id < before][
            : wanted.limit
        ]

    def search_memories(self, wanted: MemoryFilter, words: Sequence[str]) -> list[ScoredMemory]:
        self._require_open()
        asked = {word.casefold() for word in words}
        found = [
            ScoredMemory(
                row=self._item_rows[item.memory_id],
                lexical=float(len(asked & words_of(item.text))),
                item=item,
            )
            for item in self._items.values()
            if _matches(item, wanted) and asked & words_of(item.text)
        ]
        return sorted(found, key=lambda each: (-each.lexical, -each.row))[: wanted.limit]

    def find_by_text(self, principal: str, hashes: Sequence[str]) -> list[MemoryRecord]:
        self._require_open()
        return [
            item
            for item in self._items.values()
            if (item.principal, item.superseded_by) == (principal, None)
            and item.text_hash in hashes
        ]

    def plan_reindex(self) -> MemoryReindex | None:
        return None

    def find_alike(self, item: MemoryRecord, *, now_ms: int, limit: int) -> list[MemoryRecord]:
        self._require_open()
        asked = words_of(item.text)
        beside = [each for each in self._items.values() if _is_alike(each, item, now_ms)]
        equal = [each for each in beside if each.text_hash == item.text_hash]
        near = [
            each
            for each in beside
            if each.text_hash != item.text_hash and asked & words_of(each.text)
        ]
        return [*equal[:limit], *near[:limit]]

    def list_versions(self, memory_id: str) -> list[MemoryRecord]:
        self._require_open()
        return [*self._versions.get(memory_id, ())]

    def list_superseded(self, memory_id: str) -> list[MemoryRecord]:
        self._require_open()
        return [item for item in self._items.values() if item.superseded_by == memory_id]

    def list_memory_log(
        self,
        *,
        principal: str | None,
        memory_id: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[MemoryLogLine]:
        self._require_open()
        found = [
            line
            for line in self._log[::-1]
            if principal in {None, line.principal}
            and memory_id in {None, line.memory_id}
            and (before is None or line.entry < before)
        ]
        return found[:limit]

    def list_memory_uses(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        principal: str | None = None,
        limit: int = 200,
    ) -> list[MemoryUseRecord]:
        found = [
            use
            for use in self._list(MemoryUseRecord)
            if run_id in {None, use.run_id}
            and session_id in {None, use.session_id}
            and principal in {None, use.principal}
        ]
        return found[::-1][:limit]

    def count_memories(self, principal: str | None, *, now_ms: int) -> MemoryCounts:
        self._require_open()
        items = [
            item
            for item in self._items.values()
            if principal in {None, item.principal}
            and (item.expires_ms is None or item.expires_ms > now_ms)
        ]
        live = [item for item in items if item.superseded_by is None and not item.never_recall]
        kinds = [item.kind for item in live]
        return MemoryCounts(
            total=len(items),
            items=len(live),
            by_kind={kind: kinds.count(kind) for kind in sorted(set(kinds))},
            superseded=sum(item.superseded_by is not None for item in items),
            never_recall=sum(item.never_recall for item in items),
            pinned=sum(item.pinned and item.superseded_by is None for item in items),
            expiring=sum(item.expires_ms is not None for item in items),
            without_vector=len(items),
            text_bytes=sum(len(item.text.encode()) for item in items),
        )


def _matches(item: MemoryRecord, wanted: MemoryFilter) -> bool:
    if wanted.as_of_ms is not None:
        ended_ms = item.superseded_ms
        is_current = item.valid_from_ms <= wanted.as_of_ms and (
            ended_ms is None or ended_ms > wanted.as_of_ms
        )
    else:
        is_current = wanted.with_superseded or item.superseded_by is None
    return (
        item.principal == wanted.principal
        and (wanted.place is None or wanted.place.sees(item))
        and is_current
        and (wanted.with_hidden or not item.never_recall)
        and (not wanted.standing or item.pinned or item.kind == "preference")
        and (item.expires_ms is None or item.expires_ms > wanted.now_ms)
        and (not wanted.kinds or item.kind in wanted.kinds)
        and set(wanted.tags) <= set(item.tags)
        and wanted.author in {None, item.author}
        and wanted.channel in {None, item.channel}
        and wanted.session_id in {None, item.session_id}
        and (wanted.since_ms is None or item.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or item.at_ms < wanted.until_ms)
    )


def _is_alike(stored: MemoryRecord, item: MemoryRecord, now_ms: int) -> bool:
    same = ("principal", "scope", "kind", "author")
    place = {"principal": (), "channel": ("channel",), "session": ("session_id",)}[item.scope]
    return (
        all(getattr(stored, name) == getattr(item, name) for name in (*same, *place))
        and stored.superseded_by is None
        and (stored.expires_ms is None or stored.expires_ms > now_ms)
    )
