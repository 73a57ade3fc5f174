"""Rewriting the database of a stopped daemon without free pages.

A file that was never rewritten cannot be shortened step by step.  After this it can.
Source: https://www.sqlite.org/lang_vacuum.html
"""

from contextlib import closing
from pathlib import Path

import apsw

from palyra.core.journal.retention import CompactionReport
from palyra.errors import NotFound
from palyra.store.backup.tree import DATABASE
from palyra.store.files.data_directory import DataDirectory
from palyra.store.files.disk import REAL_DISK
from palyra.store.sqlite.connection import open_writer, storage_errors
from palyra.store.sqlite.retention import measure


def rewrite_database(data_dir: Path) -> CompactionReport:
    """Rewrite the database of a stopped daemon; needs twice its size of free space for a while.

    Blocks; a crash leaves the file as it was.  Raises NotFound, DiskFull, and Unavailable while a
    daemon runs.
    """
    path = data_dir / DATABASE
    if not path.is_file():
        raise NotFound(f"{data_dir}: no journal in it: name a home with --home")
    with (
        DataDirectory(data_dir),
        storage_errors("compact", path),
        closing(open_writer(path, REAL_DISK, "full")) as connection,
    ):
        before = measure(connection)
        connection.pragma("auto_vacuum", "incremental")  # takes effect with the next statement
        connection.execute("VACUUM")
        connection.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_TRUNCATE)
        after = measure(connection)
    return CompactionReport(
        before_bytes=before.size_bytes,
        after_bytes=after.size_bytes,
        steps=1,
        is_complete=not after.free_bytes,
    )
