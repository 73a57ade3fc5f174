"""The time by which content ages, and its file."""

import os
from pathlib import Path

import pytest

from palyra.core.journal.retention import CONFIRM_MS, DOUBT_MS
from palyra.errors import Unavailable
from palyra.store.files.age_clock import AgeClock
from tests.store.kit import Clock

DAY_MS = 86_400_000


class Machine:
    """A wall clock, a running time, and starts of a daemon with them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clock.json"
        self.wall = Clock()
        self.running_s = 0.0

    def start(self, newest_ms: int = 0) -> AgeClock:
        """A new process."""
        found = AgeClock(self.path, self.wall, lambda: self.running_s)
        found.begin(newest_ms)
        found.look()
        return found

    def pass_time(self, ages: AgeClock, hours: int) -> None:
        """Both clocks go on, with a look every hour."""
        for _ in range(hours):
            self.wall.now_ms += 3_600_000
            self.running_s += 3_600
            ages.look()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a home that has run for an hour."""
    found = Machine(tmp_path)
    found.pass_time(found.start(), 1)
    return found


def test_a_pipe_in_place_of_the_file_blocks_no_start(machine: Machine) -> None:
    """It is damage like any other: the newest id in the journal is the time known."""
    machine.path.unlink()
    os.mkfifo(machine.path)
    assert machine.wall.now_ms == machine.start(newest_ms=machine.wall.now_ms).age_ms()


@pytest.mark.parametrize("ahead_days", [2, 40, 400, 36_500])
def test_one_start_ahead_ages_nothing(machine: Machine, ahead_days: int) -> None:
    """Ages go on with the running time, over starts, and with the clock once it is right again."""
    right_ms = machine.wall.now_ms
    machine.wall.now_ms += ahead_days * DAY_MS
    ages = machine.start()
    assert right_ms == ages.age_ms()
    doubt = ages.look()
    assert doubt is not None
    assert (right_ms, ahead_days * DAY_MS) == doubt
    machine.pass_time(ages, 5)
    assert right_ms + 5 * 3_600_000 == machine.start().age_ms()
    machine.wall.now_ms = right_ms + 6 * 3_600_000
    later = machine.start()
    assert (machine.wall.now_ms, None) == (later.age_ms(), later.look())


def test_a_clock_is_believed_after_a_day_of_running(machine: Machine) -> None:
    """Over any number of starts; a clock that jumps again is doubted anew."""
    machine.wall.now_ms += 400 * DAY_MS
    for _ in range(3):
        machine.pass_time(machine.start(), 7)
        assert machine.start().age_ms() < machine.wall.now_ms - 390 * DAY_MS
    ages = machine.start()
    machine.pass_time(ages, CONFIRM_MS // 3_600_000 - 21)
    assert (machine.wall.now_ms, None) == (ages.age_ms(), ages.look())
    machine.wall.now_ms += DOUBT_MS + 1
    assert machine.wall.now_ms > ages.age_ms()


def test_an_operator_confirms_the_clock(machine: Machine) -> None:
    """At once, and for later starts."""
    machine.wall.now_ms += 400 * DAY_MS
    ages = machine.start()
    ages.confirm()
    assert (machine.wall.now_ms, None) == (ages.age_ms(), ages.look())
    assert machine.wall.now_ms == machine.start().age_ms()


def test_a_clock_that_was_behind_leaves_nothing(machine: Machine) -> None:
    """Its times count while it is behind, and the right ones afterwards."""
    right_ms = machine.wall.now_ms
    machine.wall.now_ms -= 400 * DAY_MS
    ages = machine.start()
    machine.pass_time(ages, 3)
    assert (machine.wall.now_ms, None) == (ages.age_ms(), ages.look())
    machine.wall.now_ms = right_ms + 3 * 3_600_000
    assert machine.wall.now_ms == machine.start().age_ms()


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"[]", b'{"agreed_ms": "x"}'])
def test_without_its_file_the_journal_is_asked(machine: Machine, content: bytes | None) -> None:
    """A damaged or absent file is made anew from the newest time of the journal."""
    known_ms = machine.wall.now_ms
    machine.path.unlink()
    if content is not None:
        machine.path.write_bytes(content)
    machine.wall.now_ms += 400 * DAY_MS
    assert known_ms == machine.start(newest_ms=known_ms).age_ms()
    assert known_ms == machine.start().age_ms()


def test_before_the_start_nothing_is_old(tmp_path: Path) -> None:
    """A home without a known time has none until its journal is open."""
    ages = AgeClock(tmp_path / "clock.json", Clock())
    assert (0, None) == (ages.age_ms(), ages.look())


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """What is known holds meanwhile."""
    ages = AgeClock(tmp_path / "gone" / "clock.json", clock := Clock())
    ages.begin(0)
    with pytest.raises(Unavailable, match=r"clock\.json"):
        ages.look()
    assert clock.now_ms == ages.age_ms()
