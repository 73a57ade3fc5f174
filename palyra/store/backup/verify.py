"""Checking a backup: each byte of it, and the journal in it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw
from msgspec.structs import replace

from palyra.core.journal.backup import BackupManifest, BackupReport
from palyra.core.journal.changes import ChainViolation, VerifyReport
from palyra.errors import NotFound, Unavailable
from palyra.store.backup.contents import find_difference, read_manifest, read_pairs
from palyra.store.backup.create import DATA
from palyra.store.backup.tree import DATABASE, ROOTS, IsStopped, never, open_folder
from palyra.store.files.disk import OsFile
from palyra.store.journal.keys import KeyRing, key_id_of
from palyra.store.journal.signed_roots import SignedRoot, read_roots
from palyra.store.journal.verification import verify_journal
from palyra.store.sqlite.connection import STORAGE_ERRORS
from palyra.store.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from palyra.store.sqlite.tapes import Tapes

MAX_PROBLEMS = 20  # that a report names; the others are counted


class Problems:
    """The first problems, and the number of all."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def report(self, problem: str) -> None:
        self.count += 1
        if len(self.first) < MAX_PROBLEMS:
            self.first.append(problem)


class JournalFindings(NamedTuple):
    """Result of checking the journal of a backup."""

    report: VerifyReport
    recorded_breaks: int  # that the journal itself had on record
    open_runs: int


def verify_backup(
    path: Path,
    *,
    trusted: Sequence[bytes] = (),
    trusted_id: str = "",
    is_stopped: IsStopped = never,
) -> BackupReport:
    """Check a backup without changing it; `trusted` are the public keys it may be signed with.

    So may the key with the id `trusted_id`.  Without any key its own is taken.  Blocks; any thread may call.  Raises NotFound for a path that
    is no folder, and Unavailable once `is_stopped` returns true.
    """
    problems = Problems()
    with open_backup(path) as folder:
        manifest = read_manifest(folder, problems.report)
        if manifest is None:
            return _report(path, problems)
        is_known = is_known_key(manifest, trusted, trusted_id)
        if is_known is False:
            problems.report(unknown_signer(manifest))
        for pair in read_pairs(folder, manifest, problems.report, is_stopped):
            difference = find_difference(pair, is_stopped)
            if difference:
                problems.report(f"{DATA}/{pair.listed.path}: {difference}")
        journal = None
        if not problems.count:  # a file that was changed is not given to SQLite
            journal = check_journal(path / DATA, manifest, problems)
    return _report(path, problems, manifest, journal, is_known=is_known)


@contextmanager
def open_backup(path: Path) -> Generator[int]:
    """Open the folder of a backup for the block.  Raises NotFound, and Unavailable for its files."""
    try:
        with open_folder(path) as folder:
            yield folder
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{path}: no folder with a backup: {error.strerror}", field="path") from None
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror or error}") from error


def is_known_key(
    manifest: BackupManifest, trusted: Sequence[bytes], trusted_id: str = ""
) -> bool | None:
    """Return True if the backup is signed with one of the keys; None if there is none."""
    if not trusted and not trusted_id:
        return None
    key = bytes.fromhex(manifest.public_key)
    return key in trusted or key_id_of(key) == trusted_id


def unknown_signer(manifest: BackupManifest) -> str:
    """Return the sentence that refuses the key of a backup."""
    key_id = key_id_of(bytes.fromhex(manifest.public_key))
    return f"signed with another key, {key_id}, than those that are trusted"


def trusted_keys(manifest: BackupManifest) -> tuple[bytes, ...]:
    """Return the public keys that signed the journal of a backup."""
    return tuple(bytes.fromhex(key) for key in (manifest.public_key, *manifest.former_keys))


def open_database(data: Path) -> apsw.Connection:
    """Open the database of a backup without locks and without files next to it."""
    name = f"file:{quote(str(data / DATABASE))}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags, vfs="unix")
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("trusted_schema", "off")
    connection.pragma("cell_size_check", "on")
    return connection


