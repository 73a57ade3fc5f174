"""File checkpoints of a workspace: created before every change, listed, restored."""

import hashlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from palyra.core.ids import NewId
from palyra.core.memory.documents import DOCUMENTS
from palyra.core.ports import CheckpointStore, NowMs
from palyra.core.text.visible import visible
from palyra.core.tool.checkpoints import (
    DOCUMENT,
    RESTORE,
    UNDO,
    Checkpoint,
    CheckpointFilter,
    Content,
    FileChange,
    FileState,
    FollowedFile,
    PathHistory,
    Restored,
    Rewound,
    Side,
    file_changes,
    follow_paths,
    same_bytes,
    state_of,
)
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.errors import Conflict, IllegalState, Unavailable
from palyra.tools.files.changes import Changes, Contents, Keep
from palyra.tools.files.workspace import Workspace, usable

_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one workspace.  All methods block."""

    workspace: Workspace
    store: CheckpointStore
    now_ms: NowMs
    new_id: NewId

    def keep_for(self, call: ToolCall) -> Keep:
        """Return the function that writes the checkpoint of a call's change."""
        return self._keep(
            Checkpoint(
                checkpoint_id="",
                principal=call.principal,
                session_id=call.session_id,
                run_id=call.run_id,
                call_id=call.call_id,
                tool=call.tool,
                workspace=str(self.workspace.root),
                created_ms=0,
                files=(),
            ),
            [],
        )

    def keep_for_document(self, principal: str, kept: list[str]) -> Keep:
        """Return the function that writes the checkpoint of a document; its id goes to `kept`."""
        made: list[Checkpoint] = []
        blank = Checkpoint(
            checkpoint_id="",
            principal=principal,
            session_id="",
            run_id="",
            call_id="",
            tool=DOCUMENT,
            workspace=str(self.workspace.root),
            created_ms=0,
            files=(),
        )
        keep = self._keep(blank, made)

        def keep_named(before: Contents, after: Contents) -> Callable[[], None]:
            drop = keep(before, after)
            kept.append(made[-1].checkpoint_id)
            return drop

        return keep_named

    def _keep(self, blank: Checkpoint, made: list[Checkpoint]) -> Keep:
        """Complete the blank checkpoint, and append the stored one to `made`."""

        def keep(before: Contents, after: Contents) -> Callable[[], None]:
            checkpoint = msgspec.structs.replace(
                blank,
                checkpoint_id=self.new_id("ckp"),
                created_ms=self.now_ms(),
                files=file_changes(before, after),
            )
            data = [each.data for side in (before, after) for each in side.values() if each]
            contents = {hashlib.sha256(each).hexdigest(): each for each in data}
            try:
                self.store.put(checkpoint, contents)
            except Unavailable as error:
                raise ToolFailure(
                    f"nothing was changed: no checkpoint could be kept: {error}"
                ) from None
            made.append(checkpoint)
            return partial(self._discard, checkpoint.checkpoint_id)

        return keep

    def _discard(self, checkpoint_id: str) -> None:
        """Delete the checkpoint of a change that was not made; a sweep takes one that stays."""
        with suppress(Unavailable):
            self.store.drop(checkpoint_id)

    def restore(self, kept: Checkpoint, side: Side, *, is_forced: bool) -> Restored:
        """Restore every file of the checkpoint to one side; the restore has a checkpoint of its own.

        A file that is neither as before nor as after was changed by another program since: it is
        left alone, and so are all, unless forced.  Raises Conflict, IllegalState for another
        workspace, Unavailable; then nothing is changed.
        """
        self._require_own(kept)
        made: list[Checkpoint] = []
        try:
            self._restore(kept, side, made, is_forced=is_forced)
        except ToolFailure as failure:
            raise Conflict(f"nothing was restored: {failure.message}") from None
        return Restored(
            restored=kept.checkpoint_id,
            side=side,
            files=tuple(file.path for each in made for file in each.files),
            checkpoint_id=made[0].checkpoint_id if made else None,
        )

    def _restore(
        self, kept: Checkpoint, side: Side, made: list[Checkpoint], *, is_forced: bool
    ) -> None:
        changes = Changes(self.workspace, documents=frozenset(DOCUMENTS))
        found = {file.path: changes.look(usable(file.path)) for file in kept.files}
        foreign = [file.path for file in kept.files if not _is_known(file, found[file.path])]
        if foreign and not is_forced:
            raise Conflict(_foreign_text(foreign))
        contents = self.store.contents(kept.checkpoint_id)
        wanted = {
            file.path: _wanted(file.side(side), found[file.path], contents) for file in kept.files
        }
        changes.make(wanted, self._keep(msgspec.structs.replace(kept, tool=RESTORE), made))

    def rewind(self, made: Sequence[Checkpoint], *, is_forced: bool, is_dry: bool) -> Rewound:
        """Undo the changes of several checkpoints, oldest first, as one change.

        Every file gets the state before the first of them.  A file that is in none of the states
        which they found or left was changed by another program since: it is named as a conflict,
        and nothing is restored, unless forced.  A dry run only compares.
        Raises Conflict, IllegalState for another workspace, Unavailable; then nothing is changed.
        """
        for kept in made:
            self._require_own(kept)
        try:
            return self._rewind(made, is_forced=is_forced, is_dry=is_dry)
        except ToolFailure as failure:
            raise Conflict(f"nothing was restored: {failure.message}") from None

    def _rewind(self, made: Sequence[Checkpoint], *, is_forced: bool, is_dry: bool) -> Rewound:
        changes = Changes(self.workspace)
        paths = {each.path: each for each in follow_paths(made)}
        found = {path: changes.look(usable(path)) for path in paths}
        now = {path: state_of(content) for path, content in found.items()}
        differing = [path for path, each in paths.items() if not same_bytes(now[path], each.before)]
        foreign = [path for path in differing if not paths[path].is_known(now[path])]
        needed = {paths[path].first for path in differing if paths[path].before is not None}
        contents = {
            digest: data for each in needed for digest, data in self.store.contents(each).items()
        }
        if is_dry or not differing:
            return Rewound(files=tuple(differing), conflicts=tuple(foreign))
        if foreign and not is_forced:
            raise Conflict(_foreign_text(foreign))
        wanted = {path: _wanted(paths[path].before, found[path], contents) for path in differing}
        undo: list[Checkpoint] = []
        blank = msgspec.structs.replace(made[-1], tool=RESTORE)
        changes.make(wanted, self._keep(blank, undo))
        return Rewound(
            files=tuple(differing),
            conflicts=tuple(foreign),
            checkpoint_id=undo[0].checkpoint_id if undo else None,
        )

    def follow(self, made: Sequence[Checkpoint]) -> Sequence[FollowedFile]:
        """Return each file of a run's changes with its standing; see `FileHistory`."""
        for kept in made:
            self._require_own(kept)
        changes = Changes(self.workspace)
        last = {file.path: (kept.checkpoint_id, file.after) for kept in made for file in kept.files}
        contents = _Contents(self.store)
        return [_follow(changes, contents, each, last[each.path]) for each in follow_paths(made)]

    def undo(
        self, made: Sequence[Checkpoint], paths: Collection[str], expected: Mapping[str, str]
    ) -> str | None:
        """Put files back to their state before a run's changes; see `FileHistory`."""
        for kept in made:
            self._require_own(kept)
        try:
            return self._undo(made, paths, expected)
        except ToolFailure as failure:
            raise Conflict(f"nothing was put back: {failure.message}") from None

    def _undo(
        self, made: Sequence[Checkpoint], paths: Collection[str], expected: Mapping[str, str]
    ) -> str | None:
        changes = Changes(self.workspace, compares_content=True)
        wanted: dict[str, Content | None] = {}
        for history in follow_paths(made):
            path = history.path
            if path not in paths:
                continue
            found = changes.look(usable(path))
            if _sha256(found) != expected.get(path):
                raise Conflict(
                    f"{visible(path)} was changed after the preview: nothing was put back; "
                    "look at a new preview"
                )
            kept = {} if history.before is None else self.store.contents(history.first)
            wanted[path] = _wanted(history.before, found, kept)
        undo: list[Checkpoint] = []
        blank = msgspec.structs.replace(made[-1], tool=UNDO)
        changes.make(wanted, self._keep(blank, undo))
        return undo[0].checkpoint_id if undo else None

    def _require_own(self, kept: Checkpoint) -> None:
        if kept.workspace != str(self.workspace.root):
            raise IllegalState(
                f"the checkpoint is of the workspace {kept.workspace}, this daemon works in "
                f"{self.workspace.root}"
            )

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint without its contents."""
        return self.store.find(checkpoint_id)

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        """List checkpoints, newest first."""
        return self.store.list(wanted)

    def drop_session(self, session_id: str) -> int:
        """Delete the checkpoints of a session, and damaged ones; return the number of the first.

        Raises Unavailable.
        """
        self.store.drop_damaged()
        found = self.store.list(CheckpointFilter(session_id=session_id, limit=sys.maxsize))
        for each in found:
            self.store.drop(each.checkpoint_id)
        return len(found)


def _wanted(
    state: FileState | None, found: Content | None, contents: Mapping[str, bytes]
) -> Content | None:
    """Return the file's former content; a file that has it already keeps its object."""
    if state is None:
        return None
    if found is not None and same_bytes(state_of(found), state):
        return found if state.mode is None else replace(found, mode=state.mode)
    return Content(contents[state.sha256], state.mode, state.is_executable)


