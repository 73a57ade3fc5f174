"""Backups of one data directory: `core.ports.BackupStore`, and the way without a daemon."""

import os
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from palyra.core.journal.backup import BackupMade, BackupOrder, BackupReport
from palyra.errors import IllegalState, NotFound, Unavailable
from palyra.store.backup.create import Home, create_backup
from palyra.store.backup.tree import DATABASE, KEYS, IsStopped, never
from palyra.store.backup.verify import verify_backup
from palyra.store.files.data_directory import DataDirectory
from palyra.store.files.disk import REAL_DISK
from palyra.store.journal.keys import KEY_CHARS, KEY_NAME, PUBLIC_NAME, KeyRing, read_former
from palyra.store.sqlite.connection import open_reader, storage_errors


class HomeBackups:
    """`core.ports.BackupStore` of a data directory."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def create(
        self, path: str | None, order: BackupOrder, is_stopped: IsStopped = never
    ) -> BackupMade:
        """See `BackupStore.create`."""
        return create_backup(self._home, None if path is None else Path(path), order, is_stopped)

    def verify(self, path: str, is_stopped: IsStopped = never) -> BackupReport:
        """See `BackupStore.verify`; the keys of this home are trusted."""
        if not os.path.isabs(path):  # noqa: PTH117 - a text of a client
            raise IllegalState(f"{path}: not an absolute path")
        return verify_backup(Path(path), trusted=self._home.keys.trusted, is_stopped=is_stopped)


@contextmanager
def stopped_home(
    data_dir: Path,
    config_file: Path,
    policy_dir: Path,
    workspaces: Collection[Path],
    version: str,
) -> Generator[HomeBackups]:
    """Lock the directory of a stopped daemon for the block.

    Raises NotFound for a folder without a journal and keys, Unavailable while a daemon runs.
    """
    if not (data_dir / DATABASE).is_file() or not (data_dir / KEYS / KEY_NAME).is_file():
        raise NotFound(f"{data_dir}: no journal with its keys in it: name a home with --home")
    with DataDirectory(data_dir) as directory:
        home = Home(
            data_dir=data_dir,
            config_file=config_file,
            policy_dir=policy_dir,
            workspaces=workspaces,
            keys=KeyRing.open(directory.keys),
            open_snapshot=lambda: _open_snapshot(data_dir / DATABASE),
            version=version,
        )
        yield HomeBackups(home)


def _open_snapshot(path: Path) -> apsw.Connection:
    with storage_errors(f"open {path}", path):
        connection = open_reader(path, REAL_DISK)
        connection.execute("BEGIN")
        connection.execute("SELECT epoch FROM owner").get  # noqa: B018 - begins the reading
        return connection


def read_trusted(data_dir: Path) -> tuple[bytes, ...]:
    """Return the public keys of a home, none if there is no home.  Raises Unavailable."""
    path = data_dir / KEYS / PUBLIC_NAME
    try:
        text = path.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path}: cannot be read: {error}") from error
    return (parse_public_key(text, path), *read_former(data_dir / KEYS))


def parse_public_key(text: str, origin: Path | str) -> bytes:
    """Return a public key from its hex digits.  Raises Unavailable."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if 2 * len(key) != KEY_CHARS:
        raise Unavailable(f"{origin}: not a public key of {KEY_CHARS} hex digits")
    return key
