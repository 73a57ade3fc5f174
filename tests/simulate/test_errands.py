"""The stories of the queue: the first seeds hold, and planted bugs are found."""

from collections.abc import Callable
from datetime import timedelta, timezone
from typing import Any

import msgspec
import pytest

from palyra.actors.task_queue import Background
from palyra.core.task import life
from palyra.services.task import queue as task_queue
from palyra.services.task import schedules, tasks
from tests.simulate.errands import errands

SEEDS = 5  # more in the slow suites
PLANT_WITHIN_SEEDS = 25
FIRST_SEEDS = {"stop_nothing": 4, "ignore_summer_time": 9}  # where the search begins, to be quick
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(
    "seeds", [range(SEEDS), pytest.param(range(SEEDS, 100), marks=pytest.mark.slow)]
)
def test_the_first_seeds_hold(seeds: range) -> None:
    """No task is lost, done twice or out of turn, no instant fires twice."""
    assert {} == {seed: broken for seed in seeds if (broken := errands(seed))}


def stop_nothing(patch: Patch) -> None:
    """The work of an ended task is not cancelled."""
    patch.setattr(Background, "stop", lambda self, task: self.queue.forget(task.task_id))


def shift_firings(patch: Patch) -> None:
    """The key of a firing has another instant."""
    patch.setattr(schedules, "firing_key", lambda name, at_ms: f"{name}@{at_ms + 1}")


def ignore_priority(patch: Patch) -> None:
    """Tasks are done in the order of submission."""

    def submit(*args: Any) -> Any:
        task = life.submit(*args)
        return msgspec.structs.replace(task, rank_ms=task.not_before_ms)

    patch.setattr(tasks, "submit", submit)


def keep_dead_leases(patch: Patch) -> None:
    """The tasks of a killed process are never queued again."""
    patch.setattr(task_queue, "is_lapsed", lambda *_: False)


def retry_for_ever(patch: Patch) -> None:
    """The bound of attempts is ignored."""

    def fail(task: Any, *args: Any, **named: Any) -> Any:
        endless = msgspec.structs.replace(task, max_attempts=99)
        failed = life.fail(endless, *args, **named)
        return msgspec.structs.replace(failed, max_attempts=task.max_attempts)

    patch.setattr(task_queue, "fail", fail)


def ignore_summer_time(patch: Patch) -> None:
    """A zone has the same offset all year."""
    patch.setattr(schedules, "zone_of", lambda _timing: timezone(timedelta(hours=1)))


PLANTS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (stop_nothing, {"stopped", "twice"}),
    (shift_firings, {"firing"}),
    (ignore_priority, {"order"}),
    (keep_dead_leases, {"lost"}),
    (retry_for_ever, {"attempts"}),
    (ignore_summer_time, {"firing"}),
]


@pytest.mark.parametrize(("plant", "invariants"), PLANTS)
def test_a_planted_bug_of_the_queue_is_found(
    plant: Callable[[Patch], None], invariants: set[str], monkeypatch: Patch
) -> None:
    """Within few seeds, and by an invariant that names it."""
    plant(monkeypatch)
    first = FIRST_SEEDS.get(plant.__name__, 0)
    seeds = range(first, first + PLANT_WITHIN_SEEDS)
    found = (broken for seed in seeds if (broken := errands(seed)))
    assert next(found, set()) & invariants
