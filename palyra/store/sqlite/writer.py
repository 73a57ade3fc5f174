"""The writing half of the journal: one thread, one connection, one transaction per batch.

Owns: the head of every open run, the hashes that no root covers yet.  Both are caches of
the file, and change only when a transaction has been committed.
"""

from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path

import apsw

from palyra.core.journal.changes import ChainViolation, Change
from palyra.core.journal.hash_chain import merkle_root
from palyra.core.journal.records import RunRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import NowMs
from palyra.errors import InvariantBroken, PalyraError, TooLarge
from palyra.store.journal.admission import Admission, TapeHead
from palyra.store.journal.signed_roots import SignedRootsFile
from palyra.store.sqlite import ownership, queries, tapes
from palyra.store.sqlite.connection import storage_errors
from palyra.store.sqlite.schema import transaction

# A checkpoint copies the log into the database and syncs it.  Between two batches at this size;
# inside a commit only when the log has grown so far that reading it becomes slow.
CHECKPOINT_PAGES = 2_000
CHECKPOINT_NOW_PAGES = 32_000
# Heads of runs that were left without a terminal record; beyond this all are read again.
KNOWN_HEADS = 65_536


class Writer:
    """Appends to one open database and its roots file."""

    def __init__(
        self,
        connection: apsw.Connection,
        roots: SignedRootsFile,
        epoch: int,
        *,
        now_ms: NowMs,
    ) -> None:
        self.position = 0  # of the last committed row
        self._connection = connection
        self._path = Path(connection.filename)
        self._roots = roots
        self._epoch = epoch
        self._now_ms = now_ms
        self._heads: dict[str, TapeHead] = {}
        self._signed_position = 0
        self._unsigned: list[bytes] = []  # hashes since the last root
        self._wal_pages = 0
        connection.set_wal_hook(self._note_wal)

    def resume(self, *, position: int, signed_position: int) -> None:
        """Go on behind `position`; the rows after the last root await their signature."""
        self.position = position
        self._signed_position = signed_position
        self._unsigned = tapes.read_hashes(
            self._connection, first=signed_position + 1, through=position
        )

    def begin_segment(self, found: ChainViolation, *, through: int) -> None:
        """Begin anew behind `through`, and record why, in the roots file."""
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
            self._touch(through)

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """See `JournalStore.commit`."""
        with storage_errors("commit", self._path):
            if self._wal_pages >= CHECKPOINT_NOW_PAGES:
                self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
            return self._commit(changes)

    def seal(self) -> bool:
        """See `JournalStore.seal`; also the moment for what may not delay a commit."""
        with storage_errors("seal", self._path):
            is_sealed = self._sign()
            if is_sealed and self._roots.count == 1:  # later ones are counted by the next commit
                with transaction(self._connection):
                    self._touch(self.position)
            queries.delete_expired(self._connection, now_ms=self._now_ms())
            if self._wal_pages >= CHECKPOINT_PAGES:
                self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return is_sealed

    def close(self, *, is_clean: bool = True) -> None:
        """Seal, mark the shutdown clean if all is in order, fold the log into the database."""
        self.seal()
        with storage_errors("close", self._path):
            with transaction(self._connection):
                self._touch(self.position, is_clean=is_clean)
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def find_head(self, run_id: str) -> TapeHead:
        return tapes.find_head(self._connection, run_id)

    def find_row(self, run_id: str, seq: int) -> TapeRow | None:
        return tapes.find_row(self._connection, run_id, seq)

    def _commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """Assume that nothing stands in the way, and go the long way if something does."""
        batch = Admission(self.position, self._heads, self, trusts=True)
        outcomes = [_admit(batch, change) for change in changes]
        if any(outcomes):
            return self._commit_singly(changes)
        try:
            with transaction(self._connection):
                self._touch(batch.position)
                self._append(batch)
        except apsw.ConstraintError:
            return self._commit_singly(changes)
        self._settle(batch)
        return outcomes

    def _commit_singly(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """The same in one transaction, but each change refused for itself."""
        batch = Admission(self.position, self._heads, self)
        with transaction(self._connection):
            outcomes = [self._commit_one(batch, change) for change in changes]
            self._touch(batch.position)
        self._settle(batch)
        return outcomes

    def _commit_one(self, batch: Admission, change: Change) -> PalyraError | None:
        alone = Admission(batch.position, ChainMap(batch.heads, self._heads), self)
        refusal = _admit(alone, change)
        if refusal is not None:
            return refusal
        try:
            with self._connection:  # a savepoint
                self._append(alone)
        except apsw.ConstraintError as error:
            return queries.describe_refusal(error)
        batch.take_over(alone)
        return None

    def _append(self, batch: Admission) -> None:
        tapes.append(self._connection, batch.links)
        queries.append(self._connection, batch.records)

    def _touch(self, position: int, *, is_clean: bool = False) -> None:
        ownership.touch(
            self._connection,
            self._epoch,
            head_position=position,
            roots=self._roots.count,
            is_clean=is_clean,
        )

    def _settle(self, batch: Admission) -> None:
        """Remember what is committed; an ended run needs no head in memory."""
        self.position = batch.position
        if len(self._heads) >= KNOWN_HEADS:
            self._heads.clear()
        self._heads.update(batch.heads)
        self._unsigned += [link.hash for link in batch.links]
        for record in batch.records:
            if isinstance(record, RunRecord) and record.is_terminal:
                self._heads.pop(record.run_id, None)

    def _sign(self) -> bool:
        if not self._unsigned:
            return False
        self._roots.append(
            kind="root",
            first=self._signed_position + 1,
            through=self.position,
            merkle_root=merkle_root(self._unsigned),
            at_ms=self._now_ms(),
        )
        self._signed_position = self.position
        self._unsigned = []
        return True

    def _checkpoint(self, mode: int) -> None:
        self._connection.wal_checkpoint(None, mode)
        self._wal_pages = 0

    def _note_wal(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


def _admit(batch: Admission, change: Change) -> PalyraError | None:
    """Take the change in, or say why not."""
    try:
        batch.admit(change)
    except (InvariantBroken, TooLarge) as refusal:
        return refusal
    return None
