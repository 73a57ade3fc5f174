"""Pinned messages, read from the tapes.  All functions block: call them in a reader's thread."""

from collections.abc import Iterator

import structlog

from palyra.core.context.entries import Placed
from palyra.core.context.pins import find_pinned
from palyra.core.journal.records import Pin
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.core.run.state import reading_tape
from palyra.errors import Unreadable

log = structlog.get_logger("palyra.compaction")
PAGE_ROWS = 1_000


def read_rows(store: JournalStore, run_id: str, at_seq: int) -> Iterator[TapeRow]:
    """Yield the rows of a tape, at least those up to `at_seq`."""
    after_seq: int | None = -1
    while after_seq is not None and after_seq < at_seq:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        yield from page.rows
        after_seq = page.next_after_seq


def read_pin(store: JournalStore, pin: Pin) -> Placed | None:
    """Return the pinned message; None if the event brought none."""
    with reading_tape(pin.run_id):
        return find_pinned(read_rows(store, pin.run_id, pin.seq), pin.seq)


def read_pins(store: JournalStore, session_id: str) -> list[Placed]:
    """Return the pinned messages of a session; one whose tape cannot be folded is left out."""
    session = store.find_session(session_id)
    found: list[Placed] = []
    for pin in () if session is None else session.pins:
        try:
            placed = read_pin(store, pin)
        except Unreadable as error:
            log.warning("a pin cannot be read", run_id=pin.run_id, seq=pin.seq, error=str(error))
            continue
        if placed is not None:
            found.append(placed)
    return found
