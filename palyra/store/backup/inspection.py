"""Inspection of a home whose daemon is stopped.  Changes nothing.

Five parts, each checked even if the one before is damaged: the files by their kind, size and mode;
the keys; the journal (pages, schema, owner row, chain, signed roots, binding to the key); its
records, each decoded and compared with its columns; what is derived from them or stored beside
them (text indexes, vectors, artifacts, file checkpoints, skills).

What no inspection can find: a change of a record that leaves it valid, since only tapes are
hashed; the loss of a write-ahead log whose events no root has signed yet, or of its end.
"""

import os
import random
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import apsw
import msgspec

from palyra.core.journal.backup import BackupReport
from palyra.core.text.visible import pluralize
from palyra.errors import NotFound, Unavailable
from palyra.store.backup.create import FOLDER, MANIFEST, find_latest
from palyra.store.backup.tree import DATABASE, KEYS, ROOTS, VAULT
from palyra.store.backup.verify import open_database, verify_backup, verify_chain
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.data_directory import is_locked
from palyra.store.files.disk import REAL_DISK, ReadOnlyFile
from palyra.store.files.private_files import read_secret
from palyra.store.files.retention import EVICTED, FolderBounds, read_evicted
from palyra.store.files.skills import SkillStore
from palyra.store.journal.keys import (
    BOND_NAME,
    FORMER_NAME,
    KEY_CHARS,
    KEY_NAME,
    MARK_NAME,
    PUBLIC_NAME,
    KeyRing,
    read_former,
    read_operator_token,
)
from palyra.store.sqlite.connection import open_reader
from palyra.store.sqlite.memory_search import ITEM_TABLES, find_text_damage, find_vector_damage
from palyra.store.sqlite.open_files import database_bytes
from palyra.store.sqlite.row_check import CHECKED, find_faults
from palyra.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from palyra.store.sqlite.turns import TurnQueries
from palyra.store.sqlite.write_ahead_log import count_hidden_frames

Part = Literal["files", "keys", "tapes", "records", "stored files"]
PARTS: tuple[Part, ...] = get_args(Part)

MAX_FINDINGS = 20  # of one part
MAX_FINDING_CHARS = 300
FOLDERS = (KEYS, "artifacts", "checkpoints", "skills", "vectors", FOLDER)
LENGTH_TOLERANCE = 0.05  # of a vector of length 1; rounding to 8 bits costs below 0.01
_RESTORE = "restore a backup"
_KEY_BACK = "put the file back from a copy or from a backup with keys; else restore a backup"
_HEX = re.compile(rb"[0-9a-f]{%d}\n?" % KEY_CHARS)
_MARK = re.compile(rb"[0-9a-f]{1,64} \d{1,18} \d{1,18}\n?")
# Errors of reading what is damaged: of SQLite, of its texts, of their decoding.
_DAMAGE = (apsw.Error, msgspec.MsgspecError, ValueError, TypeError, OSError, Unavailable)


class Finding(NamedTuple):
    """Something that is wrong, and what to do about it."""

    part: Part
    detail: str
    remedy: str


