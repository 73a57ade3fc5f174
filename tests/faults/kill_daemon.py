"""kill -9 of a daemon at work, again and again: `python -m tests.faults.kill_daemon --kills N`.

A real daemon serves clients that start, follow, answer and cancel runs of every kind; it is killed
at random, sometimes while it is starting, and started again on the same home.  In the end all runs
are brought to theirs, and everything that clients were promised is compared with what is there.
Prints what happened as JSON; the exit code is 1 when a promise was broken.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from palyra.client import Client, TapeEvent, reconnecting
from palyra.core.backoff import Backoff
from palyra.core.tape import events as ev
from tests.e2e.people import make_token
from tests.e2e.tapes import calls, check_tape, kinds, read_whole
from tests.faults.crash_points import POINTS, CrashAt
from tests.faults.effects import Renames
from tests.faults.load import FOLDER, RULES, Ledger, Recipes, answer_prompts, start_runs
from tests.faults.mortal_daemon import MortalDaemon

CLIENTS, STARTERS = 3, 8  # connections, and runs of each at once
EVENTS_A_LIFE = 400  # at most, before the next kill
STARTING_S = 0.8  # how long a start takes, about
WITHIN_S = 300.0  # for one life, and for the end: a bound against hanging, not a promise
CRASH_WITHIN_S, LOOK_S = 2.0, 0.005  # to come to the point of a crash, and between two looks
QUICK = Backoff(base_s=0.02, cap_s=0.2)  # clients come back at once: a kill costs little time
Tapes = dict[str, list[TapeEvent]]


class Storm:
    """One home, and what is done to its daemons."""

    def __init__(self, base: Path, seed: int, points: Sequence[str] = ()) -> None:
        self.points = (
            points  # where daemons kill themselves; anywhere from outside if there are none
        )
        self.daemon = MortalDaemon(
            base,
            PALYRA_RUNS__MAX_OPEN="1000",
            PALYRA_LOGGING__LEVEL="warning",
        )
        policies = self.daemon.home / "policies"
        policies.mkdir(parents=True, mode=0o700)
        (policies / "load.cedar").write_text(RULES, encoding="utf-8")
        self.folder = self.daemon.workspace / FOLDER
        self.folder.mkdir()
        self.rng = random.Random(seed)
        self.recipes = Recipes(self.rng)
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.ready_ms: list[int] = []
        self.crash: CrashAt | None = None  # of the daemon that runs
        self.is_last = False  # the next daemon is to live

    async def rage(self, kills: int) -> Tapes:
        """So many lives under load, then one to the end; every tape."""
        await self.start()
        async with trio.open_nursery() as answerers:
            await answerers.start(self.answer)
            await self.kill_under_load(kills)
            tapes = await self.read_all()
            answerers.cancel_scope.cancel()
        return tapes

    async def kill_under_load(self, kills: int) -> None:
        """Kill that many daemons; return when every starter has seen its last run end."""
        async with trio.open_nursery() as starters:
            for _ in range(CLIENTS):
                await starters.start(self.use)
            for left in reversed(range(kills)):
                self.is_last = left == 0
                with trio.fail_after(WITHIN_S):
                    await self.kill_one()
            self.ledger.is_over = True
            starters.cancel_scope.deadline = trio.current_time() + WITHIN_S
        assert not starters.cancel_scope.cancelled_caught, "runs that do not end"

    async def start(self) -> None:
        """Start the daemon; how long it took to be ready counts."""
        began_s = trio.current_time()
        while True:
            self.daemon.crash = crash = self.choose_crash()
            try:
                await trio.to_thread.run_sync(self.daemon.start)
                break
            except AssertionError:
                if crash is None or self.daemon.process is not None:
                    raise
                self.counts["kills"] += 1
                self.counts[f"at: {crash.point}"] += 1
        self.crash = crash
        self.ready_ms.append(round(1000 * (trio.current_time() - began_s)))

    def choose_crash(self) -> CrashAt | None:
        """Choose the point at which the next daemon kills itself."""
        if not self.points or self.is_last or not self.ledger.started:
            return None
        point = self.rng.choice(self.points)
        return CrashAt(point, self.rng.randint(1, POINTS[point].most))

    async def use(self, *, task_status: trio.TaskStatus[None]) -> None:
        """One connection with several starters."""
        async with self.daemon.follow() as client, trio.open_nursery() as nursery:
            task_status.started()
            for _ in range(STARTERS):
                nursery.start_soon(start_runs, client, self.ledger, self.recipes, self.rng)

    async def answer(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Answer prompts with a token that may only answer."""
        async with self.daemon.follow() as operator:
            token = await make_token(operator, "approver")
        async with self.daemon.follow(token) as approver:
            task_status.started()
            await answer_prompts(approver, self.ledger, self.rng)

    async def kill_one(self) -> None:
        """Let the daemon work for a while, kill it, start the next one."""
        if self.crash is not None:
            await self.await_crash(self.crash)
            await self.start()
            return
        await self.ledger.wait_events(self.rng.randint(1, EVENTS_A_LIFE))
        await trio.sleep(self.rng.random() / 50)
        await trio.to_thread.run_sync(self.daemon.kill)
        self.counts["kills"] += 1
        while self.rng.random() < 0.2:
            await trio.to_thread.run_sync(self.daemon.launch)
            await trio.sleep(self.rng.random() * STARTING_S)
            await trio.to_thread.run_sync(self.daemon.kill)
            self.counts["kills_while_starting"] += 1
        await self.start()

    async def await_crash(self, crash: CrashAt) -> None:
        """Let the daemon work until it kills itself, or too long."""
        with trio.move_on_after(CRASH_WITHIN_S):
            while self.daemon.is_alive():  # noqa: ASYNC110 - a process tells nobody
                await trio.sleep(LOOK_S)
        point = "nowhere, so from outside"
        if not self.daemon.is_alive():
            point = crash.point
        await trio.to_thread.run_sync(self.daemon.kill)
        self.counts["kills"] += 1
        self.counts[f"at: {point}"] += 1

    async def read_all(self) -> Tapes:
        """The tape of every run that was acknowledged, once it has ended."""
        tapes: Tapes = {}
        with trio.fail_after(WITHIN_S):
            async with self.daemon.connect() as client:
                for run_id in self.ledger.started:
                    await client.wait_run(run_id)
                    tapes[run_id] = await read_whole(client, run_id)
                await self.check_promises(client)
        return tapes

    async def check_promises(self, client: Client) -> None:
        """Receipts are still good, nothing was made twice, the chain holds."""
        for order, started in self.rng.sample(list(self.ledger.started.values()), 20):
            assert started == await client.start_run(
                order.text, session_key=order.session_key, idempotency_key=order.key
            ), f"another receipt for {order.key}"
        assert set(self.ledger.started) == await _all_runs(client)
        report = await client.verify_tape()
        self.counts["broken_links"] = report.breaks
        self.counts["chained_events"] = report.checked_events


