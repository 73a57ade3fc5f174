"""File checkpoints: contents of the files of one change, before and after it.

A checkpoint is durable before the first file is touched, so a change that a crash cut short can be
undone like any other: every file of it is as before or as after.

A file's content and permissions as values: what is written, kept and put back.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec


@dataclass(frozen=True, slots=True)
class Content:
    """Content and mode of a file."""

    data: bytes
    mode: int | None = None  # permission bits; None: those of a new file
    is_executable: bool = False  # of a new file


Side = Literal["before", "after"]
DOCUMENT = "document"  # `tool` of a checkpoint made by a write of a workspace document
RESTORE = "checkpoint.restore"  # `tool` of a checkpoint made by a restore
UNDO = "run.undo"  # `tool` of a checkpoint made by the undo of a run
BESIDE_CALLS = frozenset({RESTORE, UNDO})  # checkpoints that no call of their run made


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a file; its bytes are stored by digest."""

    sha256: str  # hex
    size_bytes: int
    mode: int | None = None  # permission bits; None: those of a new file
    is_executable: bool = False  # of a new file


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a change; None for no file."""

    path: str  # in the workspace
    before: FileState | None
    after: FileState | None

    def side(self, side: Side) -> FileState | None:
        """Return the state before or after the change."""
        return self.before if side == "before" else self.after


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One change: its owner, its call, and its files."""

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
    """Filter of a list of checkpoints, newest first; `before` is the last id of the previous page."""

    principal: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    before: str | None = None
    limit: int = 100

    def means(self, checkpoint: Checkpoint) -> bool:
        """True if the checkpoint passes the filter, on any page."""
        return (
            self.principal in {None, checkpoint.principal}
            and self.session_id in {None, checkpoint.session_id}
            and self.run_id in {None, checkpoint.run_id}
        )


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a restore: the files it changed, and the checkpoint that undoes it."""

    restored: str  # the checkpoint
    side: Side
    files: tuple[str, ...]
    checkpoint_id: str | None = None  # None: no file differed


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """Files that several changes had and have again, or would have."""

    files: tuple[str, ...] = ()  # that differ
    conflicts: tuple[str, ...] = ()  # of these, changed by another writer since
    checkpoint_id: str | None = None  # that undoes it; None: no file differed, or a dry run


class PathHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One file over several changes."""

    path: str
    first: str  # the checkpoint with the state before all of them
    before: FileState | None
    states: tuple[FileState | None, ...]  # that these changes found or left

    def is_known(self, now: FileState | None) -> bool:
        """True if one of the changes found or left the file so."""
        return any(same_bytes(now, state) for state in self.states)


def follow_paths(made: Iterable[Checkpoint]) -> list[PathHistory]:
    """Return the history of each file in `made`, oldest checkpoint first."""
    found: dict[str, PathHistory] = {}
    for checkpoint in made:
        for file in checkpoint.files:
            known = found.get(file.path) or PathHistory(
                path=file.path, first=checkpoint.checkpoint_id, before=file.before, states=()
            )
            states = (*known.states, file.before, file.after)
            found[file.path] = msgspec.structs.replace(known, states=states)
    return list(found.values())


Standing = Literal["left", "restored", "changed", "unusable"]


class FollowedFile(NamedTuple):
    """One file that a run changed, and its standing now.

    `left`: as a change of the run left it; `restored`: as before the run; `changed`: by another
    writer since; `unusable`: `problem` says why it cannot be read or put back.
    """

    path: str
    before: Content | None
    after: Content | None
    standing: Standing
    now: Content | None = None
    problem: str = ""

    @property
    def now_sha256(self) -> str:
        """Digest of the file now, "" for no file."""
        return "" if self.now is None else hashlib.sha256(self.now.data).hexdigest()


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a session, between the changes before it and those after it."""

    run_id: str
    seq: int
    at_ms: int
    started: Mapping[str, int]  # calls of that run: the seq of their start

    def precedes(self, checkpoint: Checkpoint) -> bool:
        """True if the change was made after the mark.

        Calls of the run itself are ordered by its tape, all others by the clock.
        """
        if checkpoint.run_id == self.run_id and checkpoint.tool not in BESIDE_CALLS:
            return self.started.get(checkpoint.call_id, -1) > self.seq
        later = checkpoint.tool in BESIDE_CALLS or checkpoint.run_id > self.run_id
        return (checkpoint.created_ms, later) > (self.at_ms, False)


def state_of(content: Content | None) -> FileState | None:
    """Return the state of a file with that content."""
    if content is None:
        return None
    return FileState(
        sha256=hashlib.sha256(content.data).hexdigest(),
        size_bytes=len(content.data),
        mode=content.mode,
        is_executable=content.is_executable,
    )


def kept_states(checkpoint: Checkpoint) -> list[FileState]:
    """Return all contents, each digest once, in storage order."""
    states: dict[str, FileState] = {}
    for file in checkpoint.files:
        for state in (file.before, file.after):
            if state is not None:
                states.setdefault(state.sha256, state)
    return list(states.values())


def file_changes(
    before: Mapping[str, Content | None], after: Mapping[str, Content | None]
) -> tuple[FileChange, ...]:
    """Return the change of each file."""
    return tuple(
        FileChange(path=path, before=state_of(before[path]), after=state_of(content))
        for path, content in after.items()
    )


def same_bytes(one: FileState | None, other: FileState | None) -> bool:
    """True if both are no file, or files with equal content."""
    return (one and one.sha256) == (other and other.sha256)
