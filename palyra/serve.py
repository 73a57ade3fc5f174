"""The daemon as a process: lock, keys, signals, discovery, exit code.

Exit codes: 0 drained and stopped, 69 the data directory or the port is taken, 70 the supervision
tree gave up.  A second SIGTERM or SIGINT cuts the drain short.
"""

import os
import signal
from collections.abc import Callable

import structlog
import trio

from palyra import __version__
from palyra.actors.supervisor import Escalated
from palyra.config import Config
from palyra.daemon import Daemon
from palyra.errors import PalyraError, Unavailable
from palyra.net.discovery import DISCOVERY_NAME, Discovery, write_discovery
from palyra.net.edge import Edge
from palyra.store.datadir import DataDirectory
from palyra.store.keys import KeyRing, read_operator_token

log = structlog.get_logger("palyra.serve")
EX_UNAVAILABLE = 69  # sysexits.h
EX_SOFTWARE = 70

OnReady = Callable[[Discovery], None]


async def serve(config: Config, *, ready: OnReady | None = None) -> int:
    """Serve until a signal says stop; the process's exit code.

    `ready` is called once, when clients are answered and every open run is with its session.
    """
    code = 0
    try:
        with DataDirectory(config.paths.data_dir) as data:
            keys, token = KeyRing.open(data.keys), read_operator_token(data.keys)
            daemon = Daemon(config, keys=keys, operator_token=token)
            await _live(daemon, daemon.build_edge(), ready)
    except* Unavailable as group:
        code = _report(group, EX_UNAVAILABLE)
    except* Escalated as group:
        code = _report(group, EX_SOFTWARE)
    return code


def _report(group: BaseExceptionGroup[PalyraError], code: int) -> int:
    """Say why it ends; the code to end with."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _report(error, code)
        else:
            log.critical("cannot go on", reason=str(error), cause=str(error.__cause__ or ""))
    return code


async def _live(daemon: Daemon, edge: Edge, ready: OnReady | None) -> None:
    home = daemon.config.paths.data_dir
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, daemon, edge)
            nursery.start_soon(_announce, daemon, edge, ready)
            await daemon.run([edge.child_spec()])
            nursery.cancel_scope.cancel("the daemon has stopped")
    finally:
        (home / DISCOVERY_NAME).unlink(missing_ok=True)


async def _announce(daemon: Daemon, edge: Edge, ready: OnReady | None) -> None:
    """Write `daemon.json` once clients are answered and every open run is with its session."""
    await daemon.wait_ready()
    await edge.binding.wait_open()
    url = edge.binding.url
    discovery = Discovery(
        url=url, ws_url=f"{url.replace('http', 'ws', 1)}/v1/ws", pid=os.getpid(),
        instance_id=daemon.instance_id, version=__version__,
    )
    write_discovery(daemon.config.paths.data_dir, discovery)
    if ready is not None:
        ready(discovery)


async def _stop_on_signal(daemon: Daemon, edge: Edge) -> None:
    """The first signal drains, the second stops at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)
        log.info("draining", open_runs=len(daemon.directory.runs))
        edge.stop_accepting()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, daemon, nursery.cancel_scope)
            await anext(signals)
            nursery.cancel_scope.cancel("a second signal")
    daemon.stop("signal")


async def _drain(daemon: Daemon, done: trio.CancelScope) -> None:
    await daemon.drain(daemon.config.runs.drain_ms / 1000)
    done.cancel("drained")
