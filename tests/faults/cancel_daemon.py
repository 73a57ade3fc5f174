"""Cancels of a real daemon's runs at random instants: `python -m tests.faults.cancel_daemon`.

Clients start runs of every kind and cancel each at a random moment over a socket, while another
client answers prompts.  Every run has one terminal event; the effects of file tools equal the
tape; nothing is left in the daemon, and no process of a program once its cancel is answered.  Prints
sums as JSON, with the 99th percentile of the time from request to reply (which is for
`tests/e2e/test_cancel.py` to judge); the exit code is 1 when a rule was broken.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import wait_alive, wait_tool
from tests.e2e.tapes import calls, check_tape, kinds, read_whole
from tests.faults.effects import Renames
from tests.faults.load import FOLDER, RULES, Ledger, Recipes, answer_prompts
from tests.tools.sandbox.jails import find_alive

CANCELLERS = 8
LIFE_S = 0.06  # how long most runs take without a cancel
PROGRAMS = 0.2  # of the runs start one that only a cancel ends
PROGRAM_LIFE_S = 0.3  # within this its jail, and what it starts in there, have begun
PERMIT_SHELL = """
permit (principal, action, resource == Tool::"shell");
"""
STUBBORN = "setsid sh -c 'trap \"\" TERM; sleep 600; : {0}' & sleep 600; : {0}"


def call_line(tool: str, **arguments: object) -> str:
    """A line that makes the scripted model call a tool."""
    return f"/call {tool} {json.dumps(arguments)}"


class Cancels:
    """One daemon, and the runs that are cancelled."""

    def __init__(self, base: Path, seed: int) -> None:
        self.daemon = DaemonProcess(base)
        policies = self.daemon.home / "policies"
        policies.mkdir(parents=True, mode=0o700)
        (policies / "load.cedar").write_text(RULES + PERMIT_SHELL, "utf-8")
        self.folder = self.daemon.workspace / FOLDER
        self.folder.mkdir()
        self.rng = random.Random(seed)
        self.recipes = Recipes(self.rng)
        self.counts: Counter[str] = Counter()
        self.taken_s: list[float] = []
        self.tapes: list[list[TapeEvent]] = []
        self.left = 0
        self.survivors: list[str] = []

    async def play(self, instants: int) -> None:
        """So many cancels; every tape."""
        self.left = instants
        async with self.daemon.connect() as client:
            await wait_tool(client, "shell")
        async with self.daemon.connect() as client, trio.open_nursery() as nursery:
            nursery.start_soon(answer_prompts, client, Ledger(), self.rng)
            async with trio.open_nursery() as cancellers:
                for _ in range(CANCELLERS):
                    cancellers.start_soon(self.cancel_runs, client)
            nursery.cancel_scope.cancel()
        await self.look_for_leftovers()

    async def cancel_runs(self, client: Client) -> None:
        """One run after the other."""
        while self.left > 0:
            self.left -= 1
            if self.rng.random() < PROGRAMS:
                await self.cancel_program(client)
                continue
            order = self.recipes.order()
            started = await client.start_run(order.text, session_key=order.session_key)
            await trio.sleep(self.rng.random() ** 2 * LIFE_S)
            began_s = trio.current_time()
            cancelled = await client.cancel(started.run_id, "enough")
            self.taken_s.append(trio.current_time() - began_s)
            self.counts[f"ended {cancelled.state}"] += 1
            self.tapes.append(await read_whole(client, started.run_id))

    async def cancel_program(self, client: Client) -> None:
        """Cancel a run whose program starts others and ends only by the cancel."""
        marker = uuid4().hex
        started = await client.start_run(call_line("shell", command=STUBBORN.format(marker)))
        self.counts["programs"] += 1
        if self.counts["programs"] % 2:
            await wait_alive(marker, wanted=True)  # on a slow machine the others may not be yet
        else:
            await trio.sleep(self.rng.random() * PROGRAM_LIFE_S)
        self.counts["programs alive before"] += bool(find_alive(marker))
        began_s = trio.current_time()
        cancelled = await client.cancel(started.run_id, "enough")
        self.taken_s.append(trio.current_time() - began_s)
        if find_alive(marker):
            self.survivors.append(started.run_id)
        self.counts[f"program {cancelled.state}"] += 1
        self.tapes.append(await read_whole(client, started.run_id))

    async def look_for_leftovers(self) -> None:
        """Count prompts and actors that the daemon holds after every run has ended."""
        async with self.daemon.connect() as client:
            self.counts["prompts left"] = len(await client.list_approvals(pending_only=True))
            work = next(
                child for child in (await client.tree())["children"] if child["id"] == "work"
            )
            self.counts["actors left"] = len(work["children"])
            self.counts["open runs left"] = len(
                (await client.list_runs(states=["accepted", "in_progress"], limit=500)).runs
            )

    def find_problems(self, renames: Counter[str]) -> Iterator[str]:
        """Every rule that was broken."""
        for name in ("prompts left", "actors left", "open runs left"):
            if self.counts[name]:
                yield f"{name}: {self.counts[name]}"
        yield from (f"{run_id}: its program outlived the cancel" for run_id in self.survivors)
        for tape in self.tapes:
            try:
                check_tape(tape)
            except AssertionError as broken:
                yield f"{tape[0].run_id}: {broken}"
            yield from self.effect_problems(tape, renames)
        self.counts["p99_ms"] = round(1000 * sorted(self.taken_s)[int(0.99 * len(self.taken_s))])

    def effect_problems(self, tape: list[TapeEvent], renames: Counter[str]) -> Iterator[str]:
        """A file is there if its call succeeded, and not there if it did not start."""
        for call_id, call in calls(tape).items():
            proposed, last = call[0].event, call[-1].event
            assert isinstance(proposed, ev.ToolProposed)
            assert isinstance(last, ev.ToolAttested)
            status = last.attestation["status"]
            self.counts[f"call {status}"] += 1
            if proposed.tool == "write_file":
                times = renames[Path(proposed.arguments["path"]).name]
                least, most = int(status == "succeeded"), int("tool.started" in kinds(call))
                if not least <= times <= most:
                    yield f"{call_id} {status}: its file was written {times} times"


def cancel_many(instants: int, seed: int) -> dict[str, Any]:
    """So many cancels; sums of what happened, and what was wrong."""
    with tempfile.TemporaryDirectory() as name:
        cancels = Cancels(Path(name), seed)
        try:
            with Renames(cancels.folder) as renames:
                cancels.daemon.start()
                trio.run(cancels.play, instants)
                drained = cancels.daemon.stop()
                renames.collect()
                problems = list(cancels.find_problems(renames.counts))
        finally:
            cancels.daemon.end()
    if drained != 0:
        problems.append(f"the daemon ended with {drained}")
    return {**dict(sorted(cancels.counts.items())), "problems": problems}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Cancels of a real daemon's runs.")
    parser.add_argument("--instants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = cancel_many(options.instants, options.seed)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
