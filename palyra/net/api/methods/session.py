"""session.*: conversations and their queues; workspace.list: the folders that they can work in."""

from typing import Annotated

import msgspec

from palyra.core.journal.records import (
    Pin,
    QueueMode,
    SessionCheckpointRecord,
    SessionMode,
    SessionRecord,
)
from palyra.core.session.commands import (
    ChangeQueue,
    Queue,
    RestoreSession,
    SessionCheckpoints,
    SessionCompacted,
    SessionRestored,
)
from palyra.core.session.purge import PurgeSession, SessionPurged
from palyra.errors import InvalidParams
from palyra.net.api.method import (
    Id,
    Limit,
    Method,
    MethodCall,
    Mutation,
    Seq,
    WorkspaceName,
    check_no_secret,
    cursor_of,
)
from palyra.net.protocol.params import NoParams, Params
from palyra.net.protocol.results import SessionList, WorkspaceList, WorkspaceView

MAX_NAMED = 1_000  # runs in one change of a queue
MAX_TITLE_CHARS = 100
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class SessionResolve(Mutation, frozen=True, kw_only=True):
    """Find a session by id, or find or create one by key."""

    session_id: Id | None = None
    session_key: Key | None = None
    workspace: WorkspaceName | None = None  # of a new session; the default one


class SessionGet(Params, frozen=True, kw_only=True):
    """One session."""

    session_id: Id


class SessionChange(Mutation, frozen=True, kw_only=True):
    """The session to change."""

    session_id: Id


class SessionRename(Mutation, frozen=True, kw_only=True):
    """The title of a session; with "" the next message gives it one."""

    session_id: Id
    title: Annotated[str, msgspec.Meta(max_length=MAX_TITLE_CHARS)]


class SessionSetMode(Mutation, frozen=True, kw_only=True):
    """Change what is asked about in a session; for those who may answer its approvals."""

    session_id: Id
    mode: SessionMode


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


class SessionPin(Mutation, frozen=True, kw_only=True):
    """Pin a message or tool result, so that compactions keep it verbatim; or unpin it."""

    session_id: Id
    run_id: Id
    seq: Seq  # of the event that brought it
    pinned: bool = True


class SessionCheckpoint(Mutation, frozen=True, kw_only=True):
    """Mark a point of a session; without `run_id` and `seq` its newest one."""

    session_id: Id
    run_id: Id | None = None
    seq: Seq | None = None
    name: Annotated[str, msgspec.Meta(max_length=256)] = ""


class SessionCheckpointsParams(Params, frozen=True, kw_only=True):
    """Checkpoints of a session, newest first; compactions are checkpoints, too."""

    session_id: Id
    limit: Limit = 100


class SessionRestore(Mutation, frozen=True, kw_only=True):
    """Continue a session from a checkpoint in a new session; the old one stays as it is.

    Without a `checkpoint_id` the last compaction is undone.
    """

    session_id: Id
    checkpoint_id: Id | None = None
    files: bool = False  # undo changes that calls of the session have made to files since
    force: bool = False  # also of files that another program has changed since
    documents: bool = False  # give workspace documents the entries that they had
    dry_run: bool = False  # only show what would happen


class SessionPurgeParams(Mutation, frozen=True, kw_only=True):
    """Remove the content of a session for good; what it removed is on record."""

    session_id: Id
    cancel: bool = False  # open runs first; otherwise one of them refuses the request
    dry_run: bool = False  # only show what would go


async def resolve(call: MethodCall, params: SessionResolve) -> SessionRecord:
    if (params.session_id is None) == (params.session_key is None):
        raise InvalidParams("give exactly one of session_id and session_key", field="session_id")
    sessions = call.backend.sessions
    return await call.once(
        SessionRecord,
        lambda: sessions.resolve(
            call.caller,
            key=params.session_key,
            session_id=params.session_id,
            workspace=params.workspace,
        ),
    )


async def get(call: MethodCall, params: SessionGet) -> SessionRecord:
    return await call.backend.sessions.get(call.caller, params.session_id)


async def list_(call: MethodCall, params: SessionListParams) -> SessionList:
    found = await call.backend.sessions.list_seen(
        call.caller, before=params.cursor, limit=params.limit
    )
    is_full = len(found) == params.limit
    return SessionList(sessions=found, next_cursor=found[-1].session_id if is_full else None)


