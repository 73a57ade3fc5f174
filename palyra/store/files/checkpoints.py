"""File checkpoints on disk: one private file each, with every content that it names.

The contents follow the head line in the order of the first mention of their digests (file by file,
before then after).  Each is checked against its digest when it is read.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from palyra.core.ids import is_id
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, kept_states
from palyra.errors import InvariantBroken, Unavailable
from palyra.store.files.retention import FolderBounds, Pruned, RetainedFiles


class FileCheckpoints:
    """`core.ports.CheckpointStore` in a folder."""

    def __init__(self, root: Path, rules: FolderBounds) -> None:
        self._files = RetainedFiles(root, rules, self._find_session)

    def put(self, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> None:
        """Store the checkpoint durably, with `contents` by digest.  Raises Unavailable."""
        if not is_id(checkpoint.checkpoint_id, "ckp"):
            raise InvariantBroken(f"no id of a checkpoint: {checkpoint.checkpoint_id!r}")
        body = [contents[state.sha256] for state in kept_states(checkpoint)]
        self._files.put(
            checkpoint.checkpoint_id,
            msgspec.json.encode(checkpoint),
            body,
            owner=checkpoint.session_id,
        )

    def sweep(self, *, is_dry: bool = False) -> Pruned:
        """Evict checkpoints over a bound, or only count them.  Raises Unavailable."""
        return self._files.sweep(is_dry=is_dry)

    def _find_session(self, name: str) -> str | None:
        found = self.find(name)
        return None if found is None else found.session_id

    def drop(self, checkpoint_id: str) -> None:
        """Delete the checkpoint, if it is stored.  Raises Unavailable."""
        self._files.drop(checkpoint_id)

    def drop_damaged(self) -> None:
        """Delete checkpoints whose description is damaged.  Raises Unavailable."""
        for name in self._files.names():
            if is_id(name, "ckp") and self.find(name) is None:
                self._files.drop(name)

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint without its contents; None for one whose description is damaged."""
        if not is_id(checkpoint_id, "ckp"):
            return None
        head = self._files.find_head(checkpoint_id)
        return None if head is None else _find_checkpoint(head)

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        """Newest first."""
        listed: list[Checkpoint] = []
        for name in reversed(self._files.names()):
            if len(listed) == wanted.limit:
                break
            if wanted.before is None or name < wanted.before:
                found = self.find(name)
                if found is not None and wanted.means(found):
                    listed.append(found)
        return listed

    def contents(self, checkpoint_id: str) -> dict[str, bytes]:
        """Return its contents by digest.  Raises Unavailable if it was deleted or is damaged."""
        found = self._files.find(checkpoint_id)
        if found is None:
            raise Unavailable(f"the checkpoint {checkpoint_id} is no longer stored")
        head, body = found
        contents: dict[str, bytes] = {}
        at = 0
        checkpoint = _find_checkpoint(head)
        if checkpoint is None:
            raise Unavailable(f"the checkpoint {checkpoint_id} is damaged on disk")
        for state in kept_states(checkpoint):
            piece = body[at : at + state.size_bytes]
            at += state.size_bytes
            if hashlib.sha256(piece).hexdigest() != state.sha256:
                raise Unavailable(f"the checkpoint {checkpoint_id} is damaged on disk")
            contents[state.sha256] = piece
        if at != len(body):
            raise Unavailable(f"the checkpoint {checkpoint_id} is damaged on disk")
        return contents


def _find_checkpoint(head: bytes) -> Checkpoint | None:
    """Decode a head line; None if it is damaged."""
    try:
        return msgspec.json.decode(head, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
