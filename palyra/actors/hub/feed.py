"""The feed: one run as the hub knows it.

Owns: how far the run was published and committed, its newest rows, and the lanes that follow it.
Written by: the hub only.  Never: reads the journal; a reader whose cursor is older than the tail
has to do that itself.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import ProgressKind
from palyra.core.tape.events import TERMINAL_KINDS

KEEP_BYTES = 65_536  # of committed payloads kept per open run, so that most joins need no read


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
    """One run as one subscription follows it."""

    def deliver(self, rows: Sequence[PublishedRow]) -> None:
        """Rows that were just published, in order."""

    def rewind(self, seq: int) -> None:
        """The rows from `seq` on never happened; others will take their place."""

    def offer_progress(self, delta: ProgressDelta) -> None:
        """A delta, which may be dropped."""

    def tell_committed(self) -> None:
        """The feed's committed seq has advanced."""

    def end(self) -> None:
        """The run's terminal event is committed: nothing will follow."""


class RunFeed:
    """One run as the hub knows it: watermarks, newest rows, lanes."""

    __slots__ = (
        "_tail",
        "_tail_bytes",
        "committed",
        "is_known",
        "is_open",
        "lanes",
        "last_seq",
        "principal",
        "published",
        "run_id",
        "session_id",
    )

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.session_id = ""  # this and the next are learned from the first row
        self.principal = ""
        self.published = -1
        self.committed = -1
        self.last_seq: int | None = None  # of the terminal event, once published
        self.is_open = False  # rows were published and more may come
        self.is_known = False  # the two numbers above mean something
        self.lanes: dict[FeedListener, None] = {}  # in order of arrival
        self._tail: deque[TapeRow] = deque()
        self._tail_bytes = 0

    def learn(self, first: TapeRow) -> None:
        """The run publishes; what is below its first row was committed earlier."""
        self.session_id = first.session_id
        self.principal = first.principal
        self.published = self.committed = first.seq - 1
        self.is_open = self.is_known = True

    def note_head(self, head_seq: int) -> None:
        """A reader saw the committed head; for a run nobody publishes, that is all there is."""
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
        """Forget the rows from `seq` on: they were published and never committed."""
        while self._tail and self._tail[-1].seq >= seq:
            self._tail_bytes -= len(self._tail.pop().data)
        self.published = seq - 1
        self.last_seq = None

    def commit(self, seq: int) -> None:
        """Note what is durable; of that keep only a little."""
        self.committed = seq
        tail = self._tail
        while self._tail_bytes > KEEP_BYTES and tail and tail[0].seq <= seq:
            self._tail_bytes -= len(tail.popleft().data)

    @property
    def is_over(self) -> bool:
        """Whether the terminal event is committed."""
        return self.last_seq is not None and self.committed >= self.last_seq

    def find_rows(self, from_seq: int) -> list[TapeRow] | None:
        """All published rows from `from_seq` on, or None when the journal must be read first."""
        if not self.is_known:
            return None
        if from_seq > self.published:
            return []
        if not self._tail or from_seq < self._tail[0].seq:
            return None
        return [row for row in self._tail if row.seq >= from_seq]
