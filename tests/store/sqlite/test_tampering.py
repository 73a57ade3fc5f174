"""Whoever changes the database behind the journal's back is found out, and reading goes on.

Each test damages a closed file through a plain connection, with the triggers out of the way.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec
import pytest

from palyra.core.journal.changes import ChainViolation, Change, VerifyReport
from palyra.core.journal.tape_row import GENESIS, TapeRow, link
from palyra.errors import PalyraError, Unavailable
from palyra.store.journal import verification
from palyra.store.sqlite.tapes import Tapes
from palyra.store.sqlite.writer import Writer
from tests.examples import one_of_three
from tests.store.kit import abandon, row, rows, run, sqlite_journal

pytestmark = pytest.mark.real

EVENTS = 12  # positions 1 to 12: a0 b0 a1 b1 … a5 b5
VICTIM = 5  # the position of a2
Damage = Callable[[apsw.Connection], object]


def build(directory: Path, *, is_signed: bool) -> None:
    """A journal of two interleaved runs; its last root covers all events, or the first four."""
    store = sqlite_journal(directory)
    store.open()
    for seq in range(EVENTS // 2):
        store.commit(
            [
                Change(rows=(row(name, seq),), records=(run(name, seq),))
                for name in ("run_a", "run_b")
            ]
        )
        if seq in {0, 1}:
            store.seal()
    if is_signed:
        store.close()
    else:
        abandon(store)


def damage(directory: Path, change: Damage) -> None:
    """Change the file without the journal."""
    connection = apsw.Connection(str(directory / "journal.sqlite3"))
    for name in ("updated", "deleted"):
        connection.execute(f"DROP TRIGGER tape_is_never_{name}")
    change(connection)
    connection.close()


def verify_all(directory: Path) -> tuple[VerifyReport, VerifyReport]:
    """The findings of opening and of a complete verification after it."""
    store = sqlite_journal(directory)
    opening = store.open().verification
    thorough = store.verify()
    store.close()
    return opening, thorough


def flip(column: str, bit: int) -> Damage:
    """Flip one bit of the victim's column."""

    def change(connection: apsw.Connection) -> None:
        select = f"SELECT {column} FROM tape WHERE position = {VICTIM}"  # noqa: S608 - our columns
        value: int | str | bytes = connection.execute(select).get
        flipped: int | bytearray
        if isinstance(value, int):
            flipped = value ^ bit
        else:
            flipped = bytearray(value.encode() if isinstance(value, str) else value)
            flipped[0] ^= bit
        place = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
        update = f"UPDATE tape SET {column} = {place} WHERE position = {VICTIM}"  # noqa: S608 - our columns
        connection.execute(update, (flipped,))

    return change


def run_sql(*statements: str) -> Damage:
    return lambda connection: [connection.execute(statement) for statement in statements]


def named(found: ChainViolation | None) -> tuple[str | None, int | None, int | None]:
    """The place that a break names."""
    return (None, None, None) if found is None else (found.run_id, found.seq, found.position)


