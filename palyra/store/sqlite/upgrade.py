"""Copy of a journal from before a migration of its schema, which is the way back.

An older version of Palyra refuses a newer schema, so an upgrade leaves the database and its roots
beside the journal as they were: `journal.schemaN.sqlite3` and `journal.schemaN.roots.ndjson`, where N
is the old version.  The copy of the last upgrade is kept, that of the one before is deleted.
"""

from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw

from palyra.errors import DiskFull
from palyra.store.files.disk import Disk
from palyra.store.files.free_space import find_room
from palyra.store.sqlite.open_files import copy_database, copy_file, database_bytes
from palyra.store.sqlite.schema import SCHEMA_VERSION, read_version

SPARE_BYTES = 1_048_576  # for the migration itself, besides as much as the copy needs


def keep_old(connection: apsw.Connection, path: Path, roots_path: Path, disk: Disk) -> Path | None:
    """Copy the journal if a migration is due; return the copy, None if there is none to make.

    A migration that was cut off is continued with the copy that it had made, which has the same
    epoch.  Raises DiskFull without room for it, apsw.Error, OSError, Unavailable; then nothing has
    changed.
    """
    version = read_version(connection, SCHEMA_VERSION)
    if version in {0, SCHEMA_VERSION}:
        return None
    epoch = _read_epoch(connection)
    if epoch is None:  # a new journal, whose first migrations were cut off
        return None
    earlier = sorted(path.parent.glob(f"{path.stem}.schema*"))
    for copy in (each for each in earlier if each.suffix == ".sqlite3"):
        if _find_epoch(copy) == epoch:
            return copy
    roots = disk.open_file(roots_path)
    try:
        _require_room(path, database_bytes(connection) + roots.size_bytes())
        copy = path.with_name(f"{path.stem}.schema{version}.sqlite3")
        copy_file(roots, copy.with_name(f"{path.stem}.schema{version}.roots.ndjson"))
        copy_database(connection, copy)
    finally:
        roots.close()
    for old in earlier:
        if not old.name.startswith(f"{path.stem}.schema{version}."):
            old.unlink()
    return copy


def _require_room(path: Path, size_bytes: int) -> None:
    room = find_room(path.parent)
    wanted = 2 * size_bytes + SPARE_BYTES
    if room is not None and room.free_bytes < wanted:
        raise DiskFull(
            f"{path}: the new version migrates the journal and first copies it, which needs "
            f"{wanted} bytes, and {room.free_bytes} are free: free space, "
            "or start the old version again"
        )


def _read_epoch(connection: apsw.Connection) -> int | None:
    found: int | None = connection.execute("SELECT epoch FROM owner").get
    return found


def _find_epoch(copy: Path) -> int | None:
    """Return the epoch of a copy, None if it cannot be read."""
    try:
        name = f"file:{quote(str(copy))}?immutable=1"  # without a log beside it
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(name, flags=flags)) as connection:
            return _read_epoch(connection)
    except apsw.Error:
        return None
