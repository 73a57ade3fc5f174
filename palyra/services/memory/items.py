"""The memory: items of principals, stored, changed and deleted for clients and tools.

Owns: nothing that a restart would lose; items are records of the journal.
Talks to: the journal, the search (which forgets first).
Never: shows or changes an item of another principal, stores a secret, or stores a text that a recall
gave to the same session.

Writes of one principal are made one at a time, because what becomes of a statement depends on the
items before it; the store refuses a revision out of turn besides.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import (
    Change,
    MemoryCounts,
    MemoryFilter,
    MemoryLogLine,
    MemoryPlace,
)
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import (
    FROM_THE_START,
    MemoryAction,
    MemoryKind,
    MemoryRecord,
    MemoryReindex,
    MemoryRemoval,
    MemoryUseRecord,
    Record,
    SessionRemoval,
    TurnIndexing,
)
from palyra.core.memory.duplicates import (
    ADDED,
    Resolution,
    Similarity,
    choose_text,
    is_recalled,
    no_similarity,
    resolve,
)
from palyra.core.memory.items import (
    MAX_IMPORT,
    Disposition,
    MemoryAdded,
    MemoryChanged,
    MemoryDraft,
    MemoryForgotten,
    MemoryImported,
    MemoryPurged,
    TypedEntry,
    check_draft,
    check_fields,
    edit_item,
    make_item,
    merge_item,
    restore,
    revise,
    supersede,
)
from palyra.core.ports import Journal, JournalStore, NowMs, RunBlocking
from palyra.core.redaction.redactor import Redactor
from palyra.core.session.purge import ItemPlan, plan_items, successor
from palyra.errors import Forbidden, IllegalState, InvalidParams, NotFound
from palyra.services.memory.search import READ, WRITE, MemorySearch, whose_memory

MOST_ALIKE = 10  # items that are compared with a new one
T = TypeVar("T", bound=msgspec.Struct)
_NOTHING = MemoryForgotten(memory_ids=())
OnForgotten = Callable[[Sequence[str], str], Awaitable[None]]  # memory ids, principal


@dataclass(frozen=True, slots=True)  # noqa: PLR0904 - one method for each change
class Memories:
    """All items of memory.  Every method for clients takes the authenticated caller first."""

    journal: Journal
    search: MemorySearch
    redactor: Redactor
    now_ms: NowMs
    new_id: NewId
    run_blocking: RunBlocking
    similarity: Similarity = no_similarity
    forgotten: list[OnForgotten] = field(default_factory=list)  # called before items go
    _locks: WeakValueDictionary[str, trio.Lock] = field(default_factory=WeakValueDictionary)

    # --- storing

    async def add(
        self,
        caller: Caller,
        draft: MemoryDraft,
        *,
        principal: str | None = None,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryAdded:
        """Store a statement, or update or supersede the item that it repeats or corrects.

        Raises InvalidParams, TooLarge, NotFound, and IllegalState for an item to supersede that is
        superseded already.  Cancellation: it may have been stored; a retry with the same
        idempotency key returns the result.
        """
        caller.require(WRITE)
        whose = whose_memory(caller, principal)
        return await self._add(draft, principal=whose, by=caller.principal, receipt=receipt)

    async def retain(self, draft: MemoryDraft, place: MemoryPlace) -> MemoryAdded:
        """Store a statement of a run.

        Raises as `add` does, and IllegalState for a text that the session got from a recall: a
        memory does not confirm itself.  Cancellation: it may have been stored.
        """
        principal = place.principal
        if draft.supersedes is not None:
            old = await self._find_own(principal, draft.supersedes)
            if old is None or not place.sees(old):
                raise _unknown(draft.supersedes)
        known = await self.find_recalled(principal, place.session_id or "")
        if is_recalled(draft.text, known):
            raise IllegalState(
                "this text came from the memory: recalled text is not stored again; state what is "
                "new about it"
            )
        return await self._add(draft, principal=principal, by=principal)

    async def find_recalled(self, principal: str, session_id: str) -> list[str]:
        """Return the texts that recalls gave to a session."""
        uses = await self.journal.read(lambda s: s.list_memory_uses(session_id=session_id))
        ids = {item.memory_id for use in uses for item in use.items}
        found = await self._find_all(sorted(ids))
        return [item.text for item in found if item.principal == principal]

    async def _find_all(self, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        if not memory_ids:
            return []
        found = await self.journal.read(lambda s: [s.find_memory(each) for each in memory_ids])
        return [item for item in found if item is not None]

    async def _add(
        self,
        draft: MemoryDraft,
        *,
        principal: str,
        by: str,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryAdded:
        (new,) = await self._make([draft], principal, by)
        async with self._lock(principal):
            found = await self._resolve(draft, new)
            result, records = _apply(found, new)
            await self._commit(principal, records, result, receipt)
            return result

    async def _resolve(self, draft: MemoryDraft, new: MemoryRecord) -> Resolution:
        """Find the stored item that the new one repeats or corrects."""
        if draft.supersedes is not None:
            old = await self._get(new.principal, draft.supersedes)
            if old.superseded_by is not None:
                raise IllegalState(
                    f"{old.memory_id} is superseded by {old.superseded_by}: name that one",
                    field="supersedes",
                )
            return Resolution("correction", old)
        if draft.is_utterance:
            equal = await self.journal.read(
                lambda s: s.find_by_text(new.principal, (new.text_hash,))
            )
            same = _find_same(new, equal, is_utterance=True)
            return ADDED if same is None else Resolution("same", same)
        alike = await self.journal.read(
            lambda s: s.find_alike(new, now_ms=new.created_ms, limit=MOST_ALIKE)
        )
        stored = [item for item in alike if self.search.is_shown(item)]
        if not stored:
            return ADDED
        return await self.run_blocking(resolve, new, stored, self.similarity)

    async def import_items(
        self,
        caller: Caller,
        drafts: Sequence[MemoryDraft],
        *,
        updates: bool = False,
        principal: str | None = None,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryImported:
        """Store up to `MAX_IMPORT` statements in one transaction.

        A statement with the text, place, author and, in a conversation, time of a stored one is
        skipped, or updates it.  Raises InvalidParams and TooLarge that name the item; then nothing
        is stored.  Cancellation: everything or nothing was stored.
        """
        caller.require(WRITE)
        whose = whose_memory(caller, principal)
        if not 1 <= len(drafts) <= MAX_IMPORT:
            raise InvalidParams(
                f"{len(drafts)} items; send 1 to {MAX_IMPORT} at once", field="items"
            )
        items = await self._make(drafts, whose, caller.principal, "items[{}].")
        async with self._lock(whose):
            hashes = tuple({item.text_hash for item in items})
            stored = await self.journal.read(lambda s: s.find_by_text(whose, hashes))
            merge = partial(_merge_import, drafts, items, stored, updates=updates)
            result, records = await self.run_blocking(merge)
            await self._commit(whose, records, result, receipt)
            return result

    # --- learning

    async def learn(
        self,
        draft: MemoryDraft,
        *,
        principal: str,
        by: str,
        records: Callable[[MemoryAdded, int], Awaitable[Sequence[Record]]],
    ) -> MemoryAdded:
        """Store what was learned, and in the same change the records about it.

        `records` gets the outcome and the revision of the item.  Raises as `add` does.
        Cancellation: all or nothing was stored.
        """
        (new,) = await self._make([draft], principal, by)
        async with self._lock(principal):
            found = await self._resolve(draft, new)
            result, changed = _apply(found, new)
            revision = next(
                item.revision
                for item in changed
                if isinstance(item, MemoryRecord) and item.memory_id == result.memory_id
            )
            about = await records(result, revision)
            await self._commit(principal, [*changed, *about], result, None)
            return result

    async def find_corrected(self, text: str, kind: MemoryKind, principal: str) -> str | None:
        """Return the id of the stored item that a statement of that kind would correct; None for none.

        Notes and decisions are compared as well, since people add facts as such.
        Cancellation: nothing happened.
        """
        kinds: tuple[MemoryKind, ...] = (kind, "note", "decision")
        for each in kinds:
            draft = MemoryDraft(text=text, kind=each)
            new = make_item(
                draft, memory_id="", principal=principal, by=principal, now_ms=self.now_ms()
            )
            found = await self._resolve(draft, new)
            if found.relation == "correction" and found.old is not None:
                return found.old.memory_id
        return None

    async def unlearn(
        self,
        principal: str,
        memory_id: str,
        revision: int,
        *,
        before: int,
        by: str,
        records: Sequence[Record],
    ) -> None:
        """Take back one application of `learn`, and commit the records about that with it.

        `revision` is that of the item now, `before` the one it had before `learn`; 0 for none.

        An item that it added is deleted, and one that this had superseded is current again; an item
        that it updated is as before.  Raises IllegalState for an item that was changed since then.
        Cancellation: all or nothing was changed.
        """
        async with self._lock(principal):
            item = await self._find_own(principal, memory_id)
            if item is None:
                await self._commit(principal, records, _NOTHING, None)
                return
            if item.revision != revision:
                raise IllegalState(
                    f"{memory_id} was changed after it was learned: edit or forget it instead"
                )
            now_ms = self.now_ms()
            if before:
                versions = await self.journal.read(lambda s: s.list_versions(memory_id))
                earlier = next((each for each in versions if each.revision == before), None)
                if earlier is None:
                    raise IllegalState(
                        f"revision {before} of {memory_id} was removed: edit or forget the item"
                    )
                after = restore(item, earlier, by=by, now_ms=now_ms)
                after = msgspec.structs.replace(
                    after, lineage=earlier.lineage, valid_from_ms=earlier.valid_from_ms
                )
                await self._commit(principal, [after, *records], _NOTHING, None)
                return
            revived = await self.journal.read(
                partial(_list_revived, gone=(memory_id,), by=by, now_ms=now_ms)
            )
            removal = MemoryRemoval(
                principal=principal, memory_ids=(memory_id,), at_ms=now_ms, by=by
            )
            with self.search.hiding(principal, (memory_id,)):
                await self._tell_forgotten((memory_id,), by)
                await self._commit(principal, [*revived, *records, removal], _NOTHING, None)

    async def keep_typed(
        self, entries: Sequence[TypedEntry], gone: Collection[str], principal: str
    ) -> None:
        """Give items the texts that a person typed into a document; delete those of deleted lines.

        Cancellation: all or nothing was changed; the next call completes it.
        """
        now_ms, wanted = self.now_ms(), {each.memory_id: each for each in entries}
        async with self._lock(principal):
            stored = await self._find_all([*wanted, *gone])
            own = {item.memory_id: item for item in stored if item.principal == principal}
            edited = [
                edit_item(own[key], {"text": entry.text}, by=principal, now_ms=now_ms)
                for key, entry in wanted.items()
                if key in own and own[key].superseded_by is None and own[key].text != entry.text
            ]
            taken = {item.memory_id for item in stored}
            made = {
                item.text_hash: item
                for key, entry in wanted.items()
                if entry.is_new and key not in taken
                for item in [_make_typed(entry, principal, now_ms)]
            }
            equal = await self.journal.read(lambda s: s.find_by_text(principal, tuple(made)))
            doomed = [key for key in gone if key in own and own[key].source == "document"]
            for old in equal:
                if old.memory_id not in doomed:
                    made.pop(old.text_hash, None)
            records: list[Record] = [*edited, *made.values()]
            if doomed:
                records.append(
                    MemoryRemoval(
                        principal=principal, memory_ids=tuple(doomed), at_ms=now_ms, by=principal
                    )
                )
            await self._commit(principal, records, _NOTHING, None)
            if doomed:
                self.search.note_removal()

    # --- changing

    async def edit(
        self,
        caller: Caller,
        memory_id: str,
        fields: dict[str, Any],
        receipt: IdempotencyKey | None = None,
    ) -> MemoryChanged:
        """Change fields of an item; the revision before is kept.

        Raises NotFound, InvalidParams, TooLarge, and IllegalState for a superseded item.
        """
        check_fields(fields)
        texts = [fields.get("text") or "", fields.get("author") or "", *fields.get("tags", ())]
        await self.run_blocking(_require_no_secret, self.redactor, "\n".join(texts), "text")
        return await self._change(
            caller,
            memory_id,
            lambda item, now_ms: edit_item(item, fields, by=caller.principal, now_ms=now_ms),
            receipt,
        )

    async def pin(
        self,
        caller: Caller,
        memory_id: str,
        *,
        pinned: bool,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryChanged:
        """Pin an item, so that no correction supersedes it by itself, or release it."""
        action: MemoryAction = "pinned" if pinned else "unpinned"
        return await self._mark(caller, memory_id, action, {"pinned": pinned}, receipt)

    async def never_recall(
        self,
        caller: Caller,
        memory_id: str,
        *,
        hidden: bool,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryChanged:
        """Hide an item from every search and recall, or show it again."""
        action: MemoryAction = "hidden" if hidden else "shown"
        return await self._mark(caller, memory_id, action, {"never_recall": hidden}, receipt)

    async def _mark(
        self,
        caller: Caller,
        memory_id: str,
        action: MemoryAction,
        fields: dict[str, bool],
        receipt: IdempotencyKey | None,
    ) -> MemoryChanged:
        def change(item: MemoryRecord, now_ms: int) -> MemoryRecord:
            if all(getattr(item, name) == value for name, value in fields.items()):
                return item
            return revise(item, action, by=caller.principal, now_ms=now_ms, **fields)

        return await self._change(caller, memory_id, change, receipt)

    async def _change(
        self,
        caller: Caller,
        memory_id: str,
        change: Callable[[MemoryRecord, int], MemoryRecord],
        receipt: IdempotencyKey | None,
    ) -> MemoryChanged:
        caller.require(WRITE)
        found = await self._get_seen(caller, memory_id)
        async with self._lock(found.principal):
            before = await self._get(found.principal, memory_id)
            after = change(before, self.now_ms())
            records = [after] if after is not before else []
            result = _describe_change(after)
            await self._commit(found.principal, records, result, receipt)
            return result

    async def undo(
        self, caller: Caller, memory_id: str, receipt: IdempotencyKey | None = None
    ) -> MemoryChanged:
        """Take back the last change of an item, or the correction that it was.

        The state before becomes the next revision, so that an undo can be undone.  Of an item that
        superseded another, the other is current again and this one is superseded by it.
        Raises NotFound, and IllegalState for an item that was only added.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, memory_id)
        async with self._lock(found.principal):
            item = await self._get(found.principal, memory_id)
            now_ms, by = self.now_ms(), caller.principal
            versions = await self.journal.read(lambda s: s.list_versions(memory_id))
            corrected = await self.journal.read(lambda s: s.list_superseded(memory_id))
            if versions:
                after = restore(item, versions[-1], by=by, now_ms=now_ms)
                records: list[Record] = [after]
            elif corrected:
                after = revise(
                    item,
                    "undone",
                    by=by,
                    now_ms=now_ms,
                    superseded_by=corrected[0].memory_id,
                    superseded_ms=now_ms,
                )
                again = {"superseded_by": None, "superseded_ms": None}
                records = [
                    after,
                    *(revise(old, "undone", by=by, now_ms=now_ms, **again) for old in corrected),
                ]
            else:
                raise IllegalState(
                    f"{memory_id} has no earlier state: forget it, if it should not exist"
                )
            result = _describe_change(after)
            await self._commit(item.principal, records, result, receipt)
            return result

    # --- deleting

    async def forget(
        self,
        caller: Caller,
        memory_ids: Sequence[str],
        receipt: IdempotencyKey | None = None,
        *,
        dry_run: bool = False,
    ) -> MemoryForgotten:
        """Delete items with all their revisions, index entries and vectors, and what they superseded.

        Final: there is no undo; `dry_run` returns the ids and deletes nothing.  Raises NotFound,
        and deletes nothing, if one of them is unknown.
        Cancellation: they may have been deleted; none of them is returned by a search meanwhile.
        """
        caller.require(WRITE)
        found = [await self._get_seen(caller, memory_id) for memory_id in memory_ids]
        principal = found[0].principal
        if any(item.principal != principal for item in found):
            raise InvalidParams("the items belong to several principals", field="memory_ids")
        if dry_run:
            gone = await self.journal.read(
                lambda s: _with_superseded(s.list_superseded, memory_ids)
            )
            return MemoryForgotten(memory_ids=tuple(gone), dry_run=True)
        return await self._forget(principal, [*memory_ids], by=caller.principal, receipt=receipt)

    async def forget_in(self, place: MemoryPlace, memory_ids: Sequence[str]) -> MemoryForgotten:
        """Delete items for a run, which reaches those of its own place only.  See `forget`."""
        for memory_id in memory_ids:
            found = await self._find_own(place.principal, memory_id)
            if found is None or not place.sees(found):
                raise _unknown(memory_id)
        return await self._forget(place.principal, [*memory_ids], by=place.principal)

    async def _forget(
        self,
        principal: str,
        memory_ids: list[str],
        *,
        by: str,
        receipt: IdempotencyKey | None = None,
    ) -> MemoryForgotten:
        async with self._lock(principal):
            gone = await self.journal.read(
                lambda s: _with_superseded(s.list_superseded, memory_ids)
            )
            result = MemoryForgotten(memory_ids=tuple(gone))
            removal = MemoryRemoval(
                principal=principal, memory_ids=tuple(gone), at_ms=self.now_ms(), by=by
            )
            with self.search.hiding(principal, gone):
                await self._tell_forgotten(gone, by)
                await self._commit(principal, [removal], result, receipt)
            return result

    async def _tell_forgotten(self, memory_ids: Sequence[str], by: str) -> None:
        """Let the listeners remove copies first: a repetition still knows the ids."""
        for listener in self.forgotten:
            await listener(memory_ids, by)

    async def plan_session(
        self, principal: str, session_id: str, run_ids: Sequence[str]
    ) -> ItemPlan:
        """Return which items came from a session alone, and which lose its runs as lineage."""
        found = await self.journal.read(lambda s: s.list_taken_from(principal, session_id, run_ids))
        return await self.run_blocking(plan_items, found, session_id, run_ids)

    async def purge_session(
        self, principal: str, session_id: str, run_ids: Sequence[str], *, by: str
    ) -> int:
        """Delete what the memory has from a session; return the number of items.

        Items that also have another source keep it and lose their earlier revisions; an item that
        was superseded by a deleted one has its place again.  Cancellation: repeat the call.
        """
        async with self._lock(principal):
            now_ms = self.now_ms()
            plan = await self.plan_session(principal, session_id, run_ids)
            revived = await self.journal.read(
                partial(_list_revived, gone=plan.gone, by=by, now_ms=now_ms)
            )
            records: list[Record] = [*revived]
            records.append(SessionRemoval(session_id=session_id, trims=plan.trims))
            if plan.gone:
                removal = MemoryRemoval(
                    principal=principal,
                    memory_ids=plan.gone,
                    at_ms=now_ms,
                    by=by,
                    action="purged",
                )
                records.append(removal)
            with self.search.hiding(principal, plan.gone):
                await self._tell_forgotten(plan.gone, by)
                await self.journal.commit(Change(records=tuple(records)))
            return len(plan.gone)

    async def purge(self, caller: Caller, principal: str, *, dry_run: bool = False) -> MemoryPurged:
        """Delete the whole memory of a principal, with the log of its changes and uses.

        One line about the purge remains.  Raises Forbidden for a foreign principal, unless the caller
        is an operator.
        """
        caller.require(WRITE)
        whose = whose_memory(caller, principal)
        async with self._lock(whose):
            now_ms = self.now_ms()
            # At the time 0 nothing has expired: items that have are still stored, and go as well.
            counts = await self.journal.read(lambda s: s.count_memories(whose, now_ms=0))
            result = MemoryPurged(principal=whose, items=counts.total, dry_run=dry_run)
            if dry_run:
                return result
            removal = MemoryRemoval(
                principal=whose, memory_ids=None, at_ms=now_ms, by=caller.principal, action="purged"
            )
            every = await self.journal.read(partial(_list_ids, principal=whose, now_ms=now_ms))
            with self.search.hiding_all(whose):
                await self._tell_forgotten(every, caller.principal)
                await self._commit(whose, [removal], result, None)
            return result

    # --- reading

    async def get(
        self, caller: Caller, memory_id: str, place: MemoryPlace | None = None
    ) -> MemoryRecord:
        """Return an item.  Raises NotFound, also for one that the `place` does not see."""
        caller.require(READ)
        found = await self._get_seen(caller, memory_id)
        if place is not None and not msgspec.structs.replace(place, principal=found.principal).sees(
            found
        ):
            raise _unknown(memory_id)
        return found

    async def list_items(self, caller: Caller, wanted: MemoryFilter) -> list[MemoryRecord]:
        """Return items of one principal, newest first; an empty one is the caller's own."""
        caller.require(READ)
        whose = whose_memory(caller, wanted.principal or None)
        narrowed = msgspec.structs.replace(wanted, principal=whose, now_ms=self.now_ms())
        found = await self.journal.read(lambda s: s.list_memories(narrowed))
        return [item for item in found if self.search.is_shown(item)]

    async def history(
        self, caller: Caller, memory_id: str
    ) -> tuple[list[MemoryRecord], list[MemoryRecord], list[MemoryLogLine]]:
        """Return all revisions of an item, oldest first, what it superseded, and its log."""
        caller.require(READ)
        item = await self._get_seen(caller, memory_id)
        return await self.journal.read(
            lambda s: (
                [*s.list_versions(memory_id), item],
                s.list_superseded(memory_id),
                s.list_memory_log(principal=item.principal, memory_id=memory_id, limit=200),
            )
        )

    async def audit(
        self, caller: Caller, principal: str | None, *, before: int | None, limit: int
    ) -> list[MemoryLogLine]:
        """Return the changes of a principal's memory, newest first, without text."""
        caller.require(READ)
        whose = whose_memory(caller, principal)
        return await self.journal.read(
            lambda s: s.list_memory_log(principal=whose, before=before, limit=limit)
        )

    async def used(self, caller: Caller, run_id: str) -> list[MemoryUseRecord]:
        """Return what a run was given, oldest first.  Raises NotFound for a foreign run."""
        caller.require(READ)
        run = await self.journal.find(lambda s: s.find_run(run_id))
        if run is None or not caller.sees(run.principal):
            raise NotFound(f"no run {run_id!r}", field="run_id")
        return (await self.journal.read(lambda s: s.list_memory_uses(run_id=run_id)))[::-1]

    async def count(self, caller: Caller, principal: str | None) -> MemoryCounts:
        """Return the counts of a principal's items."""
        caller.require(READ)
        whose = whose_memory(caller, principal)
        now_ms = self.now_ms()
        return await self.journal.read(lambda s: s.count_memories(whose, now_ms=now_ms))

    async def rebuild(self, caller: Caller) -> int:
        """Create the text index of all items again; return the number of items.  Operators only.

        Vectors that are not sound, and conversations, are made again in the background.  Raises
        Unavailable if the index is damaged afterwards.

        Searches and writes go on meanwhile.  Cancellation: the rest is made in the background.
        """
        if caller.principal_filter is not None:
            raise Forbidden(
                "only operators rebuild the index, because it is that of all principals"
            )
        caller.require(WRITE)
        counts = await self.journal.read(lambda s: s.count_memories(None, now_ms=self.now_ms()))
        part: MemoryReindex | None = MemoryReindex(after_row=FROM_THE_START)
        while part is not None:
            await self.journal.commit(Change(records=(part,)))
            part = await self.journal.read(lambda s: s.plan_reindex())
        await self.journal.commit(
            Change(records=(TurnIndexing(after_position=FROM_THE_START, through_position=0),))
        )
        self.search.invalidate(None)
        await self.search.renew()
        return counts.total

    # --- shared

    def _lock(self, principal: str) -> trio.Lock:
        return self._locks.setdefault(principal, trio.Lock())

    async def _commit(
        self,
        principal: str,
        records: Sequence[Record],
        result: T,
        receipt: IdempotencyKey | None,
    ) -> None:
        kept = [] if receipt is None else [receipt_for(receipt, result, self.now_ms())]
        if not records and not kept:
            return
        with trio.CancelScope(shield=True):  # so that search and store agree; bounded by the disk
            await self.journal.commit(Change(records=(*records, *kept)))
        self.search.invalidate(principal)

    async def _get_seen(self, caller: Caller, memory_id: str) -> MemoryRecord:
        found = await self._find_own(caller.principal_filter, memory_id)
        if found is None:
            raise _unknown(memory_id)
        return found

    async def _get(self, principal: str, memory_id: str) -> MemoryRecord:
        found = await self._find_own(principal, memory_id)
        if found is None:
            raise _unknown(memory_id)
        return found

    async def _find_own(self, principal: str | None, memory_id: str) -> MemoryRecord | None:
        """Find an unexpired item of that principal, of any for None."""
        found = await self.journal.find(lambda s: s.find_memory(memory_id))
        if found is None or principal not in {None, found.principal}:
            return None
        return found if self.search.is_shown(found) else None

    async def _make(
        self, drafts: Sequence[MemoryDraft], principal: str, by: str, field: str = ""
    ) -> Sequence[MemoryRecord]:
        """Check the drafts in a thread and make items of them; `field` with {} is their prefix."""
        now_ms = self.now_ms()
        ids = [self.new_id("mem") for _ in drafts]

        def make() -> Sequence[MemoryRecord]:
            made: list[MemoryRecord] = []
            for at, (memory_id, draft) in enumerate(zip(ids, drafts, strict=True)):
                check_draft(draft, field.format(at))
                texts = "\n".join((draft.text, *draft.tags, draft.author or ""))
                _require_no_secret(self.redactor, texts, f"{field.format(at)}text")
                made.append(
                    make_item(draft, memory_id=memory_id, principal=principal, by=by, now_ms=now_ms)
                )
            return made

        return await self.run_blocking(make)


