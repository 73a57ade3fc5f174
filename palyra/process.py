"""The daemon as a process: lock, keys, log, signals, discovery, exit code.

Exit codes:

- 0: drained and stopped
- 69: the data directory or the port is in use
- 70: the supervision tree failed or did not start
- 75: the disk is full

The first SIGTERM or SIGINT starts a drain; a second one stops the daemon at once.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import trio

from palyra import __version__, logs
from palyra.actors.kernel import native_memory
from palyra.actors.kernel.awake_clock import AwakeClock
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.supervisor import Escalated
from palyra.config.load import Config
from palyra.core.access import Caller
from palyra.core.redaction.redactor import Redactor
from palyra.daemon import Daemon
from palyra.errors import ActorGone, DiskFull, PalyraError, Unavailable
from palyra.net.api.tokens import new_token
from palyra.net.protocol.discovery import DISCOVERY_NAME, Discovery, write_discovery
from palyra.net.server import stdio
from palyra.net.server.accept import EdgeServer
from palyra.net.server.transport import Peer
from palyra.store.backup.way_back import find_way_back, is_damage
from palyra.store.files.data_directory import DataDirectory
from palyra.store.files.free_space import NO_ROOM, cannot_write, find_room, is_want_of_room
from palyra.store.journal.keys import KeyRing, read_operator_token

log = logs.get_logger("palyra.serve")
EX_UNAVAILABLE = 69  # sysexits.h
EX_SOFTWARE = 70
EX_TEMPFAIL = 75

MakeLink = Callable[[], str]  # that logs the operator in to the console, once
OnReady = Callable[[Discovery, MakeLink], None]
OnFailure = Callable[[PalyraError], None]


def make_clock() -> trio.abc.Clock:
    """Return the clock of the daemon's event loop."""
    return AwakeClock()


def log_end(error: PalyraError) -> None:
    """Log the error that ends the process."""
    log.critical("cannot continue", reason=str(error), cause=str(error.__cause__ or ""))


async def serve(
    config: Config,
    *,
    ready: OnReady | None = None,
    is_stdio: bool = False,
    holds_log: bool = False,
    report: OnFailure = log_end,
) -> int:
    """Serve until a signal stops the daemon; return the exit code of the process.

    `ready` is called once, when the daemon serves clients and every open run is adopted by its
    session.  With `is_stdio` the parent process is a client too, over standard input and output,
    with the operator's rights; the daemon drains when the parent closes its end.  With `holds_log`
    the log of a quick start is written after `ready`.  `report` is
    called with each error that ends the daemon: it writes the log for a service manager, or a
    sentence for a person.
    """
    code = 0
    native_memory.limit_arenas()
    logs.setup(config.logging, Redactor([]))
    try:
        with logs.held() if holds_log else nullcontext(), _saying_full(config.paths.data_dir):
            await _serve(config, ready, is_stdio=is_stdio)
    except* (Unavailable, Escalated, ActorGone) as group:  # ActorGone: the start needs the actor
        code = _report(group, config.paths.data_dir, report)
    return code


