"""Marks in sessions: the points that forks and restores continue from.

Owns: nothing.  Talks to: the journal.  Tapes are read and folded in a reader's thread.
"""

from collections.abc import Iterator

import msgspec

from palyra.core.journal.records import Pin
from palyra.core.model.summary import Summary
from palyra.core.ports import JournalStore
from palyra.core.run.state import Run, reading_tape
from palyra.core.session.fork import ForkPoint, find_point
from palyra.errors import Unreadable
from palyra.services.tape.run_loader import read_rows, read_run


class ForkMark(msgspec.Struct, frozen=True):
    """A fork point, and what belongs to it outside of the run's own events."""

    point: ForkPoint
    link: bytes  # of its event in the journal's chain
    history: tuple[str, ...] | None  # runs before it in the prompt; None: it has not started
    artifacts: tuple[str, ...]

    def covers(self, pin: Pin, summary: Summary | None) -> bool:
        """True if the pinned message is before the mark: in the conversation or its summary."""
        if pin.run_id == self.point.run.run_id:
            return pin.seq <= self.point.seq
        is_covered = summary is not None and summary.covered_of(pin.run_id) is not None
        return is_covered or pin.run_id in (self.history or ())


def find_mark(store: JournalStore, run_id: str, at_seq: int) -> ForkMark:
    """Find the fork point for `at_seq`.  Blocks: reads the tape.  Raises InvalidParams.

    A run that is forked before its start has the history that it got when it started.
    """
    with reading_tape(run_id):
        point = find_point(read_rows(store, run_id), at_seq)
    chained = store.read_chain(run_id, after_seq=point.seq - 1, limit=1)
    run: Run | None = point.run
    if point.run.clock.started_ms is None:
        loaded = read_run(store, run_id)
        run = None if loaded is None or loaded.run.clock.started_ms is None else loaded.run
    history = None if run is None else run.history
    return ForkMark(point, chained[0].hash, history, tuple(_artifacts(store, point)))


def _artifacts(store: JournalStore, point: ForkPoint | None) -> Iterator[str]:
    """Yield the artifacts up to the point, and those of the runs it inherited from.

    The artifacts of a purged run went with its content, and what it inherited is on its tape alone.
    """
    while point is not None:
        yield from point.artifacts
        run_id, at_seq = point.inherited or ("", -1)
        try:
            with reading_tape(run_id):
                point = find_point(read_rows(store, run_id), at_seq) if run_id else None
        except Unreadable:
            return
