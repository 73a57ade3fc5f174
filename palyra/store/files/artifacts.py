"""Artifacts on disk: `artifacts/SESSION/DIGEST`, private, digest checked at every read."""

import hashlib
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from palyra.core.ids import is_id
from palyra.core.tool.artifacts import Artifact
from palyra.errors import InvariantBroken, Unavailable
from palyra.store.files.retention import Evicted, FolderBounds, Pruned, RetainedFiles

# Session and beginning of a digest in; out the digest that its tapes name, and its time.
FindNamed = Callable[[str, str], tuple[str, int] | None]


class Damage(NamedTuple):
    """A file that does not have its content any more."""

    path: str
    fate: str


class FileArtifacts:
    """`core.ports.Artifacts` in a folder."""

    def __init__(
        self, root: Path, rules: FolderBounds, find_named: FindNamed = lambda _session, _name: None
    ) -> None:
        self.damaged: dict[str, Damage] = {}  # by digest, found by reads and checks
        self._files = RetainedFiles(
            root, rules, lambda name: name.partition("/")[0], remembers=True
        )
        self._find_named = find_named

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

    def explain_absence(self, session_id: str, name: str) -> str:
        """Return why `find` returns nothing.  Raises Unavailable.

        An artifact that a tape names and no sweep has deleted is missing, which `damaged` then has.
        """
        unknown = f"the session has no artifact {name!r}"
        if not is_id(session_id, "ses"):
            return unknown
        if len([each for each in self._files.names(session_id) if each.startswith(name)]) > 1:
            return f"the session has more than one artifact {name!r}: give more of its digest"
        named = self._find_named(session_id, name)
        digest, at_ms = (name, 0) if named is None else named
        for each in self._files.list_evicted(session_id):
            if each.name.startswith(name):
                return _describe_eviction(each)
        if named is None:
            return unknown
        _, max_age_ms, now_ms, _ = self._files.rules
        if max_age_ms and at_ms < now_ms() - max_age_ms:  # before evictions were remembered
            return _describe_eviction(Evicted(digest, at_ms + max_age_ms, "days"))
        path = str(self._files.root / session_id / digest)
        self.damaged[digest] = Damage(path, "missing")
        return f"the file of the artifact {digest} is missing: restore {path} from a backup"

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
            path = str(self._files.root / name)
            self.damaged[digest] = Damage(path, "damaged on the disk")
            raise Unavailable(
                f"the artifact {digest} is damaged on the disk: restore {path} from a backup"
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


def _describe_eviction(each: Evicted) -> str:
    day = f"{datetime.fromtimestamp(each.at_ms / 1_000, UTC):%Y-%m-%d}"
    why = "expired" if each.bound == "days" else "made room"
    return (
        f"the artifact {each.name} {why} on {day} by retention (retention.artifacts_{each.bound})"
    )
