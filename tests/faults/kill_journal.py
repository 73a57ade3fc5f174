"""kill -9 of a writing process, at random and at named points: `python -m tests.faults.kill_journal`.

A child appends to a journal and reports each acknowledged batch to its parent; it is killed, and
the parent opens the remaining journal and compares.  The next child continues with it, so the
journal grows old.  Prints what happened as JSON; the exit code is 1 when anything was lost.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from palyra.core.journal.changes import Change
from palyra.store.journal.signed_roots import SignedRootsFile
from palyra.store.sqlite import journal, writer
from palyra.store.sqlite.writer import Writer
from tests.store.kit import row, run, sqlite_journal

RUNS = tuple(f"run_{name}" for name in "abcdefgh")
KILLS_PER_JOURNAL = 40  # then a fresh one: checking an old one takes longer each time
CHECKPOINT_PAGES = 60  # instead of thousands, so that some die in a checkpoint
FIRST_DELAY_S = 0.12  # a child needs most of this to be up
DELAY_S = 0.25
# The point where a child dies, and the number of the visit.  None: the parent kills it.
POINTS: dict[str | None, int] = {
    None: 0,
    "take_ownership": 1,
    "Writer._write_owner": 40,
    "Writer._write": 40,
    "Writer._acknowledge": 40,
    "RootsFile._write": 6,
    "RootsFile._adopt": 6,
    "Writer._checkpoint": 6,
    "schema.migrate": 1,
}
_PLACES: dict[str, tuple[Any, str]] = {
    "take_ownership": (journal, "take_ownership"),
    "Writer._write_owner": (Writer, "_write_owner"),
    "Writer._write": (Writer, "_write"),
    "Writer._acknowledge": (Writer, "_acknowledge"),
    "RootsFile._write": (SignedRootsFile, "_write"),
    "RootsFile._adopt": (SignedRootsFile, "_adopt"),
    "Writer._checkpoint": (Writer, "_checkpoint"),
    "schema.migrate": (journal, "migrate"),
}


def arm(point: str, visit: int, *, before: bool) -> None:
    """Let this process die at the n-th visit to a function, at its start or at its end."""
    place, name = _PLACES[point]
    original = getattr(place, name)
    visits = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal visits
        visits += 1
        if visits == visit and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if visits == visit:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(place, name, deadly)


def write(directory: Path, seed: int) -> None:
    """The child: append for ever, and say what was acknowledged."""
    rng = random.Random(seed)
    writer.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    store = sqlite_journal(directory)
    store.open()
    heads = {name: store.read_tape(name, after_seq=-1, limit=1).head_seq for name in RUNS}
    print("open", flush=True)  # noqa: T201 - what the parent waits for
    while True:
        acked = {}
        batch = []
        for name in rng.sample(RUNS, rng.randint(1, 5)):
            first, size = heads[name] + 1, rng.randint(1, 3)
            payload = b"x" * rng.choice((10, 300, 9_000))
            events = tuple(row(name, seq, data=payload) for seq in range(first, first + size))
            heads[name] = acked[name] = first + size - 1
            batch.append(Change(rows=events, records=(run(name, heads[name]),)))
        assert store.commit(batch) == [None] * len(batch)
        print(json.dumps(acked), flush=True)  # noqa: T201 - the acknowledgement
        if rng.random() < 0.1:
            store.seal()


def kill_one(directory: Path, rng: random.Random, counts: Counter[str]) -> dict[str, int]:
    """Let one child live and die; return the heads it reported as acknowledged."""
    point = rng.choices(list(POINTS), [len(POINTS) - 1] + [1] * (len(POINTS) - 1))[0]
    command = [sys.executable, "-m", "tests.faults.kill_journal", "--child", str(directory)]
    command += ["--seed", str(rng.randrange(2**32))]
    if point is not None:
        visit = rng.randint(1, POINTS[point])
        command += ["--point", point, "--visit", str(visit)]
        command += ["--before"] if rng.random() < 0.5 else []
    counts[f"killed in {point or 'anything'}"] += 1
    acked: dict[str, int] = {}
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        try:
            if point is None:
                pause_s = FIRST_DELAY_S + rng.random() * DELAY_S
                time.sleep(pause_s)
                child.kill()
            for line in child.stdout:
                acked |= {} if line == "open\n" else json.loads(line)
        finally:
            child.kill()
    return acked


def check(directory: Path, acked: dict[str, int], counts: Counter[str]) -> dict[str, int]:
    """Open what is left and compare; the heads that are there now."""
    store = sqlite_journal(directory)
    start_s = time.perf_counter()
    report = store.open()
    counts["open_ms"] += round((time.perf_counter() - start_s) * 1000)
    counts["unclean"] += not report.was_clean
    counts["torn root"] += len(report.notes)
    heads = {name: store.read_tape(name, after_seq=-1, limit=1).head_seq for name in RUNS}
    counts["lost"] += sum(heads[name] < seq for name, seq in acked.items())
    counts["unacknowledged survived"] += any(heads[name] > acked.get(name, -1) for name in RUNS)
    for name, head_seq in heads.items():
        record = store.find_run(name)
        counts["lost"] += (-1 if record is None else record.head_seq) != head_seq
        seqs = [link.seq for link in read_all(store, name)]
        counts["lost"] += seqs != list(range(head_seq + 1))
    counts["broken"] += store.verify().breaks
    store.close()
    return heads


def read_all(store: journal.SqliteJournal, name: str) -> list[Any]:
    rows: list[Any] = []
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(name, after_seq=after_seq, limit=1_000)
        rows += page.rows
        after_seq = page.next_after_seq
    return rows


def kill_many(kills: int, seed: int) -> Counter[str]:
    """So many lives; sums of what happened."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter(kills=kills, lost=0, broken=0)
    for first in range(0, kills, KILLS_PER_JOURNAL):
        heads: dict[str, int] = {}
        with tempfile.TemporaryDirectory() as name:
            for _ in range(min(KILLS_PER_JOURNAL, kills - first)):
                acked = heads | kill_one(Path(name), rng, counts)
                heads = check(Path(name), acked, counts)
        counts["events"] += sum(head_seq + 1 for head_seq in heads.values())
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description="kill -9 of a writing process.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    parser.add_argument("--visit", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--before", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        if options.point is not None:
            arm(options.point, options.visit, before=options.before)
        write(options.child, options.seed)
    counts = kill_many(options.kills, options.seed)
    print(json.dumps(dict(sorted(counts.items()))))  # noqa: T201 - its result
    return 1 if counts["lost"] or counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
