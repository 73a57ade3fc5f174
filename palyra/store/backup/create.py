"""Making a backup while the daemon writes.

1. Copy the vectors of the memory.
2. Start a read transaction.  It sees one state of the database until it ends, whatever is committed
   meanwhile; readers do not block the writer of a write-ahead log.  Copy the database in steps of
   `STEP_PAGES`, by SQLite's backup API, and the signed roots over rows of that state.
3. End the transaction, and copy the files that rows refer to.
4. Write the list of all files with their SHA-256, and the manifest, signed, which names the SHA-256
   of the list.
5. Sync, and give the folder its name.

The live database is never opened as a file: closing any descriptor of it would release SQLite's
locks (POSIX, fcntl).
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from palyra.core.journal.backup import BackupFile, BackupMade, BackupManifest, BackupOrder
from palyra.errors import DiskFull, IllegalState, Unavailable
from palyra.store.backup.draft import BackupDraft, make_draft, require_absolute
from palyra.store.backup.tree import (
    CONFIG,
    DATABASE,
    KEYS,
    POLICIES,
    ROOTS,
    UNITS,
    VAULT,
    Digest,
    FoundFile,
    IsStopped,
    open_folder,
    raise_if_stopped,
    read_digest,
    sort_key,
    walk,
    write_all,
)
from palyra.store.files.free_space import find_room
from palyra.store.files.private_files import create_file, make_directory
from palyra.store.journal.keys import MARK_NAME, KeyRing
from palyra.store.sqlite.connection import storage_errors

DATA, LIST, MANIFEST = "data", "files.ndjson", "manifest.json"
FOLDER = "backups"  # in the data directory, for backups without a path
LATEST = "latest.json"
SIGNED_PREFIX = b"palyra.backup.v1\x00"
STEP_PAGES = 256  # 1 MiB: about a millisecond
SPARE_BYTES = 67_108_864  # left free for the daemon itself
# Created again when missing, or wrong in another home.
_LEFT_OUT = frozenset({"skills/compiled", f"{KEYS}/compiled-wasm.key", f"{KEYS}/{MARK_NAME}"})
_DRAFT = ".draft"


@dataclass(frozen=True, slots=True)
class Home:
    """A data directory as a backup reads it."""

    data_dir: Path
    config_file: Path
    policy_dir: Path
    workspaces: Collection[Path]
    keys: KeyRing
    open_snapshot: Callable[[], apsw.Connection]
    version: str

    @property
    def backups(self) -> Path:
        """Folder of backups without a path."""
        return self.data_dir / FOLDER


class SignedManifest(msgspec.Struct, frozen=True):
    """The content of the manifest's file."""

    body: msgspec.Raw
    signature: str


class _Snapshot(NamedTuple):
    """The owner row and the schema of the copied database."""

    journal_id: str
    epoch: int
    head_position: int
    schema_version: int