async def list_workspaces(call: MethodCall, _: NoParams) -> WorkspaceList:
    folders = dict(call.backend.workspaces)  # they may change meanwhile
    problems = await call.backend.run_blocking(
        lambda: [each.find_problem() for each in folders.values()]
    )
    return WorkspaceList(
        workspaces=[
            WorkspaceView(name=name, path=str(each.root), problem=problem)
            for (name, each), problem in zip(folders.items(), problems, strict=True)
        ]
    )


async def archive(call: MethodCall, params: SessionChange) -> SessionRecord:
    sessions = call.backend.sessions
    return await call.once(SessionRecord, lambda: sessions.archive(call.caller, params.session_id))


async def rename(call: MethodCall, params: SessionRename) -> SessionRecord:
    check_no_secret(call, title=params.title)
    sessions = call.backend.sessions
    return await call.once(
        SessionRecord, lambda: sessions.rename(call.caller, params.session_id, params.title)
    )


async def reset(call: MethodCall, params: SessionChange) -> SessionRecord:
    sessions = call.backend.sessions
    return await call.once(SessionRecord, lambda: sessions.reset(call.caller, params.session_id))


async def set_mode(call: MethodCall, params: SessionSetMode) -> SessionRecord:
    sessions = call.backend.sessions
    return await call.once(
        SessionRecord, lambda: sessions.set_mode(call.caller, params.session_id, params.mode)
    )


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
        is_kept_by_effect=True,
    )


async def pin(call: MethodCall, params: SessionPin) -> SessionRecord:
    sessions = call.backend.sessions
    named = Pin(params.run_id, params.seq)
    return await call.once(
        SessionRecord,
        lambda: sessions.pin(call.caller, params.session_id, named, is_on=params.pinned),
    )


async def checkpoint(call: MethodCall, params: SessionCheckpoint) -> SessionCheckpointRecord:
    check_no_secret(call, name=params.name)
    checkpoints = call.backend.checkpoints
    return await call.once(
        SessionCheckpointRecord,
        lambda: checkpoints.create(
            call.caller, params.session_id, params.run_id, params.seq, params.name
        ),
    )


async def list_checkpoints(
    call: MethodCall, params: SessionCheckpointsParams
) -> SessionCheckpoints:
    return await call.backend.checkpoints.list_seen(call.caller, params.session_id, params.limit)


async def restore(call: MethodCall, params: SessionRestore) -> SessionRestored:
    async def effect() -> SessionRestored:
        command = RestoreSession(
            session_id=params.session_id,
            checkpoint_id=params.checkpoint_id,
            files=params.files,
            force=params.force,
            documents=params.documents,
            dry_run=params.dry_run,
        )
        return await call.backend.checkpoints.restore(call.caller, command, call.key)

    if params.dry_run:
        return await effect()
    return await call.once(SessionRestored, effect, is_kept_by_effect=True)


async def purge(call: MethodCall, params: SessionPurgeParams) -> SessionPurged:
    async def effect() -> SessionPurged:
        command = PurgeSession(
            session_id=params.session_id, cancel=params.cancel, dry_run=params.dry_run
        )
        return await call.backend.data_rights.purge_session(call.caller, command)

    return await (effect() if params.dry_run else call.once(SessionPurged, effect))


METHODS = (
    Method("session.resolve", SessionResolve, SessionRecord, "sessions:write", resolve),
    Method("session.get", SessionGet, SessionRecord, "sessions:read", get),
    Method("session.list", SessionListParams, SessionList, "sessions:read", list_),
    Method("session.archive", SessionChange, SessionRecord, "sessions:write", archive),
    Method("session.rename", SessionRename, SessionRecord, "sessions:write", rename),
    Method("session.reset", SessionChange, SessionRecord, "sessions:write", reset),
    Method("session.set_mode", SessionSetMode, SessionRecord, "approvals:write", set_mode),
    Method("session.queue", SessionQueue, Queue, "sessions:read", queue),
    Method("session.pin", SessionPin, SessionRecord, "sessions:write", pin),
    Method(
        "session.checkpoint",
        SessionCheckpoint,
        SessionCheckpointRecord,
        "sessions:write",
        checkpoint,
    ),
    Method(
        "session.checkpoints",
        SessionCheckpointsParams,
        SessionCheckpoints,
        "sessions:read",
        list_checkpoints,
        is_bulk=True,
    ),
    Method("session.restore", SessionRestore, SessionRestored, "runs:write", restore),
    Method("session.purge", SessionPurgeParams, SessionPurged, "sessions:write", purge),
    Method("session.compact", SessionCompact, SessionCompacted, "sessions:read", compact),
    Method("workspace.list", NoParams, WorkspaceList, "sessions:read", list_workspaces),
)
