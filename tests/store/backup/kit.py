"""A small home with an open journal, its backup, and copies of that to be damaged."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from palyra.core.journal.backup import BackupMade, BackupOrder
from palyra.core.journal.changes import OpenReport
from palyra.store.backup.create import Home, create_backup
from palyra.store.backup.tree import IsStopped, never
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import Clock, rows

MADE_MS = 1_750_000_000_000
EVENTS = 30
ORDER = BackupOrder(backup_id="bak_1", by="ann", created_ms=MADE_MS)
WITH_KEYS = BackupOrder(backup_id="bak_2", by="ann", created_ms=MADE_MS, with_keys=True)
FILES = {
    "vectors/memory.index": b"vectors",
    "artifacts/ses_1/abc": b"artifact",
    "checkpoints/ckp_1": b"checkpoint",
    "skills/skills.json": b"{}",
    "skills/compiled/code": b"left out",
    "keys/operator.token": b"t" * 40,
    "vault.sealed": b"sealed",
    "palyra.toml": b"",
    "policies/mine.cedar": b"// none",
    "artifacts/ses_1/.def.draft": b"left out",
    "daemon.json": b"left out",
}


def journal(home: Path) -> SqliteJournal:
    return SqliteJournal(home / "journal.sqlite3", KeyRing.open(home / "keys"), now_ms=Clock())


def opened(home: Path) -> OpenReport:
    """The report of an opening; nothing is kept open."""
    store = journal(home)
    report = store.open()
    store.close()
    return report


def fill(home: Path) -> None:
    for name, content in FILES.items():
        (home / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / name).write_bytes(content)
        (home / name).chmod(0o600)


@contextmanager
def living(home: Path) -> Generator[SqliteJournal]:
    """A home whose journal is open: some roots, and rows without a root."""
    fill(home)
    store = journal(home)
    store.open()
    for number in range(EVENTS // 10):
        store.commit([rows("run_a", 10 * number, 10)])
        if number < 2:
            store.seal()
    try:
        yield store
    finally:
        store.close()


def workspace_of(store: SqliteJournal) -> Path:
    """A workspace beside the data directory."""
    return store.path.parent.parent / "workspace"


def home_of(store: SqliteJournal) -> Home:
    folder = store.path.parent
    return Home(
        data_dir=folder,
        config_file=folder / "palyra.toml",
        policy_dir=folder / "policies",
        workspaces=[workspace_of(store)],
        keys=KeyRing.open(folder / "keys"),
        open_snapshot=store.open_snapshot,
        version="1.2.3",
    )


def back_up(
    store: SqliteJournal,
    target: Path,
    order: BackupOrder = ORDER,
    is_stopped: IsStopped = never,
) -> BackupMade:
    return create_backup(home_of(store), target, order, is_stopped)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def flip(path: Path, offset: int) -> None:
    """Change one byte."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        byte = os.pread(descriptor, 1, offset)[0]
        os.pwrite(descriptor, bytes([byte ^ 0x20]), offset)
    finally:
        os.close(descriptor)
