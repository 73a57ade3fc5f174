"""The feed of one run: watermarks, newest rows and listeners.

Owns: the last published and the last committed seq, the newest rows (the tail), and the listeners
of the run.  Written by: the hub only.  Never: reads the journal; a listener whose cursor is older
than the tail reads it itself.

    published   last seq delivered to listeners; ahead of the tape while a commit is pending
    committed   last seq that is durable; never ahead of `published`
    last_seq    seq of the terminal event once it is published; the run is over when it is committed

A failed commit takes rows back: the run continues from the committed head, the tail is cut and the
listeners rewind.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import ProgressKind
from palyra.core.tape.events import TERMINAL_KINDS

KEEP_BYTES = (
    65_536  # of payloads kept per open run, so that most new listeners need not read the journal
)


@dataclass(slots=True, eq=False)
class PublishedRow:
    """One row for all readers.

    The first reader that needs the encoded event stores it here, so that an event is encoded once
    however many read it, and not at all if no reader needs bytes.
    """

    row: TapeRow
    encoded: bytes | None = None


@dataclass(slots=True, eq=False)
class ProgressDelta:
    """One volatile delta of a run for all readers; `encoded` as in `PublishedRow`."""

    run_id: str
    item: str  # turn or call id
    kind: ProgressKind
    order: int
    delta: str
    encoded: tuple[bytes, bytes] | None = None


class FeedListener(Protocol):
    """The cursor of one subscription on one run."""

    def deliver(self, rows: Sequence[PublishedRow]) -> None:
        """Deliver newly published rows, in order."""

    def rewind(self, seq: int) -> None:
        """Withdraw the rows from `seq` on: they were not committed, others replace them."""

    def offer_progress(self, delta: ProgressDelta) -> None:
        """Deliver a delta if the listener has room."""

    def notify_committed(self) -> None:
        """Deliver the committed seq of the feed, which has advanced."""

    def end(self) -> None:
        """End the cursor: the terminal event is committed."""


class RunFeed:
    """Watermarks, newest rows and listeners of one run."""

    __slots__ = (
        "_tail",
        "_tail_bytes",
        "committed",
        "is_known",
        "is_open",
        "last_seq",
        "listeners",
        "principal",
        "published",
        "run_id",
        "session_id",
    )

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.session_id = ""  # this and the next come from the first row
        self.principal = ""
        self.published = -1
        self.committed = -1
        self.last_seq: int | None = None  # of the terminal event, once published
        self.is_open = False  # a publisher exists and the run is not over
        self.is_known = False  # `published` and `committed` are valid
        self.listeners: dict[FeedListener, None] = {}  # in the order of subscription
        self._tail: deque[TapeRow] = deque()
        self._tail_bytes = 0

    def open(self, first: TapeRow) -> None:
        """Open the feed with the first row of a publisher; earlier rows are committed."""
        self.session_id = first.session_id
        self.principal = first.principal
        self.published = self.committed = first.seq - 1
        self.is_open = self.is_known = True

    def note_head(self, head_seq: int) -> None:
        """Record the committed head that a reader found, for a run without a publisher."""
        self.committed = max(self.committed, head_seq)
        self.published = max(self.published, head_seq)
        self.is_known = True

    def append(self, rows: Sequence[TapeRow]) -> None:
        """Add published rows; they follow `published`."""
        self._tail.extend(rows)
        for row in rows:
            self._tail_bytes += len(row.data)
        self.published = rows[-1].seq
        if rows[-1].kind in TERMINAL_KINDS:
            self.last_seq = rows[-1].seq

    def cut(self, seq: int) -> None:
        """Remove the rows from `seq` on, which were published and not committed."""
        while self._tail and self._tail[-1].seq >= seq:
            self._tail_bytes -= len(self._tail.pop().data)
        self.published = seq - 1
        self.last_seq = None

    def commit(self, seq: int) -> None:
        """Record the committed seq and shorten the tail to `KEEP_BYTES`."""
        self.committed = seq
        tail = self._tail
        while self._tail_bytes > KEEP_BYTES and tail and tail[0].seq <= seq:
            self._tail_bytes -= len(tail.popleft().data)

    @property
    def is_over(self) -> bool:
        """True if the terminal event is committed."""
        return self.last_seq is not None and self.committed >= self.last_seq

    def find_rows(self, from_seq: int) -> list[TapeRow] | None:
        """Return the published rows from `from_seq` on, None if the journal must be read first."""
        if not self.is_known:
            return None
        if from_seq > self.published:
            return []
        if not self._tail or from_seq < self._tail[0].seq:
            return None
        return [row for row in self._tail if row.seq >= from_seq]
