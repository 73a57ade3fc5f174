"""The memory over a real store, in one task and without threads."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import trio

from palyra.core.access import Caller
from palyra.core.ids import Prefix
from palyra.core.journal.changes import Change, MemoryFilter, MemoryPlace
from palyra.core.journal.records import Role
from palyra.core.memory.items import MemoryDraft
from palyra.core.ports import JournalStore, MemoryEmbedder
from palyra.core.redaction.redactor import Redactor
from palyra.errors import PalyraError
from palyra.models.lexical_embeddings import text_similarity
from palyra.models.memory_embedders import HashedEmbedder
from palyra.services.memory.embedders import LocalEmbedder
from palyra.services.memory.index import SharedMemoryIndex
from palyra.services.memory.items import Memories
from palyra.services.memory.search import MemorySearch
from palyra.store.vectors.search import IndexedMemory
from tests.store.kit import Clock, sqlite_journal

T = TypeVar("T")
Args = TypeVarTuple("Args")
SECRET = "sk-ant-api03-" + "A1b2C3d4" * 12


def caller(principal: str, role: Role = "client") -> Caller:
    return Caller(principal=principal, role=role, token_id="tok")


ANN, BOB, OP = caller("ann"), caller("bob"), caller("op", "operator")


class DoneWrite:
    """A ticket of an append that is durable."""

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()


class InlineJournal:
    """`core.ports.Journal` that does everything at once; `refusal` is raised by the next commit."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.refusal: PalyraError | None = None
        self.before_commit: Callable[[], Any] = lambda: None
        self.after_read: Callable[[], Any] = lambda: None
        self.backlog, self.is_writable, self.has_room = 0, True, True

    def append(self, change: Change) -> Any:
        (outcome,) = self.store.commit([change])
        assert outcome is None
        return DoneWrite()

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        self.before_commit()
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        (outcome,) = self.store.commit([change])
        if outcome is not None:
            raise outcome

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        await trio.lowlevel.checkpoint()
        found = query(self.store)
        self.after_read()
        return found

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        return await self.read(query)


async def run_inline(fn: Callable[[*Args], T], /, *args: *Args) -> T:
    await trio.lowlevel.checkpoint()
    return fn(*args)


def build(
    journal: InlineJournal, now_ms: Callable[[], int], index: SharedMemoryIndex | None = None
) -> Memories:
    """The service over a journal, with ids that count."""
    ids = count(1)

    def new_id(prefix: Prefix) -> str:
        return f"{prefix}_{next(ids):04}"

    redactor = Redactor([])
    return Memories(
        journal=journal,
        search=MemorySearch(journal, redactor, now_ms=now_ms, new_id=new_id, index=index),
        redactor=redactor,
        now_ms=now_ms,
        new_id=new_id,
        run_blocking=run_inline,
        similarity=text_similarity,
    )


class MemoryKit:
    """The memory and what is around it."""

    def __init__(self, directory: Path, *, is_indexed: bool = False) -> None:
        self.clock = Clock()
        self.store = sqlite_journal(directory, self.clock)
        self.store.open()
        self.journal = InlineJournal(self.store)
        self.embedder: MemoryEmbedder = LocalEmbedder(HashedEmbedder(), run_inline)
        self.index_file = directory / "memory.index"
        self.index = self.build_index() if is_indexed else None
        self.memories = build(self.journal, self.clock, self.index)
        self.search = self.memories.search
        self.conversations = self.search._conversations = self.build_conversations()

    def build_index(self) -> SharedMemoryIndex:
        return SharedMemoryIndex(self.make_index, self.journal, lambda: self.embedder)

    def make_index(self, embedder: MemoryEmbedder) -> IndexedMemory:
        return IndexedMemory(self.store, self.index_file, embedder)

    def build_conversations(self) -> SharedMemoryIndex:
        turns = self.store.turns()
        path = self.index_file.with_name("conversations.index")
        return SharedMemoryIndex(
            lambda embedder: IndexedMemory(turns, path, embedder),
            self.journal,
            lambda: self.embedder,
            turns.plan_turns,
        )

    async def keep_up(self) -> None:
        """Take the steps of upkeep that are due."""
        assert self.index is not None
        while await self.index.upkeep():
            pass

    async def add(self, text: str, who: Caller = ANN, **fields: Any) -> str:
        """Store a fact; its id."""
        draft = MemoryDraft(text=text, **{"kind": "fact", **fields})
        return (await self.memories.add(who, draft)).memory_id

    async def put(self, text: str, who: Caller = ANN, **fields: Any) -> str:
        """Store a fact; its disposition."""
        draft = MemoryDraft(text=text, **{"kind": "fact", **fields})
        return (await self.memories.add(who, draft)).disposition

    async def found(self, query: str, who: Caller = ANN, **fields: Any) -> list[str]:
        """Ids of the hits, sorted; `place` narrows where it is asked from."""
        wanted = MemoryFilter(principal="", now_ms=0, **fields)
        hits = (await self.search.search(who, query, wanted)).hits
        return sorted(hit.item.memory_id for hit in hits)

    async def texts(self, who: Caller = ANN, **fields: Any) -> list[str]:
        """Texts of the listed items, sorted."""
        wanted = MemoryFilter(principal="", now_ms=0, **fields)
        return sorted(item.text for item in await self.memories.list_items(who, wanted))


def place(principal: str = "ann", **fields: Any) -> MemoryPlace:
    return MemoryPlace(principal=principal, **fields)