async def _all_runs(client: Client) -> set[str]:
    """The ids of all runs the daemon knows."""
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = await client.list_runs(limit=500, cursor=cursor)
        found |= {run.run_id for run in page.runs}
        cursor = page.next_cursor
        if cursor is None:
            return found


# --- what must hold ------------------------------------------------------------------------------


def find_problems(storm: Storm, tapes: Tapes, renames: Counter[str]) -> Iterator[str]:
    """Every promise that was broken."""
    for run_id, tape in tapes.items():
        try:
            check_tape(tape)
            _check_recovery(tape)
            assert storm.ledger.seen.get(run_id, tape) == tape, "the follower saw something else"
        except AssertionError as broken:
            yield f"{run_id}: {broken}"
        yield from _effect_problems(storm, tape, renames)
    yield from _prompt_problems(storm.ledger, tapes)
    yield from _session_problems(tapes)
    if storm.counts["broken_links"]:
        yield "the chain is broken"


def _check_recovery(tape: Sequence[TapeEvent]) -> None:
    """Unknown outcomes only of effects; given up only after three attempts without progress."""
    for call in calls(tape).values():
        last = call[-1].event
        assert isinstance(last, ev.ToolAttested)
        if last.attestation["status"] == "unknown":
            assert "write_file" == last.attestation["tool"]
    end = tape[-1].event
    if isinstance(end, ev.RunFailed):
        assert "recovery_exhausted" == end.failure_class, end
        assert [3] == [
            item.event.attempt for item in tape if isinstance(item.event, ev.RunRecovered)
        ][-1:]