def _require_no_secret(redactor: Redactor, text: str, field: str) -> None:
    """Raise InvalidParams for a text with a secret, which would be recalled into prompts."""
    if redactor.redact_text(text)[1]:
        raise InvalidParams(
            f"{field} holds a secret: leave it out, and keep it in the vault (`palyra secrets`)",
            field=field,
        )


def _make_typed(entry: TypedEntry, principal: str, now_ms: int) -> MemoryRecord:
    draft = MemoryDraft(text=entry.text, kind=entry.kind, source="document")
    return make_item(
        draft, memory_id=entry.memory_id, principal=principal, by=principal, now_ms=now_ms
    )


def _describe_change(item: MemoryRecord) -> MemoryChanged:
    """Return the outcome without the text: a receipt outlives a forgotten item."""
    return MemoryChanged(
        memory_id=item.memory_id,
        action=item.action,
        revision=item.revision,
        superseded_by=item.superseded_by,
    )


def _unknown(memory_id: str) -> NotFound:
    return NotFound(f"no memory {memory_id!r}", field="memory_id")


def _apply(found: Resolution, new: MemoryRecord) -> tuple[MemoryAdded, list[Record]]:
    """Return outcome and records of a new item that was compared with the stored ones."""
    old = found.old
    if old is None:
        return MemoryAdded(memory_id=new.memory_id, disposition="added"), [new]
    if found.relation == "correction":
        result = MemoryAdded(
            memory_id=new.memory_id, disposition="superseded", superseded=old.memory_id
        )
        return result, [new, supersede(old, new)]
    text = choose_text(new.text, old.text)
    disposition: Disposition = "updated"
    result = MemoryAdded(memory_id=old.memory_id, disposition=disposition)
    return result, [merge_item(old, new, text=text)]


