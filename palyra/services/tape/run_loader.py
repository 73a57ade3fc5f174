"""Loading a run from its committed tape, with its open approvals."""

from collections.abc import Iterator

import msgspec

from palyra.core.journal.records import ApprovalRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.core.run.state import Run, fold, reading_tape
from palyra.core.session.commands import RunAnswer
from palyra.core.tape.events import MessageCompleted, read_events
from palyra.errors import Damaged

PAGE_ROWS = 1_000


class LoadedRun(msgspec.Struct, frozen=True):
    """A run folded from its tape."""

    run: Run
    prompts: tuple[ApprovalRecord, ...]  # the approvals that are still open
    approved: tuple[ApprovalRecord, ...] = ()  # settled ones that calls may still start on
    last_ms: int = 0  # time of its last event


def read_rows(store: JournalStore, run_id: str) -> Iterator[TapeRow]:
    """Yield the committed rows of a run, in order.  Blocks."""
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        yield from page.rows
        after_seq = page.next_after_seq


def find_answer(store: JournalStore, run_id: str) -> RunAnswer | None:
    """Return the last answer on a run's tape; None if it has none, or one that is unreadable.  Blocks."""
    seq = store.find_last_seq(run_id, MessageCompleted.KIND)
    rows = () if seq is None else store.read_tape(run_id, after_seq=seq - 1, limit=1).rows
    for row, event in read_events(rows):
        if isinstance(event, MessageCompleted):
            return RunAnswer.of(event.text, row.seq)
    return None


def read_run(store: JournalStore, run_id: str) -> LoadedRun | None:
    """Fold the committed tape of a run; return None if it has none.  Blocks.

    Raises Damaged for a tape that cannot be folded, Purged for one without its content.
    """
    rows = list(read_rows(store, run_id))
    if not rows:
        return None
    if rows[-1].seq != len(rows) - 1:
        raise Damaged(f"only {len(rows)} of the {rows[-1].seq + 1} events of {run_id} are stored")
    with reading_tape(run_id):
        run = fold(run_id, [(row.kind, row.at_ms, row.data) for row in rows])
    return LoadedRun(run, *_read_approvals(store, run), rows[-1].at_ms)


_Approvals = tuple[ApprovalRecord, ...]


def _read_approvals(store: JournalStore, run: Run) -> tuple[_Approvals, _Approvals]:
    """Return the open turn's pending approvals, and those that calls may still start on."""
    if run.question is None and not any(call.approval_id for call in run.calls):
        return (), ()
    found = store.list_approvals(
        principal=None, run_id=run.run_id, pending_only=False, limit=PAGE_ROWS
    )
    pending = tuple(asked for asked in found if asked.state == "pending")
    return pending, tuple(asked for asked in found if asked.is_open)
