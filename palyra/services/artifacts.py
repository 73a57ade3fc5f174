"""What is kept of files: whole outputs to be read, checkpoints to be put back.

Owns: nothing.  Talks to: the stores (ports), in threads; sessions, for whose an output is.
Never: shows what belongs to somebody else, or restores for anybody but the owner.
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
    """A page, and what it is of."""

    artifact: Artifact
    page: ArtifactPage


# Returns the session if the caller may see it; raises NotFound otherwise.
RequireSession = Callable[[Caller, str], Awaitable[SessionRecord]]


class ArtifactService:
    """What clients may ask for.  Every method takes the authenticated caller first."""

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
        """A page of an output.  Raises NotFound, also for somebody else's; InvalidParams."""
        caller.require("runs:read")
        await self._require_session(caller, session_id)
        found = await self._run_blocking(self._artifacts.find, session_id, name)
        if found is None:
            raise NotFound(f"the session has no artifact {name!r} (any more)", field="artifact")
        artifact, data = found
        page = read_page(data, offset, limit_bytes)
        if page is None:
            raise InvalidParams(
                f"offset {offset} of {pluralize(len(data), 'byte')}", field="offset"
            )
        return FileChunk(artifact, page)

    async def list_checkpoints(self, caller: Caller, wanted: CheckpointFilter) -> list[Checkpoint]:
        """Checkpoints the caller sees, newest first.

        `wanted.principal` is set here: nobody asks for somebody else's.
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
        """The files as they were, durably; see `FileHistory.restore`.

        Raises NotFound, Forbidden for one that is seen and not owned.  Cancellation: the restore
        runs to its end, all of it or nothing.
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