@dataclass(slots=True)
class _Contents:
    """Contents of checkpoints; the one that was read last is held, since files follow in order."""

    store: CheckpointStore
    held: dict[str, Mapping[str, bytes]] = field(default_factory=dict)

    def get(self, checkpoint_id: str, state: FileState | None) -> Content | None:
        """Return the content of a recorded state.  Raises Unavailable if it is not stored."""
        if state is None:
            return None
        if checkpoint_id not in self.held:
            self.held = {checkpoint_id: self.store.contents(checkpoint_id)}
        return Content(self.held[checkpoint_id][state.sha256], state.mode, state.is_executable)


def _follow(
    changes: Changes,
    contents: _Contents,
    history: PathHistory,
    last: tuple[str, FileState | None],
) -> FollowedFile:
    path = history.path
    try:
        before = contents.get(history.first, history.before)
        after = contents.get(*last)
    except Unavailable as error:
        return FollowedFile(path, None, None, "unusable", problem=error.message)
    try:
        found = changes.look(usable(path))
    except ToolFailure as failure:
        return FollowedFile(path, before, after, "unusable", problem=failure.message)
    now = state_of(found)
    has_mode = before is None or before.mode in {None, found and found.mode}
    if same_bytes(now, history.before) and has_mode:
        return FollowedFile(path, before, after, "restored", found)
    return FollowedFile(path, before, after, "left" if history.is_known(now) else "changed", found)


def _sha256(content: Content | None) -> str:
    return "" if content is None else hashlib.sha256(content.data).hexdigest()


def _is_known(file: FileChange, found: Content | None) -> bool:
    now = state_of(found)
    return same_bytes(now, file.before) or same_bytes(now, file.after)


def _foreign_text(paths: list[str]) -> str:
    shown = ", ".join(visible(path) for path in paths[:_NAMES_SHOWN])
    more = f" and {len(paths) - _NAMES_SHOWN} more" if len(paths) > _NAMES_SHOWN else ""
    return (
        f"{shown}{more}: changed since; restoring would lose that; "
        "`palyra checkpoints restore --force` (force: true) overwrites it"
    )
