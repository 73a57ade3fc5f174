"""Ids of the daemon: in the order of their creation, whatever the clock does."""

from typing import Any

import pytest
from uuid_utils import uuid7

from palyra.core.ids import is_id
from palyra.wiring import host
from palyra.wiring.host import TIME_CHARS, Ids, now_ms

DAY_MS = 86_400_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.shown_ms = now_ms()

    def uuid7(self, nanoseconds: int | None = None) -> Any:
        return uuid7(nanoseconds=nanoseconds or self.shown_ms * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of new ids."""
    made = Clock()
    monkeypatch.setattr(host, "uuid7", made.uuid7)
    return made


def test_ids_sort_by_creation_when_the_clock_is_set_back(clock: Clock) -> None:
    """Those of the years that the clock was ahead do not stay at the head of a list."""
    new_id, made = Ids(), list[str]()
    for jump_ms in (3_650 * DAY_MS, -3_650 * DAY_MS, 5, -400 * DAY_MS, 9_999 * DAY_MS):
        clock.shown_ms += jump_ms
        for _ in range(3):
            made.append(new_id("run"))
            clock.shown_ms += 1
    assert sorted(made) == made
    assert len(made) == len(set(made))
    assert all(is_id(each, "run") for each in made)


def test_ids_follow_the_newest_of_the_journal(clock: Clock) -> None:
    """A start with the right clock goes on after those of one that was ahead."""
    clock.shown_ms += 10 * DAY_MS
    newest = Ids()("ses")
    clock.shown_ms -= 10 * DAY_MS
    following = Ids()
    following.note(newest)
    following.note("")
    first, second = following("ses"), following("ses")
    assert newest < first < second


@pytest.mark.parametrize(
    "newest", ["run_zzz", "run_", "run_ffffffff-ffff-7fff-8fff-ffffffffffff", "no id", "\0"]
)
def test_a_damaged_id_of_the_journal_moves_no_id(clock: Clock, newest: str) -> None:
    """Its column may hold anything; ids go on from the clock."""
    new_id, other = Ids(), Ids()
    new_id.note(newest)
    made = new_id("run")
    assert is_id(made, "run")
    assert other("run")[: len("run_") + TIME_CHARS] == made[: len("run_") + TIME_CHARS]
