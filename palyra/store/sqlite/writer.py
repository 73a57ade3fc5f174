"""The writer of the journal: group commit on one thread, one connection.

A commit takes a batch of changes and makes them durable in one transaction, with one sync.  Its
steps, in order:

1. Compare-and-append.  `Admission` compares the rows of each change with the head of their run:
   the first new row must have the next `seq`.  A gap or a rewritten row refuses that change alone;
   a repeated row is skipped, so a caller may append again when it does not know the outcome.
2. Chain.  Each new row gets the next position of the journal and a hash over its content, its
   position and the hash of the row before it in its run (`core.journal.tape_row`).
3. Begin, and check ownership.  The first statement of the transaction updates the owner row where
   the epoch is still ours, and writes the position of the last row into it.  A writer whose file
   was opened again elsewhere finds no such row and writes nothing.
4. Rows and records.  The rows go into `tape`, the records into their tables, a few statements for
   all of them.  Triggers and unique indexes check what admission cannot know.
5. Commit.  SQLite appends the transaction to its write-ahead log and syncs the log.
6. Acknowledge.  Only now do the caches of this object change: the last position, the heads of open
   runs, the hashes without a signed root.  The caller then wakes its waiters.

Steps 1 to 4 first assume that nothing is refused, and that a tape that begins is new, which saves
a lookup per run.  If admission or a constraint objects, the transaction is rolled back and the
batch repeated with a savepoint for each change, so that a refused change takes no other with it.

Signed roots are not part of a commit: `seal` signs one Merkle root over the hashes of all rows
since the last root, appends it to the roots file, and syncs that file.  It runs every few seconds,
so a signature costs no append its latency.  What follows the last root is protected by the chain
and by the position in the owner row until then.  `seal` also deletes expired records and copies the
write-ahead log into the database (a checkpoint), which may not delay a commit either.

Cancellation does not exist here: a call runs to its end on the journal's thread.
"""

import os
import secrets
from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
from msgspec.structs import astuple

from palyra.core.journal.changes import ChainViolation, Change
from palyra.core.journal.records import (
    MemoryRemoval,
    RunRecord,
    RunRemoval,
    SessionRemoval,
    WorkRemoval,
)
from palyra.core.journal.tape_row import merkle_root
from palyra.core.ports import NowMs
from palyra.errors import InvariantBroken, PalyraError, TooLarge, Unavailable
from palyra.store.journal.append_check import Admission, TapeHead
from palyra.store.journal.signed_roots import SignedRootsFile
from palyra.store.sqlite import memories, purges, queries, turns
from palyra.store.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    BulkInsert,
    storage_errors,
    transaction,
)
from palyra.store.sqlite.open_files import log_bytes
from palyra.store.sqlite.tapes import Tapes

# A checkpoint copies the log into the database and syncs it.  Between two batches at this size;
# inside a commit only when the log has grown so far that reading it becomes slow.
CHECKPOINT_PAGES = 2_000
CHECKPOINT_NOW_PAGES = 32_000
# Heads of runs that never got a terminal record accumulate; beyond this many all are read again.
KNOWN_HEADS = 65_536

LAST_MERGES = 25  # steps of a merge that a shutdown waits for: half a second
_REMOVALS = (MemoryRemoval, RunRemoval, SessionRemoval, WorkRemoval)
_ROWS = BulkInsert(
    "tape",
    ("position", "run_id", "session_id", "seq", "at_ms", "kind", "principal", "redacted", "data",
     "hash"),
)  # fmt: skip


class JournalOwner(NamedTuple):
    """The owner row as an opening found it, with the new epoch."""

    journal_id: str
    epoch: int
    head_position: int
    roots: int  # lines of the roots file known to be durable
    is_clean: bool  # True if the last owner closed the journal
    is_new: bool  # True if this opening created the journal


def take_ownership(connection: apsw.Connection) -> JournalOwner:
    """Raise the epoch of the owner row, which ends the right of every earlier opening to write.

    Raises apsw.CorruptError for a row of another id.
    """
    with transaction(connection):
        connection.execute(
            "INSERT INTO owner VALUES (1, ?, 0, 0, 0, 1) ON CONFLICT (id) DO NOTHING",
            (secrets.token_hex(16),),
        )
        is_new = connection.changes() > 0
        if connection.execute("SELECT count(*) FROM owner").get != 1:
            raise apsw.CorruptError("the owner row is damaged")
        connection.execute("UPDATE owner SET epoch = epoch + 1")
        found = connection.execute(
            "SELECT journal_id, epoch, head_position, roots, is_clean FROM owner"
        ).get
        connection.execute("UPDATE owner SET is_clean = 0")
    journal_id, epoch, head_position, roots, is_clean = found
    return JournalOwner(journal_id, epoch, head_position, roots, bool(is_clean), is_new)


