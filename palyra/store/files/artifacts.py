"""Artifacts on disk: `artifacts/SESSION/DIGEST`, private, digest checked at every read."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from palyra.core.ids import is_id
from palyra.core.journal.retention import InUse
from palyra.core.tool.artifacts import Artifact
from palyra.errors import InvariantBroken, Unavailable
from palyra.store.files.retention import Pruned, RetainedFiles


class FileArtifacts:
    """`core.ports.Artifacts` in a folder."""

    def __init__(
        self, root: Path, *, max_bytes: int, max_age_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._files = RetainedFiles(root, max_bytes=max_bytes, max_age_ms=max_age_ms, now_ms=now_ms)

    def put(self, artifact: Artifact, data: bytes) -> None:
        """Store the artifact durably; idempotent.  Raises Unavailable."""
        if not is_id(artifact.session_id, "ses"):
            raise InvariantBroken(f"an artifact of no session: {artifact.session_id!r}")
        name = f"{artifact.session_id}/{artifact.artifact}"
        if self._files.find_head(name) is None:
            self._files.put(name, msgspec.json.encode(artifact), [data])

    def find(self, session_id: str, name: str) -> tuple[Artifact, bytes] | None:
        """Return the session's artifact whose digest starts with `name`, if there is exactly one.

        Raises Unavailable for a damaged artifact.
        """
        if not is_id(session_id, "ses"):
            return None
        names = [each for each in self._files.names(session_id) if each.startswith(name)]
        found = self._files.find(f"{session_id}/{names[0]}") if len(names) == 1 else None
        if found is None:
            return None
        head, data = found
        if hashlib.sha256(data).hexdigest() != names[0]:
            raise Unavailable(f"the artifact {names[0]} is damaged on the disk")
        return msgspec.json.decode(head, type=Artifact), data

    def prune(self, in_use: InUse, *, max_bytes: int, max_age_ms: int, is_dry: bool) -> Pruned:
        """Delete artifacts over a bound, but those of sessions in use."""
        return self._files.prune(
            max_bytes=max_bytes,
            max_age_ms=max_age_ms,
            is_kept=lambda name: name.partition("/")[0] in in_use.sessions,
            is_dry=is_dry,
        )

    def count_session(self, session_id: str) -> int:
        """Return the number of artifacts of a session.  Raises Unavailable."""
        return len(self._files.names(session_id)) if is_id(session_id, "ses") else 0

    def drop_session(self, session_id: str) -> int:
        """Delete all artifacts of a session; return their number.  Raises Unavailable."""
        return self._files.drop_folder(session_id) if is_id(session_id, "ses") else 0

    def sweep(self) -> int:
        """Evict artifacts over a bound; return their number.  Raises Unavailable."""
        return self._files.sweep()