class Inspection:
    """Findings, and the extent of the check of each part."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.checked: dict[Part, str] = dict.fromkeys(PARTS, "not checked")
        self.is_meanwhile_running = False  # a daemon started: the findings mean nothing

    def of(self, part: Part) -> list[Finding]:
        """Return the findings of a part."""
        return [each for each in self.findings if each.part == part]

    def report(self, part: Part, detail: object, remedy: str = _RESTORE) -> None:
        text = " ".join(str(detail).split())[:MAX_FINDING_CHARS]
        if len(self.of(part)) < MAX_FINDINGS:
            self.findings.append(Finding(part, text, remedy))

    @contextmanager
    def guard(self, part: Part, doing: str, remedy: str = _RESTORE) -> Generator[None]:
        """Report an error of the block as damage."""
        try:
            yield
        except _DAMAGE as error:
            self.report(part, f"{doing}: {error}", remedy)


def inspect_home(data_dir: Path, artifacts_days: int, budget_s: float) -> Inspection | None:
    """Inspect a home; None if a daemon runs in it, or none ever did.

    Artifacts of the last `artifacts_days` (0: of all) that no sweep has deleted are expected.
    Stored files are read in a random order until `budget_s` seconds have passed.  Blocks: the
    journal is read as a whole, some hundred MiB a second.
    """
    is_used = any(
        os.path.lexists(data_dir / name)
        for name in (DATABASE, ROOTS, f"{KEYS}/{KEY_NAME}", f"{KEYS}/{PUBLIC_NAME}", "artifacts")
    )
    if not is_used or is_locked(data_dir):
        return None
    found = Inspection()
    with found.guard("files", str(data_dir)):
        _check_kinds(data_dir, found)
    ring = _check_keys(data_dir / KEYS, found)
    with found.guard("tapes", DATABASE):
        _check_database(data_dir, ring, found)
    deadline_s = time.monotonic() + budget_s
    _check_stored(data_dir, found, lambda: time.monotonic() > deadline_s)
    with found.guard("stored files", "artifacts"):
        _find_deleted(data_dir, artifacts_days, found)
    found.is_meanwhile_running = is_locked(data_dir)
    return found


# --- files


def _check_kinds(data_dir: Path, found: Inspection) -> None:
    """Check kind, size and mode of each file and folder."""
    wal = data_dir / f"{DATABASE}-wal"
    keys = sorted((data_dir / KEYS).iterdir()) if (data_dir / KEYS).is_dir() else []
    files = [data_dir / DATABASE, data_dir / ROOTS, wal, data_dir / VAULT, data_dir / "daemon.lock"]
    folders = [data_dir, *(data_dir / name for name in FOLDERS)]
    may_be_empty = {wal.name, ROOTS, "daemon.lock", FORMER_NAME}
    for path in (*files, *keys):
        if os.path.lexists(path):
            _check_entry(path, path.lstat(), stat.S_ISREG, stat.S_IRUSR | stat.S_IWUSR, found)
            if not path.lstat().st_size and path.name not in may_be_empty:
                found.report("files", f"{path} is empty")
    for path in folders:
        if os.path.lexists(path):
            mode = path.stat() if path.exists() else path.lstat()
            _check_entry(path, mode, stat.S_ISDIR, stat.S_IRWXU, found)
    suspect = data_dir / "journal.suspect"
    if suspect.exists():
        with found.guard("files", str(suspect)):
            found.report("files", f"an earlier check found: {suspect.read_text(errors='replace')}")
    vault_key = data_dir / KEYS / "vault.key"
    if vault_key.exists() and not os.path.lexists(data_dir / VAULT):
        found.report(
            "files",
            f"{data_dir / VAULT} is gone, and its key is not",
            "put it back from a backup with keys, or set the secrets again with `palyra secrets set`",
        )
    found.checked["files"] = pluralize(len(files) + len(keys) + len(folders), "place")


def _check_entry(
    path: Path,
    entry: os.stat_result,
    is_kind: Callable[[int], bool],
    mode: int,
    found: Inspection,
) -> None:
    if not is_kind(entry.st_mode):
        kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}
        kind = kinds.get(stat.S_IFMT(entry.st_mode), "no regular file")
        wanted = "file" if is_kind is stat.S_ISREG else "folder"
        found.report(
            "files", f"{path} is {kind}", f"move it away and put the {wanted} itself there"
        )
    elif entry.st_mode & mode != mode:
        found.report(
            "files",
            f"{path} has the mode {stat.S_IMODE(entry.st_mode):o}",
            f"chmod u+{'rw' if is_kind is stat.S_ISREG else 'rwx'} {path}",
        )


# --- keys


def _check_keys(folder: Path, found: Inspection) -> KeyRing | None:
    """Check each file of the keys; return the ring, None without a signing key."""
    former: tuple[bytes, ...] = ()
    with found.guard("keys", FORMER_NAME, _KEY_BACK):
        former = read_former(folder)
    seed = _read_key(folder / KEY_NAME, found)
    public = _read_key(folder / PUBLIC_NAME, found)
    mark = _read(folder / MARK_NAME, found)
    if mark is not None and not _MARK.fullmatch(mark):
        found.report("keys", f"{folder / MARK_NAME}: damaged", f"rm {folder / MARK_NAME}")
    if mark is not None and _read(folder / BOND_NAME, found) is None:
        found.report("keys", f"{folder / BOND_NAME}: missing", _KEY_BACK)
    with found.guard("keys", "operator.token", "put your token back, or start without the file"):
        if _read(folder / "operator.token", found) is None:
            found.report(
                "keys",
                f"{folder / 'operator.token'}: missing",
                "put it back, or start: another one is created",
            )
        else:
            read_operator_token(folder, _no_token)
    found.checked["keys"] = "read"
    if seed is None:
        return None if public is None else KeyRing.verifier((public, *former))
    ring = KeyRing(seed, folder / BOND_NAME, former)
    if public is not None and public != ring.public_key:
        found.report(
            "keys", f"{folder / PUBLIC_NAME}: not the public half of {KEY_NAME}", _KEY_BACK
        )
    found.checked["keys"] = f"key {ring.key_id}"
    return ring


def _no_token() -> str:
    raise Unavailable("it vanished")


def _read_key(path: Path, found: Inspection) -> bytes | None:
    text = _read(path, found)
    if text is None:
        if not os.path.lexists(path):
            found.report("keys", f"{path}: missing", _KEY_BACK)
        return None
    if not _HEX.fullmatch(text):
        detail = f"{path}: {len(text)} bytes that are no key of {KEY_CHARS} hex digits"
        found.report("keys", detail, _KEY_BACK)
        return None
    return bytes.fromhex(text.decode())


def _read(path: Path, found: Inspection) -> bytes | None:
    """Return the content of a file; None if it is missing, or cannot be read."""
    try:
        is_public = path.name == PUBLIC_NAME and path.is_file()
        return path.read_bytes() if is_public else read_secret(path)
    except (OSError, Unavailable) as error:
        found.report("keys", error, _KEY_BACK)
        return None


# --- the journal


@contextmanager
def _reading(data_dir: Path) -> Generator[apsw.Connection]:
    """Open the database for the block, with the log of a killed daemon, and leave no file."""
    log, shared = (data_dir / f"{DATABASE}{suffix}" for suffix in ("-wal", "-shm"))
    if not os.path.lexists(log) or not log.stat().st_size:
        with closing(open_database(data_dir)) as connection:
            yield connection
        return
    is_left = os.path.lexists(shared)
    try:
        with closing(open_reader(data_dir / DATABASE, REAL_DISK)) as connection:
            yield connection
    finally:
        if not is_left and not is_locked(data_dir):
            shared.unlink(missing_ok=True)


def _check_database(data_dir: Path, ring: KeyRing | None, found: Inspection) -> None:
    if not (data_dir / DATABASE).is_file():
        if not os.path.lexists(data_dir / DATABASE):
            found.report("tapes", f"{data_dir / DATABASE}: missing")
        return
    with found.guard("tapes", f"{DATABASE}-wal"):
        hidden = count_hidden_frames(data_dir / f"{DATABASE}-wal")
        if hidden:
            found.report(
                "tapes",
                f"{DATABASE}-wal: a frame is damaged, which hides {hidden} behind it",
                "restore a backup, or go on without the last commits",
            )
    with _reading(data_dir) as connection:
        if not _check_schema(connection, found):
            return
        with found.guard("tapes", DATABASE):
            _check_pages(connection, found)
        with found.guard("tapes", "owner row"):
            _check_chain(connection, data_dir, ring, found)
        with found.guard("keys", "operator.token"):
            _check_token(connection, data_dir / KEYS / "operator.token", found)
        _check_records(connection, found)
        _check_indexes(connection, found)


def _check_pages(connection: apsw.Connection, found: Inspection) -> None:
    """Check the size, all pages, and each index of a table against its rows."""
    path = Path(connection.filename)
    size, wanted = path.stat().st_size, database_bytes(connection)
    if size != wanted and not os.path.lexists(path.with_name(f"{path.name}-wal")):
        found.report("tapes", f"{DATABASE}: {size} bytes, and {wanted} by its header")
    for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_FINDINGS})"):
        if line != "ok" and "fts5" not in str(line).lower():  # `_check_indexes` finds those
            found.report("tapes", f"{DATABASE}: {line}")


def _check_indexes(connection: apsw.Connection, found: Inspection) -> None:
    remedy = "start the daemon, then `palyra memory rebuild`"
    for tables in (ITEM_TABLES, TurnQueries.tables):
        with found.guard("records", f"text index {tables.text}", remedy):
            damage = find_text_damage(connection, tables)
            if damage:
                found.report("records", f"text index {tables.text}: {damage}", remedy)
        with found.guard("records", f"vectors in {tables.vectors}", remedy):
            vectors = connection.execute(f"SELECT scale, vector FROM {tables.vectors}")  # noqa: S608 - a literal of this package
            damaged = sum(not _is_unit(scale, vector) for scale, vector in vectors)
            if damaged:
                detail = f"{pluralize(damaged, 'vector')} in {tables.vectors} not of length 1"
                found.report("records", detail, remedy)
            elif damage := find_vector_damage(connection, tables):
                found.report("records", f"vectors in {tables.vectors}: {damage}", remedy)


def _is_unit(scale: float, vector: bytes) -> bool:
    """Return True for a vector of length 1, or of zeros."""
    length = scale * sqrt(sum(each * each for each in memoryview(vector).cast("b")))
    return (not length and not any(vector)) or abs(length - 1) < LENGTH_TOLERANCE


def _check_schema(connection: apsw.Connection, found: Inspection) -> bool:
    """Compare the schema with that of its version; return False if nothing can be read."""
    try:
        version, application = (
            connection.pragma("user_version"),
            connection.pragma("application_id"),
        )
        stored = _read_schema(connection)
    except apsw.Error as error:
        found.report("tapes", f"{DATABASE}: {error}")
        return False
    if application != APPLICATION_ID:
        found.report("tapes", f"{DATABASE}: not a journal of Palyra, or its header is damaged")
    if not 0 < version <= SCHEMA_VERSION:
        detail = f"{DATABASE}: schema version {version}, this program knows {SCHEMA_VERSION}"
        found.report("tapes", detail, "use the newer version of Palyra, or restore a backup")
        return True
    with closing(apsw.Connection(":memory:")) as fresh:
        for migration in MIGRATIONS[:version]:
            fresh.execute(migration)
        wanted = _read_schema(fresh)
    for kind, name in sorted(wanted.keys() - stored.keys()):
        detail = f"{DATABASE}: the {kind} {name} is missing"
        if kind == "trigger" and version == SCHEMA_VERSION:
            found.report("tapes", detail, "start the daemon, which makes it again")
        else:
            found.report("tapes", detail)
    for kind, name in sorted(stored.keys() - wanted.keys()):
        found.report("tapes", f"{DATABASE}: an unknown {kind}, {name}")
    for kind, name in sorted(wanted.keys() & stored.keys()):
        if wanted[kind, name] != stored[kind, name]:
            found.report("tapes", f"{DATABASE}: the {kind} {name} is another one")
    return True


def _read_schema(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return the text of each entry; tables of SQLite's own are left out."""
    return {
        (kind, name): text
        for kind, name, text in connection.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
    }


