"""The journal on SQLite: opening, closing and verifying one file.

Owns: the database file, its write-ahead log and the roots file next to it.  One writer thread and
any number of reader threads; `core.ports.JournalStore` says which methods each may call, and when.
Never: repairs a tape.

An opening checks, in this order: the pages if the last check found damage, the schema version, the
ownership of the file, the roots file, the binding of the signing key, and the chain since the last
signed root but one.  A chain violation does not prevent the opening: it is recorded in the roots
file, reported, and the journal continues after the last position that was ever used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from palyra.core.incident.kinds import restored_key
from palyra.core.journal.backup import Restoration
from palyra.core.journal.changes import (
    ChainedRow,
    ChainViolation,
    Change,
    FilesLost,
    OpenReport,
    TapePage,
    VerifyReport,
)
from palyra.core.journal.damaged_row import is_json, make_mark
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import NowMs
from palyra.core.tape.search import EventRow, TapeSearch
from palyra.errors import PalyraError, Unavailable
from palyra.store.files.disk import REAL_DISK, Disk
from palyra.store.files.kept_files import SAVED, KeptFiles, is_static
from palyra.store.journal.keys import KeyRing, Rollback
from palyra.store.journal.signed_roots import SignedRoot, SignedRootsFile, root_break
from palyra.store.journal.verification import verify_journal, verify_run
from palyra.store.sqlite import tape_search
from palyra.store.sqlite.connection import (
    Readers,
    Synchronous,
    open_reader,
    open_writer,
    storage_errors,
)
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.integrity import PageCheck
from palyra.store.sqlite.memory_search import MemorySearchQueries
from palyra.store.sqlite.open_files import (
    OpenFiles,
    copy_database,
    copy_file,
    database_bytes,
    describe,
    require_sound,
)
from palyra.store.sqlite.queries import list_newest_ids, list_unresolved
from palyra.store.sqlite.retention import RetentionQueries
from palyra.store.sqlite.row_check import RowSweep
from palyra.store.sqlite.schema import SCHEMA_VERSION, migrate, restore_triggers
from palyra.store.sqlite.tapes import PAGE_BYTES, Tapes
from palyra.store.sqlite.turns import TurnQueries
from palyra.store.sqlite.upgrade import keep_old
from palyra.store.sqlite.writer import JournalOwner, Writer, take_ownership

T = TypeVar("T")

_TRIGGERS = "triggers were missing or changed and are made again, so another program wrote here: {}"


class SqliteJournal(MemorySearchQueries):
    """A `JournalStore` in one file; after `close` or a failed `open` it can be opened again."""

    def __init__(
        self,
        path: Path,
        keys: KeyRing,
        *,
        now_ms: NowMs,
        age_ms: NowMs | None = None,
        disk: Disk = REAL_DISK,
        synchronous: Synchronous = "full",
    ) -> None:
        """`age_ms` returns the time by which records expire (default: `now_ms`)."""
        self.path = path
        self.roots_path = path.with_name(f"{path.stem}.roots.ndjson")
        self._keys = keys
        self._now_ms = now_ms
        self._age_ms = age_ms or now_ms
        self._disk = disk
        self._synchronous = synchronous
        self._pages = PageCheck(path)
        self.damaged = DamageNotes()
        self._sweep = RowSweep()
        self._opened: _Opened | None = None
        self._losses: dict[Path, str] = {}
        self._saved: tuple[int, int] | None = None  # position and changes of the last copy
        self.has_leftovers = False  # see `JournalStore`; as of the last commit or seal

    # --- the write half --------------------------------------------------------------------------

    def open(self) -> OpenReport:
        """See `JournalStore.open`."""
        if self._opened is not None:  # the last incarnation ended without `close`
            self._opened.held.close()
            self._opened = None
        with storage_errors(f"open {self.path}", self.path), ExitStack() as held:
            connection = open_writer(self.path, self._disk, self._synchronous)
            held.callback(connection.close)
            self._pages.require_sound(connection)
            kept = keep_old(connection, self.path, self.roots_path, self._disk)
            migrated_from = migrate(connection)
            triggers = restore_triggers(connection)
            found = take_ownership(connection)
            roots = self._open_roots(held, found)
            mismatch = self._keys.find_mismatch(
                found.journal_id,
                is_new=found.is_new,
                is_blank=found.head_position == found.roots == 0,
            )
            rollback = self._keys.find_rollback(
                found.journal_id, epoch=found.epoch, position=found.head_position
            )
            verification = _verify_end(connection, roots, found, mismatch)
            if rollback is not None and verification.first_break is None:
                verification = _with_rollback(verification, found, rollback)
            writer = Writer(
                connection,
                roots,
                found.epoch,
                now_ms=self._now_ms,
                age_ms=self._age_ms,
                is_new=found.is_new,
            )
            _resume(writer, roots, verification, found, rollback)
            self._keys.bind(found.journal_id)  # not before a mismatch is on record
            if rollback is not None:  # it is on record
                self._keys.mark(found.journal_id, epoch=found.epoch, position=writer.position)
            incidents = tuple(list_unresolved(connection, self.damaged))
            newest_ids = tuple(list_newest_ids(connection))
            restored = _find_restoration(connection, roots)
            readers = Readers(self.path, self._disk)
            held.callback(readers.close)
            held.callback(self._pages.stop)
            self._losses, self._saved = {}, None
            self._opened = _Opened(
                writer,
                roots,
                readers,
                found,
                self._watch(connection, writer, roots),
                self._keep_keys(),
                held.pop_all(),
            )
            self._pages.is_walk_due = not found.is_clean
            self.has_leftovers = writer.has_leftovers
        return OpenReport(
            schema_version=SCHEMA_VERSION,
            migrated_from=migrated_from,
            owner_epoch=found.epoch,
            was_clean=found.is_clean,
            head_position=writer.position,
            verification=verification,
            notes=(
                *_notes(roots, found, mismatch),
                *((_TRIGGERS.format(", ".join(triggers)),) if triggers else ()),
                *((f"the journal as it was before the migration is kept: {kept}",) if kept else ()),
            ),
            incidents=incidents,
            restored=restored,
            newest_ids=newest_ids,
        )

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """See `JournalStore.commit`; an empty commit tests that writing works."""
        writer = self._get_opened().writer
        try:
            outcomes = writer.commit(changes)
        except Unavailable:
            writer.written_ns.clear()  # a part of it may have been written
            raise
        self.has_leftovers = writer.has_leftovers
        return outcomes

    def seal(self) -> bool:
        """See `JournalStore.seal`."""
        writer = self._get_opened().writer
        try:
            is_sealed = writer.seal()
        except Unavailable:
            writer.written_ns.clear()
            raise
        self.has_leftovers = writer.has_leftovers
        return is_sealed

    def checkpoint(self) -> None:
        """See `JournalStore.checkpoint`."""
        self._get_opened().writer.checkpoint()

    def close(self) -> None:
        """See `JournalStore.close`; closes all files even when it raises."""
        opened = self._get_opened()
        self._opened = None
        self._pages.stop()  # its transaction would block the checkpoint
        with storage_errors("close"):
            with opened.held as held:
                held.callback(self._find_losses, opened)  # after the last commit, or the failed one
                opened.writer.close(is_clean=not self._pages.is_walk_due)
            owner = opened.owner
            self._keys.mark(owner.journal_id, epoch=owner.epoch, position=opened.writer.position)

    def check_files(self) -> FilesLost | None:
        """See `JournalStore.check_files`."""
        with storage_errors("check the files", self.path):
            return self._find_losses(self._get_opened())

    def _find_losses(self, opened: "_Opened") -> FilesLost | None:
        """Check the files; save the database and the roots if one of them is lost."""
        self._losses |= opened.files.find_losses() | opened.keys.find_losses()
        if not self._losses:
            return None
        found, saved = (
            describe(self._losses),
            self.path.with_name(f"{self.path.stem}.saved.sqlite3"),
        )
        if not self._losses.keys() & {self.path, _log_of(self.path), self.roots_path}:
            return FilesLost(found=found, keys=", ".join(map(str, opened.keys.copies.values())))
        mark = (opened.writer.position, opened.writer.changes)
        try:
            if mark != self._saved:
                copy_database(opened.writer.connection, saved)
                require_sound(saved)
                copy_file(
                    opened.roots.file, saved.with_name(f"{self.path.stem}.saved.roots.ndjson")
                )
                self._saved = mark
        except (apsw.Error, OSError) as error:
            return FilesLost(found=found, problem=str(error))
        return FilesLost(found=found, copy=str(saved))

    def _watch(
        self, connection: apsw.Connection, writer: Writer, roots: SignedRootsFile
    ) -> OpenFiles:
        """Note the files as they are after an opening, and each write from then on."""
        least_bytes: dict[Path, Callable[[], int]] = {
            self.path: partial(database_bytes, connection),
            _log_of(self.path): lambda: writer.log_bytes,
            self.roots_path: lambda: roots.size_bytes,
        }
        return OpenFiles(least_bytes, writer.written_ns)

    def _keep_keys(self) -> KeptFiles:
        """Keep the content of the keys as it is after an opening."""
        kept = KeptFiles(dict.fromkeys(self._keys.files(), is_static), self.path.parent / SAVED)
        kept.find_losses()
        return kept

    def open_snapshot(self) -> apsw.Connection:
        """Return a connection of its own with a read transaction, for the caller to close.

        The writer continues meanwhile; its log grows until the connection is closed.
        """
        self._get_opened()
        with storage_errors("read"):
            connection = open_reader(self.path, self._disk)
            try:
                connection.execute("BEGIN")
                connection.execute("SELECT epoch FROM owner").get  # noqa: B018 - begins the reading
            except apsw.Error:
                connection.close()
                raise
            return connection

    # --- the read half ---------------------------------------------------------------------------

    def read_tape(
        self, run_id: str, *, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> TapePage:
        """See `JournalStore.read_tape`."""
        page = self._read(
            lambda c: Tapes(c).read_page(
                run_id, after_seq=after_seq, limit=limit, max_bytes=max_bytes
            )
        )
        page.rows[:] = map(self._mark, page.rows)
        return page

    def _mark(self, row: TapeRow) -> TapeRow:
        """Return the row for readers: a payload that is no JSON is noted and replaced by a mark."""
        if is_json(row.data):
            return row
        self.damaged.note(f"tape:{row.run_id}:{row.seq}")
        return msgspec.structs.replace(row, data=make_mark(row.data))

    def find_last_seq(self, run_id: str, kind: str) -> int | None:
        """See `JournalStore.find_last_seq`."""
        statement = "SELECT max(seq) FROM tape WHERE run_id = ? AND kind = ?"
        found: int | None = self._read(lambda c: c.execute(statement, (run_id, kind)).get)
        return found

    def find_latest(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """See `JournalStore.find_latest`."""
        return self._read(lambda c: tape_search.find_latest(c, run_ids))

    def read_codes(self, run_id: str) -> str:
        """See `JournalStore.read_codes`."""
        return self._read(lambda c: tape_search.read_codes(c, run_id))

    def search_tape(self, run_id: str, wanted: TapeSearch) -> tuple[list[EventRow], int | None]:
        """See `JournalStore.search_tape`."""
        return self._read(lambda c: tape_search.search_tape(c, run_id, wanted))

    def turns(self) -> TurnQueries:
        """Return the queries of the index of conversations."""
        return TurnQueries(self._read, self.damaged)

    def retention(self) -> RetentionQueries:
        """Return the queries of retention."""
        return RetentionQueries(self._read)

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        """See `JournalStore.read_chain`."""
        found = self._read(lambda c: Tapes(c).read_chain(run_id, after_seq=after_seq, limit=limit))
        return [msgspec.structs.replace(each, row=self._mark(each.row)) for each in found]

    def verify(
        self, run_id: str | None = None, *, note: Callable[[int], object] | None = None
    ) -> VerifyReport:
        """See `JournalStore.verify`; some milliseconds for a thousand events, page by page."""
        # Roots are read before the rows, so that no root is newer than the rows.
        entries = self._get_opened().roots.entries()
        if run_id is None:
            return self._read(
                lambda c: verify_journal(Tapes(c), entries, self._keys.trusted, note=note)
            )
        found = self.find_run(run_id)
        claimed_seq = None if found is None else found.head_seq
        return self._read(
            lambda c: verify_run(Tapes(c), entries, self._keys.trusted, run_id, claimed_seq)
        )

    def check_rows(self, limit: int) -> None:
        """See `JournalStore.check_rows`."""
        for fault in self._read(lambda connection: self._sweep.step(connection, limit)):
            self.damaged.note(fault.name)

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        """See `JournalStore.check`."""
        self._get_opened()
        if self._pages.finding is not None or not self._pages.is_walk_due:
            return self._pages.finding
        with storage_errors("check"):
            return self._pages.walk(open_reader(self.path, self._disk), is_stopped)

    def _open_roots(self, held: ExitStack, found: JournalOwner) -> SignedRootsFile:
        file = self._disk.open_file(self.roots_path)
        held.callback(file.close)
        roots = SignedRootsFile(file, self._keys, found.journal_id)
        roots.open(found.roots)
        return roots

    def _get_opened(self) -> "_Opened":
        if self._opened is None:
            raise Unavailable("journal: it is closed")
        return self._opened

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        """Call the query with a pooled connection; see `Queries`."""
        readers = self._get_opened().readers
        with storage_errors("read"), readers.borrow() as connection:
            return query(connection)


@dataclass(frozen=True, slots=True)
class _Opened:
    """State between `open` and `close`; `held` closes all of it."""

    writer: Writer
    roots: SignedRootsFile
    readers: Readers
    owner: JournalOwner
    files: OpenFiles
    keys: KeptFiles
    held: ExitStack


def _log_of(path: Path) -> Path:
    """Return the path of the write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def _verify_end(
    connection: apsw.Connection,
    roots: SignedRootsFile,
    found: JournalOwner,
    mismatch: ChainViolation | None,
) -> VerifyReport:
    """Verify from the last root but one; older rows were verified when they were new."""
    entries: list[SignedRoot | ChainViolation] = [*roots.breaks]
    last = roots.last
    if last is None:
        after = found.head_position if entries else 0
    else:
        after = last.first_position - 1
        if last.kind == "root":
            entries.append(last)
        elif found.head_position < last.through_position:
            entries.append(root_break("the database is older than the roots file"))
    if mismatch is not None:
        entries.insert(0, mismatch)
    return verify_journal(Tapes(connection), entries, roots.keys.trusted, after=after)