def _find_same(
    new: MemoryRecord, stored: Iterable[MemoryRecord], *, is_utterance: bool
) -> MemoryRecord | None:
    """Find the item with the same text, place, kind and author; of an utterance also its time."""
    names = ["principal", "scope", "kind", "author", "text_hash"]
    if is_utterance:
        names += ["channel", "session_id", "at_ms"]
    elif new.scope != "principal":
        names.append("channel" if new.scope == "channel" else "session_id")
    for old in stored:
        if all(getattr(old, name) == getattr(new, name) for name in names):
            return old
    return None


def _merge_import(
    drafts: Sequence[MemoryDraft],
    items: Sequence[MemoryRecord],
    stored: Sequence[MemoryRecord],
    *,
    updates: bool,
) -> tuple[MemoryImported, list[Record]]:
    """Return outcome and records of an import; items may repeat stored ones and each other."""
    known: dict[str, MemoryRecord] = {old.memory_id: old for old in stored}
    records: list[Record] = []
    ids: list[str] = []
    updated = skipped = 0
    by_text: dict[str, list[str]] = {}
    for old in stored:
        by_text.setdefault(old.text_hash, []).append(old.memory_id)
    for draft, new in zip(drafts, items, strict=True):
        equal = [known[key] for key in by_text.get(new.text_hash, ())]
        same = _find_same(new, equal, is_utterance=draft.is_utterance)
        after = new
        if same is not None and not updates:
            skipped += 1
            ids.append(same.memory_id)
            continue
        if same is not None:
            updated += 1
            after = merge_item(same, new, text=new.text)
        else:
            by_text.setdefault(new.text_hash, []).append(new.memory_id)
        known[after.memory_id] = after
        records.append(after)
        ids.append(after.memory_id)
    added = len(items) - updated - skipped
    result = MemoryImported(added=added, updated=updated, skipped=skipped, memory_ids=tuple(ids))
    return result, records


