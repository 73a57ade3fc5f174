"""Artifacts on disk: `artifacts/SESSION/DIGEST`, private, digest checked at every read."""

import hashlib
import random
from contextlib import suppress
from pathlib import Path

import msgspec

from palyra.core.ids import is_id
from palyra.core.tool.artifacts import Artifact
from palyra.errors import InvariantBroken, Unavailable
from palyra.store.files.retention import FolderBounds, Pruned, RetainedFiles


class FileArtifacts:
    """`core.ports.Artifacts` in a folder."""

    def __init__(self, root: Path, rules: FolderBounds) -> None:
        self.damaged: dict[str, str] = {}  # path by digest, found by reads and checks
        self._files = RetainedFiles(root, rules, lambda name: name.partition("/")[0])

    def put(self, artifact: Artifact, data: bytes) -> None:
        """Store the artifact durably; idempotent.  Raises Unavailable."""
        if not is_id(artifact.session_id, "ses"):
            raise InvariantBroken(f"an artifact of no session: {artifact.session_id!r}")
        name = f"{artifact.session_id}/{artifact.artifact}"
        if self._files.find_head(name) is None:
            self._files.put(name, msgspec.json.encode(artifact), [data], owner=artifact.session_id)

    def find(self, session_id: str, name: str) -> tuple[Artifact, bytes] | None:
        """Return the session's artifact whose digest starts with `name`, if there is exactly one.

        Raises Unavailable for a damaged artifact.
        """
        if not is_id(session_id, "ses"):
            return None
        names = [each for each in self._files.names(session_id) if each.startswith(name)]
        return self.read(f"{session_id}/{names[0]}") if len(names) == 1 else None

    def check_sample(self, count: int) -> None:
        """Read some artifacts, chosen at random; `damaged` has those that are."""
        names = list[str]()
        with suppress(Unavailable):  # a folder that cannot be read has no sample
            for folder in self._files.names():
                names += [f"{folder}/{name}" for name in self._files.names(folder)]
        for name in random.sample(names, min(count, len(names))):
            with suppress(Unavailable):
                self.read(name)

    def read(self, name: str) -> tuple[Artifact, bytes] | None:
        """Return a whole artifact, None for a deleted one.  Raises Unavailable for a damaged one."""
        found, digest = self._files.find(name), name.rpartition("/")[2]
        if found is None:
            return None
        head, data = found
        try:
            artifact = msgspec.json.decode(head, type=Artifact)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            artifact = None
        if artifact is None or hashlib.sha256(data).hexdigest() != digest:
            self.damaged[digest] = str(self._files.root / name)
            raise Unavailable(
                f"the artifact {digest} is damaged on the disk: restore {self.damaged[digest]} from a backup"
            )
        return artifact, data

    def count_session(self, session_id: str) -> int:
        """Return the number of artifacts of a session.  Raises Unavailable."""
        return len(self._files.names(session_id)) if is_id(session_id, "ses") else 0

    def drop_session(self, session_id: str) -> int:
        """Delete all artifacts of a session; return their number.  Raises Unavailable."""
        return self._files.drop_folder(session_id) if is_id(session_id, "ses") else 0

    def sweep(self, *, is_dry: bool = False) -> Pruned:
        """Evict artifacts over a bound, or only count them.  Raises Unavailable."""
        return self._files.sweep(is_dry=is_dry)
