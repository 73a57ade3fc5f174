"""memory.*: items of memory: store, search, change, forget, move, audit.

A caller works on its own memory; operators on that of any principal, by naming it.
"""

from typing import Annotated

import msgspec

from palyra.core.journal.changes import MemoryFilter, MemoryPlace
from palyra.core.journal.records import ItemScope, Lineage, MemoryKind, MemoryRecord
from palyra.core.memory.items import (
    MAX_IMPORT,
    MAX_TTL_MS,
    MemoryAdded,
    MemoryChanged,
    MemoryDraft,
    MemoryForgotten,
    MemoryHit,
    MemoryImported,
    MemoryPurged,
)
from palyra.core.trust.labels import Trust
from palyra.errors import InvalidParams
from palyra.net.api.method import (
    Id,
    Instant,
    Limit,
    Method,
    MethodCall,
    Mutation,
    Ordinal,
    cursor_of,
)
from palyra.net.protocol.params import Integer, NoParams, Params
from palyra.net.protocol.results import (
    MemoryAudit,
    MemoryExport,
    MemoryFound,
    MemoryHistory,
    MemoryItem,
    MemoryPage,
    MemoryRebuilt,
    MemoryScore,
    MemorySearched,
    MemoryStatement,
    MemoryStatus,
    MemoryUsed,
)

Principal = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Place = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Query = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
SearchLimit = Annotated[int, msgspec.Meta(ge=1, le=100)]
Cursor = Annotated[str, cursor_of("mem")]
Tags = Annotated[tuple[str, ...], msgspec.Meta(max_length=32)]
Kinds = Annotated[tuple[MemoryKind, ...], msgspec.Meta(max_length=6)]


class MemoryAdd(Mutation, frozen=True, kw_only=True):
    """A statement to remember; `supersedes` names the item that it corrects."""

    text: str
    kind: MemoryKind = "note"
    tags: tuple[str, ...] = ()
    author: str | None = None
    session_id: str | None = None
    channel: str | None = None
    scope: ItemScope = "principal"
    at_ms: Integer | None = None
    confidence_bps: Integer = 10_000
    ttl_ms: Integer | None = None
    transient: bool = False
    valid_from_ms: Integer | None = None
    pinned: bool = False
    never_recall: bool = False
    lineage: tuple[Lineage, ...] = ()
    trust: Trust = "trusted_local"
    supersedes: Id | None = None
    principal: Principal | None = None


class MemoryImport(Mutation, frozen=True, kw_only=True):
    """Statements to remember; with one session and rising times they are neighbours."""

    items: Annotated[tuple[MemoryStatement, ...], msgspec.Meta(min_length=1, max_length=MAX_IMPORT)]
    on_conflict: Annotated[str, msgspec.Meta(pattern="^(skip|update)$")] = "skip"
    principal: Principal | None = None


class MemorySearchParams(Params, frozen=True, kw_only=True):
    """A question, and filters that are part of the search.

    Naming a session or a channel also opens the items that are limited to it.
    """

    query: Query
    limit: SearchLimit = 10
    kinds: Kinds = ()
    tags: Tags = ()
    author: Place | None = None
    session_id: Place | None = None
    channel: Place | None = None
    since_ms: Instant | None = None
    until_ms: Instant | None = None
    as_of_ms: Instant | None = None
    explain: bool = False
    principal: Principal | None = None


class MemoryGet(Params, frozen=True, kw_only=True):
    """One item; with a session or a channel only if it is recalled there."""

    memory_id: Id
    session_id: Place | None = None
    channel: Place | None = None


class MemoryListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    kinds: Kinds = ()
    tags: Tags = ()
    author: Place | None = None
    session_id: Place | None = None
    channel: Place | None = None
    since_ms: Instant | None = None
    until_ms: Instant | None = None
    superseded: bool = False
    hidden: bool = False
    limit: Limit = 100
    cursor: Cursor | None = None
    principal: Principal | None = None


