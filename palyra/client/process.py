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
    """Child process that serves `home`, with its output in `log`."""

    home: Path
    log: Path
    process: trio.Process


async def start_daemon(home: Path, *arguments: str) -> DaemonProcess:
    """Start a daemon, on a free port unless `arguments` name one."""
    log = home.with_name(f"{home.name}.log")
    command = [sys.executable, "-m", "palyra", "serve", "--home", str(home), "--port", "0"]
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C at the terminal reaches the parent only
        )
    return DaemonProcess(home, log, process)


async def start_tied_daemon(
    home: Path, *arguments: str, environment: Mapping[str, str]
) -> DaemonProcess:
    """Start a daemon that drains when this process ends, even by a kill; see `start_daemon`.

    The log is appended to.  `environment` is added to this process's own.
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
    # Standard input stays open as long as this process lives; the daemon drains at its end.
    introduction = {"client": {"name": "palyra-parent", "version": __version__}, "want": []}
    assert process.stdin is not None  # noqa: S101 - asked for above
    with contextlib.suppress(trio.BrokenResourceError):  # then `wait_announced` reports the reason
        await process.stdin.send_all(f"{render_request(1, 'connect', introduction)}\n".encode())
    return DaemonProcess(home, log, process)


async def wait_announced(daemon: DaemonProcess) -> Discovery:
    """Wait until the daemon is ready.  Raises Unavailable with the end of its log otherwise."""
    with trio.move_on_after(READY_WITHIN_S):
        while daemon.process.poll() is None:
            found = find_discovery(daemon.home)
            if found is not None and found.pid == daemon.process.pid:
                return found
            await trio.sleep(LOOK_EVERY_S)
    said = daemon.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARS:]
    raise Unavailable(f"the daemon did not become ready (exit {daemon.process.poll()}):\n{said}")


async def stop_daemon(daemon: DaemonProcess) -> int:
    """Stop a daemon by SIGTERM, or SIGKILL if it does not drain in time; return the exit code.

    Cancellation: the daemon is stopped nevertheless.
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
