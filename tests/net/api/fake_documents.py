"""Fake workspace documents for connections: one document, and the recorded requests."""

from typing import Self

from palyra.core.access import Caller
from palyra.core.journal.records import DocumentEntry
from palyra.core.memory.document_views import (
    Adopted,
    BlockView,
    Deleted,
    DocumentChange,
    DocumentHistory,
    DocumentList,
    DocumentState,
    DocumentVersion,
    DocumentView,
    EntryChange,
    Flag,
)
from tests.net.api.fake_registry import Asked

FULL = DocumentChange(
    document="MEMORY.md",
    version=2,
    is_written=True,
    checkpoint_id="ckp_1",
    changes=(EntryChange(block="facts", entry_id="mem_1", before="old", after="new"),),
    adopted=(Adopted(block="facts", entry_id="ent_1", text="typed", is_new=True),),
    deleted=(Deleted(block="facts", entry_id="mem_2", text="gone"),),
    flags=(
        Flag(
            block="facts", kind="conflict", reason="edited", line=3, entry_id="mem_3", pending="x"
        ),
    ),
)


class FakeDocuments(Asked):
    """See `services.memory.documents`."""

    def of(self, workspace: str | None) -> Self:
        assert workspace in {None, "default"}
        return self

    async def _ask(self, caller: Caller, scope: str, *asked: object) -> None:
        caller.require(scope)
        await self.note(FULL, *asked)

    async def list_all(self, caller: Caller) -> DocumentList:
        await self._ask(caller, "documents:read")
        state = DocumentState(document="MEMORY.md", exists=True, size_bytes=9, problem="damaged")
        return DocumentList(workspace="/w", writes=False, documents=(state,))

    async def get(self, caller: Caller, document: str, version: int | None) -> DocumentView:
        await self._ask(caller, "documents:read", document, version)
        entry = DocumentEntry(entry_id="mem_1", text="a", asked="a")
        return DocumentView(
            document=document, version=version or 2, sha256="00", size_bytes=9,
            blocks=(BlockView(block="facts", entries=(entry,)),),
            adopted=FULL.adopted, deleted=FULL.deleted, flags=FULL.flags,
        )  # fmt: skip

    async def history(
        self, caller: Caller, document: str, *, before: int | None, limit: int
    ) -> DocumentHistory:
        await self._ask(caller, "documents:read", document, before, limit)
        version = DocumentVersion(
            version=1, at_ms=1, cause="sync", by="root", sha256="00", size_bytes=9, entries=1
        )
        return DocumentHistory(document=document, versions=(version,), next_before=1)

    async def sync(self, caller: Caller, document: str, *, dry_run: bool) -> DocumentChange:
        await self._ask(caller, "documents:write", document, dry_run)
        return FULL

    async def fill(self, caller: Caller, document: str, *, dry_run: bool) -> DocumentChange:
        await self._ask(caller, "documents:write", document, dry_run)
        return FULL

    async def restore(
        self, caller: Caller, document: str, version: int, *, dry_run: bool
    ) -> DocumentChange:
        await self._ask(caller, "documents:write", document, version, dry_run)
        return FULL
