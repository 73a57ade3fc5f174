"""A daemon as a child process: started, found, stopped by its pid."""

import contextlib
import os
import signal
import subprocess  # noqa: S404 - for the names of its constants
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from palyra import __version__
from palyra.client.frames import render_request
from palyra.errors import Unavailable
from palyra.net.protocol.discovery import Discovery, find_discovery

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


async def start_tied_daemon(
    home: Path, *arguments: str, environment: Mapping[str, str]
) -> DaemonProcess:
    """A daemon that drains by itself when this process ends, however it ends; see `start_daemon`.

    Its log is kept over several starts.  `environment` is added to this process's own.
    """
    log = home.with_name(f"{home.name}.log")
    command = [sys.executable, "-m", "palyra", "serve", "--stdio", "--home", str(home)]
    with log.open("ab") as output:
        process = await trio.lowlevel.open_process(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    # Standard input stays open as long as this process lives: its end is what the daemon heeds.
    introduction = {"client": {"name": "palyra-parent", "version": __version__}, "want": []}
    assert process.stdin is not None  # noqa: S101 - asked for above
    with contextlib.suppress(trio.BrokenResourceError):  # then `wait_announced` says why
        await process.stdin.send_all(f"{render_request(1, 'connect', introduction)}\n".encode())
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
