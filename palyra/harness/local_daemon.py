"""Local daemon of the harness: a child process with its own data, restarted when it exits.

Theory: the daemon is tied to the harness by a pipe.  It drains by itself when the harness ends,
even by a kill, so no process is left over.  A harness that starts while such a daemon still drains
finds the data directory in use (exit code TAKEN_EXIT) and tries again until STOPPED_WITHIN_S has
passed.  A daemon that exits is restarted without delay.  The harness stops with an error when more
than MOST_STARTS processes in a row exit, none of which lived for more than STEADY_S.
"""

import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from palyra.client.process import (
    STOPPED_WITHIN_S,
    DaemonProcess,
    start_tied_daemon,
    stop_daemon,
    wait_announced,
)
from palyra.errors import Unavailable
from palyra.net.protocol.discovery import TOKEN_PATH

MOST_STARTS = 10  # in a row, none of which lived for STEADY_S
STEADY_S = 10.0
TAKEN_EXIT = 69  # exit code of a daemon whose data directory is used by another one
LOOK_AGAIN_S = 0.25

# The harness is the only client, and limits its rate to the advertised one: 10,000 requests/s.
QUICK = {"PALYRA_SERVER__REQUESTS_PER_S": "10000"}


class OwnDaemon:
    """Supervisor of the daemon process that serves `home`."""

    def __init__(
        self, home: Path, workspace: Path, config: Path | None, environment: Mapping[str, str]
    ) -> None:
        self.home = home
        self._arguments = ["--workspace", str(workspace)]
        if config is not None:
            self._arguments += ["--config", str(config)]
        self._environment = {**QUICK, **environment}
        self._daemon: DaemonProcess | None = None

    @property
    def token(self) -> str:
        """Operator token of this daemon; $PALYRA_TOKEN is ignored."""
        return (self.home / TOKEN_PATH).read_text(encoding="ascii").strip()

    async def start(self) -> None:
        """Start the daemon and wait until it is ready.

        If the daemon of a killed harness still drains, wait for its end, at most STOPPED_WITHIN_S.
        Raises Unavailable with the end of the daemon's log.
        Cancellation: a process may have been started; `stop` stops it, or it drains by itself.
        """
        until_s = trio.current_time() + STOPPED_WITHIN_S
        while True:
            self._daemon = await start_tied_daemon(
                self.home, *self._arguments, environment=self._environment
            )
            try:
                await wait_announced(self._daemon)
            except Unavailable:
                is_taken = self._daemon.process.returncode == TAKEN_EXIT
                if not is_taken or trio.current_time() > until_s:
                    raise
                await trio.sleep(LOOK_AGAIN_S)
            else:
                return

    async def keep(self) -> None:
        """Restart the daemon whenever it exits.

        Raises Unavailable after more than MOST_STARTS short lives in a row.
        Cancellation: the daemon keeps running.
        """
        starts = 0
        while self._daemon is not None:
            began_s = trio.current_time()
            await self._daemon.process.wait()
            starts = 1 if trio.current_time() - began_s > STEADY_S else starts + 1
            if starts > MOST_STARTS:
                raise Unavailable(f"the daemon exits again and again: see {self._daemon.log}")
            await self.start()

    def hurry(self) -> None:
        """Send SIGTERM to a running daemon, which ends its drain early."""
        if self._daemon is not None and self._daemon.process.returncode is None:
            self._daemon.process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Drain and stop the daemon; unfinished runs resume at its next start."""
        if self._daemon is not None:
            await stop_daemon(self._daemon)


@asynccontextmanager
async def run_own_daemon(
    home: Path, workspace: Path, config: Path | None, environment: Mapping[str, str]
) -> AsyncGenerator[OwnDaemon]:
    """Run a daemon for the length of the block, restarting it when it exits.

    Raises Unavailable if the daemon does not start or exits too often, in the latter case in a
    group.  Cancellation: the daemon is drained and stopped first, shielded.
    """
    daemon = OwnDaemon(home, workspace, config, environment)
    try:
        await daemon.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.keep)
            yield daemon
            nursery.cancel_scope.cancel("the work is done")
    finally:
        with trio.CancelScope(shield=True):
            await daemon.stop()
