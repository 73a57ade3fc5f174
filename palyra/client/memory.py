"""Typed methods about the memory."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import ItemScope, Lineage, MemoryKind
from palyra.core.memory.items import (
    MemoryAdded,
    MemoryChanged,
    MemoryForgotten,
    MemoryImported,
    MemoryPurged,
)
from palyra.core.trust.labels import Trust
from palyra.net.protocol.results import (
    MemoryAudit,
    MemoryExport,
    MemoryHistory,
    MemoryItem,
    MemoryPage,
    MemoryRebuilt,
    MemorySearched,
    MemoryStatement,
    MemoryStatus,
    MemoryUsed,
)


class MemoryOptions(TypedDict, total=False):
    """Members of a new item besides its text."""

    kind: MemoryKind
    tags: Sequence[str]
    author: str | None
    session_id: str | None
    channel: str | None
    scope: ItemScope
    at_ms: int | None
    confidence_bps: int
    ttl_ms: int | None
    transient: bool
    valid_from_ms: int | None
    pinned: bool
    never_recall: bool
    lineage: Sequence[Lineage]
    trust: Trust
    supersedes: str | None
    principal: str | None
    idempotency_key: str | None


class MemoryWanted(TypedDict, total=False):
    """Filter of a search or a list."""

    kinds: Sequence[MemoryKind]
    tags: Sequence[str]
    author: str | None
    session_id: str | None
    channel: str | None
    since_ms: int | None
    until_ms: int | None
    principal: str | None


class MemoryEdits(TypedDict, total=False):
    """Members of an item to change; `ttl_ms` 0 removes its end, author "" the author."""

    text: str
    kind: MemoryKind
    tags: Sequence[str]
    author: str
    confidence_bps: int
    ttl_ms: int


class MemoryMethods(RequestMethods):
    """Store, search, change and delete items of memory."""

    async def add_memory(self, text: str, **options: Unpack[MemoryOptions]) -> MemoryAdded:
        """Store a statement, or update or supersede the item that it repeats or corrects."""
        return await self._mutate("memory.add", {"text": text, **options}, MemoryAdded)

    async def import_memories(
        self,
        items: Sequence[MemoryStatement],
        *,
        on_conflict: Literal["skip", "update"] = "skip",
        principal: str | None = None,
        idempotency_key: str | None = None,
    ) -> MemoryImported:
        """Store up to 500 statements in one transaction."""
        params = {
            "items": list(items),
            "on_conflict": on_conflict,
            "principal": principal,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("memory.import", params, MemoryImported)

    async def search_memories(
        self,
        query: str,
        *,
        limit: int = 10,
        as_of_ms: int | None = None,
        explain: bool = False,
        **wanted: Unpack[MemoryWanted],
    ) -> MemorySearched:
        """Return the best matches of a question."""
        params = {
            "query": query, "limit": limit, "as_of_ms": as_of_ms, "explain": explain, **wanted,
        }  # fmt: skip
        return await self._ask("memory.search", params, MemorySearched)

    async def get_memory(
        self, memory_id: str, *, session_id: str | None = None, channel: str | None = None
    ) -> MemoryItem:
        """Return a memory; with a session or channel only if it is recalled there.  Raises NotFound."""
        params = {"memory_id": memory_id, "session_id": session_id, "channel": channel}
        return await self._ask("memory.get", params, MemoryItem)

    async def list_memories(
        self,
        *,
        superseded: bool = False,
        hidden: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        **wanted: Unpack[MemoryWanted],
    ) -> MemoryPage:
        """Return a page, newest first; `cursor` is the `next_cursor` of the page before."""
        params = {
            "superseded": superseded, "hidden": hidden, "limit": limit, "cursor": cursor, **wanted,
        }  # fmt: skip
        return await self._ask("memory.list", params, MemoryPage)

    async def edit_memory(self, memory_id: str, **edits: Unpack[MemoryEdits]) -> MemoryChanged:
        """Change an item; the revision before is kept."""
        params: dict[str, Any] = {"memory_id": memory_id, **edits}
        return await self._mutate("memory.edit", params, MemoryChanged)

    async def forget_memories(self, *memory_ids: str, dry_run: bool = False) -> MemoryForgotten:
        """Delete items for good, with what they superseded."""
        params = {"memory_ids": memory_ids, "dry_run": dry_run}
        return await self._mutate("memory.forget", params, MemoryForgotten)

    async def undo_memory(self, memory_id: str) -> MemoryChanged:
        """Take back the last change of an item, or the correction that it was."""
        return await self._mutate("memory.undo", {"memory_id": memory_id}, MemoryChanged)

    async def pin_memory(self, memory_id: str, *, pinned: bool = True) -> MemoryChanged:
        """Pin a memory, or unpin it with `pinned=False`.  Raises NotFound."""
        params = {"memory_id": memory_id, "pinned": pinned}
        return await self._mutate("memory.pin", params, MemoryChanged)

    async def never_recall_memory(
        self, memory_id: str, *, never_recall: bool = True
    ) -> MemoryChanged:
        """Exclude a memory from recall, or include it again.  Raises NotFound."""
        params = {"memory_id": memory_id, "never_recall": never_recall}
        return await self._mutate("memory.never_recall", params, MemoryChanged)

    async def get_memory_history(self, memory_id: str) -> MemoryHistory:
        """Return the versions of a memory, oldest first, and its log, newest first.  Raises NotFound."""
        return await self._ask("memory.history", {"memory_id": memory_id}, MemoryHistory)

    async def get_memory_status(self, principal: str | None = None) -> MemoryStatus:
        """Return the state of the memory of a principal, by default of the caller."""
        return await self._ask("memory.status", {"principal": principal}, MemoryStatus)

    async def rebuild_memory(self) -> MemoryRebuilt:
        """Write the index of all items again.  Operators only."""
        return await self._ask("memory.rebuild", {}, MemoryRebuilt)

    async def audit_memory(
        self, principal: str | None = None, *, limit: int = 100, cursor: int | None = None
    ) -> MemoryAudit:
        """Return a page of changes, newest first."""
        params = {"principal": principal, "limit": limit, "cursor": cursor}
        return await self._ask("memory.audit", params, MemoryAudit)

    async def export_memories(
        self, principal: str | None = None, *, limit: int = 200, cursor: str | None = None
    ) -> MemoryExport:
        """Return a page of items as an import takes them, newest first."""
        params = {"principal": principal, "limit": limit, "cursor": cursor}
        return await self._ask("memory.export", params, MemoryExport)

    async def get_memory_used(self, run_id: str) -> MemoryUsed:
        """Return what the memory gave a run, and for which question."""
        return await self._ask("memory.used", {"run_id": run_id}, MemoryUsed)

    async def purge_memory(
        self,
        principal: str,
        *,
        sessions: bool = False,
        cancel: bool = False,
        dry_run: bool = False,
    ) -> MemoryPurged:
        """Delete the whole memory of a principal, and with `sessions` the content of its sessions."""
        params = {
            "principal": principal,
            "sessions": sessions,
            "cancel": cancel,
            "dry_run": dry_run,
        }
        return await self._mutate("memory.purge", params, MemoryPurged)
