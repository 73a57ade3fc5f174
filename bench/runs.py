"""Cost of a durable run: two model turns and one tool, Cedar gate and signed attestation.

Prints one JSON line: runs per second at 1, 100 and 1 000 concurrent runs, in process and over the
socket (with clients in a separate process); the duration of a single run; memory of idle open runs;
cost of a run among 10 and among 10 000 open ones; time from cancel to the committed end.  Medians
of several rounds; the model answers at once.
"""

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import trio
from _machine import calibrate

from palyra.client import connect
from palyra.config.load import load
from palyra.core.access import Caller
from palyra.core.session.commands import StartRun
from palyra.daemon import Daemon
from palyra.net.api.tokens import new_token
from palyra.store.files.data_directory import DataDirectory
from palyra.store.journal.keys import KeyRing

TEXT = '/call echo {"text": "hello"}'
WAITING = '/call write_file {"path": "x", "content": "y"}'  # needs an approval
CALLER = Caller(principal="bench", role="operator", token_id="tok_bench")  # noqa: S106 - no secret
ROUNDS = 3
RUNS = {1: 300, 100: 2_000, 1_000: 4_000}
SOCKETS = 20
IDLE_RUNS = 10_000
CANCELS = 300


@asynccontextmanager
async def daemon(
    home: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    **parts: Any,  # noqa: ANN401 - of `Daemon`
) -> AsyncGenerator[Daemon]:
    """Run a daemon without an edge in this process."""
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    usual: dict[str, Any] = {"tools.workspace": str(workspace), "runs.max_open": 30_000}
    config = load(home=home / "home", overrides=usual | dict(settings or {}), environ={})
    with DataDirectory(config.paths.data_dir) as data:
        fresh: dict[str, Any] = {"keys": KeyRing.open(data.keys), "operator_token": new_token()}
        served = Daemon(config, **(fresh | parts))
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run)
            await served.wait_ready()
            try:
                yield served
            finally:
                served.stop("measured")


async def one_run(served: Daemon, text: str = TEXT) -> str:
    """Start a run and wait until its end is committed; return its id."""
    started = await served.gateway.start_run(CALLER, StartRun(text=text))
    run = served.registry.runs.get(started.run_id)
    while run is not None and not run.is_ended:
        await run.wait_change()
    return started.run_id


async def many_runs(perform: Callable[[], Any], concurrency: int, total: int) -> dict[str, float]:
    """Return runs per second and the duration of each, with `concurrency` at a time."""
    took_ms: list[float] = []

    async def worker() -> None:
        for _ in range(total // concurrency):
            began = time.perf_counter()
            await perform()
            took_ms.append((time.perf_counter() - began) * 1e3)

    began, began_cpu = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(worker)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {
        "runs_per_s": len(took_ms) / elapsed,
        "p50_ms": statistics.median(took_ms),
        "cpu_ms_per_run": 1e3 * cpu / len(took_ms),
    }


async def in_process() -> dict[str, Any]:
    """Measure the three concurrencies in rounds."""
    results: dict[str, Any] = {}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for concurrency, total in RUNS.items():
        rounds = [await _one_round(concurrency, total) for _ in range(ROUNDS)]
        results[str(concurrency)] = _medians(rounds)
    return results


async def _one_round(concurrency: int, total: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        async with daemon(Path(home)) as served:
            await many_runs(lambda: one_run(served), 1, 20)
            return await many_runs(lambda: one_run(served), concurrency, total)


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(r[key] for r in rounds), 2) for key in rounds[0]}


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def idle_runs() -> dict[str, float]:
    """Measure memory per run with an open approval, and a run's cost among few and many."""
    with tempfile.TemporaryDirectory() as home:
        async with daemon(Path(home)) as served:
            await many_runs(lambda: one_run(served), 10, 500)
            await open_runs(served, 10)
            beside_few = await many_runs(lambda: one_run(served), 10, 1_000)
            before = rss_bytes()
            await open_runs(served, IDLE_RUNS)
            per_run = (rss_bytes() - before) / IDLE_RUNS
            beside_many = await many_runs(lambda: one_run(served), 10, 1_000)
    return {
        "kb_per_open_run": round(per_run / 1e3, 1),
        "cost_ratio_10_to_10000_open": round(
            beside_few["runs_per_s"] / beside_many["runs_per_s"], 2
        ),
    }


