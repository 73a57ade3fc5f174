"""Recovery time of a daemon after a kill, with a small journal and with one of a million events.

Prints one JSON line.  In each case a daemon is killed (SIGKILL) with 100 open runs and started
again.  Measured, as medians of several starts: the time from the fork to the first `hello` on a
socket, to `ready` (announced by `daemon.json`), and to the first and the last resumed step on the
tapes.  Also the wake-up delays of the event loop of a recovering daemon in this process.  The
journal of a million events is created once and stored under `.scratch/`.
"""

import contextlib
import gc
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path

import trio
import uuid_utils

from palyra.client import Client, connect
from palyra.config.load import load
from palyra.core.journal.changes import Change
from palyra.core.journal.records import RunRecord, SessionRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.daemon import Daemon
from palyra.net.api.tokens import new_token
from palyra.store.journal.keys import KeyRing, read_operator_token
from palyra.store.sqlite.journal import SqliteJournal

EVENTS = 1_000_000
EVENTS_PER_RUN = 25
RUNS_PER_SESSION = 20
RUNS_PER_SEAL = 41  # 1 025 events, as many as the daemon signs with one root
OPEN_RUNS = 100
STARTS = 3
TICK_S = 0.0005
LOOK_S = 0.002
KEPT = Path(".scratch", "recovery").absolute()
PAYLOAD = b'{"text":"' + b"x" * 289 + b'"}'
UPGRADE = (
    "GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

# --- the large journal ---------------------------------------------------------------------------


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def old_home(events: int) -> Path:
    """Return a home whose runs have all ended; the first call creates it."""
    home = KEPT / f"home-{events}-{EVENTS_PER_RUN}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            fill(Path(folder), events)
            Path(folder).chmod(0o700)
            shutil.copytree(folder, home)
    return home


def fill(home: Path, events: int) -> None:
    """Write `events` events of ended runs, as a daemon does."""
    keys = KeyRing.open(home / "keys")
    read_operator_token(home / "keys", new_token)
    store = SqliteJournal(home / "journal.sqlite3", keys, now_ms=now_ms, synchronous="normal")
    store.open()
    runs = events // EVENTS_PER_RUN
    session_id = ""
    for first in range(0, runs, RUNS_PER_SEAL):
        batch = []
        for number in range(first, min(first + RUNS_PER_SEAL, runs)):
            if number % RUNS_PER_SESSION == 0:
                session_id = f"ses_{uuid_utils.uuid7()}"
                batch.append(Change(records=(old_session(session_id),)))
            batch.append(old_run(f"run_{uuid_utils.uuid7()}", session_id))
        assert not any(store.commit(batch))
        store.seal()
    store.close()


def old_session(session_id: str) -> SessionRecord:
    return SessionRecord(
        session_id=session_id,
        principal="operator",
        key=None,
        created_ms=now_ms(),
        updated_ms=now_ms(),
    )


def old_run(run_id: str, session_id: str) -> Change:
    """Return the records of an ended run of average length."""
    record = RunRecord(
        run_id=run_id,
        session_id=session_id,
        state="done",
        principal="operator",
        agent="default",
        model="scripted",
        created_ms=now_ms(),
        head_seq=EVENTS_PER_RUN - 1,
    )
    rows = tuple(
        TapeRow(
            run_id,
            session_id,
            seq,
            now_ms(),
            "turn.completed",
            "operator",
            redacted=False,
            data=PAYLOAD,
        )
        for seq in range(EVENTS_PER_RUN)
    )
    return Change(rows=rows, records=(record,))


# --- a daemon that is killed and started again ---------------------------------------------------


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def killed_at_end(home: Path, port: int) -> Generator[None]:
    """Run a daemon inside the block, then kill it with SIGKILL."""
    workspace = home.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "palyra", "serve", "--home", str(home)]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--workspace", str(workspace)],
        env=os.environ | {"PALYRA_SERVER__REQUESTS_PER_S": "100000"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
        (home / "daemon.json").unlink(missing_ok=True)


def wait_hello(port: int) -> None:
    """Wait until the first frame after the upgrade is `hello`."""
    while True:
        with contextlib.suppress(ConnectionError), socket.socket() as client:
            client.connect(("127.0.0.1", port))
            client.sendall(UPGRADE.format(port=port).encode())
            seen = b""
            while b'"method":"hello"' not in seen:
                seen += client.recv(4096) or _closed()
            return
        time.sleep(LOOK_S)


def _closed() -> bytes:
    raise ConnectionError("closed before hello")


def wait_ready(home: Path) -> None:
    """Wait until the daemon has written `daemon.json`."""
    while not (home / "daemon.json").exists():
        time.sleep(LOOK_S)


async def open_runs(home: Path) -> list[str]:
    """Start runs that wait for their model until the daemon is killed; return their ids."""
    async with connect(home=home, name="bench") as client:
        started = [await client.start_run("/delay 3600000\n/say late") for _ in range(OPEN_RUNS)]
        for run in started:
            await wait_kind(client, run.run_id, "turn.started")
    return [run.run_id for run in started]


async def read_resumed(home: Path, run_ids: list[str]) -> list[int]:
    """Return the times at which the runs were resumed, in Unix milliseconds."""
    async with connect(home=home, name="bench") as client:
        return sorted([await wait_kind(client, run_id, "run.recovered") for run_id in run_ids])


async def wait_kind(client: Client, run_id: str, kind: str) -> int:
    """Wait for an event of a kind on the tape; return the time of the last one."""
    while True:
        page = await client.read_tape(run_id)
        found = [item.at_ms for item in page.events if item.kind == kind]
        if found:
            return found[-1]
        await trio.sleep(LOOK_S)


def start_once(home: Path, run_ids: list[str]) -> dict[str, float]:
    """Measure one start after a kill, in milliseconds since the fork."""
    port = free_port()
    began_ms, began_s = time.time() * 1000, time.perf_counter()
    with killed_at_end(home, port):
        wait_hello(port)
        hello_s = time.perf_counter() - began_s
        wait_ready(home)
        ready_s = time.perf_counter() - began_s
        resumed_ms = trio.run(read_resumed, home, run_ids)
    return {
        "to_hello_ms": 1000 * hello_s,
        "to_ready_ms": 1000 * ready_s,
        "to_first_resumed_ms": resumed_ms[0] - began_ms,
        "to_last_resumed_ms": resumed_ms[-1] - began_ms,
    }


# --- the event loop during recovery --------------------------------------------------------------


async def measure_lag(home: Path) -> dict[str, float]:
    """Measure the wake-up delays of the loop from the tree's start to 1 s after `ready`."""
    config = load(home=home, overrides={"tools.workspace": str(home.parent / "workspace")})
    keys = KeyRing.open(home / "keys")
    daemon = Daemon(config, keys=keys, operator_token=read_operator_token(home / "keys", new_token))
    lags_s: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick, lags_s)
        await nursery.start(daemon.run)
        await daemon.wait_ready()
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    lags_s.sort()
    return {
        "loop_lag_p50_ms": 1000 * lags_s[len(lags_s) // 2],
        "loop_lag_p99_ms": 1000 * lags_s[int(len(lags_s) * 0.99)],
        "loop_lag_most_ms": 1000 * lags_s[-1],
    }


async def tick(lags_s: list[float]) -> None:
    while True:
        due_s = time.perf_counter() + TICK_S
        await trio.sleep(TICK_S)
        lags_s.append(time.perf_counter() - due_s)


# --- the whole -----------------------------------------------------------------------------------


def measure(source: Path | None) -> dict[str, float]:
    """Return all figures of one case; `source` is the initial home, None for an empty one."""
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        home = Path(folder, "home")
        if source is not None:
            shutil.copytree(source, home)
        with killed_at_end(home, free_port()):
            wait_ready(home)
            run_ids = trio.run(open_runs, home)
        # New runs each time: a round uses two of the three attempts after which a run would fail.
        starts = []
        for _ in range(STARTS):
            starts.append(start_once(home, run_ids))
            with killed_at_end(home, free_port()):
                wait_ready(home)
                run_ids = trio.run(partial(replace_runs, home, run_ids))
        gc.collect()
        lag = trio.run(measure_lag, home)
    medians = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
    return {name: round(number, 1) for name, number in {**medians, **lag}.items()}


async def replace_runs(home: Path, run_ids: list[str]) -> list[str]:
    """End the open runs and open others."""
    async with connect(home=home, name="bench") as client:
        for run_id in run_ids:
            await client.cancel(run_id)
    return await open_runs(home)


def main() -> None:
    """Measure and print."""
    KEPT.mkdir(parents=True, exist_ok=True)
    small, large = measure(None), measure(old_home(EVENTS))
    print(
        json.dumps(
            {
                "bench": "recovery",
                "open_runs": OPEN_RUNS,
                "small": small,
                "large_events": EVENTS,
                "large": large,
                "python": platform.python_version(),
                "trio": trio.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
