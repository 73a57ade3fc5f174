"""A daemon on a disk that fails once, at every n-th of its operations: a session each time.

`python -m tests.faults.bad_disk_daemon --every 1`.  The daemon is a whole one in this process, its
journal on a simulated disk.  After any failure the session ends in an announced state: the daemon
does not start, or acknowledged runs continue to their ends and other requests were refused as
`unavailable`; afterwards the journal opens whole, with every acknowledged run in it.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from structlog.testing import capture_logs

from palyra.config.load import load
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.session.commands import StartRun
from palyra.core.tape.events import TERMINAL_KINDS
from palyra.daemon import Daemon
from palyra.errors import PalyraError, Unavailable
from palyra.store.files.disk import Disk
from palyra.store.sqlite.journal import SqliteJournal
from tests.faults.power_cuts import read
from tests.faults.simulated_disk import SimulatedDisk
from tests.store.kit import KEYS, Clock, abandon

OPERATOR = Caller(principal="operator", role="operator", token_id="tok_1")
TEXTS = ("/say hello", '/call echo {"text": "x"}', '/call write_file {"path": "a", "content": "b"}')
WITHIN_S = 120.0  # a bound against hanging, not a promise
LOOK_S = 0.002


class Session:
    """One client's session with one daemon, and the promises it received."""

    def __init__(self, home: Path) -> None:
        self.config = load(
            home=home / "home",
            overrides={"tools.workspace": str(home / "workspace")},
        )
        self.acknowledged: list[str] = []
        self.counts: Counter[str] = Counter()

    def journal(self, disk: Disk) -> SqliteJournal:
        path = self.config.paths.data_dir / "journal.sqlite3"
        return SqliteJournal(path, KEYS, now_ms=Clock(), disk=disk)

    async def play(self, disk: Disk) -> None:
        """A daemon's life.  Raises Unavailable when it does not start."""
        daemon = Daemon(
            self.config, keys=KEYS, operator_token="operator-token", store=self.journal(disk)
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            await daemon.wait_ready()
            for text in TEXTS:
                await self.start_one(daemon, text)
            for run_id in self.acknowledged:
                await self.see_to_its_end(daemon, run_id)
            daemon.stop("the session is over")

    async def start_one(self, daemon: Daemon, text: str) -> None:
        """A run is acknowledged, or refused as unavailable."""
        try:
            started = await daemon.gateway.start_run(OPERATOR, StartRun(text=text))
        except Unavailable:
            self.counts["refused"] += 1
        else:
            self.acknowledged.append(started.run_id)

    async def see_to_its_end(self, daemon: Daemon, run_id: str) -> None:
        """Answer what it asks, again if that is refused, until it has ended."""
        gateway, approvals = daemon.gateway, daemon.backend.approvals
        while True:
            view, _ = await gateway.wait_run(
                OPERATOR, run_id, until="attention", timeout_s=WITHIN_S
            )
            if view.is_terminal:
                self.counts[view.state] += 1
                return
            for asked in await approvals.list_seen(
                OPERATOR, run_id=run_id, pending_only=True, limit=9
            ):
                answer = ResolveApproval(
                    approval_id=asked.approval_id, decision="allow", digest=asked.digest
                )
                with suppress(PalyraError):  # refused, or answered already
                    await approvals.resolve(OPERATOR, answer)
            await trio.sleep(LOOK_S)

    def check(self, disk: Disk) -> Iterator[str]:
        """Yield the problems of the remaining journal."""
        store = self.journal(disk)
        report = store.open()
        try:
            if report.verification.first_break is not None or store.verify().breaks:
                yield "the chain is broken"
            if store.list_open_runs():
                yield "open runs"
            for run_id in self.acknowledged:
                kinds = [row.kind for row in read(store, run_id)]
                if [kind for kind in kinds if kind in TERMINAL_KINDS] != kinds[-1:]:
                    yield f"{run_id}: {kinds}"
        finally:
            abandon(store)


def play_with(fail_at: int | None) -> tuple[SimulatedDisk, Counter[str], list[str]]:
    """Play one session on a disk whose operation of that number fails."""
    disk = SimulatedDisk()
    disk.fail_at = fail_at
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name, disk.mount() as mounted:
        for folder in ("home", "workspace"):
            (Path(name) / folder).mkdir(mode=0o700)
        session = Session(Path(name))
        try:
            trio.run(_within, session, mounted)
        except* Unavailable:
            session.counts["not started"] += 1
        except* trio.TooSlowError:
            problems.append("it does not come to its end")
        operations, disk.fail_at = disk.operations, None  # the look is not part of the session
        problems += session.check(mounted)
        disk.operations = operations
    return disk, session.counts, [f"{fail_at}: {problem}" for problem in problems]


async def _within(session: Session, disk: Disk) -> None:
    with trio.fail_after(WITHIN_S):
        await session.play(disk)


def play_all(every: int, seed: int = 0) -> dict[str, Any]:
    """A session for every n-th operation that one without trouble takes."""
    disk, _, problems = play_with(None)
    total: Counter[str] = Counter(operations=disk.operations)
    for fail_at in range(1 + random.Random(seed).randrange(every), disk.operations + 1, every):
        with capture_logs():
            _, counts, found = play_with(fail_at)
        total.update(counts)
        total["sessions"] += 1
        problems += found
    return {**dict(sorted(total.items())), "problems": problems}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="A daemon on a disk that fails once.")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    found = play_all(options.every)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