def _notes(
    roots: SignedRootsFile, found: JournalOwner, mismatch: ChainViolation | None
) -> Iterator[str]:
    """Yield notes for the log: a repair, and a new journal in the place of an older one."""
    if roots.note is not None:
        yield roots.note
    if found.is_new and (mismatch is not None or roots.breaks):
        yield "a new journal was made next to keys or roots of an older one: restore it from a backup"


def _with_rollback(report: VerifyReport, found: JournalOwner, rollback: Rollback) -> VerifyReport:
    """Return the report with the finding that the journal is older than its last shutdown."""
    lost = f"events {found.head_position + 1} to {rollback.position} are missing"
    if found.head_position >= rollback.position:
        lost = "its records are older"
    violation = ChainViolation(
        kind="truncated",
        position=None,
        run_id=None,
        seq=None,
        detail=f"the journal is older than at its last shutdown ({lost}): it was rolled back "
        "without `palyra backup restore`",
    )
    return msgspec.structs.replace(report, first_break=violation, breaks=1, found=(violation,))


def _find_restoration(connection: apsw.Connection, roots: SignedRootsFile) -> Restoration | None:
    """Return the declared restore that the roots file ends with, unless it has an incident."""
    last = roots.last
    if last is None or isinstance(last.restored, msgspec.UnsetType):
        return None
    key = restored_key(last.restored)
    is_known = connection.execute(
        "SELECT 1 FROM incidents WHERE iif(json_valid(record), record ->> '$.key', NULL) = ?",
        (key,),
    ).get
    return None if is_known else last.restored


def _resume(
    writer: Writer,
    roots: SignedRootsFile,
    report: VerifyReport,
    found: JournalOwner,
    rollback: Rollback | None,
) -> None:
    """Position the writer at the end of the journal, or after everything that was ever used."""
    signed = 0 if roots.last is None else roots.last.through_position
    if report.first_break is None:  # a segment may end behind the last row: see `begin_segment`
        position = max(report.through_position, signed)
        writer.resume(position=position, signed_position=signed)
        return
    lost = 0 if rollback is None else rollback.position
    through = max(report.through_position, found.head_position, signed, lost)
    writer.begin_segment(report.first_break, through=through)