def _check_chain(
    connection: apsw.Connection, data_dir: Path, ring: KeyRing | None, found: Inspection
) -> None:
    """Check owner row, chain, signed roots, and the key's journal and last clean shutdown."""
    owner = connection.execute(
        "SELECT journal_id, epoch, head_position, roots FROM owner WHERE id = 1"
    ).get
    if owner is None:
        found.report("tapes", "the owner row is missing")
        return
    journal_id, epoch, position, roots = owner
    if ring is None:
        found.report("tapes", "the signed roots cannot be checked without a key")
        return
    mismatch = ring.find_mismatch(journal_id, is_new=False, is_blank=position == roots == 0)
    if mismatch is not None:
        found.report("tapes", mismatch.detail)
    rollback = ring.find_rollback(journal_id, epoch=epoch + 1, position=position)
    if rollback is not None:
        found.report(
            "tapes",
            f"the journal was rolled back: it ends at position {position} of epoch {epoch}, its last "
            f"clean shutdown was at {rollback.position} of epoch {rollback.epoch}",
        )
    if not (data_dir / ROOTS).is_file():
        if roots:
            found.report("tapes", f"{data_dir / ROOTS}: missing, with {pluralize(roots, 'root')}")
        return
    with closing(ReadOnlyFile(data_dir / ROOTS)) as file:
        report, recorded = verify_chain(connection, file, ring, journal_id, roots)
    found.checked["tapes"] = f"{pluralize(report.checked_events, 'event')} intact"
    if recorded:
        found.checked["tapes"] += f", {pluralize(recorded, 'break')} on record"
    elif report.breaks:
        first = "" if report.first_break is None else f"; the first: {report.first_break.detail}"
        found.report("tapes", f"{pluralize(report.breaks, 'break')} of the chain{first}")


