"""Shortening the database file, step by step and at once, and the queries of retention."""

from pathlib import Path

import msgspec
import pytest

from palyra.core.journal.changes import Change, IncidentFilter, TaskFilter
from palyra.core.journal.records import (
    IdempotencyRecord,
    IncidentRecord,
    IncidentRemoval,
    PageRelease,
    RunRemoval,
    TaskRecord,
    TaskRemoval,
    TaskState,
)
from palyra.core.journal.retention import RetentionLimits
from palyra.errors import NotFound, Unavailable
from palyra.store.backup.journal_compaction import rewrite_database
from palyra.store.files.data_directory import DataDirectory
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.backup.kit import journal
from tests.store.kit import row, run, session

pytestmark = pytest.mark.real
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def ended(store: SqliteJournal, run_id: str, day: int, **fields: object) -> None:
    """A run of its own archived session that ended on that day, with 100 bytes of payload."""
    record = run(run_id, 0, state="done", finished_ms=day * DAY_MS, **fields)
    place = session(record.session_id, archived_ms=1)
    change = Change(rows=(row(run_id, 0, data=b"x" * 100),), records=(record, place))
    assert [None] == store.commit([change])


@pytest.fixture
def store(tmp_path: Path) -> SqliteJournal:
    opened = journal(tmp_path)
    opened.open()
    return opened


def planned(store: SqliteJournal, limits: RetentionLimits, limit: int = 99) -> list[str]:
    return [each.run_id for each in store.retention().plan(limits, NOW_MS, limit=limit).runs]


def test_runs_over_the_age_are_planned_oldest_first(store: SqliteJournal) -> None:
    """Those that ended before the bound; none without a bound."""
    for number, day in enumerate([50, 20, 95]):
        ended(store, f"run_{number}", day)
    assert ["run_1", "run_0"] == planned(store, RetentionLimits(tapes_ms=10 * DAY_MS))
    assert ["run_1"] == planned(store, RetentionLimits(tapes_ms=10 * DAY_MS), limit=1)
    assert [] == planned(store, RetentionLimits())
    store.close()


def test_runs_over_the_size_are_planned_oldest_first(store: SqliteJournal) -> None:
    """As many as the bound asks for; what a pruned run keeps counts."""
    for number in range(9):
        big = run(f"run_{number}", 0, state="done", finished_ms=number * DAY_MS)
        change = Change(
            rows=(row(big.run_id, 0, data=b"x" * 10_000),),
            records=(big, session(big.session_id, archived_ms=1)),
        )
        store.commit([change])
    assert ["run_0", "run_1"] == planned(store, RetentionLimits(tapes_bytes=72_000))
    assert [] == planned(store, RetentionLimits(tapes_bytes=90_000))
    store.close()


def test_a_conversation_that_goes_on_is_kept(store: SqliteJournal) -> None:
    """Its old runs are what the next prompt reads; archived, they go."""
    limits = RetentionLimits(tapes_ms=10 * DAY_MS)
    for run_id, day in (("run_1", 20), ("run_2", 99)):
        record = run(run_id, 0, state="done", finished_ms=day * DAY_MS, session_id="ses_a")
        store.commit([Change(rows=(row(run_id, 0),), records=(record, session("ses_a")))])
    assert ([], 1) == (planned(store, limits), store.retention().plan(limits, NOW_MS, limit=9)[1])
    store.commit([Change(records=(session("ses_a", archived_ms=5),))])
    assert ["run_1"] == planned(store, limits)
    store.close()


def test_the_parent_of_a_kept_run_is_kept(store: SqliteJournal) -> None:
    """A fork reads the tape that it continues."""
    ended(store, "run_1", 20)
    ended(store, "run_2", 99, parent_run_id="run_1")
    assert [] == planned(store, RetentionLimits(tapes_ms=10 * DAY_MS))
    store.close()


def filled(store: SqliteJournal) -> None:
    """Free many pages: payloads that are replaced."""
    data = b"x" * 60_000
    rows = tuple(row("run_big", seq, data=data) for seq in range(40))
    store.commit([Change(rows=rows, records=(run("run_big", 39, state="done"),))])
    purged = row("run_big", 40, kind="run.purged")
    removal = RunRemoval(run_id="run_big", events=40, at_ms=1)
    assert [None] == store.commit([Change(rows=(purged,), records=(removal,))])


def test_free_pages_are_returned_in_steps(store: SqliteJournal) -> None:
    """Each step is at most so many pages; the rest of the file is untouched."""
    store.close()
    rewrite_database(store.path.parent)
    store.open()
    filled(store)
    before = store.retention().measure()
    assert (True, True) == (before.is_incremental, before.free_bytes > 2_000_000)
    store.commit([Change(records=(PageRelease(pages=10),))])
    after = store.retention().measure()
    assert 10 * before.page_bytes == before.size_bytes - after.size_bytes
    store.commit([Change(records=(PageRelease(pages=100_000),))])
    assert 0 == store.retention().measure().free_bytes
    store.close()
    assert store.path.stat().st_size < before.size_bytes - 2_000_000