class _Listing:
    """The list of files under construction: written line by line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._digest = sha256()
        self.files = 0
        self.size_bytes = 0

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def add(self, path: str, found: Digest) -> None:
        line = BackupFile(path=path, size_bytes=found.size_bytes, sha256=found.sha256)
        text = msgspec.json.encode(line) + b"\n"
        write_all(self._descriptor, text)
        self._digest.update(text)
        self.files += 1
        self.size_bytes += found.size_bytes


def create_backup(
    home: Home, target: Path | None, order: BackupOrder, is_stopped: IsStopped
) -> BackupMade:
    """Make a backup as the folder `target`, which must not exist; None: in the data directory.

    Blocks for as long as copying takes; any thread may call.  Raises IllegalState for a target that
    cannot be used, DiskFull, and Unavailable, also once `is_stopped` returns true; then nothing is
    left.
    """
    place = _choose_target(home, target, order)
    _require_room(home, place.parent)
    with make_draft(place) as draft:
        with draft.new_file(LIST) as descriptor:
            listing = _Listing(descriptor)
            copying = _Copying(home, draft, listing, is_stopped)
            snapshot = copying.copy_all(with_keys=order.with_keys)
        manifest = BackupManifest(
            backup_id=order.backup_id,
            version=home.version,
            created_ms=order.created_ms,
            by=order.by,
            journal_id=snapshot.journal_id,
            schema_version=snapshot.schema_version,
            epoch=snapshot.epoch,
            head_position=snapshot.head_position,
            public_key=home.keys.public_key.hex(),
            former_keys=tuple(key.hex() for key in home.keys.former),
            has_keys=order.with_keys,
            files=listing.files,
            size_bytes=listing.size_bytes,
            files_sha256=listing.hexdigest(),
        )
        with draft.new_file(MANIFEST) as descriptor:
            write_all(descriptor, encode_manifest(manifest, home.keys))
        raise_if_stopped(is_stopped)
        draft.publish()
    made = BackupMade(
        backup_id=order.backup_id,
        path=str(place),
        created_ms=order.created_ms,
        has_keys=order.with_keys,
        files=listing.files,
        size_bytes=listing.size_bytes,
        head_position=snapshot.head_position,
        key_id=home.keys.key_id,
    )
    _note_latest(home, made)
    return made


def encode_manifest(manifest: BackupManifest, keys: KeyRing) -> bytes:
    """Return the content of the manifest's file."""
    body = msgspec.json.encode(manifest)
    signature = keys.sign(SIGNED_PREFIX + body).hex()
    return msgspec.json.encode(SignedManifest(msgspec.Raw(body), signature)) + b"\n"


def _choose_target(home: Home, target: Path | None, order: BackupOrder) -> Path:
    if target is None:
        make_directory(home.backups)
        target = home.backups / order.backup_id
    place = require_absolute(target)
    data_dir = home.data_dir.resolve()
    if place.is_relative_to(data_dir) and place.parent != data_dir / FOLDER:
        raise IllegalState(f"{place}: inside of the data directory only {FOLDER}/ takes backups")
    if any(place.is_relative_to(each.resolve()) for each in home.workspaces):
        raise IllegalState(
            f"{place}: inside of a workspace, where tools can read it: name a folder elsewhere"
        )
    if os.path.lexists(place):
        raise IllegalState(f"{place}: it exists already: name a folder that does not exist yet")
    return place


def _require_room(home: Home, folder: Path) -> None:
    """Refuse a backup that would fill the disk.  Raises DiskFull."""
    room = find_room(folder)
    wanted = sum(_measure(home)) + SPARE_BYTES
    if room is not None and room.free_bytes < wanted:
        raise DiskFull(
            f"{folder}: the backup needs {wanted} bytes, {room.free_bytes} are free: "
            "free space, or name a folder on another disk"
        )


def _measure(home: Home) -> Iterator[int]:
    """Yield the sizes of the files of a home."""
    for folder, _, names in os.walk(home.data_dir):
        is_root = Path(folder) == home.data_dir
        if not is_root and Path(folder).relative_to(home.data_dir).parts[0] not in UNITS:
            continue
        for name in names:
            path = Path(folder) / name
            try:
                yield path.lstat().st_size
            except FileNotFoundError:  # evicted meanwhile
                continue


