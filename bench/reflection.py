"""Learning beside work: runs that are read a second while others end at a steady rate.

    python bench/reflection.py [--rate 10] [--seconds 30] [--sessions 30]

A real daemon with learning on takes runs of two messages' length and three calls from one client, `--rate`
a second, whatever it answers.  Prints one JSON line: runs that ended, how many of them were read by
then and how many wait, how long the rest took, and the latencies of starting a run, with learning
and, in the same call, without.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from palyra.client import Client
from tests.e2e.daemon_process import DaemonProcess, running

TEXT = """\
/call echo {{"text": "module {0}"}}
/then
/call echo {{"text": "test {0}"}}
/then
/call echo {{"text": "commit {0}"}}
/then
/say done
Please fix module {0}; we always build with pnpm. The staging host of team {0} is stage{0}.internal.
"""
DRAIN_S = 300.0


async def measure(
    daemon: DaemonProcess, rate: float, seconds: float, sessions: int
) -> dict[str, float]:
    """Return the figures of one daemon."""
    waits: list[float] = []
    ended = 0

    async def one(client: Client, number: int) -> None:
        nonlocal ended
        began = trio.current_time()
        run = await client.start_run(TEXT.format(number), session_key=f"s{number % sessions}")
        await client.wait_run(run.run_id)
        waits.append(trio.current_time() - began)
        ended += 1

    async with daemon.connect() as client:
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for number in range(round(rate * seconds)):
                nursery.start_soon(one, client, number)
                await trio.sleep(max(0.0, began + (number + 1) / rate - trio.current_time()))
        took_s = trio.current_time() - began
        waiting = await count_open(client)
        with trio.move_on_after(DRAIN_S):
            while await count_open(client):  # noqa: ASYNC110 - of another process
                await trio.sleep(0.5)
        drained_s = trio.current_time() - began - took_s
    return {
        "runs": ended,
        "runs_per_s": round(ended / took_s, 1),
        "waiting": waiting,
        "drained_s": round(drained_s, 1),
        "run_ms_p50": round(1_000 * statistics.median(waits), 1),
        "run_ms_p99": round(1_000 * statistics.quantiles(waits, n=100)[-1], 1),
    }


async def count_open(client: Client) -> int:
    """Return the number of reflections that have not ended."""
    return (await client.count_tasks()).own


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=30)
    options = parser.parse_args()
    results = {}
    for mode in ("off", "auto"):
        with (
            tempfile.TemporaryDirectory() as folder,
            running(Path(folder), PALYRA_LEARNING__MODE=mode) as daemon,
        ):
            results[mode] = trio.run(
                measure, daemon, options.rate, options.seconds, options.sessions
            )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
