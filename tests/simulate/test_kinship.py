"""The stories of delegated runs: the first seeds hold, and planted bugs are found."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from palyra.actors.run.handle import RunHandle
from palyra.actors.session.registry import ActorRegistry
from palyra.operations.delegation import Delegations
from tests.simulate.kinship import kinship

SEEDS = 12  # 300 in the slow suites
PLANT_WITHIN_SEEDS = 60
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(
    "seeds", [range(SEEDS), pytest.param(range(SEEDS, 300), marks=pytest.mark.slow)]
)
def test_the_first_seeds_hold(seeds: range) -> None:
    """Each child has one end on the tape above, and nothing is left open."""
    assert {} == {seed: broken for seed in seeds if (broken := kinship(seed))}


def let_children_go(patch: Patch) -> None:
    """The end of a run leaves its children alone."""
    patch.setattr(ActorRegistry, "end_children", lambda *_: None)


def forget_the_child(patch: Patch) -> None:
    """A call that is executed again starts its child again."""

    async def careless(*_: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    patch.setattr(Delegations, "_is_known", careless)


def keep_the_clock_running(patch: Patch) -> None:
    """The time in which a child asks is time of its parent, whose tape says otherwise."""
    patch.setattr(RunHandle, "is_asking", property(lambda run: bool(run.prompts)))
    patch.setattr(RunHandle, "take_idle_ms", lambda _run: 1_000_000)


PLANTS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (let_children_go, {"together"}),
    (forget_the_child, {"true", "over"}),
    (keep_the_clock_running, {"clock"}),
]


@pytest.mark.parametrize(("plant", "invariants"), PLANTS)
def test_a_planted_bug_of_delegation_is_found(
    plant: Callable[[Patch], None], invariants: set[str], monkeypatch: Patch
) -> None:
    """Within few seeds, and by an invariant that names it."""
    plant(monkeypatch)
    found = (broken for seed in range(PLANT_WITHIN_SEEDS) if (broken := kinship(seed)))
    assert next(found, set()) & invariants
