"""Cost of a delegated run over a plain one, in one daemon and one process of measurement.

Prints medians in milliseconds of three kinds of run that alternate: one with a call of `echo`, one that
delegates a task whose run calls `echo`, and one that delegates four such tasks at once; and the
ratio of each to the first.  A delegation has one model turn and one tape more than its child alone,
so about 2 is expected of the second kind.

python bench/delegation.py [ROUNDS]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import msgspec
import trio

from palyra.client import connect
from palyra.net.protocol.discovery import Discovery

ROUNDS = 50
PLAIN = '/call echo {"text": "x"}'
DELEGATED = f"/call delegate {json.dumps({'task': PLAIN})}"
KINDS = {"plain": PLAIN, "one child": DELEGATED, "four children": "\n".join([DELEGATED] * 4)}


async def measure(daemon: Discovery, token: str, rounds: int) -> dict[str, float]:
    """Return the median of each kind, in milliseconds."""
    took: dict[str, list[float]] = defaultdict(list)
    async with connect(daemon.ws_url, token=token) as client:
        for kind, text in [*KINDS.items()] * rounds:
            started = time.perf_counter()
            run = await client.start_run(text)
            ended = await client.wait_run(run.run_id)
            took[kind].append((time.perf_counter() - started) * 1_000)
            if ended.state != "done":
                sys.exit(f"{kind}: {ended.state}, {ended.reason}")
    return {kind: median(times) for kind, times in took.items()}


def main() -> None:
    """Start a daemon with a home of its own, measure, and stop it."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "workspace"
        workspace.mkdir()
        command = [
            sys.executable,
            "-m",
            "palyra",
            "serve",
            "--home",
            str(home),
            "--port",
            "0",
            "--workspace",
            str(workspace),
        ]
        environment = {**os.environ, "PALYRA_SERVER__REQUESTS_PER_S": "100000"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            try:
                daemon = msgspec.json.decode(process.stdout.readline(), type=Discovery)  # type: ignore[union-attr]  # a pipe
                token = (home / "keys" / "operator.token").read_text(encoding="ascii").strip()
                found = trio.run(measure, daemon, token, rounds)
            finally:
                process.terminate()
    for kind, median_ms in found.items():
        print(f"{kind}: {median_ms:.1f} ms, {median_ms / found['plain']:.2f} x")


if __name__ == "__main__":
    main()
