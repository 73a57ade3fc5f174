"""A real daemon in a process of its own: started, announced, stopped, killed, restarted."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import msgspec
import trio

from palyra.client import Client, connect
from palyra.net.protocol.discovery import DISCOVERY_NAME, Discovery
from tests.e2e.wire import reach_all
from tests.forked import ForkedProcess, Setting, reading_pipe

STOPPED_WITHIN_S = 30.0  # three times the drain's own grace
SAID_CHARS = 4_000
ANY_RATE = "100000"  # requests a second: a test that asks until an answer comes has no limit
PALYRA = (sys.executable, "-m", "palyra")  # an interpreter of its own


class DaemonProcess:
    """One home, and the processes that serve it one after another.

    `environment` has settings as PALYRA_SECTION__KEY; they are the defaults, but for the rate.
    All methods but the async ones block: a start takes some hundred milliseconds.
    """

    def __init__(self, base: Path, **environment: str) -> None:
        self.home = base / "home"
        self.workspace = base / "workspace"
        self.log = base / "daemon.log"
        self.environment = {"PALYRA_SERVER__REQUESTS_PER_S": ANY_RATE, **environment}
        self.process: ForkedProcess | None = None
        self.discovery: Discovery | None = None
        self.workspace.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self.process is not None
        return self.process.pid

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._announced.url.rpartition(":")[2])

    @property
    def ws_url(self) -> str:
        """Where it speaks the protocol."""
        return self._announced.ws_url

    @property
    def token(self) -> str:
        """The operator's."""
        return (self.home / "keys" / "operator.token").read_text(encoding="ascii").strip()

    @property
    def announcement(self) -> Path:
        """The file that exists while the daemon is ready."""
        return self.home / DISCOVERY_NAME

    @property
    def said(self) -> str:
        """Its log, of all its lives."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    @property
    def _announced(self) -> Discovery:
        assert self.discovery is not None, "not started"
        return self.discovery

    def arguments(self) -> list[str]:
        """The arguments of `palyra`."""
        serve = ["serve", "--home", str(self.home), "--port", "0"]
        return [*serve, "--workspace", str(self.workspace)]

    def launch(self) -> None:
        """Start a process without waiting until it is ready."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        kept = {key: text for key, text in os.environ.items() if not key.startswith("PALYRA_")}
        with (
            Path(os.devnull).open("rb") as nothing,
            self.log.open("ab") as log,
            reading_pipe() as (output, write),
        ):
            streams = (nothing.fileno(), write, log.fileno())
            self.process = self._begin({**kept, **self.environment}, streams)
            self.process.stdout = output

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        """Start the process, in a session of its own."""
        return ForkedProcess(self.arguments(), Setting(environment, streams))

    def start(self) -> Discovery:
        """Return when it has announced itself on standard output."""
        self.launch()
        assert self.process is not None
        output = self.process.stdout
        assert output is not None
        line = output.readline()
        assert line, f"the daemon ended with {self.wait()}:\n{self.said[-SAID_CHARS:]}"
        self.discovery = msgspec.json.decode(line, type=Discovery)
        return self.discovery

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        process, self.process = self.process, None
        with process:  # closes its standard output
            return process.wait(STOPPED_WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to that process and no other."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """Drain it; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        assert -signal.SIGKILL == self.wait()

    def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self.process is not None:
            self.kill()

    async def restart(self) -> Discovery:
        """Kill it, start another on the same home."""
        await trio.to_thread.run_sync(self.kill)
        return await trio.to_thread.run_sync(self.start)

    async def ended(self) -> int:
        """Wait for the exit code without blocking other tasks."""
        with trio.fail_after(STOPPED_WITHIN_S):
            return await trio.to_thread.run_sync(self.wait)

    def connect(self, token: str | None = None) -> AbstractAsyncContextManager[Client]:
        """A client of the present process."""
        return connect(self.ws_url, token=token or self.token)

    def follow(self, token: str | None = None) -> AbstractAsyncContextManager[Client]:
        """A client that finds the next process, too."""
        return connect(home=self.home, token=token or self.token)

    async def reach(self, run_id: str, kind: str, *, after_seq: int = -1) -> int:
        """Wait until an event of that kind after `after_seq` is committed; its seq."""
        found = await reach_all(self.port, self.token, [run_id], kind, after_seq=after_seq)
        return int(found[run_id]["seq"])


@contextmanager
def running(base: Path, **environment: str) -> Generator[DaemonProcess]:
    """A daemon for the length of the block, killed at its end unless it has ended."""
    daemon = DaemonProcess(base, **environment)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.end()
