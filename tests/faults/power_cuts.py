"""Power cuts at any write, sync or truncate, by the thousand: `python -m tests.faults.power_cuts`.

Each seed is one story: a journal is written to until the power goes, opened again (sometimes the
power goes in the middle of that, too), and compared with what was acknowledged.  Prints what
happened as JSON; the exit code is 1 when anything acknowledged was lost, torn or out of order.
`--synchronous normal` is the negative control: there, losses must show.
"""

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from palyra.core.journal.changes import Change
from palyra.core.journal.tape_row import TapeRow
from palyra.errors import Unavailable
from palyra.store.files.disk import Disk
from palyra.store.sqlite import writer
from palyra.store.sqlite.connection import Synchronous
from palyra.store.sqlite.journal import SqliteJournal
from tests.faults.simulated_disk import Operation, SimulatedDisk
from tests.store.kit import abandon, row, run, sqlite_journal

RUNS = tuple(f"run_{name}" for name in "abcde")
# When the power goes: at the n-th operation of that kind, None for any.  A fresh journal needs
# about 70 to open, a commit about 7 writes and one sync.
CUTS: tuple[tuple[Operation | None, int], ...] = (
    (None, 700),
    (None, 100),
    ("sync", 60),
    ("truncate", 6),
    ("delete", 3),
)
CUT_WEIGHTS = (50, 10, 30, 5, 5)
CHECKPOINT_PAGES = 12  # instead of thousands, so that checkpoints are cut as well
Tapes = dict[str, list[TapeRow]]


class Lost(Exception):
    """Raised if an acknowledged write is missing."""


@dataclass
class Story:
    """One seed: the acknowledged writes, and those in progress when the power went."""

    rng: random.Random
    synchronous: Synchronous
    acked: Tapes = field(default_factory=lambda: {name: [] for name in RUNS})
    under_way: list[Change] = field(default_factory=list)
    doing: str = "open"
    notes: Counter[str] = field(default_factory=Counter)

    def journal(self, directory: Path, disk: Disk) -> SqliteJournal:
        return sqlite_journal(directory, disk=disk, synchronous=self.synchronous)

    def live(self, directory: Path, disk: SimulatedDisk) -> None:
        """Write until the power goes."""
        with disk.mount() as mounted:
            store = self.journal(directory, mounted)
            try:
                self.doing = "open"
                store.open()
                while True:
                    self.step(store)
            except Unavailable:
                if disk.is_on:
                    raise
            finally:
                abandon(store)

    def step(self, store: SqliteJournal) -> None:
        """One thing a daemon does with its journal."""
        self.doing = self.rng.choices(("commit", "seal", "reopen"), (80, 15, 5))[0]
        match self.doing:
            case "commit":
                self.commit(store)
            case "seal":
                store.seal()
            case _:
                store.close()
                store.open()

    def commit(self, store: SqliteJournal) -> None:
        self.under_way = self.draw_batch()
        if store.commit(self.under_way) != [None] * len(self.under_way):
            raise Lost("a sound batch was refused")
        for change in self.under_way:
            self.acked[change.rows[0].run_id] += change.rows
        self.under_way = []
        self.notes["acknowledged"] += 1

    def draw_batch(self) -> list[Change]:
        """Changes of several runs, each with the record that goes with it."""
        heads = {name: len(tape) for name, tape in self.acked.items()}
        batch = []
        for _ in range(self.rng.randint(1, 6)):
            name, size = self.rng.choice(RUNS), self.rng.randint(1, 4)
            payload = b'"%b"' % (b"x" * self.rng.choice((10, 300, 9_000)))
            first, heads[name] = heads[name], heads[name] + size
            events = tuple(row(name, seq, data=payload) for seq in range(first, first + size))
            batch.append(Change(rows=events, records=(run(name, first + size - 1),)))
        return batch

    def recover(self, directory: Path, disk: SimulatedDisk) -> None:
        """Open after the cut, perhaps cut again meanwhile, and check what is there."""
        while True:
            disk = disk.survive(self.rng)
            if self.rng.random() < 0.3:
                disk.cut_at = (None, self.rng.randint(1, 30))
            with disk.mount() as mounted, suppress(Unavailable):
                store = self.journal(directory, mounted)
                try:
                    self.check(store, disk)
                finally:
                    abandon(store)
                return
            if disk.is_on:
                raise Lost("the journal does not open")
            self.notes["cut again"] += 1

    def check(self, store: SqliteJournal, disk: SimulatedDisk) -> None:
        report = store.open()
        disk.cut_at = None
        self.notes["torn root"] += len(report.notes)
        if report.verification.first_break is not None:
            raise Lost("the chain is broken")
        found = {name: read(store, name) for name in RUNS}
        if found == self.with_under_way() != self.acked:
            self.acked = found
            self.notes["unacknowledged survived"] += 1
        if found != self.acked:
            raise Lost("a tape is not what was acknowledged")
        for name, tape in found.items():
            record = store.find_run(name)
            if (-1 if record is None else record.head_seq) != len(tape) - 1:
                raise Lost("a record does not belong to its tape")
        self.commit(store)
        if store.verify().breaks:
            raise Lost("the journal does not verify")

    def with_under_way(self) -> Tapes:
        """Return the tapes with all writes in progress; these are there entirely or not at all."""
        tapes = {name: list(tape) for name, tape in self.acked.items()}
        for change in self.under_way:
            tapes[change.rows[0].run_id] += change.rows
        return tapes