# --- records

_LEFT_OUT = "the daemon leaves it out and serves; to have it back, restore a backup"


def _check_token(connection: apsw.Connection, path: Path, found: Inspection) -> None:
    """Report an operator's token that the journal does not know."""
    token = read_secret(path)
    digest = sha256((token or b"").strip()).hexdigest()
    known = connection.execute("SELECT count(*), max(sha256 = ?) FROM tokens", (digest,)).get
    if token is not None and known[0] and not known[1]:
        detail = f"{path}: not the token that the journal knows"
        found.report(
            "keys", detail, "put yours back; the next start would accept the one in the file"
        )


def _check_records(connection: apsw.Connection, found: Inspection) -> None:
    """Decode each record, and compare it with the columns beside it."""
    count = 0
    for table in CHECKED:
        with found.guard("records", f"table {table.name}"):
            faults = list(find_faults(connection, table))
            count += len(faults)
            for name, why in filter(None, faults):
                found.report("records", f"{name}: {why}", _LEFT_OUT)
    with found.guard("records", "table runs"):
        statement = (
            "SELECT run_id FROM tape WHERE seq = 0 AND run_id NOT IN (SELECT run_id FROM runs)"
        )
        for (run_id,) in connection.execute(statement):
            found.report("records", f"runs {run_id}: it has a tape and no record", _LEFT_OUT)
    found.checked["records"] = f"{pluralize(count, 'record')} decode"


