"""Changes of files by a run, and the preview of their undo, as they go over the wire.

File checkpoints have both contents of each change by a file tool.  A program or a foreign server
leaves none, so its calls are named as unknown instead of being passed over.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from palyra.core.preview.blocks import FileBlock
from palyra.core.preview.files import Redact, file_block
from palyra.core.preview.spelling import Speller
from palyra.core.tape import events as ev
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.checkpoints import FollowedFile, Standing
from palyra.core.tool.targets import FileTarget

MAX_NOTES = 20
_NAMED_CALLS = 3  # in the note about calls whose changes are not recorded
# Tool classes whose calls change no file, or only with a checkpoint.
_KNOWN_CLASSES = frozenset({"read_only_safe", "path_scoped", "idempotent_network", "delegation"})
_UNSEEN_EXECUTORS = frozenset({"process", "mcp", "wasm"})


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a run, and its standing now."""

    path: str
    standing: Standing
    problem: str = ""  # why it is `unusable`


class RunDiff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The difference that a run made, as far as it is recorded."""

    run_id: str
    files: tuple[ChangedFile, ...] = ()
    blocks: tuple[FileBlock, ...] = ()  # without files that it created and deleted
    unknown: tuple[str, ...] = ()  # parts of the run whose changes are not recorded, in words
    redacted: int = 0  # texts with a mark in place of a secret
    cut: int = 0  # lines left out


class RunUndo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The undo of a run's changes: a preview, or its result."""

    run_id: str
    state: Literal["preview", "undone"]
    digest: str  # of this preview; the undo takes it
    files: tuple[str, ...] = ()  # put back, or to be put back
    conflicts: tuple[
        str, ...
    ] = ()  # of others, changed since by another writer; `force` overwrites
    unusable: tuple[ChangedFile, ...] = ()  # left alone in any case
    blocks: tuple[
        FileBlock, ...
    ] = ()  # of the preview: from the content now to that before the run
    unknown: tuple[str, ...] = ()
    redacted: int = 0
    cut: int = 0
    checkpoint_id: str | None = None  # that undoes it


def build_diff(
    run_id: str,
    followed: Sequence[FollowedFile],
    unknown: Sequence[str],
    *,
    redact: Redact,
    max_lines: int,
) -> RunDiff:
    """Return the changes of a run, with at most `max_lines` lines."""
    spell = Speller()
    blocks = _blocks(
        [FileTarget(each.path, each.before, each.after) for each in followed
         if each.before is not None or each.after is not None],
        spell, redact, max_lines,
    )  # fmt: skip
    return RunDiff(
        run_id=run_id,
        files=tuple(map(_file, followed)),
        blocks=blocks,
        unknown=tuple(unknown),
        redacted=spell.redacted,
        cut=sum(block.cut for block in blocks),
    )


def build_undo(
    run_id: str,
    followed: Sequence[FollowedFile],
    unknown: Sequence[str],
    *,
    redact: Redact,
    max_lines: int,
) -> RunUndo:
    """Return the preview of an undo; blocks of conflicts show what `force` would overwrite."""
    spell = Speller()
    shown = [each for each in followed if each.standing in {"left", "changed"}]
    blocks = _blocks(
        [FileTarget(each.path, each.now, each.before) for each in shown], spell, redact, max_lines
    )
    return RunUndo(
        run_id=run_id,
        state="preview",
        digest=digest_of(run_id, followed),
        files=paths_of(followed, "left"),
        conflicts=paths_of(followed, "changed"),
        unusable=tuple(_file(each) for each in followed if each.standing == "unusable"),
        blocks=blocks,
        unknown=tuple(unknown),
        redacted=spell.redacted,
        cut=sum(block.cut for block in blocks),
    )


def paths_of(followed: Sequence[FollowedFile], standing: Standing) -> tuple[str, ...]:
    """Return the paths of files with that standing."""
    return tuple(each.path for each in followed if each.standing == standing)


def digest_of(run_id: str, followed: Sequence[FollowedFile]) -> str:
    """Return the digest of everything that an undo would do: it changes with any of the files."""
    rows = [(each.path, each.standing, each.now_sha256) for each in followed]
    return hashlib.sha256(json.dumps([run_id, rows]).encode()).hexdigest()


def find_unknown(
    rows: Sequence[tuple[str, bytes]],
    kept_calls: frozenset[str],
    changes_nothing: Callable[[ev.ToolProposed], bool],
) -> list[str]:
    """Return what a run may have changed without a checkpoint; rows are (kind, data) of its tape.

    A call is left out if `changes_nothing` holds for it.
    """
    wanted = {ev.ToolProposed.KIND, ev.ToolStarted.KIND, ev.DelegationStarted.KIND}
    proposed: dict[str, ev.ToolProposed] = {}
    found: list[str] = []
    unseen: list[str] = []
    unkept = 0
    for kind, data in rows:
        event = ev.decode_event(kind, data) if kind in wanted else None
        if isinstance(event, ev.ToolProposed):
            proposed[event.call_id] = event
        elif isinstance(event, ev.ToolStarted) and event.call_id in proposed:
            call = proposed[event.call_id]
            unkept += call.tool_class == "path_scoped" and call.call_id not in kept_calls
            if _is_unseen(call, event.executor) and not changes_nothing(call):
                unseen.append(f"{visible(call.tool)} {call.call_id}")
        elif isinstance(event, ev.DelegationStarted):
            found.append(f"the delegated run has changes of its own: palyra diff {event.run_id}")
    if unseen:
        more = len(unseen) - _NAMED_CALLS
        named = ", ".join([*unseen[:_NAMED_CALLS], *([f"{more} more"] if more > 0 else [])])
        found.insert(
            0,
            f"the changes of files by {pluralize(len(unseen), 'call')} of programs or foreign tools "
            f"({named})",
        )
    if unkept:
        calls = pluralize(unkept, "call")
        found.append(
            f"{calls} for files left no checkpoint: nothing was changed, or retention deleted it"
        )
    more = len(found) - MAX_NOTES
    return [*found[:MAX_NOTES], f"and {more} more"] if more > 0 else found


def _is_unseen(call: ev.ToolProposed, executor: str) -> bool:
    return call.tool_class not in _KNOWN_CLASSES and executor in _UNSEEN_EXECUTORS


def _file(each: FollowedFile) -> ChangedFile:
    return ChangedFile(path=each.path, standing=each.standing, problem=visible(each.problem))


def _blocks(
    targets: Sequence[FileTarget], spell: Speller, redact: Redact, max_lines: int
) -> tuple[FileBlock, ...]:
    blocks: list[FileBlock] = []
    for target in targets:
        block = file_block(target, redact=redact, spell=spell, expected=None, max_lines=max_lines)
        max_lines -= sum(len(hunk.lines) for hunk in block.hunks)
        blocks.append(block)
    return tuple(blocks)