def test_a_file_is_rewritten_while_it_is_stopped(store: SqliteJournal, tmp_path: Path) -> None:
    """It is compact afterwards, and can then be shortened in steps."""
    path = store.path
    filled(store)
    assert not store.retention().measure().is_incremental
    before = store.verify()
    store.close()
    with DataDirectory(tmp_path), pytest.raises(Unavailable, match="already runs"):
        rewrite_database(tmp_path)
    report = rewrite_database(tmp_path)
    assert report.after_bytes < report.before_bytes - 2_000_000
    assert path.stat().st_size == report.after_bytes
    again = journal(tmp_path)
    again.open()
    assert (before.checked_events, True) == (
        again.verify().checked_events,
        again.retention().measure().is_incremental,
    )
    again.close()
    with pytest.raises(NotFound):
        rewrite_database(tmp_path / "none")


def test_old_incidents_are_removed_in_batches(store: SqliteJournal) -> None:
    """Resolved ones over the age or the number, oldest first; open ones stay."""

    def incident(number: int, resolved_ms: int | None) -> IncidentRecord:
        return IncidentRecord(
            incident_id=f"inc_{number}", domain="store", key=f"k{number}", severity="warning",
            summary="s", state="resolved" if resolved_ms else "open", opened_ms=1, last_ms=1,
            resolved_ms=resolved_ms,
        )  # fmt: skip

    store.commit([Change(records=tuple(incident(n, n * DAY_MS or None) for n in range(6)))])
    plan = store.retention().plan(RetentionLimits(incidents_ms=97 * DAY_MS), NOW_MS, limit=9)
    assert (3, 3 * DAY_MS) == (plan.incidents, plan.incidents_until_ms)
    plan = store.retention().plan(RetentionLimits(incidents=4), NOW_MS, limit=9)
    assert 1 == plan.incidents
    for left in (4, 3):
        store.commit([Change(records=(IncidentRemoval(until_ms=3 * DAY_MS, limit=1),))])
        found = [each.incident_id for each in store.list_incidents(IncidentFilter())]
        assert left + 1 == len(found)
    assert ["inc_5", "inc_4", "inc_3", "inc_0"] == found
    store.close()


def test_old_tasks_are_removed_in_batches(store: SqliteJournal) -> None:
    """Ended ones over the age or the number, oldest first; open ones stay, as do receipts."""

    def task(number: int, finished_ms: int | None) -> TaskRecord:
        state: TaskState = "queued" if finished_ms is None else "succeeded"
        return TaskRecord(
            task_id=f"tsk_{number}", kind="prompt", principal="ann", rank_ms=0, created_ms=0,
            not_before_ms=0, state=state, finished_ms=finished_ms,
        )  # fmt: skip

    receipt = IdempotencyRecord(
        principal="ann", key="k", body_sha256="d", result=msgspec.Raw(b"{}"), created_ms=NOW_MS
    )
    tasks = tuple(task(n, n * DAY_MS or None) for n in range(6))
    store.commit([Change(records=(*tasks, receipt))])
    plan = store.retention().plan(RetentionLimits(tasks_ms=97 * DAY_MS), NOW_MS, limit=9)
    assert (3, 3 * DAY_MS, 1) == (plan.tasks, plan.tasks_until_ms, plan.receipts)
    assert 1 == store.retention().plan(RetentionLimits(tasks=4), NOW_MS, limit=9).tasks
    assert 0 == store.retention().plan(RetentionLimits(), NOW_MS, limit=9).tasks
    for left in (4, 3):
        store.commit([Change(records=(TaskRemoval(until_ms=3 * DAY_MS, limit=1),))])
        found = [each.task_id for each in store.list_tasks(TaskFilter())]
        assert left + 1 == len(found)
    assert ["tsk_5", "tsk_4", "tsk_3", "tsk_0"] == found
    assert 1 == store.retention().plan(RetentionLimits(), NOW_MS, limit=9).receipts
    store.close()


def test_what_files_are_kept_for(store: SqliteJournal) -> None:
    """Open runs, marks and pins; conversations that go on, and tapes that are evidence."""
    ended(store, "run_0", 20)  # its session is archived
    ended(store, "run_1", 20)
    assert [None] == store.commit([Change(records=(run("run_2", parent_run_id="run_1"),))])
    record = run("run_3", state="done", finished_ms=95 * DAY_MS)
    assert [None] == store.commit([Change(records=(record, session(record.session_id)))])
    found = store.retention().find_in_use(90 * DAY_MS)
    assert (frozenset(), frozenset()) == (found.held, found.checkpoints)
    assert {"ses_run_2"} == found.running
    assert {"ses_run_1", "ses_run_3"} == found.kept
    assert {"ses_run_1"} == store.retention().find_in_use(99 * DAY_MS).kept
    store.close()