# --- files beside the journal


def _check_stored(data_dir: Path, found: Inspection, is_late: Callable[[], bool]) -> None:
    """Read artifacts, file checkpoints, packages of skills and files of vectors."""
    part: Part = "stored files"
    checks = list(_list_checks(data_dir, found))
    random.shuffle(checks)
    done = 0
    for path, check in checks:
        if done and is_late():
            break
        with found.guard(part, str(path), f"put {path} back from a backup"):
            check()
        done += 1
    rest = f" of {len(checks)}, as time allowed" if done < len(checks) else ""
    found.checked[part] = f"{pluralize(done, 'file')}{rest}"


def _list_checks(data_dir: Path, found: Inspection) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yield the check of each file; all raise an error for a damaged one."""
    part: Part = "stored files"
    artifacts = FileArtifacts(data_dir / "artifacts", FolderBounds())
    for path in _walk(data_dir / "artifacts", found, depth=2):
        name = path.relative_to(data_dir / "artifacts").as_posix()
        yield path, partial(artifacts.read, name)
    checkpoints = FileCheckpoints(data_dir / "checkpoints", FolderBounds())
    for path in _walk(data_dir / "checkpoints", found):
        yield path, partial(checkpoints.contents, path.name)
    skills = SkillStore(data_dir / "skills")
    with found.guard(part, "skills"):
        for skill in skills.read().skills.values():
            digest = skill.package_sha256
            yield (
                data_dir / "skills" / "packages" / f"{digest}.zip",
                partial(_require_package, skills, digest),
            )
    for path in _walk(data_dir / "vectors", found):
        yield path, partial(_check_vectors, path, found)


def _require_package(skills: SkillStore, digest: str) -> None:
    if skills.find_package(digest) is None:
        raise Unavailable("missing or damaged")


def _walk(folder: Path, found: Inspection, *, depth: int = 1) -> Iterator[Path]:
    """Yield the regular files at that depth, drafts left out; report entries of another kind."""
    for above in folder.glob("*") if depth > 1 else ():
        if not above.is_dir():
            found.report("stored files", f"{above} is no folder", f"move {above} away")
    for path in folder.glob("/".join("*" * depth)):
        if not stat.S_ISREG(path.lstat().st_mode):
            found.report("stored files", f"{path} is no regular file", f"move {path} away")
        elif path.name != EVICTED and not path.name.endswith(".draft"):
            yield path


def _check_vectors(path: Path, found: Inspection) -> None:
    """Check the SHA-256 of a file of vectors, if numpy is installed."""
    try:
        from palyra.store.vectors.snapshot import find_damage  # noqa: PLC0415 - an optional part
    except ImportError:
        return
    damage = find_damage(path)
    if damage:
        found.report(
            "stored files", f"{path}: {damage}", f"`rm {path}`: the next start creates it again"
        )


def _find_deleted(data_dir: Path, days: int, found: Inspection) -> None:
    """Report artifacts that a tape names, and that no sweep has deleted."""
    if not (data_dir / DATABASE).is_file():
        return
    folder, evicted = data_dir / "artifacts", dict[str, set[str]]()
    since_ms = (time.time() - days * 86_400) * 1000 if days else 0
    with _reading(data_dir) as connection:
        for session_id, digest in connection.execute(
            "SELECT DISTINCT session_id, data ->> '$.artifact' FROM ("
            " SELECT session_id, CAST(data AS TEXT) AS data FROM tape"
            " WHERE kind = 'tool.completed' AND at_ms > ?) WHERE json_valid(data)"
            " AND data ->> '$.artifact' IS NOT NULL",
            (since_ms,),
        ):
            path = folder / str(session_id) / str(digest)
            if path.parent.name not in evicted:
                evicted[path.parent.name] = {each.name for each in read_evicted(path.parent)}
            if digest not in evicted[path.parent.name] and not os.path.lexists(path):
                found.report("stored files", f"{path}: deleted", f"put {path} back from a backup")


# --- backups


def find_good_backup(data_dir: Path, trusted: tuple[bytes, ...]) -> BackupReport | None:
    """Return the newest backup that is intact, None if there is none.

    Those in the home's own folder and the newest on record are read, newest first.
    """
    latest = find_latest(data_dir)
    places = {Path(latest.path)} if latest is not None else set()
    folder = data_dir / FOLDER
    with_manifest = folder.glob(f"*/{MANIFEST}") if folder.is_dir() else iter(())
    places |= {path.parent for path in with_manifest}
    for place in sorted(places, key=_read_time, reverse=True):
        try:
            report = verify_backup(place, trusted=trusted)
        except (NotFound, Unavailable, OSError):
            continue
        if report.is_intact:
            return report
    return None


class _Body(msgspec.Struct, frozen=True):
    public_key: str
    created_ms: int


class _Manifest(msgspec.Struct, frozen=True):
    body: _Body


def read_body(backup: Path) -> _Body:
    """Return key and time of a manifest that is not verified here.  Raises OSError, MsgspecError."""
    return msgspec.json.decode((backup / MANIFEST).read_bytes(), type=_Manifest).body


def _read_time(place: Path) -> int:
    try:
        return read_body(place).created_ms
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return 0
