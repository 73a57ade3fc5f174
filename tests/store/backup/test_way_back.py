"""The way back from damage that ends a daemon."""

import errno
from pathlib import Path

import apsw
import pytest

from palyra.errors import PalyraError, Unavailable
from palyra.store.backup.way_back import find_way_back, is_damage

HOME = Path("/nowhere/home")


def caused(cause: BaseException) -> PalyraError:
    error = Unavailable("journal: read")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (apsw.CorruptError("malformed"), True),
        (caused(apsw.NotADBError("no database")), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), True),
        (IsADirectoryError(errno.EISDIR, "is a directory", f"{HOME}/keys/journal.id"), True),
        (PermissionError(errno.EACCES, "denied", "/etc/other"), False),
        (OSError(errno.EADDRINUSE, "in use"), False),
        (apsw.BusyError("locked"), False),
        (apsw.FullError("full"), False),
    ],
)
def test_damage_is_told_from_other_errors(cause: BaseException, expected: bool) -> None:  # noqa: FBT001 - of a table
    """A damaged value or a file of the home is damage; a lock, a full disk or a port is none."""
    assert expected is is_damage(caused(cause), HOME)


def test_without_a_backup_there_is_no_way_back(tmp_path: Path) -> None:
    """An empty home has none, and is not changed."""
    assert None is find_way_back(tmp_path)
    assert [] == list(tmp_path.iterdir())
