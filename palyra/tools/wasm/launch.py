"""Start of a WASM worker: interpreter, visible files, environment and limits.

A worker has read-only access to the interpreter, its standard library and three packages.  It has
no access to configuration, data or workspaces.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import trio

from palyra.errors import Unavailable
from palyra.tools.sandbox.command import Bind, Command, CommandLimits, SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.wasm.limits import MIB, WORKER_ADDRESS_SPACE

_SYSTEM = Path("/usr")  # visible in every jail
PACKAGES = ("palyra", "msgspec", "wasmtime")
# Runs isolated (no user packages, environment or current directory) with the package folders added.
_START = (
    "import sys; sys.path[1:1] = sys.argv[1:]; from palyra.tools.wasm.worker import main; main()"
)


class WorkerProcess(Protocol):
    """A running worker process."""

    @property
    def stdin(self) -> trio.abc.SendStream | None: ...
    @property
    def stdout(self) -> trio.abc.ReceiveStream: ...
    async def wait(self) -> object:
        """Wait until the process has ended."""


class Launch(Protocol):
    """Starts one worker; leaving the block ends the process.  Raises Unavailable."""

    def __call__(self) -> AbstractAsyncContextManager[WorkerProcess]: ...


def package_folders() -> tuple[Path, ...]:
    """Return the folders of the worker's packages.  Raises Unavailable if one is missing."""
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise Unavailable(f"{name} is not installed: pip install 'palyra[wasm]'")
        found.append(Path(spec.submodule_search_locations[0]).resolve())
    return tuple(found)


def worker_argv() -> tuple[str, ...]:
    """Return the command line: the current interpreter without its virtual environment."""
    roots = dict.fromkeys(str(folder.parent) for folder in package_folders())
    return (str(Path(sys.executable).resolve()), "-I", "-S", "-B", "-c", _START, *roots)


def worker_command() -> Command:
    """Return the sandbox command of a worker.  Raises Unavailable."""
    prefix = Path(sys.base_prefix).resolve()
    folders = package_folders() if prefix.is_relative_to(_SYSTEM) else (prefix, *package_folders())
    return Command(
        argv=worker_argv(),
        binds=tuple(Bind(folder) for folder in folders),
        limits=CommandLimits(
            address_space_bytes=WORKER_ADDRESS_SPACE,
            memory_bytes=512 * MIB,
            processes=64,
            files=32,
            file_bytes=0,
            cpu_s=None,  # no total; calls and compilations have limits
            temporary_bytes=MIB,
        ),
        takes_input=True,
    )


def no_workers() -> AbstractAsyncContextManager[WorkerProcess]:
    """`Launch` without a sandbox: raise Unavailable, because WASM never runs unjailed."""
    raise Unavailable("there is no sandbox of level A for WASM workers (see `palyra doctor`)")


class JailedWorkers:
    """`Launch` that starts workers in the sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[WorkerProcess]:
        """Start one worker in a sandbox of level A.  Raises Unavailable."""
        try:
            async with self._sandbox.open(worker_command()) as child:
                yield child
        except SandboxFailure as failure:
            raise Unavailable(f"no WASM worker: {failure.message}") from failure
