"""The index of memory as a service: searched by one thread at a time, kept up in small steps.

Owns: the turn of the index; the nursery of its steps is that of `actors.memory`.  Talks to: the index
(port), in readers' threads of the journal; the embedder (port); the journal, which stores the vectors.
Called by: `services.memory.search`, and `actors.memory` for the upkeep.
Never: makes a search wait for the embedding of items or a build of vectors; a search meanwhile uses
words, and says so.

A search takes the turn twice, for the words of its question and for the search itself, and embeds in
between, so that an embedder that takes long holds up no other search.

An embedder that fails is tried again by the actor.  A principal whose budget is spent, or a text that
the embedder refuses, must not keep the others waiting: a refused batch is sent again text by text,
and what is refused then is left out until the daemon starts again.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import TypeVar

import msgspec
import outcome
import trio

from palyra.core.journal.changes import Change, MemoryFilter, UnembeddedItem
from palyra.core.journal.records import MemoryVector, MemoryVectors, TurnIndexing
from palyra.core.memory.items import MemoryHits
from palyra.core.memory.vectors import StoredVector
from palyra.core.ports import Journal, MemoryEmbedder, MemoryIndexing
from palyra.errors import Forbidden, InvalidParams, Unavailable

T = TypeVar("T")

STEPS_BEFORE_SEARCH = 8  # of some ms
SAVE_EVERY = 1_000  # vectors between two writes of the file, while there is more to embed
# The whole file is written, 400 bytes a vector, so a single new one in a large index waits: a file
# that lacks one vector in so many costs a start some milliseconds, which reads them from the journal.
SAVED_SHARE = 50
MAX_REFUSED = 1_000  # texts that are left out; more of them are a failure of the embedder
STORED_CHECK_S = 3_600.0  # between two checks of a text index and its vectors, which read all of it
FIRST_REFUSED = 8  # as many before the first success are such a failure, too


class SharedMemoryIndex:
    """One index for all searches of the daemon, made when it is first needed."""

    def __init__(
        self,
        make_index: Callable[[MemoryEmbedder], MemoryIndexing],
        journal: Journal,
        find_embedder: Callable[[], MemoryEmbedder],
        plan_turns: Callable[[], TurnIndexing | None] | None = None,
        *,
        check_stored: Callable[[], str] = lambda: "",
    ) -> None:
        """`make_index` is called in a thread, and both functions when they are first needed.

        `plan_turns` makes it the index of conversations, which are indexed before a search and in
        the background; it returns the next step and is called in threads.  So is `check_stored`, which
        returns the damage of the text index and of the stored vectors.
        """
        self._plan_turns = plan_turns
        self._indexing = trio.Lock()
        self._make_index = make_index
        self._journal = journal
        self._find_embedder = find_embedder
        self._check_stored = check_stored
        self._check_due_s = -inf  # of the next check of what is stored
        self.stored_damage = ""  # found by the last one
        self._index: MemoryIndexing | None = None
        self._turn = trio.Lock()
        self._upkeep = trio.Lock()
        self._home: trio.Nursery | None = None
        self._needed = trio.Event()
        self._unsaved = 0  # vectors
        self._has_removal = False  # since the last write of the file
        self._version = 0
        self._failure = ""  # of the last embedding of items
        self._unanswered = ""  # failure of the last embedding of a question
        self._has_embedded = False
        self._is_refused = False  # a batch; the next one has one text
        self._refused_rows: set[int] = set()

    @property
    def version(self) -> int:
        """Number that changes whenever searches may find more than before by the same items."""
        return self._version

    @cached_property
    def _embedder(self) -> MemoryEmbedder:
        return self._find_embedder()

    @property
    def degraded(self) -> str:
        """Reason why a part of the search is left out; "" for none."""
        if self._index is None:
            return ""
        return self._failure or self._index.degraded or self._unanswered

    async def find(self, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Return the best items.  Raises Unavailable.  Cancellation: nothing happened."""
        try:
            return await self._find(query, wanted)
        except Unavailable:
            self._check_due_s = -inf  # perhaps the index is damaged: the next look tells
            raise

    async def _find(self, query: str, wanted: MemoryFilter) -> MemoryHits:
        if self._index is None:
            self.notify()
        behind = await self._catch_up()
        question, texts = await self._in_turn(lambda index: index.ask(query, wanted))
        vectors: Sequence[StoredVector] = ()
        failure = self._failure
        if texts:
            try:
                vectors = await self._embedder.embed_question(wanted.principal, texts)
                self._unanswered = ""
            except Unavailable as error:
                failure = self._unanswered = error.message
        found = await self._in_turn(lambda index: index.find(question, wanted, vectors))
        return msgspec.structs.replace(found, degraded=behind or failure or found.degraded)

    async def _catch_up(self) -> str:
        """Take a few steps to index conversations; return what is missing then, "" for nothing."""
        for _ in range(STEPS_BEFORE_SEARCH):
            if not await self._index_turns():
                return ""
        self.notify()
        return "older conversations are still being indexed"

    async def _index_turns(self) -> bool:
        """Index the next turns of conversations; False at the end of the tapes."""
        plan_turns = self._plan_turns
        if plan_turns is None:
            return False
        async with self._indexing:
            step = await self._journal.read(lambda _store: plan_turns())
            if step is None:
                return False
            if step.turns or not step.is_last:
                await self._journal.commit(Change(records=(step,)))
        if step.turns:
            self.notify()
        return not step.is_last

    async def _index_items(self) -> bool:
        """Write the next entries of a text index that is made again; False if it is whole."""
        if self._plan_turns is not None:
            return False
        part = await self._journal.read(lambda store: store.plan_reindex())
        if part is not None:
            await self._journal.commit(Change(records=(part,)))
        return part is not None

    def notify(self, *, is_removal: bool = False) -> None:
        """Say that items have changed; after a removal the file is written without their vectors."""
        self._has_removal = self._has_removal or is_removal
        self._needed.set()

    async def find_damage(self) -> str:
        """Return the defect of an index in use, "" for none.  Raises Unavailable."""
        now_s = trio.current_time()
        if now_s >= self._check_due_s:
            self._check_due_s = now_s + STORED_CHECK_S
            self.stored_damage = await self._journal.read(lambda _store: self._check_stored())
        if self.stored_damage:
            return self.stored_damage
        if self._index is None:
            return ""
        return await self._in_turn(lambda index: index.damage)

    async def prove(self) -> None:
        """Check what is stored now, with a search.  Raises Unavailable for a damaged one.

        Cancellation: nothing happened.
        """
        self.stored_damage = await self._journal.read(lambda _store: self._check_stored())
        self._check_due_s = trio.current_time() + STORED_CHECK_S
        if self.stored_damage:
            raise Unavailable(f"{self.stored_damage}, after the rebuild")

    async def rebuild(self) -> None:
        """Forget the index in memory; the upkeep makes another from the stored vectors.

        Cancellation: it may be forgotten, which changes no result of a search.
        """
        async with self._turn:
            self._index = None
        self._unsaved += 1
        self._needed.set()

    async def wait_needed(self) -> None:
        """Wait until items have changed, or the index is used for the first time."""
        await self._needed.wait()
        self._needed = trio.Event()

    async def upkeep(self) -> bool:
        """Take one step: build vectors, embed some items or save; False if there was none to take.

        Raises Unavailable.  Cancellation: vectors may have been stored; the next step finds that.
        """
        async with self._upkeep:
            return await self._take_step()

    async def _take_step(self) -> bool:
        if await self._index_turns():
            return True
        job = await self._in_turn(lambda index: index.plan_build())
        if job is not None:
            built = await self._journal.read(lambda _store: job())
            await self._in_turn(lambda index: index.adopt(built))
            self._version += 1
            await self._save()
            return True
        if await self._index_items():
            return True
        batch = await self._embed_next()
        if batch is not None:
            await self._journal.commit(Change(records=(batch,)))
            await self._in_turn(lambda index: index.refresh(batch))
            self._version += 1
            self._unsaved += len(batch.vectors)
        if self._is_save_due(is_idle=batch is None):
            await self._save()
        if batch is None and self._failure:
            raise Unavailable(self._failure)
        return batch is not None

    async def _embed_next(self) -> MemoryVectors | None:
        """Embed some of the items without a vector; None if there are none that can be."""
        failure, spent = "", set[str]()
        while items := await self._list_unembedded(spent):
            principal = items[0].principal
            try:
                vectors = await self._embedder.embed_items(principal, [each.text for each in items])
            except Forbidden:
                failure = f"{self._embedder.name}: a budget is spent"  # one of some principal
                spent.add(principal)
            except InvalidParams as error:
                if not self._note_refused(items):
                    failure = error.message
                    break
            except Unavailable as error:
                failure = error.message
                break
            else:
                self._failure, self._has_embedded, self._is_refused = failure, True, False
                return MemoryVectors(
                    of="items" if self._plan_turns is None else "turns",
                    embedder=self._embedder.name,
                    vectors=tuple(
                        MemoryVector(each.row, each.text_hash, vector.scale, vector.values)
                        for each, vector in zip(items, vectors, strict=True)
                    ),
                )
        self._failure = failure
        return None

    async def _list_unembedded(self, spent: set[str]) -> list[UnembeddedItem]:
        limit = 1 if self._is_refused else self._embedder.batch
        refused = self._refused_rows
        return await self._in_turn(
            lambda index: index.list_unembedded(limit, without=spent, but=refused)
        )

    def _note_refused(self, items: Sequence[UnembeddedItem]) -> bool:
        """Note a batch that the embedder refuses; False if it seems to refuse all texts."""
        if len(items) > 1:
            self._is_refused = True
            return True
        most = MAX_REFUSED if self._has_embedded else FIRST_REFUSED
        if len(self._refused_rows) >= most:
            self._refused_rows.clear()
            return False
        self._refused_rows.add(items[0].row)
        return True

    def _is_save_due(self, *, is_idle: bool) -> bool:
        """True after a removal, and when enough vectors are new; see `SAVED_SHARE`."""
        if self._unsaved < SAVE_EVERY and not is_idle:
            return False
        return self._has_removal or self._unsaved * SAVED_SHARE > self._get().vectors

    async def _save(self) -> None:
        """Write the file; what changes meanwhile is left to the next time."""
        unsaved, has_removal = self._unsaved, self._has_removal
        self._unsaved, self._has_removal = 0, False
        is_saved = False
        try:
            await self._in_turn(lambda index: index.save())
            is_saved = True
        finally:
            if not is_saved:
                self._unsaved += unsaved
                self._has_removal = self._has_removal or has_removal

    @contextmanager
    def at_home(self, nursery: trio.Nursery) -> Generator[None]:
        """Take the steps in this nursery during the block, so that their askers need not wait."""
        self._home = nursery
        try:
            yield
        finally:
            self._home = None

    async def _in_turn(self, step: Callable[[MemoryIndexing], T]) -> T:
        """Return the result of a step, which has the index for itself.

        A thread cannot be cancelled, and the turn ends with it: the step is a task at home, and an
        asker that is cancelled leaves it there.  Raises Unavailable if the home is closed meanwhile.
        """
        if self._home is None:
            return await self._take_turn(step)
        results: list[outcome.Outcome[T]] = []
        scope, done = trio.CancelScope(), trio.Event()

        async def take() -> None:
            try:
                with scope:
                    results.append(await outcome.acapture(self._take_turn, step))
            finally:
                done.set()

        self._home.start_soon(take)
        try:
            await done.wait()
        finally:
            scope.cancel("the asker has gone")  # the step, if it still waits for its turn
        if not results:
            raise Unavailable("the index of memory stops")
        return results[0].unwrap()

    async def _take_turn(self, step: Callable[[MemoryIndexing], T]) -> T:
        async with self._turn:
            return await self._journal.read(lambda _store: step(self._get()))

    def _get(self) -> MemoryIndexing:
        """Return the index; called in the turn at first."""
        if self._index is None:
            self._index = self._make_index(self._embedder)
        return self._index
