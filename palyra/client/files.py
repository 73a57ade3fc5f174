"""Typed methods about artifacts (full tool outputs), file checkpoints and changes of runs."""

from collections.abc import AsyncIterator
from typing import Literal

from palyra.client.requests import RequestMethods
from palyra.core.preview.run_changes import RunDiff, RunUndo
from palyra.core.tool.checkpoints import Restored
from palyra.net.protocol.results import ArtifactPiece, CheckpointList


class FileMethods(RequestMethods):
    """Read artifacts, list and restore checkpoints, show and undo changes of runs."""

    async def read_artifact(
        self, session_id: str, artifact: str, offset: int = 0, *, limit_bytes: int | None = None
    ) -> ArtifactPiece:
        """Read a page of an artifact, named by its digest on the tape."""
        params = {
            "session_id": session_id,
            "artifact": artifact,
            "offset": offset,
            "limit_bytes": limit_bytes,
        }
        return await self._ask("artifact.read", params, ArtifactPiece)

    async def artifact_pages(  # noqa: ASYNC900 - holds no resource between pages
        self, session_id: str, artifact: str
    ) -> AsyncIterator[str]:
        """Iterate over the pages of an artifact."""
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

    async def diff_run(self, run_id: str, *, max_lines: int | None = None) -> RunDiff:
        """Return the changes of files by a run, as far as they are recorded."""
        params = {"run_id": run_id, "max_lines": max_lines}
        return await self._ask("run.diff", params, RunDiff)

    async def undo_run(
        self,
        run_id: str,
        digest: str | None = None,
        *,
        force: bool = False,
        max_lines: int | None = None,
        idempotency_key: str | None = None,
    ) -> RunUndo:
        """Put the files of a run back as the preview with that digest said.

        Without a digest only return the preview.  Raises Conflict if a file has changed after it.
        """
        params = {
            "run_id": run_id,
            "dry_run": digest is None,
            "digest": digest,
            "force": force,
            "max_lines": max_lines,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("run.undo", params, RunUndo)

    async def restore_checkpoint(
        self,
        checkpoint_id: str,
        to: Literal["before", "after"] = "before",
        *,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> Restored:
        """Restore the files to their state before that change, or after it.

        Raises Conflict if one of them was changed since and `force` is not given.
        """
        params = {
            "checkpoint_id": checkpoint_id,
            "to": to,
            "force": force,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("checkpoint.restore", params, Restored)
