"""File checkpoints: how the files of one change were before it and are after it.

A checkpoint is durable before the first file is touched, so a change that a crash cut short can be
undone like any other: every file of it is as before or as after.

A file's content and permissions as values: what is written, kept and put back.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it is, or is to be."""

    data: bytes
    mode: int | None = None  # permission bits; None: those of a new file
    is_executable: bool = False  # of a new file


Side = Literal["before", "after"]
RESTORE = "checkpoint.restore"  # the `tool` of a checkpoint that a restore made


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """A file at one moment; its bytes are kept under their digest."""

    sha256: str  # hex
    size_bytes: int
    mode: int | None = None  # permission bits; None: as a new file has them
    is_executable: bool = False  # of a new file


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a change; None where there is no file."""

    path: str  # in the workspace
    before: FileState | None
    after: FileState | None

    def side(self, side: Side) -> FileState | None:
        """The file before or after."""
        return self.before if side == "before" else self.after


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One change of files: whose, by which call, and every file of it."""

    checkpoint_id: str
    principal: str
    session_id: str
    run_id: str
    call_id: str
    tool: str
    workspace: str  # absolute
    created_ms: int
    files: tuple[FileChange, ...]


class CheckpointFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoints to list, newest first; `before` is the id of the last one seen."""

    principal: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    before: str | None = None
    limit: int = 100

    def means(self, checkpoint: Checkpoint) -> bool:
        """Whether it is one of them, wherever the page begins."""
        return (
            self.principal in {None, checkpoint.principal}
            and self.session_id in {None, checkpoint.session_id}
            and self.run_id in {None, checkpoint.run_id}
        )


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did: the files it changed, and the checkpoint that undoes it."""

    restored: str  # the checkpoint
    side: Side
    files: tuple[str, ...]
    checkpoint_id: str | None = None  # None: every file was so already


def state_of(content: Content | None) -> FileState | None:
    """The state of a file with that content."""
    if content is None:
        return None
    return FileState(
        sha256=hashlib.sha256(content.data).hexdigest(),
        size_bytes=len(content.data),
        mode=content.mode,
        is_executable=content.is_executable,
    )


def kept_states(checkpoint: Checkpoint) -> list[FileState]:
    """Every content it holds, each digest once, in the order in which they are kept."""
    states: dict[str, FileState] = {}
    for file in checkpoint.files:
        for state in (file.before, file.after):
            if state is not None:
                states.setdefault(state.sha256, state)
    return list(states.values())


def file_changes(
    before: Mapping[str, Content | None], after: Mapping[str, Content | None]
) -> tuple[FileChange, ...]:
    """The change of each file."""
    return tuple(
        FileChange(path=path, before=state_of(before[path]), after=state_of(content))
        for path, content in after.items()
    )


def same_bytes(one: FileState | None, other: FileState | None) -> bool:
    """Whether both are no file, or files of one content."""
    return (one and one.sha256) == (other and other.sha256)
