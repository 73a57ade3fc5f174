"""Start time of a daemon, and its memory when idle.

Prints one JSON line: the time from process start to the first `hello` on a socket, with warm file
caches (medians of several starts; the port is fixed and the client retries continuously); the time
of the imports alone; resident memory when idle, after a first HTTP request, and after 500 runs.
"""

import contextlib
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path

import trio
from _machine import calibrate

from palyra.client import connect

STARTS = 9
RUNS = 500
BYTECODE = tempfile.TemporaryDirectory(prefix="bytecode-")
UPGRADE = (
    "GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """Return the environment of an installed daemon: its bytecode exists, despite recent edits."""
    kept = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": BYTECODE.name}


@contextlib.contextmanager
def served(folder: str, port: int) -> Generator[subprocess.Popen[bytes]]:
    """Run a daemon in a home of its own."""
    workspace = Path(folder, "workspace")
    workspace.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "palyra", "serve", "--home", str(Path(folder, "home"))]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--workspace", str(workspace)],
        env=environment() | {"PALYRA_SERVER__REQUESTS_PER_S": "100000"},  # no pauses in sending
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


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
        time.sleep(0.002)


def _closed() -> bytes:
    raise ConnectionError("closed before hello")


def rss_mb(process: subprocess.Popen[bytes]) -> float:
    """Return the resident memory of the daemon."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def start_s() -> float:
    """Return the seconds of one start, from the fork to `hello`."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        began = time.perf_counter()
        with served(folder, port):
            wait_hello(port)
            return time.perf_counter() - began


def imports_s() -> float:
    """Return the seconds of an import of the daemon, including the interpreter's start."""
    began = time.perf_counter()
    command = [sys.executable, "-c", "import palyra.cli.main, palyra.process"]
    subprocess.run(command, check=True, env=environment())
    return time.perf_counter() - began


async def do_runs(home: Path) -> None:
    """Execute runs, one after the other."""
    async with connect(home=home, name="bench") as client:
        for _ in range(RUNS):
            started = await client.start_run('/call echo {"text": "x"}')
            await client.wait_run(started.run_id)


def memory() -> dict[str, float]:
    """Measure resident memory at three moments."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with served(folder, port) as process:
            wait_hello(port)
            home = Path(folder, "home")
            while not (home / "daemon.json").exists():
                time.sleep(0.01)
            idle = rss_mb(process)
            trio.run(do_runs, home)
            worked = rss_mb(process)
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").read()
            return {
                "rss_idle_mb": idle,
                "rss_after_runs_mb": worked,
                "rss_after_http_mb": rss_mb(process),
            }


def main() -> None:
    """Measure and print."""
    start_s()  # warm the file caches, write the bytecode
    starts = [start_s() for _ in range(STARTS)]
    imports = [imports_s() for _ in range(STARTS)]
    print(
        json.dumps(
            {
                "bench": "start",
                "to_hello_s": round(statistics.median(starts), 3),
                "imports_s": round(statistics.median(imports), 3),
                **memory(),
                "calibration_ms": calibrate(),
                "python": platform.python_version(),
                "trio": trio.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
