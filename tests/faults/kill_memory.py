"""kill -9 of a daemon whose memory and sessions change: `python -m tests.faults.kill_memory --kills N`.

One client adds, edits, imports, pins, forgets and purges items, talks in sessions, pins messages,
compacts, marks, restores and forks, and lets a document be synced; each request is repeated until it
is answered.  Meanwhile the daemon is killed at named points, while it starts, or anywhere.  After
each kill the file that it left is read, and after each start the daemon's answers are compared with
what was acknowledged.  Prints what happened as JSON; the exit code is 1 when something was not so.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from palyra.client import reconnecting
from tests.faults.crash_points import MEMORY_POINTS, POINTS, CrashAt
from tests.faults.kill_daemon import QUICK
from tests.faults.memory_deeds import GUEST, LOOK_S, Broken, Deeds
from tests.faults.mortal_daemon import MortalDaemon
from tests.store.orphans import find_orphans_in_copy

WITHIN_S = 300.0  # for one life: a bound against hanging, not a promise
DEEDS_A_LIFE, IN_A_DEED_S = 12, 0.05  # before a kill
STARTING_S = 0.6
SAMPLE = 12  # words of each sort that one look asks for
COMMITS = ("before a commit", "committed, nobody told", "one pending commit settled")


class Storm(Deeds):
    """One home, its daemons, and what is done to them."""

    def __init__(self, base: Path, seed: int, points: tuple[str, ...]) -> None:
        self.daemon = MortalDaemon(
            base,
            PALYRA_RUNS__HISTORY_TOKENS="300",
            PALYRA_DOCUMENTS__WRITE="true",
            PALYRA_LOGGING__LEVEL="warning",
        )
        super().__init__(self.daemon.workspace, random.Random(seed))
        self.points = points
        self.is_over = False
        self.crash: CrashAt | None = None  # of the daemon that runs
        self._turn = trio.Lock()  # of a deed, or of a look at everything

    async def rage(self, kills: int) -> None:
        """Kill that many daemons, more until an item was forgotten, then look once more."""
        await self.start(None)
        async with self.daemon.follow() as self._client, trio.open_nursery() as nursery:
            nursery.start_soon(self.work)
            while self.counts["kills"] < kills or not self.expected.gone:
                with trio.fail_after(WITHIN_S):
                    await self.kill_one()
                    await self.look()
            self.is_over = True
            with trio.fail_after(WITHIN_S):
                await self.look(is_whole=True)

    # --- kills

    async def kill_one(self) -> None:
        """Wait for the daemon's own end, or kill it; look at the file; start the next one."""
        due = self.counts["deeds"] + self.rng.randint(1, DEEDS_A_LIFE)
        while self.daemon.is_alive() and self.counts["deeds"] < due:  # noqa: ASYNC110 - two events
            await trio.sleep(LOOK_S)
        await trio.sleep(self.rng.random() * IN_A_DEED_S)
        is_own = self.crash is not None and not self.daemon.is_alive()
        self.counts[f"at: {self.crash.point}" if is_own and self.crash else "from outside"] += 1
        await trio.to_thread.run_sync(self.daemon.kill)
        self.counts["kills"] += 1
        while self.rng.random() < 0.15:
            await trio.to_thread.run_sync(self.daemon.launch)
            await trio.sleep(self.rng.random() * STARTING_S)
            await trio.to_thread.run_sync(self.daemon.kill)
            self.counts["kills while starting"] += 1
        self.check_file()
        point = self.rng.choice(self.points)
        places = POINTS | MEMORY_POINTS
        most = min(places[point].most, 8)
        await self.start(CrashAt(point, self.rng.randint(1, most)))

    def check_file(self) -> None:
        """Read the file as the kill has left it."""
        left = find_orphans_in_copy(self.daemon.home / "journal.sqlite3")
        if left:
            raise Broken(f"the file has {left}")

    async def start(self, crash: CrashAt | None) -> None:
        """Start a daemon, again if it died before it was ready."""
        while True:
            self.daemon.crash = self.crash = crash
            try:
                await trio.to_thread.run_sync(self.daemon.start)
            except AssertionError:
                if crash is None or self.daemon.process is not None:
                    raise
                self.counts["kills"] += 1
                self.counts[f"at: {crash.point}"] += 1
                crash = None
            else:
                return

    async def work(self) -> None:
        """Do one thing after the other."""
        deeds = (
            *[self.add] * 3, self.take_in, self.edit, self.hold, *[self.forget] * 3, self.purge,
            *[self.say] * 4, self.pin, *[self.compact] * 2, *[self.mark] * 2, *[self.restore] * 2,
            self.fork, self.write_down,
        )  # fmt: skip
        while True:
            async with self._turn:
                if self.is_over:
                    return
                await self.rng.choice(deeds)()
                self.counts["deeds"] += 1
            await trio.lowlevel.checkpoint()

    # --- looks

    async def look(self, *, is_whole: bool = False) -> None:
        """Compare the daemon's answers with what was acknowledged."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.revive)
            async with self._turn:
                await self.insist(lambda: self.check_items(is_whole=is_whole))
                await self.insist(self.check_sessions)
                report = await self.insist(self.client.verify_tape)
                if report.breaks:
                    raise Broken(f"the chain has {report.breaks} breaks")
            nursery.cancel_scope.cancel()
        self.counts["looks"] += 1

    async def revive(self) -> None:
        """Start a daemon that has killed itself during a look, this time to live."""
        while True:
            if not self.daemon.is_alive():
                self.counts["kills"] += 1
                self.counts[f"at: {self.crash.point}" if self.crash else "by itself"] += 1
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self.daemon.kill)
                    self.check_file()
                    await self.start(None)
            await trio.sleep(LOOK_S)

    async def check_items(self, *, is_whole: bool) -> None:
        """Rows, text index and answers by id agree."""
        expected, client = self.expected, self.client
        listed = await self._list(None)
        if listed != expected.kept:
            raise Broken(f"items: {sorted(listed.items() ^ expected.kept.items())}")
        if (guests := (await self._list(GUEST)).keys()) != expected.guests:
            raise Broken(f"items of the guest: {sorted(guests ^ expected.guests)}")
        for word in self._sample(sorted(expected.kept), is_whole=is_whole):
            memory_id = expected.kept[word]
            hits = (await client.search_memories(f"what is {word}?", limit=1)).hits
            if [hit.memory_id for hit in hits] != [memory_id]:
                raise Broken(f"{word} is {memory_id}, and a search finds {hits}")
            if word not in (await client.get_memory(memory_id)).text:
                raise Broken(f"{memory_id} is not {word}")
        for word in self._sample(expected.gone, is_whole=is_whole):
            hits = (await client.search_memories(word, limit=50)).hits
            if any(word in hit.text.split() for hit in hits):
                raise Broken(f"{word} was forgotten, and a search finds it")

    def _sample(self, words: list[str], *, is_whole: bool) -> list[str]:
        return words if is_whole else self.rng.sample(words, min(SAMPLE, len(words)))

    async def _list(self, principal: str | None) -> dict[str, str]:
        found: dict[str, str] = {}
        cursor: str | None = None
        while True:
            page = await self.client.list_memories(limit=500, cursor=cursor, principal=principal)
            for item in page.items:
                word = item.text.split()[0]
                if word in found:
                    raise Broken(f"{word} is there twice")
                found[word] = item.memory_id
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def check_sessions(self) -> None:
        """Every run is there once, every mark is listed once."""
        runs = set[str]()
        cursor: str | None = None
        while True:
            page = await self.client.list_runs(limit=500, cursor=cursor)
            runs |= {run.run_id for run in page.runs}
            cursor = page.next_cursor
            if cursor is None:
                break
        if runs != self.expected.runs:
            raise Broken(f"runs: {sorted(runs ^ self.expected.runs)}")
        if self.expected.marks:
            mark = self.rng.choice(sorted(self.expected.marks))
            session_id, _ = self.expected.marks[mark]
            listed = (await self.client.session_checkpoints(session_id, limit=500)).checkpoints
            if [each.checkpoint_id for each in listed].count(mark) != 1:
                raise Broken(f"{mark} is not listed once")


def kill_many(kills: int, seed: int, points: tuple[str, ...] = ()) -> dict[str, Any]:
    """Kill so many daemons, at these points or at all; return what happened, and what was wrong."""
    every = points or (*COMMITS, *MEMORY_POINTS)
    problem = ""
    with tempfile.TemporaryDirectory() as name, patch.object(reconnecting, "BACKOFF", QUICK):
        storm = Storm(Path(name), seed, every)
        try:
            trio.run(storm.rage, kills)
            if (code := storm.daemon.stop()) != 0:
                problem = f"the last daemon ended with {code}"
        except* Broken as group:
            problem = repr(group.exceptions)
        finally:
            storm.daemon.end()
    expected = storm.expected
    sizes = {"items": len(expected.kept), "gone": len(expected.gone), "runs": len(expected.runs)}
    return {**sizes, **dict(sorted(storm.counts.items())), "problem": problem}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="kill -9 of a daemon whose memory changes.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", action="append", choices=MEMORY_POINTS, help="repeatable")
    options = parser.parse_args()
    found = kill_many(options.kills, options.seed, tuple(options.at or ()))
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problem"] else 0


if __name__ == "__main__":
    sys.exit(main())
