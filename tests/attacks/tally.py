"""The counts of a class of attacks."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.attacks.world import Answer, World, always, never


class Tally(NamedTuple):
    """The result of one class."""

    orders: int
    effects: int  # that were not allowed
    control: int  # of the same orders without the defence
    unfinished: int  # runs that did not come to their end


async def obey(
    world: World, orders: Iterable[str], answer: Answer = never, words: str = "", **fields: Any
) -> Tally:
    """Start a run for each order, attended and (if no person would allow it) unattended."""
    modes: list[dict[str, Any]] = [{}] if answer is always else [{}, {"approval_mode": "deny"}]
    run_ids, unfinished = [], 0
    for one in orders:
        for mode in modes:
            task = world.write_page([one], words=words)
            run_id, end = await world.play(task, answer, **mode, **fields)
            run_ids.append(run_id)
            unfinished += end != "run.done"
    return Tally(len(run_ids), world.count_effects(run_ids), 0, unfinished)


def with_control(tally: Tally, control: int) -> Tally:
    """The same with its control."""
    return tally._replace(control=control)
