"""A daemon whose journal was damaged while it was down."""

from pathlib import Path

import pytest

from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.e2e.daemon_process import DaemonProcess
from tests.store.kit import Clock, abandon
from tests.store.sqlite.test_integrity import fill, spoil

pytestmark = pytest.mark.real

EX_UNAVAILABLE, EX_SOFTWARE = 69, 70


def test_it_serves_until_the_damage_is_found(tmp_path: Path) -> None:
    """The daemon ends with the reason when it finds damage, and its next start is refused."""
    daemon = DaemonProcess(tmp_path)
    daemon.start()
    assert 0 == daemon.stop()
    store = SqliteJournal(
        daemon.home / "journal.sqlite3", KeyRing.open(daemon.home / "keys"), now_ms=Clock()
    )
    fill(store)
    abandon(store)
    spoil(store.path)
    try:
        daemon.launch()
        assert EX_SOFTWARE == daemon.wait()
        assert "the database is damaged" in daemon.said.rpartition("cannot continue")[2]
        daemon.launch()
        assert EX_UNAVAILABLE == daemon.wait()
        assert "restore it from a backup" in daemon.said.rpartition("cannot continue")[2]
    finally:
        daemon.end()
