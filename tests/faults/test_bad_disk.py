"""A disk that fails at one operation, and one that is full: refusals, but no lies."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palyra.core.journal.changes import Change
from palyra.errors import Unavailable
from palyra.store.sqlite.journal import SqliteJournal
from tests.faults.power_cuts import early_checkpoints, read
from tests.faults.simulated_disk import SimulatedDisk
from tests.store.kit import abandon, row, rows, run, seqs, sqlite_journal

pytestmark = pytest.mark.real

KIB = 1_024


@contextmanager
def journal_on(disk: SimulatedDisk, directory: Path) -> Generator[SqliteJournal, None, None]:
    with disk.mount() as mounted:
        store = sqlite_journal(directory, disk=mounted)
        try:
            yield store
        finally:
            abandon(store)


def change(run_id: str, first: int) -> Change:
    """Two events of some size and their record."""
    events = tuple(row(run_id, seq, data=b"x" * 3_000) for seq in (first, first + 1))
    return Change(rows=events, records=(run(run_id, first + 1),))


def insist(call: Callable[[], object]) -> int:
    """Call until it succeeds; how often it was refused."""
    refusals = 0
    while True:
        try:
            call()
        except Unavailable:
            refusals += 1
        else:
            return refusals
        assert refusals < 3


def life(store: SqliteJournal) -> int:
    """Open, commit, seal and close, insisting; how often something was refused."""
    refusals = insist(store.open)
    for first in range(0, 8, 2):
        batch = [change("run_a", first), change("run_b", first)]
        refusals += insist(lambda batch=batch: store.commit(batch))  # type: ignore[misc]  # bound early
        if first % 4:
            refusals += insist(store.seal)
    try:
        store.close()
    except Unavailable:
        refusals += 1
    return refusals


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_one_failing_operation_is_survived(tmp_path: Path, every: int) -> None:
    """Whichever write, sync, truncate or delete fails: one refusal, a retry, and a whole journal."""
    with early_checkpoints():
        untroubled = SimulatedDisk()
        with journal_on(untroubled, tmp_path) as store:
            assert 0 == life(store)
        for fail_at in range(1, untroubled.operations + 1, every):
            disk = SimulatedDisk()
            disk.fail_at = fail_at
            with journal_on(disk, tmp_path) as store:
                refusals = life(store)
                report = store.open()
                found = (
                    refusals <= 1,
                    report.verification.first_break,
                    store.verify().breaks,
                    [seqs(store, name) for name in ("run_a", "run_b")],
                )
            assert (True, None, 0, [list(range(8))] * 2) == found, fail_at


def test_a_refused_commit_is_not_there(tmp_path: Path) -> None:
    """Whichever operation of a commit fails, nothing of the batch is seen until it is repeated."""
    disk = SimulatedDisk()
    with journal_on(disk, tmp_path) as store:
        store.open()
        for first in range(0, 60, 2):
            before = [seqs(store, name) for name in ("run_a", "run_b")]
            batch = [change("run_a", first), change("run_b", first)]
            disk.fail_at = disk.operations + 1 + first // 2
            try:
                store.commit(batch)
            except Unavailable:
                assert before == [seqs(store, name) for name in ("run_a", "run_b")]
                disk.fail_at = None
                assert [None, None] == store.commit(batch)
        assert [list(range(60))] * 2 == [seqs(store, name) for name in ("run_a", "run_b")]
        assert 0 == store.verify().breaks


def fill(store: SqliteJournal, seq: int) -> int:
    """Append until the disk refuses; the next seq."""
    while True:
        try:
            store.commit([Change(rows=(row("run_a", seq, data=b"x" * 5_000),))])
        except Unavailable as refusal:
            assert "full" in str(refusal)  # noqa: PT017 - it ends the loop
            return seq
        seq += 1


def test_a_full_disk_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    """On a full disk only writes are refused, until space is freed; nothing acknowledged is lost."""
    disk = SimulatedDisk()
    with journal_on(disk, tmp_path) as store:
        store.open()
        disk.capacity_bytes = disk.used_bytes + 300 * KIB
        store.commit([rows("run_b", 0, 3)])
        head = fill(store, 0)
        assert head > 10
        for _ in range(3):
            with pytest.raises(Unavailable, match="full"):
                store.commit([Change(rows=(row("run_a", head, data=b"x" * 50_000),))])
        assert list(range(head)) == [event.seq for event in read(store, "run_a")]
        assert 0 == store.verify().breaks
        disk.capacity_bytes += 700 * KIB
        assert [] == store.commit([])
        assert [None] == store.commit([Change(rows=(row("run_a", head, data=b"x" * 50_000),))])
        store.seal()
        assert ([0, 1, 2], head + 1) == (seqs(store, "run_b"), len(read(store, "run_a")))
        assert 0 == store.verify().breaks
        store.close()


def test_a_full_disk_survives_a_restart(tmp_path: Path) -> None:
    """A journal that filled its disk and died opens when there is space, with everything in it."""
    disk = SimulatedDisk()
    with journal_on(disk, tmp_path) as store:
        store.open()
        disk.capacity_bytes = disk.used_bytes + 300 * KIB
        head = fill(store, 0)
    disk.capacity_bytes = None
    with journal_on(disk, tmp_path) as store:
        report = store.open()
        assert (False, None) == (report.was_clean, report.verification.first_break)
        assert head == len(read(store, "run_a"))


def test_a_disk_too_full_to_open_is_reported(tmp_path: Path) -> None:
    """Without space for a first page the journal does not start, and starts when there is."""
    disk = SimulatedDisk()
    disk.capacity_bytes = 6 * KIB
    with journal_on(disk, tmp_path) as store:
        with pytest.raises(Unavailable, match="full"):
            store.open()
        disk.capacity_bytes = None
        assert 0 == store.open().head_position
