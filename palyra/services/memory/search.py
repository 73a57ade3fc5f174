"""Search in the memory, for clients, tools and prompts.

Owns: the ids of items that were forgotten since the start, and a bounded cache of results.  Both
are lost in a restart without harm.  Talks to: the journal; written by `services.memory.items`.
Never: returns an item of another principal or place, an expired one, or one that is being forgotten.

To forget takes effect before the commit: its id keeps the item out of every result that leaves,
also of a search that began earlier.  A write drops the cached results of its principal, because the
key of a result has the generation of the principal's items.  The key also has the version of the
index and the day, which relative dates of a query depend on; a degraded result is not kept.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change, MemoryFilter, MemoryPlace, SaidTexts
from palyra.core.journal.records import MemoryRecord, MemoryUse, MemoryUseRecord
from palyra.core.memory.dates import day_of
from palyra.core.memory.duplicates import read_tokens
from palyra.core.memory.items import (
    MemoryHit,
    MemoryHits,
    RecallPack,
    RecallUse,
    SearchMode,
)
from palyra.core.memory.packing import pack_hits
from palyra.core.memory.query import has_subject
from palyra.core.memory.standing import Standing, StandingItem, choose_standing, rank_standing
from palyra.core.memory.transcripts import as_said, conversation_key
from palyra.core.ports import Journal, JournalStore, NowMs, Reranker
from palyra.core.redaction.redactor import Redactor
from palyra.core.tape.events import CompactionApplied, decode_event
from palyra.core.trust.labels import lowest
from palyra.errors import Forbidden, PalyraError, Unavailable
from palyra.services.memory.index import SharedMemoryIndex

READ, WRITE = "memory:read", "memory:write"  # scopes
MAX_CACHED = 512  # results, of all principals
MAX_FORGOTTEN = 65_536
MAX_OWN_TURNS = 100  # of the asking run, which are not returned unless a summary replaces them
QUESTION_CHARS = 500  # of a question on record
RECALL_LIMIT = 100  # items from which a recall is packed
MAX_STANDING = 500  # items of a principal from which those of a prompt are chosen
COUNTED_USES = 500  # latest recalls of a principal that say which items are used most
_WORD = re.compile(r"\w+")


class MemorySearch:
    """Searches of all principals; implements `core.ports.Recall`."""

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        *,
        now_ms: NowMs,
        new_id: NewId,
        index: SharedMemoryIndex | None = None,
        conversations: SharedMemoryIndex | None = None,
    ) -> None:
        """Without an index the text index of the journal is searched, and no conversations."""
        self._conversations = conversations
        self.find_reranker: Callable[[], Reranker | None] = lambda: None  # set by the wiring
        self._journal = journal
        self._index = index
        self._redactor = redactor
        self._now_ms = now_ms
        self._new_id = new_id
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._cache: OrderedDict[bytes, MemoryHits] = OrderedDict()
        self._standing: OrderedDict[str, tuple[tuple[int, int], tuple[StandingItem, ...]]] = (
            OrderedDict()
        )
        self._generations: dict[str, int] = {}
        self._empty: dict[str, int] = {}  # generation at which a principal had no item
        self._looked_at: set[str] = set()  # principals
        self._purged: dict[str, int] = {}  # generation at the last purge of a principal
        self._purging: set[str] = set()

    @property
    def mode(self) -> SearchMode:
        """Parts of the search: words and vectors, or words alone."""
        return "lexical" if self._index is None or self._index.degraded else "hybrid"

    @property
    def degraded(self) -> str:
        """The reason why a part of the search is left out at the moment; "" for none."""
        return "" if self._index is None else self._index.degraded

    # --- for clients, tools and prompts

    async def search(self, caller: Caller, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Return the best matches of a query; see `MemoryFilter` for what narrows it.

        An empty principal is the caller's own.  Raises Forbidden for a foreign one.
        Cancellation: nothing happened.
        """
        caller.require(READ)
        whose = whose_memory(caller, wanted.principal or None)
        place = wanted.place or MemoryPlace(principal=whose)
        place = msgspec.structs.replace(place, principal=whose)
        return await self.search_in(place, query, wanted)

    async def search_in(self, place: MemoryPlace, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Search from a place, whose principal is the one that the filter has from here on."""
        principal = place.principal
        asked = msgspec.structs.replace(wanted, principal=principal, place=place, now_ms=0)
        while True:
            generation = self._generations.get(principal, 0)
            found = await self._search_once(query, asked, generation)
            if generation >= self._purged.get(principal, 0):
                break
        hits = tuple(hit for hit in found.hits if self.is_shown(hit.item))
        return msgspec.structs.replace(found, hits=hits)

    async def _search_once(self, query: str, asked: MemoryFilter, generation: int) -> MemoryHits:
        now_ms = self._now_ms()
        version = 0 if self._index is None else self._index.version
        day = day_of(now_ms).toordinal()
        key = msgspec.json.encode((query, asked, generation, version, day))
        found = self._cache.get(key)
        if found is None:
            found = await self._search(query, msgspec.structs.replace(asked, now_ms=now_ms))
            if generation == self._generations.get(asked.principal, 0) and not found.degraded:
                self._cache[key] = found
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return found

    async def _search(self, query: str, wanted: MemoryFilter) -> MemoryHits:
        if self._index is not None:
            return await self._find(self._index, query, wanted)
        tokens = (token.plain for token in read_tokens(query))
        words = list(dict.fromkeys(word for token in tokens for word in _WORD.findall(token)))
        if not words:
            return MemoryHits()
        found = await self._journal.read(lambda s: s.search_memories(wanted, words))
        return MemoryHits(
            hits=tuple(
                MemoryHit(item=each.item, score=each.lexical, parts={"lexical": each.lexical})
                for each in found
            )
        )

    async def _find(self, index: SharedMemoryIndex, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Search the index; with a re-ranker in its order, which a hit beyond the limit may get into."""
        reranker = self.find_reranker()
        if reranker is None:
            return await index.find(query, wanted)
        more = msgspec.structs.replace(wanted, limit=max(wanted.limit, reranker.limit))
        found = await reranker.rerank(wanted.principal, query, await index.find(query, more))
        return msgspec.structs.replace(found, hits=found.hits[: wanted.limit])

    async def search_said(
        self, place: MemoryPlace, query: str, *, run_id: str, limit: int
    ) -> SaidTexts:
        """See `core.ports.MemoryFinder`.  A conversation is seen from the same channel only.

        Of the asking run it finds what a summary replaces; the rest is in the prompt.

        Raises Unavailable.  Cancellation: conversations may have been indexed.
        """
        if self._conversations is None:
            raise Unavailable("earlier conversations are not indexed by this journal")
        session_id = place.session_id
        here = None
        if session_id is not None:
            here = await self._journal.find(lambda store: store.find_session(session_id))
        conversation_id = None if here is None else here.conversation_id
        wanted = MemoryFilter(
            principal=place.principal,
            now_ms=self._now_ms(),
            channel=conversation_key(place.channel, conversation_id),
            session_id=session_id if place.only_session else None,
            limit=limit + MAX_OWN_TURNS,
        )
        if place.only_session and session_id is None:
            return SaidTexts([], "")
        found = await self._conversations.find(query, wanted)
        said = [as_said(hit.item, query) for hit in found.hits]
        if place.channel is not None:  # its senders are other people
            said = [
                each._replace(trust=lowest((each.trust, "external_untrusted"))) for each in said
            ]
        mark = -1
        if any(each.run_id == run_id for each in said):
            mark = await self._journal.read(partial(_find_compacted, run_id=run_id))
        texts = [each for each in said if each.run_id != run_id or each.seq < mark]
        return SaidTexts(texts[:limit], found.degraded)

    async def recall(
        self, question: str, place: MemoryPlace, *, limit: int | None = None, is_asked: bool = False
    ) -> RecallPack:
        """See `core.ports.Recall`."""
        if not is_asked and not has_subject(question, day_of(self._now_ms())):
            return RecallPack()
        wanted = MemoryFilter(principal=place.principal, now_ms=0, limit=limit or RECALL_LIMIT)
        await self.prepare(place.principal)
        if not self.has_items(place.principal):
            return RecallPack()
        generation = self.generation(place.principal)
        try:
            found = await self.search_in(place, question, wanted)
            if not found.hits:
                await self._note_if_empty(place.principal, generation)
            return pack_hits(msgspec.structs.replace(found, is_related=True) if is_asked else found)
        except Unavailable as error:
            return RecallPack(degraded=error.message, is_failed=True)

    async def find_standing(self, place: MemoryPlace) -> Standing:
        """Return the items that every prompt of that place shows.

        The order by use is decided once a day and after each change of an item, so that the prefix
        of the prompts between stays the same.  Raises Unavailable.  Cancellation: nothing happened.
        """
        principal = place.principal
        if not self.has_items(principal):
            return Standing()
        now_ms = self._now_ms()
        state = self.generation(principal), day_of(now_ms).toordinal()
        known = self._standing.get(principal)
        if known is None or known[0] != state:
            ranked = await self._journal.read(partial(_rank_standing, principal, now_ms))
            known = self._standing[principal] = state, ranked
            while len(self._standing) > MAX_CACHED:
                self._standing.popitem(last=False)
        return choose_standing((each for each in known[1] if self.is_shown(each.item)), place)

    async def prepare(self, principal: str) -> None:
        """Find out if the principal has items, once; a journal that fails leaves it open.

        Cancellation: nothing happened.
        """
        if principal in self._looked_at:
            return
        try:
            await self._note_if_empty(principal, self.generation(principal))
        except Unavailable:
            return
        self._looked_at.add(principal)

    def has_items(self, principal: str) -> bool:
        """True unless the principal is known to have no items.  Never waits."""
        return self._empty.get(principal) != self.generation(principal)

    async def _note_if_empty(self, principal: str, generation: int) -> None:
        wanted = MemoryFilter(principal=principal, now_ms=self._now_ms(), limit=1)
        if not await self._journal.read(lambda s: s.list_memories(wanted)):
            self._empty[principal] = generation

    def note_standing(self, use: RecallUse, items: Sequence[MemoryRecord]) -> None:
        """Record the standing items of a run; never waits."""
        self.note_use(use, [MemoryHit(item=item, score=0.0, parts={}) for item in items])

    def note_use(self, use: RecallUse, hits: Sequence[MemoryHit]) -> None:
        """See `core.ports.Recall`."""
        if not hits:
            return
        record = MemoryUseRecord(
            use_id=self._new_id("use"),
            run_id=use.run_id,
            session_id=use.session_id,
            principal=use.principal,
            way=use.way,
            question=self._redactor.redact_text(use.question[:QUESTION_CHARS])[0],
            at_ms=self._now_ms(),
            items=tuple(
                MemoryUse(memory_id=hit.item.memory_id, score=hit.score, parts=hit.parts)
                for hit in hits
            ),
        )
        self._journal.append(Change(records=(record,)))

    def note_purged_turns(self) -> None:
        """Write the file of the index of conversations without what has left the tapes."""
        if self._conversations is not None:
            self._conversations.notify(is_removal=True)

    # --- for the items' service

    def is_shown(self, item: MemoryRecord) -> bool:
        """True unless the item has expired or is being forgotten."""
        if item.memory_id in self._forgotten or item.principal in self._purging:
            return False
        return item.expires_ms is None or item.expires_ms > self._now_ms()

    def generation(self, principal: str) -> int:
        """Return a number that changes whenever items of the principal change."""
        return self._generations.get(principal, 0)

    def invalidate(self, principal: str | None) -> None:
        """Drop the cached results of a principal, of all for None: items have changed."""
        if self._index is not None:
            self._index.notify()
        if principal is None:
            self._cache.clear()
            self._standing.clear()
            if self._conversations is not None:
                self._conversations.notify()
        else:
            self._generations[principal] = self._generations.get(principal, 0) + 1

    async def renew(self) -> None:
        """Forget the indexes in memory after a rebuild of the stored ones, and prove these.

        Raises Unavailable for a text index that is still damaged.  Cancellation: nothing is lost.
        """
        indexes = [each for each in (self._index, self._conversations) if each is not None]
        for index in indexes:
            await index.rebuild()
        for index in indexes:
            await index.prove()

    def note_removal(self) -> None:
        """Write the file of the vectors without those of deleted items."""
        if self._index is not None:
            self._index.notify(is_removal=True)

    @contextmanager
    def hiding(self, principal: str, memory_ids: Sequence[str]) -> Generator[None]:
        """Keep items out of every result, for good unless the block raises."""
        for memory_id in memory_ids:
            self._forgotten[memory_id] = None
        while len(self._forgotten) > MAX_FORGOTTEN:
            self._forgotten.popitem(last=False)
        self.invalidate(principal)
        try:
            yield
        except PalyraError:
            for memory_id in memory_ids:
                self._forgotten.pop(memory_id, None)
            raise
        self.note_removal()

    @contextmanager
    def hiding_all(self, principal: str) -> Generator[None]:
        """Keep all items of a principal out of every result during the block.

        A search that began before the end of the block is made again.
        """
        self._purging.add(principal)
        try:
            yield
            self.note_removal()
        finally:
            self._purging.discard(principal)
            self.invalidate(principal)
            self._purged[principal] = self._generations[principal]


def _rank_standing(principal: str, now_ms: int, store: JournalStore) -> tuple[StandingItem, ...]:
    """Read the standing items of a principal, and how often recalls found each of them.  Blocks."""
    wanted = MemoryFilter(principal=principal, now_ms=now_ms, standing=True, limit=MAX_STANDING)
    items = store.list_memories(wanted)
    if not items:
        return ()
    uses = store.list_memory_uses(principal=principal, limit=COUNTED_USES)
    found = Counter(item.memory_id for use in uses if use.way != "standing" for item in use.items)
    return rank_standing(items, found)


def _find_compacted(store: JournalStore, *, run_id: str) -> int:
    """Return the event before which a summary replaces messages of the run; -1 without one.  Blocks."""
    seq = store.find_last_seq(run_id, CompactionApplied.KIND)
    if seq is None:
        return -1
    (row,) = store.read_tape(run_id, after_seq=seq - 1, limit=1).rows
    event = decode_event(row.kind, row.data)
    is_own = isinstance(event, CompactionApplied) and event.summary.covered_of(run_id)
    return seq if is_own else -1


def whose_memory(caller: Caller, principal: str | None) -> str:
    """Return the principal that a request is about.  Raises Forbidden for a foreign one."""
    if principal is None:
        return caller.principal
    if not caller.sees(principal):
        raise Forbidden(f"the memory of {principal!r} is not yours: leave principal out")
    return principal
