"""How a worker is started: which interpreter, which files, which environment.

A worker sees the interpreter, its standard library and three packages, read-only, and nothing
else of the host: no configuration, no data, no workspace.
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

_SYSTEM = Path("/usr")  # every jail sees it
PACKAGES = ("palyra", "msgspec", "wasmtime")
# Isolated: no user packages, no environment, no current directory; then only the packages' folders.
_START = (
    "import sys; sys.path[1:1] = sys.argv[1:]; from palyra.tools.wasm.worker import main; main()"
)


class WorkerProcess(Protocol):
    """A started worker, as the sandbox gives it."""

    @property
    def stdin(self) -> trio.abc.SendStream | None: ...
    @property
    def stdout(self) -> trio.abc.ReceiveStream: ...
    async def wait(self) -> object:
        """Return when it has ended."""


class Launch(Protocol):
    """Starts one worker; when the block is left nothing of it is alive.  Raises Unavailable."""

    def __call__(self) -> AbstractAsyncContextManager[WorkerProcess]: ...


def package_folders() -> tuple[Path, ...]:
    """Where the packages of a worker lie.  Raises Unavailable when one is not installed."""
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise Unavailable(f"the package {name} is not installed")
        found.append(Path(spec.submodule_search_locations[0]).resolve())
    return tuple(found)


def worker_argv() -> tuple[str, ...]:
    """The command line of a worker: this interpreter, without its virtual environment."""
    roots = dict.fromkeys(str(folder.parent) for folder in package_folders())
    return (str(Path(sys.executable).resolve()), "-I", "-S", "-B", "-c", _START, *roots)


def worker_command() -> Command:
    """A worker as the sandbox starts it.  Raises Unavailable."""
    prefix = Path(sys.base_prefix).resolve()
    folders = package_folders() if prefix.is_relative_to(_SYSTEM) else (prefix, *package_folders())
    return Command(
        argv=worker_argv(),
        binds=tuple(Bind(folder) for folder in folders),
        limits=CommandLimits(
            address_space_bytes=WORKER_ADDRESS_SPACE,
            memory_bytes=512 * MIB,
            files=32,
            file_bytes=0,
            cpu_s=None,  # over its life; each call and each compilation has its own
            temporary_bytes=MIB,
        ),
        takes_input=True,
    )


def no_workers() -> AbstractAsyncContextManager[WorkerProcess]:
    """`Launch` where there is no sandbox: WASM runs in its jail or not at all."""
    raise Unavailable("there is no sandbox of level A for WASM workers (see `palyra doctor`)")


class JailedWorkers:
    """`Launch` over the sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[WorkerProcess]:
        """One worker behind the walls of level A.  Raises Unavailable."""
        try:
            async with self._sandbox.open(worker_command()) as child:
                yield child
        except SandboxFailure as failure:
            raise Unavailable(f"no WASM worker: {failure.message}") from failure