class MemoryEdit(Mutation, frozen=True, kw_only=True):
    """Changes of an item; omitted members keep their value.

    An empty author removes the author, a `ttl_ms` of 0 the end.
    """

    memory_id: Id
    text: str | None = None
    kind: MemoryKind | None = None
    tags: tuple[str, ...] | None = None
    author: str | None = None
    confidence_bps: Integer | None = None
    ttl_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TTL_MS)] | None = None


class MemoryForget(Mutation, frozen=True, kw_only=True):
    """Items to delete for good, at least one; with `dry_run` nothing is deleted."""

    memory_id: Id | None = None
    memory_ids: Annotated[tuple[Id, ...], msgspec.Meta(max_length=500)] = ()
    dry_run: bool = False


class MemoryChange(Mutation, frozen=True, kw_only=True):
    """The item to change."""

    memory_id: Id


class MemoryPin(Mutation, frozen=True, kw_only=True):
    """The item to pin, or to release."""

    memory_id: Id
    pinned: bool = True


class MemoryNeverRecall(Mutation, frozen=True, kw_only=True):
    """The item to keep out of every search and recall, or to show again."""

    memory_id: Id
    never_recall: bool = True


class MemoryOne(Params, frozen=True, kw_only=True):
    """One item."""

    memory_id: Id


class MemoryWhose(Params, frozen=True, kw_only=True):
    """A memory; the caller's own without a principal."""

    principal: Principal | None = None


class MemoryAuditParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    principal: Principal | None = None
    limit: Limit = 100
    cursor: Ordinal | None = None


class MemoryExportParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    principal: Principal | None = None
    limit: Limit = 200
    cursor: Cursor | None = None


class MemoryUsedParams(Params, frozen=True, kw_only=True):
    """One run."""

    run_id: Id


class MemoryPurge(Mutation, frozen=True, kw_only=True):
    """The principal whose memory is deleted; with `dry_run` nothing is."""

    principal: Principal
    dry_run: bool = False
    sessions: bool = False  # also the content of all its sessions, as `session.purge` does
    cancel: bool = False  # their open runs first


# --- storing -------------------------------------------------------------------------------------


async def add(call: MethodCall, params: MemoryAdd) -> MemoryAdded:
    fields = msgspec.structs.asdict(params)
    for name in ("idempotency_key", "principal"):
        del fields[name]
    draft = MemoryDraft(is_transient=fields.pop("transient"), **fields)
    memories = call.backend.memories
    return await call.once(
        MemoryAdded,
        lambda: memories.add(call.caller, draft, principal=params.principal, receipt=call.key),
        is_kept_by_effect=True,
    )


async def import_(call: MethodCall, params: MemoryImport) -> MemoryImported:
    drafts = [_draft(item) for item in params.items]
    memories = call.backend.memories
    return await call.once(
        MemoryImported,
        lambda: memories.import_items(
            call.caller,
            drafts,
            updates=params.on_conflict == "update",
            principal=params.principal,
            receipt=call.key,
        ),
        is_kept_by_effect=True,
    )


def _draft(item: MemoryStatement) -> MemoryDraft:
    fields = msgspec.structs.asdict(item)
    return MemoryDraft(is_transient=fields.pop("transient"), source="import", **fields)


# --- reading -------------------------------------------------------------------------------------


async def search(call: MethodCall, params: MemorySearchParams) -> MemorySearched:
    wanted = MemoryFilter(
        principal=params.principal or "",
        now_ms=0,
        place=MemoryPlace(principal="", channel=params.channel, session_id=params.session_id),
        kinds=params.kinds,
        tags=params.tags,
        author=params.author,
        channel=params.channel,
        session_id=params.session_id,
        since_ms=params.since_ms,
        until_ms=params.until_ms,
        as_of_ms=params.as_of_ms,
        limit=params.limit,
    )
    found = await call.backend.memory_search.search(call.caller, params.query, wanted)
    return MemorySearched(
        hits=[_show_hit(hit, explain=params.explain) for hit in found.hits],
        mode=found.mode,
        degraded=found.degraded or None,
    )


