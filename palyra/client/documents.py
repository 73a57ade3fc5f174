"""Typed methods about workspace documents."""

from palyra.client.requests import RequestMethods
from palyra.core.memory.document_views import (
    DocumentChange,
    DocumentHistory,
    DocumentList,
    DocumentView,
)


class DocumentMethods(RequestMethods):
    """Read documents and their versions, adopt edits, restore managed blocks.

    Each method works in the default workspace unless one is named.
    """

    async def list_documents(self, *, workspace: str | None = None) -> DocumentList:
        """Every document of the workspace."""
        return await self._ask("document.list", {"workspace": workspace}, DocumentList)

    async def get_document(
        self, document: str, version: int | None = None, *, workspace: str | None = None
    ) -> DocumentView:
        """The managed blocks in the file, or those of a version."""
        params = {"document": document, "version": version, "workspace": workspace}
        return await self._ask("document.get", params, DocumentView)

    async def document_history(
        self,
        document: str,
        *,
        before: int | None = None,
        limit: int | None = None,
        workspace: str | None = None,
    ) -> DocumentHistory:
        """A page of versions, newest first; `before` is the `next_before` of the page before."""
        params = {
            "document": document,
            "before": before,
            "limit": limit,
            "workspace": workspace,
        }
        return await self._ask("document.history", params, DocumentHistory)

    async def sync_document(
        self, document: str, *, dry_run: bool = False, workspace: str | None = None
    ) -> DocumentChange:
        """Adopt the edits in the file; with `dry_run` only list them.  Repeat it after a lost reply."""
        params = {"document": document, "dry_run": dry_run, "workspace": workspace}
        return await self._ask("document.sync", params, DocumentChange)

    async def fill_document(
        self, document: str, *, dry_run: bool = False, workspace: str | None = None
    ) -> DocumentChange:
        """Write your pinned memories to the block `pinned`; with `dry_run` only list the changes.

        Repeat it after a lost reply.
        """
        params = {"document": document, "dry_run": dry_run, "workspace": workspace}
        return await self._ask("document.fill", params, DocumentChange)

    async def restore_document(
        self,
        document: str,
        version: int,
        *,
        dry_run: bool = False,
        workspace: str | None = None,
    ) -> DocumentChange:
        """Give the managed blocks the entries of a version; with `dry_run` only list the changes.

        Repeat it after a lost reply.
        """
        params = {
            "document": document,
            "version": version,
            "dry_run": dry_run,
            "workspace": workspace,
        }
        return await self._ask("document.restore", params, DocumentChange)
