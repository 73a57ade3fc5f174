"""document.*: managed blocks of MEMORY.md, PALYRA.md and USER.md.  Operators only.

No method takes an idempotency key: a repeated sync finds nothing more to adopt, a repeated restore
nothing to change.  So no idempotency record keeps a text that is forgotten later.
"""

from typing import Annotated

import msgspec

from palyra.core.memory.document_views import (
    DocumentChange,
    DocumentHistory,
    DocumentList,
    DocumentView,
)
from palyra.net.api.method import Limit, Method, MethodCall, Ordinal, WorkspaceName
from palyra.net.protocol.params import Params

DocumentName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class DocumentListParams(Params, frozen=True, kw_only=True):
    """The documents of a workspace, of the default one unless it is named."""

    workspace: WorkspaceName | None = None


class DocumentGet(Params, frozen=True, kw_only=True):
    """The blocks that are in the file now, or those of one version."""

    document: DocumentName
    workspace: WorkspaceName | None = None  # the default one
    version: Ordinal | None = None


class DocumentHistoryParams(Params, frozen=True, kw_only=True):
    """Newest first; `before` is the `next_before` of the page before."""

    document: DocumentName
    workspace: WorkspaceName | None = None  # the default one
    before: Ordinal | None = None
    limit: Limit = 100


class DocumentSync(Params, frozen=True, kw_only=True):
    """Adopt the edits in the file as the caller's, or only list them."""

    document: DocumentName
    workspace: WorkspaceName | None = None  # the default one
    dry_run: bool = False


class DocumentFill(Params, frozen=True, kw_only=True):
    """Write the caller's pinned memories to the block `pinned`, or only list the differences."""

    document: DocumentName
    workspace: WorkspaceName | None = None  # the default one
    dry_run: bool = False


class DocumentRestore(Params, frozen=True, kw_only=True):
    """Give the managed blocks the entries of a version, or only list the differences."""

    document: DocumentName
    workspace: WorkspaceName | None = None  # the default one
    version: Ordinal
    dry_run: bool = False


async def list_(call: MethodCall, params: DocumentListParams) -> DocumentList:
    return await call.backend.documents.of(params.workspace).list_all(call.caller)


async def get(call: MethodCall, params: DocumentGet) -> DocumentView:
    return await call.backend.documents.of(params.workspace).get(
        call.caller, params.document, params.version
    )


async def history(call: MethodCall, params: DocumentHistoryParams) -> DocumentHistory:
    return await call.backend.documents.of(params.workspace).history(
        call.caller, params.document, before=params.before, limit=params.limit
    )


async def sync(call: MethodCall, params: DocumentSync) -> DocumentChange:
    return await call.backend.documents.of(params.workspace).sync(
        call.caller, params.document, dry_run=params.dry_run
    )


async def fill(call: MethodCall, params: DocumentFill) -> DocumentChange:
    return await call.backend.documents.of(params.workspace).fill(
        call.caller, params.document, dry_run=params.dry_run
    )


async def restore(call: MethodCall, params: DocumentRestore) -> DocumentChange:
    return await call.backend.documents.of(params.workspace).restore(
        call.caller, params.document, params.version, dry_run=params.dry_run
    )


METHODS = (
    Method("document.list", DocumentListParams, DocumentList, "documents:read", list_),
    Method("document.get", DocumentGet, DocumentView, "documents:read", get, is_bulk=True),
    Method(
        "document.history", DocumentHistoryParams, DocumentHistory, "documents:read", history,
        is_bulk=True,
    ),
    Method("document.sync", DocumentSync, DocumentChange, "documents:write", sync, is_bulk=True),
    Method("document.fill", DocumentFill, DocumentChange, "documents:write", fill, is_bulk=True),
    Method(
        "document.restore", DocumentRestore, DocumentChange, "documents:write", restore,
        is_bulk=True,
    ),
)  # fmt: skip