@contextmanager
def _saying_full(data_dir: Path) -> Generator[None]:
    """Convert any error of a full disk during the start to DiskFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise cannot_write(error.filename or data_dir, error) from error


async def _serve(config: Config, ready: OnReady | None, *, is_stdio: bool) -> None:
    with DataDirectory(config.paths.data_dir) as data:
        keys, token = KeyRing.open(data.keys), read_operator_token(data.keys, new_token)
        daemon = Daemon(config, keys=keys, operator_token=token)
        # The daemon adds its secrets to this redactor.
        logs.setup(config.logging, daemon.redactor, keep=daemon.log_history.add)
        daemon.abandon = _abandon
        edge = daemon.build_edge()
        daemon.on_drain_asked = partial(_end, daemon, edge)
        await edge.binding.prepare()
        parent = [_parent_spec(daemon, edge)] if is_stdio else []
        await _live(daemon, edge, ready, parent)


def _parent_spec(daemon: Daemon, edge: EdgeServer) -> ChildSpec:
    """Return the spec of the connection to the parent process."""
    parent = Caller(principal="operator", role="operator", token_id=stdio.NAME)
    transport = stdio.take_stdio(max_message_bytes=daemon.config.server.max_message_bytes)
    peer = Peer(stdio.NAME, caller=parent)
    return stdio.child_spec(transport, daemon.serve_transport, peer, partial(_end, daemon, edge))


def _end(daemon: Daemon, edge: EdgeServer) -> None:
    """Stop accepting connections and start the drain."""
    log.info("draining", open_runs=len(daemon.registry.runs))
    edge.stop_accepting()
    daemon.begin_drain()


def _report(group: BaseExceptionGroup[PalyraError], data_dir: Path, report: OnFailure) -> int:
    """Report the errors that end the process; return the exit code."""
    codes = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            codes.append(_report(error, data_dir, report))
        elif is_want_of_room(error):
            codes.append(EX_TEMPFAIL)  # the highest code wins: only this one may be retried
            report(_with_room(error, data_dir))
        else:
            codes.append(EX_UNAVAILABLE if isinstance(error, Unavailable) else EX_SOFTWARE)
            report(_with_way_back(error, data_dir) if is_damage(error, data_dir) else error)
    return max(codes)


def _with_way_back(error: PalyraError, data_dir: Path) -> PalyraError:
    """Return the error with the newest good backup of the data directory.  Blocks."""
    backup = find_way_back(data_dir)
    place = "there is no good backup" if backup is None else f"the newest good backup is {backup}"
    told = Unavailable(
        f"{error.message}; {place}; `palyra doctor --home {data_dir}` lists the damage and the "
        "command that restores"
    )
    told.__cause__ = error.__cause__
    return told


def _with_room(error: PalyraError, data_dir: Path) -> DiskFull:
    """Return the error with the free space of the data directory."""
    room = find_room(data_dir)
    free = f"; free: {room.free_bytes} bytes, {room.free_files} files" if room else ""
    named = "" if str(data_dir) in error.message else f" (data directory {data_dir})"
    full = DiskFull(f"{error.message}{named}{free}")
    full.__cause__ = error.__cause__
    return full


def _abandon(stuck: Sequence[str]) -> None:
    """Exit the process at once: a task shields itself from cancellation and would block the exit."""
    log.critical("abandoning actors that do not stop", stuck=list(stuck))
    sys.stderr.flush()
    os._exit(EX_SOFTWARE)


async def _live(
    daemon: Daemon, edge: EdgeServer, ready: OnReady | None, parent: Sequence[ChildSpec]
) -> None:
    """Run the tree with the children of a process after the edge: announcement, signals, drain."""
    discovery = daemon.config.paths.data_dir / DISCOVERY_NAME
    try:
        await daemon.run(
            [
                edge.child_spec(),
                *parent,
                daemon.loop_lag.child_spec(),
                native_memory.child_spec(
                    lambda: not daemon.registry.runs, daemon.host.run_blocking
                ),
                ChildSpec("signals", partial(_obey_signals, daemon, edge)),
                ChildSpec("drain", partial(_drain, daemon)),
                # Last, because a reader of the announcement may send a signal at once.
                ChildSpec("announce", partial(_announce, daemon, edge, ready), "transient"),
            ]
        )
    finally:
        discovery.unlink(missing_ok=True)


async def _announce(
    daemon: Daemon, edge: EdgeServer, ready: OnReady | None, *, task_status: trio.TaskStatus[None]
) -> None:
    """Write `daemon.json` once the daemon serves clients and sessions have adopted every open run."""
    task_status.started()
    await daemon.wait_ready()
    url = edge.binding.url
    discovery = Discovery(
        url=url,
        ws_url=f"{url.replace('http', 'ws', 1)}/v1/ws",
        pid=os.getpid(),
        instance_id=daemon.instance_id,
        version=__version__,
    )
    data_dir = daemon.config.paths.data_dir
    with _naming(data_dir / DISCOVERY_NAME):
        write_discovery(data_dir, discovery)
    if ready is not None:
        with _naming("standard output"):
            ready(discovery, daemon.make_console_link)
    logs.release()


@contextmanager
def _naming(path: Path | str) -> Generator[None]:
    """Convert a failed write to an error that names the file."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


async def _obey_signals(
    daemon: Daemon, edge: EdgeServer, *, task_status: trio.TaskStatus[None]
) -> None:
    """Drain on the first signal; stop at once on the second."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            if daemon.state == "draining":
                daemon.stop("a second signal")
            else:
                _end(daemon, edge)


async def _drain(daemon: Daemon, *, task_status: trio.TaskStatus[None]) -> None:
    """Wait for a drain to start and complete, then stop the tree."""
    task_status.started()
    await daemon.wait_drained()
    daemon.stop("drained")
    await trio.sleep_forever()