async def open_runs(served: Daemon, count: int) -> None:
    """Start `count` more runs, each waiting for a slow model."""
    async with trio.open_nursery() as nursery:
        limit = trio.CapacityLimiter(500)

        async def start() -> None:
            async with limit:
                await served.gateway.start_run(CALLER, StartRun(text="/delay 600000\n/say x"))

        for _ in range(count):
            nursery.start_soon(start)


async def cancels() -> dict[str, float]:
    """Measure cancellation, from the request to the committed end, with 100 open runs."""
    took_ms: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        async with daemon(Path(home)) as served:
            await open_runs(served, CANCELS)
            for run_id in list(served.registry.runs):
                began = time.perf_counter()
                await served.gateway.cancel_run(CALLER, run_id, "measured")
                took_ms.append((time.perf_counter() - began) * 1e3)
    took_ms.sort()
    return {
        "p50_ms": round(statistics.median(took_ms), 2),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 2),
    }


# --- over the socket -----------------------------------------------------------------------------


def over_socket() -> dict[str, Any]:
    """Measure the three concurrencies over sockets, with daemon and clients in own processes."""
    results: dict[str, Any] = {}
    for concurrency, total in RUNS.items():
        rounds = [_one_socket_round(concurrency, total) for _ in range(ROUNDS)]
        results[str(concurrency)] = _medians(rounds)
    return results


def _one_socket_round(concurrency: int, total: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        Path(folder, "workspace").mkdir()
        environ = os.environ | {"PALYRA_SERVER__REQUESTS_PER_S": "100000"}
        command = [sys.executable, "-m", "palyra", "serve", "--home", str(home), "--port", "0"]
        server = subprocess.Popen(
            [*command, "--workspace", str(Path(folder, "workspace"))],
            env=environ,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            while not (home / "daemon.json").exists():
                time.sleep(0.02)
            done = subprocess.run(
                [sys.executable, __file__, "--client", str(home), str(concurrency), str(total)],
                capture_output=True,
                text=True,
                check=True,
            )
        finally:
            server.terminate()
            server.wait()
    return json.loads(done.stdout)  # type: ignore[no-any-return]  # what `client` printed


async def client(home: Path, concurrency: int, total: int) -> None:
    """Start runs on several connections and print the figures of `many_runs`."""
    async with trio.open_nursery() as nursery:
        clients: list[Any] = []
        leave = trio.Event()

        async def keep() -> None:
            async with connect(home=home, name="bench") as opened:
                clients.append(opened)
                ready.set()
                await leave.wait()

        for _ in range(min(SOCKETS, concurrency)):
            ready = trio.Event()
            nursery.start_soon(keep)
            await ready.wait()
        turn = iter(range(sys.maxsize))

        async def perform() -> None:
            chosen = clients[next(turn) % len(clients)]
            started = await chosen.start_run(TEXT)
            await chosen.wait_run(started.run_id)

        await many_runs(perform, 1, 20)
        print(json.dumps(await many_runs(perform, concurrency, total)))
        leave.set()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", nargs=3)
    parser.add_argument("--only", choices=["in_process", "over_socket", "idle", "cancel"])
    arguments = parser.parse_args()
    if arguments.client:
        home, concurrency, total = arguments.client
        trio.run(client, Path(home), int(concurrency), int(total))
        return
    parts: dict[str, Callable[[], Any]] = {
        "in_process": lambda: trio.run(in_process),
        "over_socket": over_socket,
        "idle": lambda: trio.run(idle_runs),
        "cancel": lambda: trio.run(cancels),
    }
    chosen = [arguments.only] if arguments.only else list(parts)
    results = {name: parts[name]() for name in chosen}
    results["calibration_ms"] = calibrate()
    versions = {"python": platform.python_version(), "trio": trio.__version__}
    print(json.dumps({"bench": "runs", **results, **versions}))


if __name__ == "__main__":
    main()
