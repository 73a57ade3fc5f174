"""Changes of files by a run: their difference, and their undo.

Talks to: the journal (records, tapes), the file checkpoints.  Never: undoes a run that has not ended,
or for a caller other than its owner.  Files and tapes are read in threads.
Restart: nothing to restore.  The checkpoint of an undo is durable before a file changes, its event on
the tape follows the change.  If a crash comes between, the next undo of the run appends the event.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.journal.records import RunRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import FileHistory, Journal, JournalStore, NowMs, RunBlocking
from palyra.core.preview.call import DEFAULT_LINES
from palyra.core.preview.files import Redact
from palyra.core.preview.run_changes import (
    RunDiff,
    RunUndo,
    build_diff,
    build_undo,
    find_unknown,
)
from palyra.core.tape import events as ev
from palyra.core.tool.checkpoints import (
    BESIDE_CALLS,
    UNDO,
    Checkpoint,
    CheckpointFilter,
    FollowedFile,
)
from palyra.errors import Conflict, Forbidden, IllegalState, InvalidParams, NotFound
from palyra.services.tape.pins import read_rows

_ALL = 1_000_000  # checkpoints of a run


class _Tape(NamedTuple):
    run: RunRecord
    rows: list[tuple[str, bytes]]


class _Found(NamedTuple):
    tape: _Tape
    calls: list[Checkpoint]  # of its calls, oldest first
    unrecorded: list[Checkpoint]  # of undos that have no event on the tape
    followed: Sequence[FollowedFile]
    unknown: list[str]


class RunChanges:
    """Changes of files by runs.  Every method takes the authenticated caller first."""

    def __init__(
        self,
        journal: Journal,
        files: FileHistory,
        redact: Redact,
        now_ms: NowMs,
        run_blocking: RunBlocking,
        *,
        keeps_files: Callable[[ev.ToolProposed], bool] = lambda _call: False,
    ) -> None:
        self._journal = journal
        self._files = files
        self._redact = redact
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._keeps_files = keeps_files  # by the facts about a call; thread-safe

    async def diff(self, caller: Caller, run_id: str, max_lines: int = DEFAULT_LINES) -> RunDiff:
        """Return the changes of a run that the caller sees; also of one that has not ended.

        Raises NotFound, Purged, IllegalState for another workspace.  Cancellation: nothing happened.
        """
        caller.require("runs:read")
        found = await self._find(caller, run_id)
        return await self._run_blocking(
            partial(
                build_diff,
                run_id,
                found.followed,
                found.unknown,
                redact=self._redact,
                max_lines=max_lines,
            )
        )

    async def preview_undo(
        self, caller: Caller, run_id: str, max_lines: int = DEFAULT_LINES
    ) -> RunUndo:
        """Return what an undo would do now.  Raises as `undo` does.  Cancellation: nothing happened."""
        found = await self._find_own(caller, run_id)
        return await self._run_blocking(
            partial(
                build_undo,
                run_id,
                found.followed,
                found.unknown,
                redact=self._redact,
                max_lines=max_lines,
            )
        )

    async def undo(self, caller: Caller, run_id: str, digest: str, *, is_forced: bool) -> RunUndo:
        """Put the files of a run back as the preview with that digest said, as one change.

        Files that another writer has changed since are left alone unless forced.  Raises NotFound,
        Forbidden for another principal's run, IllegalState for a run that has not ended, Conflict if
        a file changed after the preview; then nothing is changed.
        Cancellation: the files may be back; repeat with the idempotency key, or undo again.
        """
        found = await self._find_own(caller, run_id)
        await self._record(caller, found, is_forced=False)
        preview = await self._run_blocking(self._plan, found)
        if digest != preview.digest:
            raise Conflict(
                "the files are not as the preview showed them: nothing was put back; look at a new "
                "preview"
            )
        paths = (*preview.files, *(preview.conflicts if is_forced else ()))
        checkpoint_id: str | None = None
        if paths:
            checkpoint_id = await self._run_blocking(self._put_back, found, frozenset(paths))
            after = await self._find_own(caller, run_id)
            await self._record(caller, after, is_forced=is_forced)
        return msgspec.structs.replace(
            preview,
            state="undone",
            files=paths,
            conflicts=() if is_forced else preview.conflicts,
            blocks=(),
            redacted=0,
            cut=0,
            checkpoint_id=checkpoint_id,
        )

    def _plan(self, found: _Found) -> RunUndo:
        """Return the preview without lines.  Blocks."""
        run_id = found.tape.run.run_id
        return build_undo(run_id, found.followed, found.unknown, redact=self._redact, max_lines=0)

    def _put_back(self, found: _Found, paths: frozenset[str]) -> str | None:
        """Undo the changes of these files.  Blocks."""
        expected = {each.path: each.now_sha256 for each in found.followed}
        return self._files.undo(found.calls, paths, expected)

    async def _record(self, caller: Caller, found: _Found, *, is_forced: bool) -> None:
        """Append the events of undone changes that are not on the tape yet."""
        run = found.tape.run
        rows: list[TapeRow] = []
        for kept in found.unrecorded:
            redacted = [self._redact(file.path) for file in kept.files]
            event = ev.RunUndone(
                checkpoint_id=kept.checkpoint_id,
                by=caller.principal,
                files=tuple(path for path, _ in redacted),
                forced=is_forced,
            )
            rows.append(
                TapeRow(
                    run_id=run.run_id,
                    session_id=run.session_id,
                    seq=run.head_seq + 1 + len(rows),
                    at_ms=self._now_ms(),
                    kind=ev.RunUndone.KIND,
                    principal=run.principal,
                    redacted=any(is_redacted for _, is_redacted in redacted),
                    data=ev.encode_event(event),
                )
            )
        if rows:
            record = msgspec.structs.replace(run, head_seq=rows[-1].seq)
            await self._journal.commit(Change(rows=tuple(rows), records=(record,)))

    async def _find_own(self, caller: Caller, run_id: str) -> _Found:
        caller.require("runs:write")
        found = await self._find(caller, run_id)
        run = found.tape.run
        if run.principal != caller.principal:
            raise Forbidden(f"the run is {run.principal}'s: only its owner undoes it")
        if not run.is_terminal:
            raise IllegalState(
                f"{run_id} has not ended: wait for its end, or cancel it with "
                f"`palyra runs cancel {run_id}`"
            )
        return found

    async def _find(self, caller: Caller, run_id: str) -> _Found:
        tape = await self._journal.read(partial(_read_tape, caller, run_id))
        return await self._run_blocking(self._follow, tape)

    def _follow(self, tape: _Tape) -> _Found:
        """Read the checkpoints of the run and its files.  Blocks."""
        run_id = tape.run.run_id
        made = self._files.list(CheckpointFilter(run_id=run_id, limit=_ALL))[::-1]
        calls = [kept for kept in made if kept.tool not in BESIDE_CALLS]
        events = [ev.decode_event(*row) for row in tape.rows if row[0] == ev.RunUndone.KIND]
        recorded = {each.checkpoint_id for each in events if isinstance(each, ev.RunUndone)}
        unrecorded = [
            kept for kept in made if kept.tool == UNDO and kept.checkpoint_id not in recorded
        ]
        kept_calls = frozenset(kept.call_id for kept in calls)
        unknown = find_unknown(tape.rows, kept_calls, self._keeps_files)
        return _Found(tape, calls, unrecorded, self._files.follow(calls), unknown)


def _read_tape(caller: Caller, run_id: str, store: JournalStore) -> _Tape:
    """Return a run and its tape.  Blocks.  Raises NotFound, Purged."""
    run = store.find_run(run_id)
    if run is None or not caller.sees(run.principal):
        raise NotFound(f"no run {run_id!r}", field="run_id")
    rows = read_rows(store, run_id, run.head_seq)
    return _Tape(run, [(row.kind, bytes(row.data)) for row in rows])


def require_digest(digest: str | None) -> str:
    """Return the digest of a request.  Raises InvalidParams without one."""
    if digest is None:
        raise InvalidParams(
            "an undo takes the digest of its preview: ask with dry_run first", field="digest"
        )
    return digest
