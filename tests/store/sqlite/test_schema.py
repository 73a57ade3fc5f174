"""Migrations: a fresh file, every older version, a failing step, a file from the future."""

import hashlib
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.purged_row import MAX_BYTES, PREFIX
from palyra.core.journal.records import RECEIPT_TTL_MS
from palyra.errors import Unavailable
from palyra.store.sqlite.schema import (
    APPLICATION_ID,
    MIGRATIONS,
    SCHEMA_VERSION,
    migrate,
    restore_triggers,
)
from tests.store.kit import row, rows, run, seqs, sqlite_journal

PUBLISHED_SHA256 = (
    "89882a5415dbc5e1b36b11f66531c2ae6c8fd9443c304cbc4217948f4ea5d9b1"  # of versions 1 to 11
)

pytestmark = pytest.mark.real


def schema(connection: apsw.Connection) -> set[str]:
    """All definitions of a file, spaces aside."""
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {" ".join(str(sql).split()) for (sql,) in found}


def migrated(version: int) -> apsw.Connection:
    """A file in memory with the schema of that version."""
    connection = apsw.Connection(":memory:")
    migrate(connection, MIGRATIONS[:version])
    return connection


def test_a_fresh_file_gets_the_newest_schema() -> None:
    """Migrating nothing gives a whole schema, marked as ours and with its version."""
    connection = apsw.Connection(":memory:")
    assert None is migrate(connection)
    assert (SCHEMA_VERSION, APPLICATION_ID) == (
        connection.pragma("user_version"),
        connection.pragma("application_id"),
    )
    tables = "owner tape runs sessions approvals receipts tokens agents channels pairings grants"
    tables += " candidates reflections usage budgets tasks schedules incidents documents session_checkpoints memories memory_versions memory_log memory_vectors"
    tables += " memory_uses memory_fts turns turn_vectors turn_log turn_mark turn_fts memory_mark"
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    assert set(tables.split()) == {
        name for (name,) in found if not name.startswith(("sqlite_", "memory_fts_", "turn_fts_"))
    }


