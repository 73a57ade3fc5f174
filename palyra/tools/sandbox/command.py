"""What a sandbox is asked to run, and what it may see and use."""

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
    """A command could not be started behind its walls; nothing of it ran."""

    code = "sandbox_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What one command may use.  None: that one is not set."""

    address_space_bytes: int | None = 1024 * MIB  # of each process
    # Of all together, where control groups are to be had.  Less than the above, so that one process
    # that takes too much meets this limit first: the kernel tells of it.
    memory_bytes: int | None = 896 * MIB
    processes: int = 64
    files: int = 128  # open, of each process
    file_bytes: int = 64 * MIB  # the largest file it may write
    cpu_s: int | None = 120  # of each process
    temporary_bytes: int = 64 * MIB  # /tmp, and as much for HOME


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host that the command sees; read-only."""

    source: Path
    target: str = ""  # absolute; "": where it is on the host

    @property
    def place(self) -> str:
        """Where the command sees it."""
        return self.target or str(self.source)


class CommandEgress(Protocol):
    """The one way out of a jail, kept by the daemon: see the package's docstring."""

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 that the command finds it at, such as 3128."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells programs about it (HTTP_PROXY …)."""

    def attach(self, listener: socket.socket) -> AbstractContextManager[object]:
        """Serve this listening, non-blocking socket until the context is left; closes it then.

        The context must not wait; connections still open when it is left are cut.  Raises
        PalyraError, and closes the socket, when it cannot be served.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, its surroundings and its limits.  Paths are as the program sees them."""

    argv: tuple[str, ...]
    cwd: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)  # all of it, beside PATH and HOME
    workspace: Path | None = None  # seen at its own path
    is_writable: bool = False  # whether the workspace is
    lasts: bool = False  # as long as the daemon: people change the workspace meanwhile
    binds: tuple[Bind, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # sealed copies at these paths
    limits: CommandLimits = CommandLimits()
    network: CommandEgress | None = None
    takes_input: bool = False  # a pipe for stdin; else it is empty
    least: Level = "A"  # behind fewer walls than these it is not run
    merges_errors: bool = False  # stderr goes where stdout goes, in order

    @property
    def sealed_bytes(self) -> int:
        """Of all sealed copies: memory, for as long as the program runs."""
        return sum(map(len, self.files.values()))
