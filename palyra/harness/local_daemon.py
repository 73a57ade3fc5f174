"""A daemon of the harness's own: started on its own data, started again when it dies.

It drains by itself when the harness ends, however that ends, so nothing is left running.
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

MOST_STARTS = 10  # in a row of which none lived for STEADY_S
STEADY_S = 10.0
TAKEN_EXIT = 69  # another daemon, which still drains, owns the data
LOOK_AGAIN_S = 0.25

# One client, which paces itself by what the daemon allows: no need to hold it back.
QUICK = {"PALYRA_SERVER__REQUESTS_PER_S": "10000"}


class OwnDaemon:
    """The process that serves `home` at the moment."""

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
        """The operator's, whatever $PALYRA_TOKEN says."""
        return (self.home / TOKEN_PATH).read_text(encoding="ascii").strip()

    async def start(self) -> None:
        """Return when it is ready.  Raises Unavailable with its last words.

        One left by a harness that was killed may still drain: that is waited for.
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
        """Start it again whenever it has ended.  Raises Unavailable when it does not stay."""
        starts = 0
        while self._daemon is not None:
            began_s = trio.current_time()
            await self._daemon.process.wait()
            starts = 1 if trio.current_time() - began_s > STEADY_S else starts + 1
            if starts > MOST_STARTS:
                raise Unavailable(f"the daemon does not stay: see {self._daemon.log}")
            await self.start()

    def hurry(self) -> None:
        """Cut a drain short."""
        if self._daemon is not None and self._daemon.process.returncode is None:
            self._daemon.process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Drain it; what has not ended goes on when it is started again."""
        if self._daemon is not None:
            await stop_daemon(self._daemon)


@asynccontextmanager
async def run_own_daemon(
    home: Path, workspace: Path, config: Path | None, environment: Mapping[str, str]
) -> AsyncGenerator[OwnDaemon]:
    """A daemon that is there for the length of the block."""
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
