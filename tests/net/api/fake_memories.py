"""The memory service over a store in memory; receipts go where the daemon's are."""

from collections.abc import Callable

import msgspec

from palyra.core.journal.changes import Change, MemoryLogLine
from palyra.core.journal.records import IdempotencyRecord, RunRecord
from palyra.core.memory.items import revise
from palyra.services.memory.items import Memories
from tests.net.api.fake_store import FakeStore
from tests.services.memory_kit import InlineJournal, build
from tests.store.kit import memory, run
from tests.store.memory.journal import MemoryJournal


class SplitJournal(InlineJournal):
    """A journal whose receipts are committed to the daemon's store."""

    def __init__(self, store: MemoryJournal, receipts: FakeStore) -> None:
        super().__init__(store)
        self._receipts = receipts

    async def commit(self, change: Change) -> None:
        kept = [each for each in change.records if isinstance(each, IdempotencyRecord)]
        rest = [each for each in change.records if not isinstance(each, IdempotencyRecord)]
        await super().commit(msgspec.structs.replace(change, records=tuple(rest)))
        self._receipts.write(Change(records=tuple(kept)))


class FakeMemories:
    """One item of root's in two revisions, and its run."""

    def __init__(self, receipts: FakeStore, now_ms: Callable[[], int]) -> None:
        self.store = MemoryJournal(now_ms=now_ms)
        self.store.open()
        item = memory("mem_1", principal="root")
        edited = revise(item, "edited", by="root", now_ms=1, text="another text")
        owned: RunRecord = run("run_1", principal="root")
        assert [None] == self.store.commit([Change(records=(item, edited, owned))])
        self.service: Memories = build(SplitJournal(self.store, receipts), now_ms)

    @property
    def asked(self) -> list[MemoryLogLine]:
        """What was changed."""
        return self.store.list_memory_log(principal=None, limit=99)