@dataclass(frozen=True, slots=True)
class _Copying:
    home: Home
    draft: BackupDraft
    listing: _Listing
    is_stopped: IsStopped

    def copy_all(self, *, with_keys: bool) -> _Snapshot:
        """Copy unit by unit, in the order of the list.  Raises OSError, Unavailable."""
        self._copy_units("vectors")
        snapshot = self._copy_journal()
        self._copy_units("artifacts", "checkpoints", "skills")
        self._copy_configuration()
        if with_keys:
            self._copy_units(KEYS, VAULT)
        return snapshot

    def _copy_units(self, *names: str) -> None:
        """Copy the regular files of these entries, which may be links to folders elsewhere.

        A file that vanishes meanwhile was evicted.
        """
        for name in names:
            if (self.home.data_dir / name).is_dir():
                with open_folder(self.home.data_dir / name) as folder:
                    self._copy_found(walk(folder, above=f"{name}/"))
            else:
                with open_folder(self.home.data_dir) as folder:
                    self._copy_found(walk(folder, [name]))

    def _copy_found(self, entries: Iterator[FoundFile]) -> None:
        for found in entries:
            is_left_out = any(
                found.path == each or found.path.startswith(f"{each}/") for each in _LEFT_OUT
            )
            if found.problem or is_left_out or found.name.endswith(_DRAFT):
                continue
            try:
                descriptor = found.open()
            except FileNotFoundError:
                continue
            try:
                self._copy(found.path, descriptor)
            finally:
                os.close(descriptor)

    def _copy_configuration(self) -> None:
        """Copy policies and configuration file from their places, which may be links."""
        policies = sorted(self.home.policy_dir.glob("*.cedar"))
        named = [(f"{POLICIES}/{path.name}", path) for path in policies]
        for name, path in [*named, (CONFIG, self.home.config_file)]:
            if path.is_file():
                with path.open("rb") as file:
                    self._copy(name, file.fileno())

    def _copy_journal(self) -> _Snapshot:
        """Copy the database and the roots over it."""
        with closing(self.home.open_snapshot()) as source:
            owner = source.execute("SELECT journal_id, epoch, head_position FROM owner").get
            snapshot = _Snapshot(*owner, source.pragma("user_version"))  # type: ignore[call-arg]  # one row, untyped
            self._copy_database(source)
        with self._new_file(ROOTS) as target:
            path = self.home.data_dir / ROOTS
            lines = _roots_through(path, snapshot.head_position) if path.exists() else iter(())
            for line in lines:
                write_all(target, line)
            os.lseek(target, 0, os.SEEK_SET)
            self.listing.add(ROOTS, read_digest(target, self.is_stopped))
        return snapshot

    def _copy_database(self, source: apsw.Connection) -> None:
        with self._new_file(DATABASE) as target:
            self._copy_pages(source)
            self.listing.add(DATABASE, read_digest(target, self.is_stopped))

    def _copy_pages(self, source: apsw.Connection) -> None:
        path = self.draft.path / DATA / DATABASE
        with (
            storage_errors("back up", path),
            closing(apsw.Connection(str(path), vfs="unix")) as copy,
        ):
            copy.pragma("synchronous", 0)  # everything is synced before the folder has its name
            copy.pragma("journal_mode", "off")
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    raise_if_stopped(self.is_stopped)
                    backup.step(STEP_PAGES)

    def _copy(self, name: str, source: int) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Unavailable(f"{name!r}: rename the file: its name is not UTF-8") from None
        raise_if_stopped(self.is_stopped)
        with self._new_file(name) as target:
            found = read_digest(source, self.is_stopped, target)
        self.listing.add(name, found)

    def _new_file(self, name: str) -> AbstractContextManager[int]:
        return self.draft.new_file(f"{DATA}/{name}")


def _roots_through(path: Path, head_position: int) -> Iterator[bytes]:
    """Yield the complete lines up to the first that covers later rows than `head_position`."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or _through(line) > head_position:
                return
            yield line


class _RootBody(msgspec.Struct, frozen=True):
    through_position: int


class _RootLine(msgspec.Struct, frozen=True):
    body: _RootBody


def _through(line: bytes) -> int:
    """Return the last position that a line covers; -1 for a damaged one, which is kept."""
    try:
        return msgspec.json.decode(line, type=_RootLine).body.through_position
    except msgspec.MsgspecError:
        return -1


def _note_latest(home: Home, made: BackupMade) -> None:
    """Record the newest backup for `palyra doctor`; the backup is complete without it."""
    try:
        make_directory(home.backups)
        create_file(home.backups / LATEST, msgspec.json.encode(made))
    except (OSError, Unavailable):
        return


def find_latest(data_dir: Path) -> BackupMade | None:
    """Return the newest backup that was made here, None if there is none on record."""
    try:
        text = (data_dir / FOLDER / LATEST).read_bytes()
        return msgspec.json.decode(text, type=BackupMade)
    except (OSError, msgspec.MsgspecError):
        return None


assert sorted(UNITS, key=sort_key) == list(UNITS)  # noqa: S101 - the order of copying is the list's