COLUMNS = ["run_id", "session_id", "seq", "at_ms", "kind", "principal", "redacted", "data", "hash"]


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize("bit", [64, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_flipped_bit_is_found(tmp_path: Path, column: str, bit: int, *, is_signed: bool) -> None:
    """One flipped bit in any column of one row names that row, at start and on demand."""
    build(tmp_path, is_signed=is_signed)
    damage(tmp_path, flip(column, bit))
    opening, thorough = verify_all(tmp_path)
    for report in (opening, thorough):
        found = report.first_break
        assert found is not None
        assert (2, VICTIM) == (found.seq, found.position)
        assert column == "run_id" or found.run_id == "run_a"


SWAP = run_sql(
    "UPDATE tape SET position = 99 WHERE position = 5",
    "UPDATE tape SET position = 5 WHERE position = 7",
    "UPDATE tape SET position = 7 WHERE position = 99",
)
INSERT_COPY = (
    "INSERT INTO tape SELECT {}, at_ms, kind, principal, redacted, data, hash"
    " FROM tape WHERE position = {}"
)

# What is done, what kind of break it is, and the first event it makes bad.
DAMAGES: list[tuple[str, Damage, str, tuple[str, int, int]]] = [
    ("moved to the end", flip("position", 64), "missing", ("run_a", 2, 5)),
    (
        "last of a run moved to the end",
        run_sql("UPDATE tape SET position = 75 WHERE position = 11"),
        "missing",
        ("run_a", 5, 11),
    ),
    ("deleted", run_sql("DELETE FROM tape WHERE position = 5"), "missing", ("run_a", 2, 5)),
    (
        "two deleted",
        run_sql("DELETE FROM tape WHERE position IN (5, 7)"),
        "missing",
        ("run_a", 2, 5),
    ),
    (
        "last of a run deleted",
        run_sql("DELETE FROM tape WHERE position = 11"),
        "missing",
        ("run_a", 5, 11),
    ),
    (
        "tail cut off",
        run_sql("DELETE FROM tape WHERE position >= 11"),
        "truncated",
        ("run_a", 5, 11),
    ),
    (
        "one event appended",
        run_sql(INSERT_COPY.format("13, run_id, session_id, 6", 11)),
        "inserted",
        ("run_a", 6, 13),
    ),
    ("two events of one run swapped", SWAP, "reordered", ("run_a", 2, 5)),
    (
        "events of two runs swapped",
        run_sql(
            "UPDATE tape SET position = 99 WHERE position = 5",
            "UPDATE tape SET position = 5 WHERE position = 6",
            "UPDATE tape SET position = 6 WHERE position = 99",
        ),
        "edited",
        ("run_b", 2, 5),
    ),
    (
        "deleted, and the rest moved up",
        run_sql(
            "DELETE FROM tape WHERE position = 5",
            "UPDATE tape SET position = position - 1 + 100 WHERE position > 5",
            "UPDATE tape SET position = position - 100 WHERE position > 100",
        ),
        "edited",
        ("run_b", 2, 5),
    ),
]


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize(
    ("change", "kind", "place"),
    [case[1:] for case in DAMAGES],
    ids=[case[0] for case in DAMAGES],
)
def test_damage_is_named(
    tmp_path: Path, change: Damage, kind: str, place: tuple[str, int, int], *, is_signed: bool
) -> None:
    """Opening says what was done, and both verifications name the first bad event."""
    build(tmp_path, is_signed=is_signed)
    damage(tmp_path, change)
    opening, thorough = verify_all(tmp_path)
    assert opening.first_break is not None
    assert (kind, place, place) == (
        opening.first_break.kind,
        named(opening.first_break),
        named(thorough.first_break),
    )


@pytest.mark.parametrize(
    ("statement", "kind", "place"),
    [
        ("DELETE FROM tape", "truncated", ("run_a", 0, 1)),
        ("DELETE FROM tape WHERE position = 1", "missing", ("run_a", 0, 1)),
        ("UPDATE tape SET data = X'00' WHERE position = 2", "edited", ("run_b", 0, 2)),
        (
            INSERT_COPY.format("0, 'run_0', session_id, 0", 1),
            "inserted",
            ("run_0", 0, 0),
        ),
    ],
    ids=["all deleted", "first deleted", "edited", "put before all"],
)
def test_damage_older_than_the_last_root_is_found_on_demand(
    tmp_path: Path, statement: str, kind: str, place: tuple[str, int, int]
) -> None:
    """Opening checks what is new; verifying everything checks what is old as well."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, run_sql(statement))
    store = sqlite_journal(tmp_path)
    store.open()
    found = store.verify().first_break
    assert found is not None
    assert place == named(found)
    assert kind in {found.kind, "truncated"}
    store.close()


def rechain(connection: apsw.Connection, *run_ids: str) -> None:
    """Recompute all hashes, run by run, as an attacker who knows this program could."""
    for run_id in run_ids:
        prev = GENESIS
        for found in Tapes(connection).read_links(run_id, after_seq=-1, limit=99):
            prev = link(prev, found.position, found.row)
            connection.execute(
                "UPDATE tape SET hash = ? WHERE position = ?", (prev, found.position)
            )


def forge(connection: apsw.Connection) -> None:
    """Change an event and hide it."""
    connection.execute("UPDATE tape SET data = X'7B7D' WHERE position = 5")
    rechain(connection, "run_a", "run_b")


def swap_and_hide(connection: apsw.Connection) -> None:
    """Exchange two events of one run and hide it."""
    SWAP(connection)
    rechain(connection, "run_a")


def test_a_recomputed_chain_does_not_match_its_root(tmp_path: Path) -> None:
    """Without the signing key a forged history is consistent only up to the signed root."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, forge)
    for report in verify_all(tmp_path):
        found = report.first_break
        assert found is not None
        assert ("root", ("run_a", 2, 5)) == (found.kind, named(found))


def test_reads_continue_after_a_break(tmp_path: Path) -> None:
    """Every remaining event can be read, also of the damaged run."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, flip("data", 1))
    damage_twice = run_sql("DELETE FROM tape WHERE position = 8")
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    damage_twice(connection)
    connection.close()
    store = sqlite_journal(tmp_path)
    store.open()
    pages = [store.read_tape(name, after_seq=-1, limit=9) for name in ("run_a", "run_b")]
    assert [[0, 1, 2, 3, 4, 5], [0, 1, 2, 4, 5]] == [
        [event.seq for event in page.rows] for page in pages
    ]
    store.close()


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_break_is_reported_once_and_work_continues(tmp_path: Path, *, is_signed: bool) -> None:
    """Opening reports it once; a full verification still finds it and checks later events."""
    build(tmp_path, is_signed=is_signed)
    damage(tmp_path, run_sql("DELETE FROM tape WHERE position >= 9"))
    store = sqlite_journal(tmp_path)
    assert store.open().verification.breaks == 1
    assert store.commit([rows("run_c", 0, 3), rows("run_a", 4, 1)]) == [None, None]
    assert store.check(lambda: False) is None
    store.close()
    store = sqlite_journal(tmp_path)
    report = store.open()
    assert (0, True) == (report.verification.breaks, report.was_clean)
    thorough = store.verify()
    assert (1, 9, 12) == (
        thorough.breaks,
        thorough.first_break and thorough.first_break.position,
        thorough.checked_events,
    )
    assert (16, 16) == (thorough.through_position, thorough.signed_through_position)
    store.close()
    damage(tmp_path, run_sql("UPDATE tape SET data = X'00' WHERE position = 14"))
    opening, thorough = verify_all(tmp_path)
    assert ("run_c", 1, 14) == named(opening.first_break)
    assert 2 == thorough.breaks


def test_a_segment_that_was_cut_short_is_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash right behind the line that begins a segment does not let positions be used twice."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, run_sql("DELETE FROM tape WHERE position >= 9"))
    store = sqlite_journal(tmp_path)
    with monkeypatch.context() as crash:
        crash.setattr(Writer, "_write_owner", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.open()
    assert None is store.open().verification.first_break
    store.commit([rows("run_c", 0, 1)])
    store.seal()
    assert [13] == [link.position for link in store.read_chain("run_c", after_seq=-1, limit=9)]
    assert 1 == store.verify().breaks
    store.close()


def test_a_break_without_a_trace_is_recorded_in_the_roots(tmp_path: Path) -> None:
    """A finding that only the opening can make is a signed line of the roots."""
    build(tmp_path, is_signed=False)
    damage(tmp_path, lambda connection: append_well(connection, 6))
    opening, thorough = verify_all(tmp_path)
    assert ("run_b", 6, 13) == named(opening.first_break)
    assert (1, opening.first_break) == (thorough.breaks, thorough.first_break)
    again, thorough = verify_all(tmp_path)
    assert (None, 1) == (again.first_break, thorough.breaks)
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    append_well(connection, 7)
    connection.close()
    opening, thorough = verify_all(tmp_path)
    assert ("run_b", 7, 14) == named(opening.first_break)
    assert 2 == thorough.breaks


def append_well(connection: apsw.Connection, seq: int) -> None:
    """Append an event as the journal would, but without telling it."""
    position, prev = connection.execute("SELECT max(position), hash FROM tape").get
    forged = row("run_b", seq)
    digest = link(prev, position + 1, forged)
    connection.execute(
        "INSERT INTO tape VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (position + 1, *msgspec.structs.astuple(forged), digest),
    )


def test_every_break_is_counted(tmp_path: Path) -> None:
    """One event missing, and one moved within its run, which two events notice: three breaks."""
    build(tmp_path, is_signed=True)
    damage(
        tmp_path,
        run_sql(
            "DELETE FROM tape WHERE position = 5", "UPDATE tape SET seq = 68 WHERE position = 9"
        ),
    )
    opening, _ = verify_all(tmp_path)
    assert (3, ("run_a", 2, 5)) == (opening.breaks, named(opening.first_break))


def test_one_damaged_run_is_found_alone(tmp_path: Path) -> None:
    """Verifying one run finds its own damage and says nothing about its neighbour's."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, flip("data", 1))
    store = sqlite_journal(tmp_path)
    store.open()
    reports = [store.verify(name) for name in ("run_a", "run_b")]
    assert [("run_a", 2, 5), (None, None, None)] == [named(found.first_break) for found in reports]
    store.close()


@pytest.mark.parametrize(
    ("change", "kind", "place"),
    [
        (run_sql("DELETE FROM tape WHERE position = 5"), "missing", ("run_a", 2, 7)),
        (run_sql("DELETE FROM tape WHERE position = 11"), "truncated", ("run_a", 5, None)),
        (run_sql("DELETE FROM tape WHERE position = 1"), "missing", ("run_a", 0, 3)),
        (forge, "root", ("run_a", 2, 5)),
        (SWAP, "edited", ("run_a", 2, 7)),
        (swap_and_hide, "reordered", ("run_a", 3, 5)),
    ],
    ids=[
        "deleted",
        "cut",
        "first deleted",
        "chain computed anew",
        "swapped",
        "swapped and computed anew",
    ],
)
def test_damage_within_one_run_is_named(
    tmp_path: Path, change: Damage, kind: str, place: tuple[str, int, int | None]
) -> None:
    """Verifying one run names its first bad event."""
    build(tmp_path, is_signed=True)
    damage(tmp_path, change)
    store = sqlite_journal(tmp_path)
    store.open()
    found = store.verify("run_a").first_break
    assert found is not None
    assert (kind, place) == (found.kind, named(found))
    store.close()


@pytest.mark.parametrize("seed", one_of_three(range(60)))
def test_a_flipped_byte_anywhere_in_the_file_is_harmless_or_found(
    tmp_path: Path, seed: int
) -> None:
    """No flipped byte changes what is read without a refusal or a reported break."""
    build(tmp_path, is_signed=True)
    path = tmp_path / "journal.sqlite3"
    content = bytearray(path.read_bytes())
    rng = random.Random(seed)
    content[rng.randrange(100, len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    store = sqlite_journal(tmp_path)
    with suppress(Unavailable):
        store.open()
        if store.verify().first_break is None:
            assert expected_rows() == [
                store.read_tape(name, after_seq=-1, limit=9).rows for name in ("run_a", "run_b")
            ]
    with suppress(PalyraError):
        abandon(store)


def expected_rows() -> list[list[TapeRow]]:
    return [[row(name, seq) for seq in range(EVENTS // 2)] for name in ("run_a", "run_b")]


def test_more_runs_than_are_remembered_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that verification has forgotten are looked up: the verdict is the same."""
    monkeypatch.setattr(verification, "_KNOWN_RUNS", 1)
    build(tmp_path, is_signed=True)
    assert [0, 0] == [report.breaks for report in verify_all(tmp_path)]
    damage(tmp_path, flip("data", 1))
    for report in verify_all(tmp_path):
        assert ("run_a", 2, 5) == named(report.first_break)


def test_verifying_a_run_reports_a_lost_root(tmp_path: Path) -> None:
    """The events that the root covered are unknown."""
    build(tmp_path, is_signed=True)
    store = sqlite_journal(tmp_path)
    lines = store.roots_path.read_bytes().splitlines(keepends=True)
    store.roots_path.write_bytes(b"".join(lines[:1] + lines[2:]))
    store.open()
    report = store.verify("run_b")
    assert ("root", 1, 6) == (
        report.first_break and report.first_break.kind,
        report.breaks,
        report.checked_events,
    )
    store.close()


def test_a_damaged_record_is_left_out_and_named(tmp_path: Path) -> None:
    """A record that is no longer JSON, or no record, is not found; its tape is read as before."""
    build(tmp_path, is_signed=True)
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    connection.execute("UPDATE runs SET record = '{\"run_id\":1}' WHERE run_id = 'run_a'")
    connection.execute("UPDATE runs SET record = 'xxx' WHERE run_id = 'run_b'")
    connection.close()
    store = sqlite_journal(tmp_path)
    store.open()
    assert () == store.list_damaged()
    assert (None, None) == (store.find_run("run_a"), store.find_run("run_b"))
    assert ("runs:run_a", "runs:run_b") == store.list_damaged()
    assert [0, 1, 2, 3, 4, 5] == [
        event.seq for event in store.read_tape("run_a", after_seq=-1, limit=9).rows
    ]
    store.close()
