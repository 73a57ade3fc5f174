"""MCP servers run as child processes, jailed or not.

A process belongs to one server actor and ends, with its process group, when the link is closed.
Its standard error is read continuously, so that a full pipe cannot block the process, and passed
to the actor, which keeps the tail.
"""

import os
import shutil
import signal
import subprocess  # noqa: S404 - names of pipes
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import trio

from palyra.core.text.visible import visible
from palyra.errors import PalyraError
from palyra.tools.mcp.stdio import LineReader, LineWriter
from palyra.tools.mcp.transport import McpTransport, OpenLink, ServerGone, StdioServer
from palyra.tools.sandbox.child import JailedProcess
from palyra.tools.sandbox.command import Bind, Command, CommandEgress, CommandLimits, SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox

# The shell exits with one of _NOT_RUN for a missing program; the jail does not report it otherwise.
_RUN = ("/bin/sh", "-c", 'exec "$@"', "sh")
_NOT_RUN = (126, 127)  # exit codes of a shell: not executable, not found
_PIECE_BYTES = 65_536
_NOTICE_S = 0.5  # from end of output to process exit, or to the end of stderr
_LEAVE_S = 2.0  # to exit after its input is closed
_PATH = "/usr/local/bin:/usr/bin:/bin"


class ServerEnvironment(NamedTuple):
    """Files, limits and network of a jailed server."""

    workspace: Path | None = None
    writes: bool = False  # whether the workspace is writable
    folders: tuple[Path, ...] = ()  # additional folders, read-only
    limits: CommandLimits = CommandLimits()
    open_egress: Callable[[], CommandEgress] | None = None  # egress proxy; None: no network


def jailed(sandbox: Sandbox, server: StdioServer, surroundings: ServerEnvironment) -> OpenLink:
    """Return a link to the server in the sandbox, with the configured network and folders only."""
    workspace = surroundings.workspace
    command = Command(
        argv=(*_RUN, *server.argv),
        cwd=str(workspace or "/"),
        environment=server.environment,
        workspace=workspace,
        is_writable=surroundings.writes,
        lasts=True,
        binds=tuple(map(Bind, surroundings.folders)),
        limits=replace(surroundings.limits, cpu_s=None),  # it runs as long as the daemon
        takes_input=True,
    )

    @asynccontextmanager
    async def open_link(
        on_end: Callable[[], None], on_error: Callable[[bytes], None]
    ) -> AsyncGenerator[McpTransport]:
        if shutil.which(server.argv[0]) is None:  # the jail contains only host files
            raise _no_program(server)
        network = surroundings.open_egress() if surroundings.open_egress else None
        try:
            async with sandbox.open(replace(command, network=network)) as child:
                if child.stdin is None:
                    raise ServerGone("the jail gave no input")
                async with _telling_the_end(child), _drained(child, on_error):
                    yield _link((child.stdin, child.stdout), on_end, on_error, child.enforcement)
        except SandboxFailure as failure:
            raise ServerGone(failure.message) from None

    return open_link


def unjailed(server: StdioServer) -> OpenLink:
    """Return a link to the server with the rights of the daemon's user; must be configured."""

    @asynccontextmanager
    async def open_link(
        on_end: Callable[[], None], on_error: Callable[[bytes], None]
    ) -> AsyncGenerator[McpTransport]:
        program = shutil.which(server.argv[0], path=_PATH)
        if program is None:
            raise _no_program(server)
        process = await trio.lowlevel.open_process(
            [program, *server.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, "LANG": "C.UTF-8", **server.environment},
            start_new_session=True,
        )
        try:
            if process.stdin is None or process.stdout is None:
                raise ServerGone("the program gave no pipes")
            async with _telling_the_end(process), _drained(process, on_error):
                yield _link((process.stdin, process.stdout), on_end, on_error, "none")
        finally:
            await _end(process)  # noqa: ASYNC102 - shielded inside

    return open_link


@asynccontextmanager
async def _telling_the_end(program: JailedProcess | trio.Process) -> AsyncGenerator[None]:
    """Replace a session failure by the program's exit reason if it exits within _NOTICE_S."""
    try:
        yield
    except (ExceptionGroup, PalyraError):  # the session wraps exceptions in groups
        ending = ""
        with trio.move_on_after(_NOTICE_S, shield=True):
            ending = await _ending(program)  # noqa: ASYNC120 - a canceller needs neither error
        if not ending:  # the program still runs: keep the original error
            raise
        raise ServerGone(ending) from None


@asynccontextmanager
async def _drained(
    program: JailedProcess | trio.Process, on_error: Callable[[bytes], None]
) -> AsyncGenerator[None]:
    """Read standard error while the block runs; after a failure, read the rest for _NOTICE_S."""
    at_end = trio.Event()

    async def drain() -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while program.stderr and (piece := await program.stderr.receive_some(_PIECE_BYTES)):
                said = bytes(piece)
                on_error(
                    program.without_jail_error(said) if isinstance(program, JailedProcess) else said
                )
        at_end.set()

    async with trio.open_nursery() as nursery:  # one per life of the server, in its actor
        nursery.start_soon(drain)
        try:
            yield
        except (ExceptionGroup, PalyraError):
            with trio.move_on_after(_NOTICE_S, shield=True):
                await at_end.wait()
            raise
        nursery.cancel_scope.cancel()


async def _ending(program: JailedProcess | trio.Process) -> str:
    if isinstance(program, JailedProcess):
        return await _ending_in_jail(program)
    code = await program.wait()
    return f"it ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


async def _ending_in_jail(child: JailedProcess) -> str:
    ending = await child.wait()
    if failure := child.find_failure():
        return failure
    if ending.exit_code in _NOT_RUN:
        return (
            f"it could not be run in the jail (exit code {ending.exit_code}): what it needs, an "
            "interpreter too, has to lie in its `folders`"
        )
    how = ending.signal or f"exit code {ending.exit_code}"
    return f"it ended with {how}" + (f", limit: {ending.limit}" if ending.limit else "")


def _no_program(server: StdioServer) -> ServerGone:
    return ServerGone(f"{visible(server.argv[0])}: no such program")


async def _end(process: trio.Process) -> None:
    """Close the pipes, wait up to _LEAVE_S for an exit, then kill the process group (shielded)."""
    with trio.CancelScope(shield=True):
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)
        with trio.move_on_after(_LEAVE_S):
            await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _link(
    pipes: tuple[trio.abc.SendStream, trio.abc.ReceiveStream],
    on_end: Callable[[], None],
    on_error: Callable[[bytes], None],
    enforcement: str,
) -> McpTransport:
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - two seconds, see `__init__`
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - likewise

    def parse(line: bytes) -> Any:  # noqa: ANN401 - a message of the package `mcp`
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))

    def render(message: Any) -> bytes:  # noqa: ANN401 - likewise
        text: str = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        return text.encode()

    stdin, stdout = pipes
    reader = LineReader(stdout, parse, on_end, on_error)
    return McpTransport(reader, LineWriter(stdin, render, on_end), enforcement)
