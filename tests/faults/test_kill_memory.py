"""kill -9 while items, sessions and documents change: a few kills on every change, many on demand."""

from pathlib import Path

import apsw
import pytest

from tests.faults.crash_points import MEMORY_POINTS
from tests.faults.kill_memory import kill_many
from tests.store.orphans import find_orphans_in_copy

pytestmark = [pytest.mark.real]


@pytest.mark.slow
def test_acknowledged_changes_survive_kills() -> None:
    """Rows, indexes, tapes, branches and marks agree with the answers after each kill."""
    found = kill_many(6, seed=3)
    assert not found["problem"], found
    assert found["kills"] >= 6
    assert found["looks"] > 1
    assert found["gone"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kills", [130])
def test_acknowledged_changes_survive_hundreds_of_kills(kills: int, seed: int) -> None:
    """Five hundred kills in all, at every named point and anywhere."""
    found = kill_many(kills, seed)
    assert not found["problem"], found


@pytest.mark.slow
@pytest.mark.parametrize("point", MEMORY_POINTS)
def test_acknowledged_changes_survive_kills_at_each_point(point: str) -> None:
    """Ten kills with this point armed, some of them there."""
    found = kill_many(10, seed=5, points=(point,))
    assert not found["problem"], found
    assert found.get(f"at: {point}"), found


def test_a_row_without_its_item_is_found(tmp_path: Path) -> None:
    """The negative control of the look at the file."""
    path = tmp_path / "journal.sqlite3"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE memories (row, memory_id, previous_row, superseded_by);"
        "CREATE TABLE memory_versions (memory_id);"
        "CREATE TABLE memory_vectors (row);"
        "CREATE TABLE memory_fts_docsize (id);"
    )
    assert not find_orphans_in_copy(path)
    connection.execute(
        "INSERT INTO memories VALUES (1, 'a', 9, 'b');"
        "INSERT INTO memory_versions VALUES ('b');"
        "INSERT INTO memory_vectors VALUES (2);"
        "INSERT INTO memory_fts_docsize VALUES (2);"
    )
    connection.close()
    assert 6 == len(find_orphans_in_copy(path))