def _with_superseded(
    list_superseded: Callable[[str], list[MemoryRecord]], memory_ids: Sequence[str]
) -> list[str]:
    """Return the ids, and those of all items that they superseded, each once."""
    found = dict.fromkeys(memory_ids)
    waiting = [*memory_ids]
    while waiting:
        more = [old.memory_id for old in list_superseded(waiting.pop())]
        waiting += [memory_id for memory_id in more if memory_id not in found]
        found.update(dict.fromkeys(more))
    return list(found)


_EVERY = 1_000_000_000


def _list_ids(store: JournalStore, *, principal: str, now_ms: int) -> list[str]:
    """Return the ids of all items of a principal.  Blocks."""
    wanted = MemoryFilter(
        principal=principal,
        now_ms=min(now_ms, 0),  # expired items too, which are still stored
        with_superseded=True,
        with_hidden=True,
        limit=_EVERY,
    )
    return [item.memory_id for item in store.list_memories(wanted)]


def _list_revived(
    store: JournalStore, *, gone: Sequence[str], by: str, now_ms: int
) -> list[MemoryRecord]:
    """Return the next revisions of items that were superseded by items that go.  Blocks."""
    found = {memory_id: store.find_memory(memory_id) for memory_id in gone}
    going = {memory_id: item for memory_id, item in found.items() if item is not None}
    revived = []
    for memory_id in going:
        for item in store.list_superseded(memory_id):
            if item.memory_id in going or item.superseded_by != memory_id:
                continue
            after = successor(item, going)
            fields = {"superseded_by": after}
            if after is None:
                fields["superseded_ms"] = None
            revived.append(revise(item, "undone", by=by, now_ms=now_ms, **fields))
    return revived
