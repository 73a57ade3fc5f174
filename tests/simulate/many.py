"""Many seeds, in as many processes as there are cores, and the report of a failed one."""

import multiprocessing
from collections.abc import Iterator
from functools import partial

from tests.simulate.seed import Report, simulate
from tests.simulate.world import Cast

CHUNK = 10


def tell(seed: int, cast: Cast = "workers") -> Report:
    """One seed; an error of the simulation itself is a failure too."""
    try:
        return simulate(seed, cast)
    except Exception as error:  # noqa: BLE001 - the seed must be named
        return Report(seed=seed, failed="the simulation itself", detail=repr(error))


def describe(report: Report, cast: Cast = "workers") -> str:
    """Return all details needed to debug a failed seed."""
    lines = [f"seed {report.seed} broke: {report.failed}", f"  {report.detail}", *report.tail]
    return "\n".join([*lines, f"make simulate START={report.seed} SEEDS=1 CAST={cast}", ""])


def tell_many(seeds: range, jobs: int, cast: Cast = "workers") -> Iterator[Report]:
    """Run all seeds and yield reports as they end."""
    if jobs == 1 or len(seeds) == 1:
        yield from map(partial(tell, cast=cast), seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(partial(tell, cast=cast), seeds, chunksize=CHUNK)
