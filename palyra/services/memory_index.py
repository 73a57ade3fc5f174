"""The index of memory as a service: searched by one thread at a time, kept up in small steps.

Owns: the turn of the index.  Talks to: the index (port), in readers' threads of the journal; the
journal, which stores the vectors.  Called by: `services.memory_search`, and `actors.memory` for the
upkeep.
Never: makes a search wait for an embedding or a build of vectors; a search meanwhile uses words, and
says so.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.memory.items import MemoryHits
from palyra.core.ports import Journal, MemoryIndexing

T = TypeVar("T")

SAVE_EVERY = 1_000  # vectors between two writes of the file, while there is more to embed


class SharedMemoryIndex:
    """One index for all searches of the daemon, made when it is first needed."""

    def __init__(self, make_index: Callable[[], MemoryIndexing], journal: Journal) -> None:
        """`make_index` is called in a thread."""
        self._make_index = make_index
        self._journal = journal
        self._index: MemoryIndexing | None = None
        self._turn = trio.Lock()
        self._needed = trio.Event()
        self._unsaved = 0

    @property
    def degraded(self) -> str:
        """Reason why only words are searched; "" for none."""
        return "" if self._index is None else self._index.degraded

    async def find(self, query: str, wanted: MemoryFilter) -> MemoryHits:
        """Return the best items.  Raises Unavailable.  Cancellation: nothing happened."""
        if self._index is None:
            self.notify()
        return await self._in_turn(lambda index: index.find(query, wanted))

    def notify(self, *, is_removal: bool = False) -> None:
        """Say that items have changed; after a removal the file is written without their vectors."""
        self._unsaved += is_removal
        self._needed.set()

    async def find_damage(self) -> str:
        """Return the defect of an index in use, "" for none.  Raises Unavailable."""
        if self._index is None:
            return ""
        return await self._in_turn(lambda index: index.damage)

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
        job = await self._in_turn(lambda index: index.plan_build())
        if job is not None:
            built = await self._journal.read(lambda _store: job())
            await self._in_turn(lambda index: index.adopt(built))
            await self._save()
            return True
        batch = await self._journal.read(lambda _store: self._get().embed_next())
        if batch is not None:
            await self._journal.commit(Change(records=(batch,)))
            rows = [each.row for each in batch.vectors]
            await self._in_turn(lambda index: index.refresh(rows))
            self._unsaved += len(rows)
        if self._unsaved and (batch is None or self._unsaved >= SAVE_EVERY):
            await self._save()
        return batch is not None

    async def _save(self) -> None:
        await self._in_turn(lambda index: index.save())
        self._unsaved = 0

    async def _in_turn(self, step: Callable[[MemoryIndexing], T]) -> T:
        async with self._turn:
            return await self._journal.read(lambda _store: step(self._get()))

    def _get(self) -> MemoryIndexing:
        """Return the index; called in the turn at first."""
        if self._index is None:
            self._index = self._make_index()
        return self._index