def test_missing_and_changed_triggers_are_made_again(tmp_path: Path) -> None:
    """Also at the opening of a journal; a whole schema is left as it is."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.close()
    with closing(apsw.Connection(str(store.path))) as connection:
        whole = schema(connection)
        assert [] == restore_triggers(connection)
        connection.execute(
            "DROP TRIGGER run_ends_once; DROP TRIGGER tape_is_never_deleted;"
            "CREATE TRIGGER tape_is_never_deleted BEFORE DELETE ON tape BEGIN SELECT 1; END"
        )
        assert whole != schema(connection)
    (note,) = store.open().notes
    assert "run_ends_once, tape_is_never_deleted" in note
    store.close()
    with closing(apsw.Connection(str(store.path))) as connection:
        assert whole == schema(connection)


def test_published_migrations_are_never_edited() -> None:
    """Files were made with them, so their text stays, whatever becomes of constants of the code."""
    published = "".join(MIGRATIONS[:11]).encode()
    assert PUBLISHED_SHA256 == hashlib.sha256(published).hexdigest()


def test_literals_of_migrations_are_the_present_constants() -> None:
    """A constant that changes needs a migration, because triggers of existing files have its old value."""
    purges, rules = MIGRATIONS[10], MIGRATIONS[1]
    prefix = f"CAST('{PREFIX.decode()}' AS BLOB)"
    for side in ("old.data, 1, {} ) <> {}", "new.data, 1, {} ) = {}"):
        assert side.format(len(PREFIX), prefix).replace(" )", ")") in purges
    assert f"length(new.data) <= {MAX_BYTES}\n" in purges
    assert f"created_ms < {RECEIPT_TTL_MS} AND" in rules


def test_there_are_older_versions_to_migrate() -> None:
    """The mechanism is in use: more than one version exists."""
    assert SCHEMA_VERSION > 1


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_every_version_becomes_the_newest(version: int) -> None:
    """A file of any version ends with the schema of a fresh one."""
    connection = migrated(version)
    found = migrate(connection)
    assert (version if version < SCHEMA_VERSION else None) == found
    assert schema(migrated(SCHEMA_VERSION)) == schema(connection)


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_an_older_journal_is_migrated_completely(tmp_path: Path, version: int) -> None:
    """Its rows are readable, and new ones can be added."""
    path = tmp_path / "journal.sqlite3"
    modern = sqlite_journal(tmp_path / "modern")
    (tmp_path / "modern").mkdir()
    modern.open()
    modern.commit([rows("run_a", 0, 3)])
    modern.close()
    old = apsw.Connection(str(path))
    migrate(old, MIGRATIONS[:version])
    old.execute("ATTACH ? AS modern", (str(modern.path),))
    for table in ("owner", "tape"):
        old.execute(f"INSERT INTO {table} SELECT * FROM modern.{table}")  # noqa: S608 - our tables
    old.close()
    modern.roots_path.rename(tmp_path / modern.roots_path.name)
    store = sqlite_journal(tmp_path)
    report = store.open()
    assert (version, SCHEMA_VERSION, 3, None) == (
        report.migrated_from,
        report.schema_version,
        report.head_position,
        report.verification.first_break,
    )
    assert [None] == store.commit([rows("run_a", 3, 1)])
    assert [0, 1, 2, 3] == seqs(store, "run_a")
    store.close()


def test_a_damaged_record_stops_no_migration() -> None:
    """A run whose record is no JSON is in no index, and can still be changed."""
    connection = migrated(14)
    connection.execute("INSERT INTO runs VALUES ('run_a', 'ses_a', 'ann', 'done', 'xxx')")
    assert 14 == migrate(connection)
    connection.execute("UPDATE runs SET record = 'yyy'")
    assert 1 == connection.execute("SELECT count(*) FROM runs").get


def test_a_failing_migration_leaves_the_file_as_it_was() -> None:
    """Not even the part that worked stays; the version stays too."""
    connection = migrated(1)
    before = schema(connection)
    broken = (*MIGRATIONS[:1], "CREATE TABLE half(x); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(apsw.SQLError, match="nowhere"):
        migrate(connection, broken)
    assert (before, 1) == (schema(connection), connection.pragma("user_version"))
    assert not connection.in_transaction
    assert 1 == migrate(connection)


def test_steps_before_a_failing_one_hold() -> None:
    """Each migration is a transaction of its own."""
    connection = apsw.Connection(":memory:")
    with pytest.raises(apsw.SQLError):
        migrate(connection, (*MIGRATIONS, "NONSENSE"))
    assert SCHEMA_VERSION == connection.pragma("user_version")


def test_a_newer_file_is_refused_untouched(tmp_path: Path) -> None:
    """A file from the future is named as such; opening it changes no byte of its schema."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.close()
    connection = apsw.Connection(str(store.path))
    connection.pragma("user_version", SCHEMA_VERSION + 1)
    before = schema(connection)
    connection.close()
    with pytest.raises(Unavailable, match=f"version {SCHEMA_VERSION + 1}.*newer version"):
        store.open()
    connection = apsw.Connection(str(store.path))
    assert (before, SCHEMA_VERSION + 1) == (schema(connection), connection.pragma("user_version"))
    connection.close()


def test_a_foreign_database_is_refused() -> None:
    """A database of another program is not taken over."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE recipes(name)")
    with pytest.raises(Unavailable, match="not a journal"):
        migrate(connection)
    assert {"CREATE TABLE recipes(name)"} == schema(connection)


def test_a_run_committed_under_the_first_schema_ends_once(tmp_path: Path) -> None:
    """Rules that came later hold for records that came before."""
    store = sqlite_journal(tmp_path)
    connection = apsw.Connection(str(store.path))
    migrate(connection, MIGRATIONS[:1])
    connection.execute(
        "INSERT INTO runs VALUES ('run_a', 'ses_run_a', 'alice', 'done', ?)", ("{}",)
    )
    connection.close()
    store.open()
    assert [True] == [
        refusal is not None
        for refusal in store.commit(
            [Change(rows=(row("run_a", 0),), records=(run("run_a", 0, state="failed"),))]
        )
    ]
    store.close()
