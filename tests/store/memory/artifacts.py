"""Artifacts in memory: the twin for tests and the simulation."""

from palyra.core.tool.artifacts import Artifact


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
