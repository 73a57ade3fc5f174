"""Typed methods about sessions and their queues."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import (
    QueueMode,
    SessionCheckpointRecord,
    SessionMode,
    SessionRecord,
)
from palyra.core.session.commands import (
    Queue,
    SessionCheckpoints,
    SessionCompacted,
    SessionRestored,
)
from palyra.core.session.purge import SessionPurged
from palyra.net.protocol.results import SessionList, WorkspaceList, WorkspaceView


class QueueChange(TypedDict, total=False):
    """Changes to a session's queue."""

    mode: QueueMode
    paused: bool
    drop: Sequence[str]
    order: Sequence[str]
    idempotency_key: str


class RestoreOptions(TypedDict, total=False):
    """Options of a restore in addition to the branch."""

    files: bool
    force: bool
    documents: bool
    dry_run: bool
    idempotency_key: str


class SessionMethods(RequestMethods):
    """Resolve, list, archive and reset sessions, and change their queues."""

    async def resolve_session(
        self,
        *,
        session_key: str | None = None,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> SessionRecord:
        """Find a session by id, or find or create one by key; a new one works in that workspace."""
        params = {"session_key": session_key, "session_id": session_id, "workspace": workspace}
        return await self._mutate("session.resolve", params, SessionRecord)

    async def list_workspaces(self) -> list[WorkspaceView]:
        """List the folders that sessions can work in, the default one first."""
        return (await self._ask("workspace.list", {}, WorkspaceList)).workspaces

    async def get_session(self, session_id: str) -> SessionRecord:
        """Return a session.  Raises NotFound."""
        return await self._ask("session.get", {"session_id": session_id}, SessionRecord)

    async def list_sessions(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> SessionList:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("session.list", {"cursor": cursor, "limit": limit}, SessionList)

    async def archive_session(self, session_id: str) -> SessionRecord:
        """Archive a session, which then takes no more messages.  Raises NotFound."""
        return await self._mutate("session.archive", {"session_id": session_id}, SessionRecord)

    async def rename_session(self, session_id: str, title: str) -> SessionRecord:
        """Give a session a title of one line; with "" its next message gives it one."""
        params = {"session_id": session_id, "title": title}
        return await self._mutate("session.rename", params, SessionRecord)

    async def reset_session(self, session_id: str) -> SessionRecord:
        """Start the session over: earlier history and grants no longer apply."""
        return await self._mutate("session.reset", {"session_id": session_id}, SessionRecord)

    async def set_session_mode(self, session_id: str, mode: SessionMode) -> SessionRecord:
        """Change what is asked about in the session.  Raises Forbidden without approvals:write."""
        params = {"session_id": session_id, "mode": mode}
        return await self._mutate("session.set_mode", params, SessionRecord)

    async def compact_session(self, session_id: str, *, preview: bool = False) -> SessionCompacted:
        """Start a compaction, a run that can be waited for; or return what it would do."""
        params = {"session_id": session_id, "preview": preview}
        if preview:
            return await self._ask("session.compact", params, SessionCompacted)
        return await self._mutate("session.compact", params, SessionCompacted)

    async def pin_message(
        self, session_id: str, run_id: str, seq: int, *, pinned: bool = True
    ) -> SessionRecord:
        """Let compactions keep the message or tool result of that event verbatim; or unpin it."""
        params = {"session_id": session_id, "run_id": run_id, "seq": seq, "pinned": pinned}
        return await self._mutate("session.pin", params, SessionRecord)

    async def checkpoint_session(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        seq: int | None = None,
        name: str = "",
        idempotency_key: str | None = None,
    ) -> SessionCheckpointRecord:
        """Mark a point of the session, by default the newest one."""
        params = {
            "session_id": session_id,
            "run_id": run_id,
            "seq": seq,
            "name": name,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("session.checkpoint", params, SessionCheckpointRecord)

    async def session_checkpoints(
        self, session_id: str, *, limit: int | None = None
    ) -> SessionCheckpoints:
        """Return the checkpoints, newest first; compactions are checkpoints, too."""
        params = {"session_id": session_id, "limit": limit}
        return await self._ask("session.checkpoints", params, SessionCheckpoints)

    async def restore_session(
        self,
        session_id: str,
        checkpoint_id: str | None = None,
        **options: Unpack[RestoreOptions],
    ) -> SessionRestored:
        """Continue from a checkpoint in a new session; without an id undo the last compaction.

        Raises Conflict if `files` are wanted, another program has changed one, and `force` is not
        given.
        """
        params = {"session_id": session_id, "checkpoint_id": checkpoint_id, **options}
        if options.get("dry_run"):
            return await self._ask("session.restore", params, SessionRestored)
        return await self._mutate("session.restore", params, SessionRestored)

    async def purge_session(
        self, session_id: str, *, cancel: bool = False, dry_run: bool = False
    ) -> SessionPurged:
        """Remove the content of a session for good; the same call completes a purge that was cut short.

        Raises IllegalState while a run of the session is open, unless `cancel` ends them.
        """
        params = {"session_id": session_id, "cancel": cancel, "dry_run": dry_run}
        if dry_run:
            return await self._ask("session.purge", params, SessionPurged)
        return await self._mutate("session.purge", params, SessionPurged)

    async def queue(self, session_id: str, **change: Unpack[QueueChange]) -> Queue:
        """Change the queue, if a change is given, and return it, next run first.

        A change is applied as a whole; a Conflict names the reason why it was not.
        """
        params = {"session_id": session_id, **change}
        if not change:
            return await self._ask("session.queue", params, Queue)
        return await self._mutate("session.queue", params, Queue)
