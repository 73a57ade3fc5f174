"""Artifacts and file checkpoints in memory, for tests and the simulation."""

from collections.abc import Mapping

from palyra.core.tool.artifacts import Artifact
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter
from palyra.errors import Unavailable


class MemoryArtifacts:
    """`core.ports.Artifacts` in a dictionary."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[Artifact, bytes]] = {}

    def put(self, artifact: Artifact, data: bytes) -> None:
        self._held.setdefault((artifact.session_id, artifact.artifact), (artifact, data))

    def find(self, session_id: str, name: str) -> tuple[Artifact, bytes] | None:
        found = [
            held
            for (session, digest), held in self._held.items()
            if session == session_id and digest.startswith(name)
        ]
        return found[0] if len(found) == 1 else None

    def explain_absence(self, session_id: str, name: str) -> str:
        del session_id
        return f"the session has no artifact {name!r}"

    def count_session(self, session_id: str) -> int:
        return sum(key[0] == session_id for key in self._held)

    def drop_session(self, session_id: str) -> int:
        gone = [key for key in self._held if key[0] == session_id]
        for key in gone:
            del self._held[key]
        return len(gone)


class MemoryCheckpoints:
    """`core.ports.CheckpointStore` in a dictionary."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Checkpoint, dict[str, bytes]]] = {}

    def put(self, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> None:
        self._held[checkpoint.checkpoint_id] = checkpoint, dict(contents)

    def drop(self, checkpoint_id: str) -> None:
        self._held.pop(checkpoint_id, None)

    def drop_damaged(self) -> None:
        """Nothing in memory is damaged."""

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        held = self._held.get(checkpoint_id)
        return None if held is None else held[0]

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        found = [
            checkpoint
            for name, (checkpoint, _) in sorted(self._held.items(), reverse=True)
            if (wanted.before is None or name < wanted.before) and wanted.means(checkpoint)
        ]
        return found[: wanted.limit]

    def contents(self, checkpoint_id: str) -> dict[str, bytes]:
        held = self._held.get(checkpoint_id)
        if held is None:
            raise Unavailable(f"the checkpoint {checkpoint_id} is no longer stored")
        return held[1]