def read(store: SqliteJournal, run_id: str) -> list[TapeRow]:
    """The whole tape."""
    found: list[TapeRow] = []
    after_seq: int | None = -1
    while after_seq is not None:
        page = store.read_tape(run_id, after_seq=after_seq, limit=1_000)
        found += page.rows
        after_seq = page.next_after_seq
    return found


@contextmanager
def early_checkpoints() -> Generator[None, None, None]:
    before, writer.CHECKPOINT_PAGES = writer.CHECKPOINT_PAGES, CHECKPOINT_PAGES
    try:
        yield
    finally:
        writer.CHECKPOINT_PAGES = before


def tell(seed: int, synchronous: Synchronous, directory: Path) -> Counter[str]:
    """One story; counts what happened, "lost" among it."""
    rng = random.Random(seed)
    story = Story(rng, synchronous)
    disk = SimulatedDisk()
    kind, last = rng.choices(CUTS, CUT_WEIGHTS)[0]
    disk.cut_at = (kind, rng.randint(1, last))
    try:
        story.live(directory, disk)
        story.notes[f"cut in {story.doing}"] += 1
        story.notes[f"cut during {disk.cut_during}"] += 1
        story.recover(directory, disk)
    except Lost as loss:
        story.notes["lost"] += 1
        story.notes[f"lost: {loss}"] += 1
    return story.notes


def tell_many(seeds: range, synchronous: Synchronous) -> Counter[str]:
    """All stories; sums of what happened."""
    total: Counter[str] = Counter(lost=0, stories=len(seeds))
    with tempfile.TemporaryDirectory() as directory, early_checkpoints():
        for seed in seeds:
            total += tell(seed, synchronous, Path(directory))
    return total


def tell_in_parallel(seeds: range, synchronous: Synchronous, workers: int) -> Counter[str]:
    """The same, shared among that many processes."""
    shares = [seeds[first::workers] for first in range(workers)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        counts = pool.starmap(tell_many, [(share, synchronous) for share in shares])
    total: Counter[str] = Counter(lost=0)
    for share in counts:
        total.update(share)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Power cuts on a simulated disk.")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    start_s = time.perf_counter()
    seeds = range(options.first, options.first + options.seeds)
    counts = tell_in_parallel(seeds, options.synchronous, options.workers)
    elapsed_s = time.perf_counter() - start_s
    print(json.dumps({**dict(sorted(counts.items())), "seconds": round(elapsed_s, 1)}))  # noqa: T201 - its result
    return 1 if counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
