"""Admission: compare-and-append for a batch of changes, and the hashes of its new rows.  Pure.

The rows of a change must follow the head of their run.  A change is refused as a whole, and without
effect on the other changes of the batch.  A row that is committed already with the same content is
skipped.  A change with only such rows is a repeat and changes nothing: its records are committed
too, and newer ones may have replaced them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from palyra.core.journal.changes import Change
from palyra.core.journal.records import Record, RunRecord
from palyra.core.journal.tape_row import GENESIS, MAX_PAYLOAD_BYTES, TapeRow, link
from palyra.errors import InvariantBroken, PalyraError, TooLarge


class TapeHead(NamedTuple):
    """The last row of a run."""

    seq: int
    hash: bytes


class ChainLink(NamedTuple):
    """A row with its position in the journal and its chain hash."""

    position: int
    hash: bytes
    row: TapeRow


NO_HEAD = TapeHead(-1, GENESIS)


class CommittedTapes(Protocol):
    """The committed rows that admission compares with."""

    def find_head(self, run_id: str) -> TapeHead:
        """The run's last row, NO_HEAD for an empty tape."""

    def find_row(self, run_id: str, seq: int) -> TapeRow | None: ...


class Admission:
    """The rows and records that a batch adds; changes nothing outside itself."""

    __slots__ = ("_assumes_new", "_known", "_store", "heads", "links", "position", "records")

    def __init__(
        self,
        position: int,
        known: Mapping[str, TapeHead],
        store: CommittedTapes,
        *,
        assumes_new: bool = False,
    ) -> None:
        """With `assumes_new` a tape that begins is not looked up; the unique index still checks."""
        self.position = position  # of the last row
        self.heads: dict[str, TapeHead] = {}  # moved by this batch
        self.links: list[ChainLink] = []
        self.records: list[Record] = []
        self._known = known
        self._store = store
        self._assumes_new = assumes_new

    def admit(self, change: Change) -> None:
        """Add one change.  Raises TooLarge or InvariantBroken, and then adds nothing."""
        links = self._link(change.rows) if change.rows else []
        if change.rows and not links:
            return
        for record in change.records:
            if isinstance(record, RunRecord):
                self._check_record(record, links)
        self.records += change.records
        if links:
            last = links[-1]
            self.links += links
            self.position = last.position
            self.heads[last.row.run_id] = TapeHead(last.row.seq, last.hash)

    def extend(self, other: "Admission") -> None:
        """Add the rows and records of a batch that started at the end of this one."""
        self.position = other.position
        self.heads |= other.heads
        self.links += other.links
        self.records += other.records

    def _link(self, rows: Sequence[TapeRow]) -> list[ChainLink]:
        """Return the new rows, chained to the head of their run."""
        run_id = rows[0].run_id
        is_new = self._assumes_new and rows[0].seq == 0
        seq, prev = self._find_cached_head(run_id) or (
            NO_HEAD if is_new else self._store.find_head(run_id)
        )
        if rows[0].seq <= seq:
            rows = self._skip_committed(rows, seq)
        position = self.position
        links = []
        for row in rows:
            seq += 1
            position += 1
            if row.seq != seq or row.run_id != run_id or len(row.data) > MAX_PAYLOAD_BYTES:
                raise _describe(row, run_id, seq)
            prev = link(prev, position, row)
            links.append(ChainLink(position, prev, row))
        return links

    def _find_cached_head(self, run_id: str) -> TapeHead | None:
        """Return the head of the run as this batch or a cache has it, None if neither does."""
        return self.heads.get(run_id) or self._known.get(run_id)

    def _skip_committed(self, rows: Sequence[TapeRow], head_seq: int) -> Sequence[TapeRow]:
        """Return the rows after the head; those up to the head must equal the committed ones."""
        for index, row in enumerate(rows):
            if row.seq > head_seq:
                return rows[index:]
            if row != self._store.find_row(row.run_id, row.seq):
                raise InvariantBroken(
                    f"event {row.seq} of {row.run_id} is on the tape already, with other content"
                )
        return ()

    def _check_record(self, record: RunRecord, links: Sequence[ChainLink]) -> None:
        """Refuse a record that is ahead of its tape: the tape would later look truncated."""
        if links and links[-1].row.run_id == record.run_id:
            head_seq = links[-1].row.seq
        else:
            head = self._find_cached_head(record.run_id) or self._store.find_head(record.run_id)
            head_seq = head.seq
        if record.head_seq > head_seq:
            raise InvariantBroken(
                f"{record.run_id}: its record says {record.head_seq}, its tape ends at {head_seq}"
            )


def _describe(row: TapeRow, run_id: str, seq: int) -> PalyraError:
    """Describe why the row cannot be event `seq` of the run."""
    if len(row.data) > MAX_PAYLOAD_BYTES:
        return TooLarge(
            f"event {row.seq} of {row.run_id} has {len(row.data)} bytes, "
            f"limit {MAX_PAYLOAD_BYTES}: keep large content in an artifact"
        )
    return InvariantBroken(
        f"event {row.seq} of {row.run_id} does not follow event {seq - 1} of {run_id}"
    )
