"""A daemon as a child process: started, found, stopped by its pid."""

import signal
import subprocess  # noqa: S404 - for the names of its constants
import sys
from dataclasses import dataclass
from pathlib import Path

import trio

from palyra.errors import Unavailable
from palyra.net.discovery import Discovery, find_discovery

LOOK_EVERY_S = 0.02  # a start takes half a second
READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 20.0  # twice the daemon's own grace
KILLED_WITHIN_S = 5.0
LOG_TAIL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class DaemonProcess:
    """A child that serves `home` and writes what it says to `log`."""

    home: Path
    log: Path
    process: trio.Process


async def start_daemon(home: Path, *arguments: str) -> DaemonProcess:
    """A daemon that begins to serve; its port is a free one unless `arguments` say otherwise."""
    log = home.with_name(f"{home.name}.log")
    command = [sys.executable, "-m", "palyra", "serve", "--home", str(home), "--port", "0"]
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent alone
        )
    return DaemonProcess(home, log, process)


async def wait_announced(daemon: DaemonProcess) -> Discovery:
    """Where it listens, once it is ready.  Raises Unavailable with its last words otherwise."""
    with trio.move_on_after(READY_WITHIN_S):
        while daemon.process.poll() is None:
            found = find_discovery(daemon.home)
            if found is not None and found.pid == daemon.process.pid:
                return found
            await trio.sleep(LOOK_EVERY_S)
    said = daemon.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARS:]
    raise Unavailable(f"the daemon did not become ready (exit {daemon.process.poll()}):\n{said}")


async def stop_daemon(daemon: DaemonProcess) -> int:
    """Its exit code, after SIGTERM, or SIGKILL for one that does not drain in time.

    Cancellation: it is stopped all the same.
    """
    with trio.CancelScope(shield=True):
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(STOPPED_WITHIN_S) as draining:
            await daemon.process.wait()
        if draining.cancelled_caught:
            daemon.process.kill()
        await daemon.process.wait()
    return daemon.process.returncode or 0
