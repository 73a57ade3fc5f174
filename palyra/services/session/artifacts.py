"""Artifacts and file checkpoints for clients: read whole outputs, list and restore checkpoints.

Owns: nothing.  Talks to: the stores (ports), in threads; sessions, for the owner of an output.
Never: shows data of a principal that the caller does not see, or restores a checkpoint for a caller
other than its owner.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from palyra.core.access import Caller
from palyra.core.journal.records import SessionRecord
from palyra.core.ports import Artifacts, FileHistory, RunBlocking
from palyra.core.text.visible import pluralize
from palyra.core.tool.artifacts import Artifact, ArtifactPage, read_page
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Restored, Side
from palyra.errors import Forbidden, InvalidParams, NotFound


class FileChunk(NamedTuple):
    """A page of an artifact, with the artifact's record."""

    artifact: Artifact
    page: ArtifactPage


# Returns the session if the caller may see it; raises NotFound otherwise.
RequireSession = Callable[[Caller, str], Awaitable[SessionRecord]]


class ArtifactService:
    """Artifacts and checkpoints for clients.  Every method takes the authenticated caller first."""

    def __init__(
        self,
        artifacts: Artifacts,
        history: FileHistory,
        require_session: RequireSession,
        run_blocking: RunBlocking,
    ) -> None:
        self._artifacts = artifacts
        self._history = history
        self._require_session = require_session
        self._run_blocking = run_blocking

    async def read_artifact(
        self, caller: Caller, session_id: str, name: str, *, offset: int, limit_bytes: int
    ) -> FileChunk:
        """Return a page of an output, from `offset` bytes on.

        Raises NotFound, also for a session that the caller does not see, and InvalidParams.
        """
        caller.require("runs:read")
        await self._require_session(caller, session_id)
        found = await self._run_blocking(self._artifacts.find, session_id, name)
        if found is None:
            why = await self._run_blocking(self._artifacts.explain_absence, session_id, name)
            raise NotFound(why, field="artifact")
        artifact, data = found
        page = read_page(data, offset, limit_bytes)
        if page is None:
            raise InvalidParams(
                f"offset {offset} of {pluralize(len(data), 'byte')}", field="offset"
            )
        return FileChunk(artifact, page)

    async def list_checkpoints(self, caller: Caller, wanted: CheckpointFilter) -> list[Checkpoint]:
        """Return the checkpoints that the caller sees, newest first.

        `wanted.principal` is ignored: the caller's own filter replaces it.
        """
        caller.require("runs:read")
        seen = CheckpointFilter(
            principal=caller.principal_filter,
            session_id=wanted.session_id,
            run_id=wanted.run_id,
            before=wanted.before,
            limit=wanted.limit,
        )
        return await self._run_blocking(self._history.list, seen)

    async def restore_checkpoint(
        self, caller: Caller, checkpoint_id: str, side: Side, *, is_forced: bool
    ) -> Restored:
        """Restore the files of a checkpoint, durably; see `FileHistory.restore`.

        Raises NotFound, and Forbidden for a visible checkpoint of another principal.
        Cancellation: deferred until the restore has completed or changed nothing.
        """
        caller.require("runs:write")
        found = await self._run_blocking(self._history.find, checkpoint_id)
        if found is None or not caller.sees(found.principal):
            raise NotFound(f"no checkpoint {checkpoint_id!r}", field="checkpoint_id")
        if found.principal != caller.principal:
            raise Forbidden(f"the checkpoint is {found.principal}'s: only its owner restores it")
        return await self._run_blocking(
            partial(self._history.restore, is_forced=is_forced), found, side
        )