class Writer:
    """Appends to one open database and its roots file.

    The heads of open runs and the unsigned hashes are caches of the file; they change only after a
    transaction has been committed.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        roots: SignedRootsFile,
        epoch: int,
        *,
        now_ms: NowMs,
        age_ms: NowMs,
        is_new: bool = False,
    ) -> None:
        self.position = 0  # of the last committed row
        self.connection = self._connection = connection
        self._page_bytes: int = connection.pragma("page_size")
        self._tapes = Tapes(connection)
        self._path = Path(connection.filename)
        self._roots = roots
        self._epoch = epoch
        self._now_ms = now_ms
        self._age_ms = age_ms
        self._heads: dict[str, TapeHead] = {}
        self._signed_position = 0
        self._unsigned: list[bytes] = []  # hashes since the last root
        self._wal_pages = 0
        # Times of modification after the last own write, by path; a failed write makes them unknown.
        self.written_ns: dict[str, int] = {}
        self._roots_name = str(self._path.with_name(f"{self._path.stem}.roots.ndjson"))
        self._log_name = f"{self._path}-wal"
        # A removal before the start may have left words in the text index, and bytes in the files.
        self._merges = self.has_leftovers = not is_new
        self._is_merging = False
        connection.set_wal_hook(self._note_wal)

    @property
    def changes(self) -> int:
        """Number of rows that this connection has changed; compare two readings."""
        return self._connection.total_changes()

    @property
    def log_bytes(self) -> int:
        """The least size of the write-ahead log, between two commits."""
        return log_bytes(self._page_bytes, self._wal_pages)

    def resume(self, *, position: int, signed_position: int) -> None:
        """Continue after `position`; the rows after the last root are signed by the next seal."""
        self.position = position
        self._signed_position = signed_position
        self._unsigned = self._tapes.read_hashes(first=signed_position + 1, through=position)

    def begin_segment(self, found: ChainViolation, *, through: int) -> None:
        """Continue after `through`, recording in the roots file why the chain starts over there."""
        self._roots.append(
            kind="segment",
            first=through + 1,
            through=through,
            merkle_root=b"",
            at_ms=self._now_ms(),
            found=found,
        )
        self.position = self._signed_position = through
        with transaction(self._connection):
            self._write_owner(through)

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """Commit a batch; see `JournalStore.commit`."""
        with storage_errors("commit", self._path):
            if self._wal_pages >= CHECKPOINT_NOW_PAGES:
                self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
            batch = Admission(self.position, self._heads, self._tapes, assumes_new=True)
            outcomes = [_admit(batch, change) for change in changes]
            if any(outcomes):
                return self._commit_each(changes)
            try:
                with transaction(self._connection):
                    self._write_owner(batch.position)
                    self._write(batch)
            except queries.REFUSALS:
                return self._commit_each(changes)
            self._acknowledge(batch)
            return outcomes

    def seal(self) -> bool:
        """Sign a root, delete expired records, checkpoint; see `JournalStore.seal`."""
        with storage_errors("seal", self._path):
            is_sealed = bool(self._unsigned)
            if is_sealed:
                self._sign_root()
            if is_sealed and self._roots.count == 1:  # later ones are counted by the next commit
                with transaction(self._connection):
                    self._write_owner(self.position)
            age_ms = self._age_ms()
            queries.delete_expired(self._connection, now_ms=age_ms)
            if memories.delete_expired(self._connection, now_ms=age_ms):
                self._merges = self.has_leftovers = True
            self._merge_memory_index()
            self._empty_log()
            if self._wal_pages >= CHECKPOINT_PAGES:
                self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return is_sealed

    def checkpoint(self) -> None:
        """Copy the whole log into the database and truncate it; see `JournalStore.checkpoint`."""
        with storage_errors("checkpoint", self._path):
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self, *, is_clean: bool = True) -> None:
        """Seal, record whether the shutdown is clean, copy the whole log into the database."""
        self.seal()
        for _ in range(LAST_MERGES):
            if not (self._merges or self._is_merging):
                break
            self._merge_memory_index()
        with storage_errors("close", self._path):
            with transaction(self._connection):
                self._write_owner(self.position, is_clean=is_clean)
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    # --- steps -----------------------------------------------------------------------------------

    def _commit_each(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """Commit the batch in one transaction, with a savepoint for each change."""
        batch = Admission(self.position, self._heads, self._tapes)
        with transaction(self._connection):
            outcomes = [self._commit_one(batch, change) for change in changes]
            self._write_owner(batch.position)
        self._acknowledge(batch)
        return outcomes

    def _commit_one(self, batch: Admission, change: Change) -> PalyraError | None:
        """Add one change to the batch and write it, or return the reason of its refusal."""
        alone = Admission(batch.position, ChainMap(batch.heads, self._heads), self._tapes)
        refusal = _admit(alone, change)
        if refusal is not None:
            return refusal
        try:
            with self._connection:  # a savepoint
                self._write(alone)
        except queries.REFUSALS as error:
            return queries.describe_refusal(error)
        batch.extend(alone)
        return None

    def _write_owner(self, position: int, *, is_clean: bool = False) -> None:
        """Record the head, within a transaction.  Raises Unavailable when ownership was lost."""
        self._connection.execute(
            "UPDATE owner SET head_position = ?, roots = ?, is_clean = ? WHERE epoch = ?",
            (position, self._roots.count, is_clean, self._epoch),
        )
        if not self._connection.changes():
            raise Unavailable("journal: ownership lost: it was opened again elsewhere")

    def _write(self, batch: Admission) -> None:
        """Insert rows and records.  Raises one of `queries.REFUSALS`."""
        rows = [(position, *astuple(row), digest) for position, digest, row in batch.links]
        _ROWS.append(self._connection, rows)
        others = queries.append(self._connection, batch.records)
        if others:
            others = turns.append(self._connection, others)
            memories.append(self._connection, purges.append(self._connection, others))
            if any(isinstance(record, _REMOVALS) for record in others):
                self._merges = self.has_leftovers = True

    def _acknowledge(self, batch: Admission) -> None:
        """Update the caches after the commit; an ended run needs no head in memory."""
        self.position = batch.position
        if len(self._heads) >= KNOWN_HEADS:
            self._heads.clear()
        self._heads.update(batch.heads)
        self._unsigned += [link.hash for link in batch.links]
        for record in batch.records:
            if isinstance(record, RunRecord) and record.is_terminal:
                self._heads.pop(record.run_id, None)

    def _sign_root(self) -> None:
        """Append a signed root over the unsigned hashes to the roots file."""
        try:
            self._roots.append(
                kind="root",
                first=self._signed_position + 1,
                through=self.position,
                merkle_root=merkle_root(self._unsigned),
                at_ms=self._now_ms(),
            )
        finally:
            self._note_write(self._roots_name)
        self._signed_position = self.position
        self._unsigned = []

    def _merge_memory_index(self) -> None:
        """Take one step towards a text index without the words of removed items."""
        if self._merges or self._is_merging:
            begins, self._merges = self._merges, False
            self._is_merging = memories.merge_index(self._connection, begins=begins)

    def _empty_log(self) -> None:
        """Overwrite the pages of removed content in the database, and cut the log that has them.

        `secure_delete` zeroes freed bytes, but the write-ahead log keeps earlier pages until it is
        cut.  A reader of an old page prevents that; then a later seal does it.
        """
        if not self.has_leftovers or self._merges or self._is_merging:
            return
        self._connection.set_busy_timeout(0)
        try:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self.has_leftovers = False
        except apsw.BusyError:
            pass
        finally:
            self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)

    def _checkpoint(self, mode: int) -> None:
        try:
            self._connection.wal_checkpoint(None, mode)
        finally:
            self._note_write(str(self._path))
            self._note_write(self._log_name)
        self._wal_pages = 0

    def _note_write(self, name: str) -> None:
        try:
            self.written_ns[name] = os.lstat(name).st_mtime_ns
        except OSError:
            self.written_ns.pop(name, None)

    def _note_wal(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        try:  # no call of Python: it is in the path of each commit
            self.written_ns[self._log_name] = os.lstat(self._log_name).st_mtime_ns
        except OSError:
            self.written_ns.pop(self._log_name, None)
        return apsw.SQLITE_OK


def _admit(batch: Admission, change: Change) -> PalyraError | None:
    """Admit the change, or return the reason of its refusal."""
    try:
        batch.admit(change)
    except (InvariantBroken, TooLarge) as refusal:
        return refusal
    return None
