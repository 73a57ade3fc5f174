"""Raw sockets that break every rule, against one edge, while a well-behaved client keeps talking.

Each attack declares how its own connection may end; anything else is unexpected.  The well-behaved
client must get every answer.  `python -m tests.faults.hostile_sockets --frames 100000` runs them
against an edge in another process and prints the counts as one line of JSON; the exit code is 1
when something unexpected happened.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from tests.faults.attacks import ATTACKS, END, SETTINGS, Attack, Target, TurnedAway
from tests.net.server.edges import running_edge
from tests.net.server.peers import PING, PONG, TEXT, RawPeer, frame

PATIENCE_S = 20.0  # for one attack; the limits of the edge make every end come much sooner
CRASH = "child crashed"  # what the supervisor logs


@dataclass
class Campaign:
    """The counts of a campaign."""

    ends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    unexpected: list[str] = field(default_factory=list)
    answers: int = 0
    slowest_ms: float = 0.0

    async def run(self, target: Target, *, rounds: int) -> None:
        """Run every attack `rounds` times, several at once, next to one well-behaved client.

        Return once that client has an answer to a question that it asked after the last attack.
        """
        good = await target.open()
        async with good.stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._talk, good)
            async with trio.open_nursery() as attackers:
                for name in ATTACKS:
                    attackers.start_soon(self._attack, name, target, rounds)
            await self._wait_answers(self.answers + 2)  # the next may be to a question from before
            nursery.cancel_scope.cancel(reason="all attacks are over")

    async def _wait_answers(self, count: int) -> None:
        while True:
            if self.answers >= count:
                return
            await trio.sleep_until(trio.current_time() + 0.005)

    async def _attack(self, name: str, target: Target, rounds: int) -> None:
        act, allowed = ATTACKS[name]
        for _ in range(rounds):
            end = "no end"
            with trio.move_on_after(PATIENCE_S + target.frames / 1_000):
                end = await self._act(act, target)
            self.ends[name][end] += 1
            if end not in allowed:
                self.unexpected.append(f"{name}: {end}")

    async def _act(self, act: Attack, target: Target) -> str:
        """The attack's end, once there was room for it."""
        while True:
            try:
                return await act(target)
            except TurnedAway:
                await trio.sleep_until(trio.current_time() + 0.05)
            except (EOFError, trio.BrokenResourceError):
                return END

    async def _talk(self, good: RawPeer) -> None:
        """Ask and be answered, without end; answer pings as one should."""
        while True:
            began_s = time.perf_counter()
            text = b"question %d" % self.answers
            await good.send(frame(TEXT, text))
            await self._read_answer(good, text)
            self.answers += 1
            self.slowest_ms = max(self.slowest_ms, 1_000 * (time.perf_counter() - began_s))
            await trio.sleep_until(trio.current_time() + 0.005)

    async def _read_answer(self, good: RawPeer, text: bytes) -> None:
        while True:
            opcode, payload = await good.read_frame()
            if opcode == PING:
                await good.send(frame(PONG, payload))
            else:
                assert (TEXT, text) == (opcode, payload)
                return

    def report(self) -> dict[str, object]:
        return {
            "attacks": {name: dict(ends) for name, ends in sorted(self.ends.items())},
            "unexpected": self.unexpected,
            "answers": self.answers,
            "slowest_answer_ms": round(self.slowest_ms, 1),
        }


async def serve_for_ever() -> None:
    async with running_edge(settings=SETTINGS) as running:
        sys.stdout.write(f"port {running.port}\n")
        sys.stdout.flush()
        await trio.sleep_forever()


def attack_process(frames: int, rounds: int, seed: int) -> Campaign:
    """Run the campaign against an edge in its own process, whose log must show no crash."""
    campaign = Campaign()
    with serving_process() as (process, port, lines):
        target = Target(port, frames, random.Random(seed))
        trio.run(lambda: campaign.run(target, rounds=rounds))
        if process.poll() is not None:
            campaign.unexpected.append("the edge's process ended")
    campaign.unexpected += [line for line in lines if CRASH in line]
    return campaign


@contextmanager
def serving_process() -> Generator[tuple[subprocess.Popen[str], int, list[str]], None, None]:
    """The process, its port, and the lines it prints, complete once it has ended."""
    command = [sys.executable, "-m", "tests.faults.hostile_sockets", "--serve"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = next(int(line[5:]) for line in process.stdout if line.startswith("port "))
        reader = threading.Thread(target=lines.extend, args=(process.stdout,))
        reader.start()
        try:
            yield process, port, lines
        finally:
            process.terminate()
            reader.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000, help="per flood and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        trio.run(serve_for_ever)
    campaign = attack_process(options.frames, options.rounds, options.seed)
    sys.stdout.write(json.dumps(campaign.report()) + "\n")
    return 1 if campaign.unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
