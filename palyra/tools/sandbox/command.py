"""A command for the sandbox: the program, its view of the file system, its limits."""

import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from palyra.errors import PalyraError

MIB = 1_048_576
# A: namespaces, filter, Landlock, limits.  B: the same without namespaces.  See docs/security.md.
Level = Literal["A", "B"]


class SandboxFailure(PalyraError):
    """A command could not be started isolated; nothing of it ran."""

    code = "sandbox_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """Limits of one command.  None: not limited."""

    address_space_bytes: int | None = 1024 * MIB  # of each process
    # Of all processes together, where control groups are available.  Less than the limit above, so
    # that a single process meets this limit first: the kernel reports it.
    memory_bytes: int | None = 896 * MIB
    # Builds, test runners with a worker a core and runtimes with a thread pool need some hundreds.
    processes: int = 512
    files: int = 1024  # open, of each process; what login shells get
    file_bytes: int = 64 * MIB  # the largest file it may write
    cpu_s: int | None = 120  # of each process
    temporary_bytes: int = 64 * MIB  # /tmp, and as much for HOME


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host that the command sees, read-only."""

    source: Path
    target: str = ""  # absolute; "": the host's path

    @property
    def place(self) -> str:
        """Path at which the command sees it."""
        return self.target or str(self.source)


class CommandEgress(Protocol):
    """Egress of a jail, served by the daemon: see the package's docstring."""

    @property
    def port(self) -> int:
        """Port of the jail's 127.0.0.1 to listen on, such as 3128."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that point programs to it (HTTP_PROXY …)."""

    def attach(self, listener: socket.socket) -> AbstractContextManager[object]:
        """Serve this listening, non-blocking socket until the context is left; closes it then.

        The context must not wait; connections still open when it is left are cut.  Raises
        PalyraError, and closes the socket, when it cannot be served.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, its environment and its limits.  Paths are as the program sees them."""

    argv: tuple[str, ...]
    cwd: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)  # in addition to PATH and HOME
    workspace: Path | None = None  # seen at its own path
    is_writable: bool = False  # True: the workspace can be written
    lasts: bool = False  # runs as long as the daemon: people change the workspace meanwhile
    binds: tuple[Bind, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # sealed copies at these paths
    limits: CommandLimits = CommandLimits()
    network: CommandEgress | None = None
    # Its own loopback and local sockets; level A only, where its network namespace bounds them.
    has_loopback: bool = False
    takes_input: bool = False  # a pipe for stdin; else it is empty
    least: Level = "A"  # the lowest level at which it may run
    merges_errors: bool = False  # stderr is written to stdout, in order
    tells_survivors: bool = False  # processes that outlive the program are named, then killed

    @property
    def sealed_bytes(self) -> int:
        """Size of all sealed copies, which occupy memory while the program runs."""
        return sum(map(len, self.files.values()))