def check_journal(
    data: Path, manifest: BackupManifest, problems: Problems
) -> JournalFindings | None:
    """Check pages, owner row, chain and signed roots below `data`; None if that is impossible."""
    if manifest.schema_version > SCHEMA_VERSION:
        problems.report(
            f"its journal has schema version {manifest.schema_version}, this program knows "
            f"{SCHEMA_VERSION}: use the newer version of Palyra"
        )
        return None
    try:
        with closing(open_database(data)) as connection:
            return _check_database(connection, data, manifest, problems)
    except STORAGE_ERRORS as error:
        problems.report(f"{DATA}/{DATABASE}: {error}")
    except OSError as error:
        problems.report(f"{DATA}/{ROOTS}: {error.strerror or error}")
    return None


def _check_database(
    connection: apsw.Connection, data: Path, manifest: BackupManifest, problems: Problems
) -> JournalFindings | None:
    pages = connection.execute("PRAGMA quick_check(1)").get
    if pages != "ok":
        problems.report(f"{DATA}/{DATABASE}: {pages}")
        return None
    if connection.pragma("application_id") != APPLICATION_ID:
        problems.report(f"{DATA}/{DATABASE}: not a journal of Palyra")
        return None
    owner = connection.execute("SELECT journal_id, epoch, head_position, roots FROM owner").get
    *named, expected = owner
    if named != [manifest.journal_id, manifest.epoch, manifest.head_position]:
        problems.report(f"{DATA}/{DATABASE}: not the journal that the manifest names")
    keys = KeyRing.verifier(trusted_keys(manifest))
    with closing(OsFile(data / ROOTS)) as file:
        report, recorded = verify_chain(connection, file, keys, manifest.journal_id, expected)
    if report.breaks and not recorded:
        found = report.first_break
        detail = "" if found is None else f"; the first: {found.detail}"
        problems.report(f"the journal's chain is broken: {report.breaks} break(s){detail}")
    open_runs = connection.execute(
        "SELECT count(*) FROM runs WHERE state IN ('accepted', 'in_progress')"
    ).get
    return JournalFindings(report, recorded, open_runs)


def verify_chain(
    connection: apsw.Connection, file: OsFile, keys: KeyRing, journal_id: str, expected: int
) -> tuple[VerifyReport, int]:
    """Verify the whole chain; also return the number of breaks if all of them were on record.

    A journal with a recorded break can be backed up: its last segment is verified by itself.
    """

    def entries() -> Iterator[SignedRoot | ChainViolation]:
        return read_roots(file, keys, journal_id, expected=expected)

    whole = verify_journal(Tapes(connection), entries(), keys.trusted)
    if not whole.breaks:
        return whole, 0
    segment = 0
    newest: list[SignedRoot | ChainViolation] = []
    for entry in entries():
        if isinstance(entry, SignedRoot) and entry.kind == "segment":
            segment, newest = entry.first_position, []
        else:
            newest.append(entry)
    if not segment:
        return whole, 0
    since = verify_journal(Tapes(connection), newest, keys.trusted, after=segment - 1)
    return whole, 0 if since.breaks else whole.breaks


def _report(
    path: Path,
    problems: Problems,
    manifest: BackupManifest | None = None,
    journal: JournalFindings | None = None,
    *,
    is_known: bool | None = None,
) -> BackupReport:
    report = BackupReport(
        path=str(path),
        is_intact=not problems.count,
        problem_count=problems.count,
        problems=tuple(problems.first),
    )
    if manifest is not None:
        report = replace(
            report,
            backup_id=manifest.backup_id,
            version=manifest.version,
            created_ms=manifest.created_ms,
            has_keys=manifest.has_keys,
            files=manifest.files,
            size_bytes=manifest.size_bytes,
            head_position=manifest.head_position,
            key_id=key_id_of(bytes.fromhex(manifest.public_key)),
            is_known_key=is_known,
        )
    if journal is not None:
        report = replace(
            report,
            checked_events=journal.report.checked_events,
            purged_events=journal.report.purged_events,
            checked_roots=journal.report.checked_roots,
            recorded_breaks=journal.recorded_breaks,
            open_runs=journal.open_runs,
        )
    return report
