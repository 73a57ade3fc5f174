"""Many seeds: `python -m tests.simulate --seeds 1000 --start 0`, or `make simulate SEEDS=1000`.

Prints one line of JSON with what was simulated; for each seed that failed the invariant, the last
lines of its story and the command that replays it.  The exit code is 1 when any failed.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from tests.simulate.many import describe, tell_many
from tests.simulate.seed import Report
from tests.simulate.world import Cast


def until_interrupted(reports: Iterator[Report]) -> Iterator[Report]:
    """Yield the reports up to an interrupt: what was simulated before it counts."""
    try:
        yield from reports
    except* KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201 - its result


def main() -> int:
    parser = argparse.ArgumentParser(description="The whole daemon, simulated.")
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--cast", choices=get_args(Cast), default="workers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    begun_s = time.perf_counter()
    faults: Counter[str] = Counter()
    total: Counter[str] = Counter()
    failed: list[int] = []
    virtual_s = 0.0
    seeds, done = range(options.start, options.start + options.seeds), 0
    for report in until_interrupted(tell_many(seeds, max(1, options.jobs), options.cast)):
        done += 1
        if report.failed is not None:
            failed.append(report.seed)
            print(describe(report, options.cast), file=sys.stderr)  # noqa: T201 - its result
        faults.update(report.counts)
        total.update(
            steps=report.steps,
            effects=report.effects,
            lives=report.lives,
            runs=report.runs,
            events=report.rows,
        )
        virtual_s += report.virtual_s
    real_s = time.perf_counter() - begun_s
    summary = {
        "cast": options.cast,
        "seeds": done,
        "failed": sorted(failed),
        "seconds": round(real_s, 1),
        "seeds_per_s": round(done / real_s, 1),
        "virtual_hours": round(virtual_s / 3_600, 1),
        "virtual_hours_per_minute": round(virtual_s / 60 / real_s, 1),
        **total,
        "faults": dict(sorted(faults.items())),
    }
    print(json.dumps(summary))  # noqa: T201 - its result
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