def _effect_problems(
    storm: Storm, tape: Sequence[TapeEvent], renames: Counter[str]
) -> Iterator[str]:
    """A file came into its place once if its call succeeded, never if it did not start."""
    for call_id, call in calls(tape).items():
        proposed, last = call[0].event, call[-1].event
        assert isinstance(proposed, ev.ToolProposed)
        assert isinstance(last, ev.ToolAttested)
        if proposed.tool != "write_file":
            continue
        status = last.attestation["status"]
        storm.counts[f"write_{status}"] += 1
        times = renames[Path(proposed.arguments["path"]).name]
        least = 1 if status == "succeeded" else 0
        most = 1 if "tool.started" in kinds(call) else 0
        if not least <= times <= most:
            yield f"{call_id} {status}: its file was written {times} times"


def _prompt_problems(ledger: Ledger, tapes: Tapes) -> Iterator[str]:
    """Check that each prompt is on its tape once, as first shown, with the answer reported."""
    for approval_id, prompt in ledger.prompts.items():
        asked = [
            item.event
            for item in tapes[prompt.run_id]
            if isinstance(item.event, ev.ApprovalRequested | ev.ApprovalResolved)
            and item.event.approval_id == approval_id
        ]
        told = ledger.told.get(approval_id)
        match asked:
            case [ev.ApprovalRequested() as question, ev.ApprovalResolved() as answer]:
                if (question.digest, question.expires_ms) != (prompt.digest, prompt.expires_ms):
                    yield f"{approval_id}: asked again as something else"
                if told is not None and told.decision != answer.decision:
                    yield f"{approval_id}: told {told.decision}, recorded {answer.decision}"
            case _:
                yield f"{approval_id}: {asked}"


def _session_problems(tapes: Tapes) -> Iterator[str]:
    """Runs of one session never overlap."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for tape in tapes.values():
        first = [item for item in tape if item.kind == "run.started"]
        if first:
            span = (first[0].at_ms, tape[-1].at_ms)
            spans.setdefault(tape[0].session_id, []).append(span)
    for session_id, found in spans.items():
        if any(early[1] > late[0] for early, late in pairwise(sorted(found))):
            yield f"{session_id}: two runs at once"


# --- the whole -----------------------------------------------------------------------------------


def kill_many(kills: int, seed: int, points: Sequence[str] = ()) -> dict[str, Any]:
    """So many kills, from outside or at these points; sums of what happened, and what was wrong."""
    with tempfile.TemporaryDirectory() as name, patch.object(reconnecting, "BACKOFF", QUICK):
        storm = Storm(Path(name), seed, points)
        try:
            with Renames(storm.folder) as renames:
                tapes = trio.run(storm.rage, kills)
                drained = storm.daemon.stop()
                renames.collect()
                problems = list(find_problems(storm, tapes, renames.counts))
        finally:
            storm.daemon.end()
    if drained != 0:
        problems.append(f"the last daemon ended with {drained}")
    return {**_sum_up(storm, tapes), "problems": problems}


def _sum_up(storm: Storm, tapes: Tapes) -> dict[str, Any]:
    """Return the counts of the storm."""
    counts, ledger = storm.counts, storm.ledger
    for tape in tapes.values():
        counts[f"ended_{tape[-1].kind}"] += 1
        counts["events"] += len(tape)
        counts["recoveries"] += kinds(tape).count("run.recovered")
    counts["runs"] = len(ledger.started)
    counts["followed"] = len(ledger.seen)
    counts["prompts"] = len(ledger.prompts)
    counts["prompts_kept_to_the_end"] = len(ledger.postponed)
    counts["seen_and_undone"] = ledger.dropped
    counts["ready_ms_median"] = sorted(storm.ready_ms)[len(storm.ready_ms) // 2]
    counts["ready_ms_most"] = max(storm.ready_ms)
    return dict(sorted(counts.items()))


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="kill -9 of a daemon at work.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", action="store_true", help="at named points, by its own hand")
    parser.add_argument("--at", action="append", choices=POINTS, help="at this point; repeatable")
    options = parser.parse_args()
    points = options.at or (list(POINTS) if options.points else ())
    found = kill_many(options.kills, options.seed, points)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
