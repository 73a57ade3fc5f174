"""Typed methods about what is kept of files: whole outputs, checkpoints; and what they answer."""

from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from palyra.client.registry import RegistryMethods
from palyra.core.tool.checkpoints import Restored
from palyra.core.trust.labels import Trust


class ArtifactPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an output; without `next_offset` it is the last."""

    artifact: str
    run_id: str
    call_id: str
    tool: str
    trust: Trust
    created_ms: int
    size_bytes: int
    offset: int
    line: int
    text: str
    next_offset: int | None = None


class CheckpointFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint; None: there was no file."""

    path: str
    before_sha256: str | None = None
    after_sha256: str | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One change of files, and which call made it."""

    checkpoint_id: str
    principal: str
    session_id: str
    run_id: str
    call_id: str
    tool: str
    workspace: str
    created_ms: int
    files: list[CheckpointFile]


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `checkpoint.list`, newest first."""

    checkpoints: list[Checkpoint]
    next_cursor: str | None = None


class FileMethods(RegistryMethods):
    """What is kept of outputs and files."""

    async def read_artifact(
        self, session_id: str, artifact: str, offset: int = 0, *, limit_bytes: int | None = None
    ) -> ArtifactPiece:
        """A page of an output that a tape has in part; `artifact` is on the tape."""
        params = {
            "session_id": session_id,
            "artifact": artifact,
            "offset": offset,
            "limit_bytes": limit_bytes,
        }
        return await self._ask("artifact.read", params, ArtifactPiece)

    async def artifact_pages(  # noqa: ASYNC900 - it holds nothing between two pages
        self, session_id: str, artifact: str
    ) -> AsyncIterator[str]:
        """All of it, page by page."""
        offset: int | None = 0
        while offset is not None:
            piece = await self.read_artifact(session_id, artifact, offset)
            yield piece.text
            offset = piece.next_offset

    async def list_checkpoints(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> CheckpointList:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        params = {"session_id": session_id, "run_id": run_id, "cursor": cursor, "limit": limit}
        return await self._ask("checkpoint.list", params, CheckpointList)

    async def restore_checkpoint(
        self,
        checkpoint_id: str,
        to: Literal["before", "after"] = "before",
        *,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> Restored:
        """The files are as they were before that change, or after it.

        Raises Conflict when somebody else changed one of them since and `force` is not given.
        """
        params = {
            "checkpoint_id": checkpoint_id,
            "to": to,
            "force": force,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("checkpoint.restore", params, Restored)
