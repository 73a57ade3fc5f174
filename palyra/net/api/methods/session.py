"""session.*: conversations and their queues."""

from typing import Annotated

import msgspec

from palyra.core.journal.records import QueueMode, SessionRecord
from palyra.core.session.commands import ChangeQueue, Queue, SessionCompacted
from palyra.errors import InvalidParams
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, cursor_of
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import SessionList

MAX_NAMED = 1_000  # runs in one change of a queue
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class SessionResolve(Mutation, frozen=True, kw_only=True):
    """Find a session by id, or find or create one by key."""

    session_id: Id | None = None
    session_key: Key | None = None


class SessionGet(Params, frozen=True, kw_only=True):
    """One session."""

    session_id: Id


class SessionChange(Mutation, frozen=True, kw_only=True):
    """The session to change."""

    session_id: Id


class SessionListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    limit: Limit = 100
    cursor: Annotated[str, cursor_of("ses")] | None = None


class SessionQueue(Mutation, frozen=True, kw_only=True):
    """Changes to a session's queue; with only an id a read, which needs sessions:read alone."""

    session_id: Id
    mode: QueueMode | None = None
    paused: bool | None = None
    drop: Annotated[tuple[Id, ...], msgspec.Meta(max_length=MAX_NAMED)] = ()
    order: Annotated[tuple[Id, ...], msgspec.Meta(max_length=MAX_NAMED)] = ()


class SessionCompact(Mutation, frozen=True, kw_only=True):
    """Summarise the older part of a session; a preview needs sessions:read alone."""

    session_id: Id
    preview: bool = False


async def resolve(call: MethodCall, params: SessionResolve) -> SessionRecord:
    if (params.session_id is None) == (params.session_key is None):
        raise InvalidParams("give exactly one of session_id and session_key", field="session_id")
    sessions = call.backend.sessions
    return await call.once(
        SessionRecord,
        lambda: sessions.resolve(call.caller, key=params.session_key, session_id=params.session_id),
    )


async def get(call: MethodCall, params: SessionGet) -> SessionRecord:
    return await call.backend.sessions.get(call.caller, params.session_id)


async def list_(call: MethodCall, params: SessionListParams) -> SessionList:
    found = await call.backend.sessions.list_seen(
        call.caller, before=params.cursor, limit=params.limit
    )
    is_full = len(found) == params.limit
    return SessionList(sessions=found, next_cursor=found[-1].session_id if is_full else None)


async def archive(call: MethodCall, params: SessionChange) -> SessionRecord:
    sessions = call.backend.sessions
    return await call.once(SessionRecord, lambda: sessions.archive(call.caller, params.session_id))


async def reset(call: MethodCall, params: SessionChange) -> SessionRecord:
    sessions = call.backend.sessions
    return await call.once(SessionRecord, lambda: sessions.reset(call.caller, params.session_id))


async def queue(call: MethodCall, params: SessionQueue) -> Queue:
    change = ChangeQueue(
        mode=params.mode, paused=params.paused, drop=params.drop, order=params.order
    )
    sessions = call.backend.sessions
    return await call.once(
        Queue, lambda: sessions.arrange_queue(call.caller, params.session_id, change)
    )


async def compact(call: MethodCall, params: SessionCompact) -> SessionCompacted:
    gateway = call.backend.gateway
    if params.preview:
        return await gateway.preview_compaction(call.caller, params.session_id)
    return await call.once(
        SessionCompacted,
        lambda: gateway.compact_session(call.caller, params.session_id, call.key),
    )


METHODS = (
    Method("session.resolve", SessionResolve, SessionRecord, "sessions:write", resolve),
    Method("session.get", SessionGet, SessionRecord, "sessions:read", get),
    Method("session.list", SessionListParams, SessionList, "sessions:read", list_),
    Method("session.archive", SessionChange, SessionRecord, "sessions:write", archive),
    Method("session.reset", SessionChange, SessionRecord, "sessions:write", reset),
    Method("session.queue", SessionQueue, Queue, "sessions:read", queue),
    Method("session.compact", SessionCompact, SessionCompacted, "sessions:read", compact),
)