def _show_hit(hit: MemoryHit, *, explain: bool) -> MemoryFound:
    item = hit.item
    parts = ", ".join(f"{name} {value:.3f}" for name, value in hit.parts.items() if value)
    return MemoryFound(
        memory_id=item.memory_id,
        kind=item.kind,
        text=item.text,
        author=item.author,
        at_ms=item.at_ms,
        session_id=item.session_id,
        tags=item.tags,
        trust=item.trust,
        score=hit.score,
        parts=MemoryScore(**hit.parts),
        lineage=item.lineage,
        later=hit.later,
        why=f"{hit.score:.3f} = {parts}" if explain else None,
    )


async def get(call: MethodCall, params: MemoryGet) -> MemoryItem:
    place = None
    if params.session_id is not None or params.channel is not None:
        place = MemoryPlace(principal="", channel=params.channel, session_id=params.session_id)
    return _show(await call.backend.memories.get(call.caller, params.memory_id, place))


async def list_(call: MethodCall, params: MemoryListParams) -> MemoryPage:
    wanted = MemoryFilter(
        principal=params.principal or "",
        now_ms=0,
        kinds=params.kinds,
        tags=params.tags,
        author=params.author,
        channel=params.channel,
        session_id=params.session_id,
        since_ms=params.since_ms,
        until_ms=params.until_ms,
        with_superseded=params.superseded,
        with_hidden=params.hidden,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.memories.list_items(call.caller, wanted)
    return MemoryPage(
        items=[_show(item) for item in found], next_cursor=_cursor(found, params.limit)
    )


def _cursor(found: list[MemoryRecord], limit: int) -> str | None:
    return found[-1].memory_id if len(found) == limit else None


def _show(item: MemoryRecord) -> MemoryItem:
    fields = msgspec.structs.asdict(item)
    del fields["text_hash"]
    return MemoryItem(**fields)


async def history(call: MethodCall, params: MemoryOne) -> MemoryHistory:
    versions, superseded, log = await call.backend.memories.history(call.caller, params.memory_id)
    return MemoryHistory(
        versions=[_show(item) for item in versions],
        superseded=[_show(item) for item in superseded],
        log=log,
    )


async def status(call: MethodCall, params: MemoryWhose) -> MemoryStatus:
    counts = await call.backend.memories.count(call.caller, params.principal)
    fields = msgspec.structs.asdict(counts)
    return MemoryStatus(
        principal=params.principal or call.caller.principal,
        mode=call.backend.memory_search.mode,
        degraded=call.backend.memory_search.degraded or None,
        embedder=call.backend.embedder(),
        **fields,
    )


async def audit(call: MethodCall, params: MemoryAuditParams) -> MemoryAudit:
    entries = await call.backend.memories.audit(
        call.caller, params.principal, before=params.cursor, limit=params.limit
    )
    is_full = len(entries) == params.limit
    return MemoryAudit(entries=entries, next_cursor=entries[-1].entry if is_full else None)


async def export(call: MethodCall, params: MemoryExportParams) -> MemoryExport:
    wanted = MemoryFilter(
        principal=params.principal or "",
        now_ms=0,
        with_hidden=True,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.memories.list_items(call.caller, wanted)
    now_ms = call.backend.now_ms()
    return MemoryExport(
        items=[_export(item, now_ms) for item in found], next_cursor=_cursor(found, params.limit)
    )


def _export(item: MemoryRecord, now_ms: int) -> MemoryStatement:
    named = set(MemoryStatement.__struct_fields__)
    fields = {name: value for name, value in msgspec.structs.asdict(item).items() if name in named}
    ttl_ms = None if item.expires_ms is None else max(1, item.expires_ms - now_ms)
    return MemoryStatement(ttl_ms=ttl_ms, **fields)


async def used(call: MethodCall, params: MemoryUsedParams) -> MemoryUsed:
    return MemoryUsed(uses=await call.backend.memories.used(call.caller, params.run_id))


# --- changing ------------------------------------------------------------------------------------


async def edit(call: MethodCall, params: MemoryEdit) -> MemoryChanged:
    given = msgspec.structs.asdict(params)
    names = ("text", "kind", "tags", "confidence_bps")
    fields = {name: given[name] for name in names if given[name] is not None}
    if params.author is not None:
        fields["author"] = params.author or None
    if params.ttl_ms is not None:
        fields["expires_ms"] = call.backend.now_ms() + params.ttl_ms if params.ttl_ms else None
    memories = call.backend.memories
    return await call.once(
        MemoryChanged,
        lambda: memories.edit(call.caller, params.memory_id, fields, call.key),
        is_kept_by_effect=True,
    )


async def forget(call: MethodCall, params: MemoryForget) -> MemoryForgotten:
    named = (*params.memory_ids, *([params.memory_id] if params.memory_id is not None else ()))
    memory_ids = tuple(dict.fromkeys(named))
    if not memory_ids:
        raise InvalidParams("name the items to forget: memory_id or memory_ids", field="memory_id")
    memories = call.backend.memories
    if params.dry_run:
        return await memories.forget(call.caller, memory_ids, dry_run=True)
    return await call.once(
        MemoryForgotten,
        lambda: memories.forget(call.caller, memory_ids, call.key),
        is_kept_by_effect=True,
    )


async def undo(call: MethodCall, params: MemoryChange) -> MemoryChanged:
    memories = call.backend.memories
    return await call.once(
        MemoryChanged,
        lambda: memories.undo(call.caller, params.memory_id, call.key),
        is_kept_by_effect=True,
    )


async def pin(call: MethodCall, params: MemoryPin) -> MemoryChanged:
    memories = call.backend.memories
    return await call.once(
        MemoryChanged,
        lambda: memories.pin(call.caller, params.memory_id, pinned=params.pinned, receipt=call.key),
        is_kept_by_effect=True,
    )


async def never_recall(call: MethodCall, params: MemoryNeverRecall) -> MemoryChanged:
    memories = call.backend.memories
    return await call.once(
        MemoryChanged,
        lambda: memories.never_recall(
            call.caller, params.memory_id, hidden=params.never_recall, receipt=call.key
        ),
        is_kept_by_effect=True,
    )


async def rebuild(call: MethodCall, _params: NoParams) -> MemoryRebuilt:
    return MemoryRebuilt(rows=await call.backend.memories.rebuild(call.caller))


async def purge(call: MethodCall, params: MemoryPurge) -> MemoryPurged:
    async def effect() -> MemoryPurged:
        done = await call.backend.data_rights.purge_principal(
            call.caller,
            params.principal,
            sessions=params.sessions,
            cancel=params.cancel,
            dry_run=params.dry_run,
        )
        if not params.dry_run:
            await call.backend.logins.forget_pushes(params.principal)
        return done

    return await (effect() if params.dry_run else call.once(MemoryPurged, effect))


READ, WRITE = "memory:read", "memory:write"
METHODS = (
    Method("memory.add", MemoryAdd, MemoryAdded, WRITE, add),
    Method("memory.import", MemoryImport, MemoryImported, WRITE, import_),
    Method("memory.search", MemorySearchParams, MemorySearched, READ, search, is_bulk=True),
    Method("memory.get", MemoryGet, MemoryItem, READ, get),
    Method("memory.list", MemoryListParams, MemoryPage, READ, list_, is_bulk=True),
    Method("memory.edit", MemoryEdit, MemoryChanged, WRITE, edit),
    Method("memory.forget", MemoryForget, MemoryForgotten, WRITE, forget),
    Method("memory.undo", MemoryChange, MemoryChanged, WRITE, undo),
    Method("memory.pin", MemoryPin, MemoryChanged, WRITE, pin),
    Method("memory.never_recall", MemoryNeverRecall, MemoryChanged, WRITE, never_recall),
    Method("memory.history", MemoryOne, MemoryHistory, READ, history, is_bulk=True),
    Method("memory.status", MemoryWhose, MemoryStatus, READ, status),
    Method("memory.rebuild", NoParams, MemoryRebuilt, WRITE, rebuild),
    Method("memory.audit", MemoryAuditParams, MemoryAudit, READ, audit),
    Method("memory.export", MemoryExportParams, MemoryExport, READ, export, is_bulk=True),
    Method("memory.used", MemoryUsedParams, MemoryUsed, READ, used),
    Method("memory.purge", MemoryPurge, MemoryPurged, WRITE, purge),
)
