"""From a shell call to a command: the program found, its operands looked at, its text sealed.

All functions block; they are called from a thread.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from palyra.core.display import visible
from palyra.core.paths import normal_path
from palyra.core.tools import Inspection, ToolCall, ToolFailure
from palyra.tools.command_line import CommandLine, find_scripts, read_command
from palyra.tools.confine import Workspace, refusal
from palyra.tools.sandbox.bubblewrap import PATH, environment_of
from palyra.tools.sandbox.command import Command, Egress, Limits

MAX_OPERANDS = 64
MAX_SCRIPT_BYTES = 4_194_304
MAX_HASHED_BYTES = 16_777_216  # a larger operand is known by its size and time
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/nix/store/")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every command of a daemon finds."""

    workspace: Workspace
    limits: Limits
    environment: Mapping[str, str]  # beside PATH, HOME, LANG and TERM
    profile: str  # of the sandbox, as approvals name it
    open_egress: Callable[[], Egress] | None = None  # the way out of one command; None: no network

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What a command can do, as rules and risk see it."""
        return ("process",) if self.open_egress is None else ("process", "network")


def inspect_program(around: Surroundings, call: ToolCall) -> Inspection:
    """What a person approves beside the arguments.  Raises ToolFailure for what cannot run."""
    line = read_command(call.arguments)
    command = _command(around, line, find_binary(around.workspace, line), {})
    return Inspection(
        binary=os.path.realpath(command.argv[0]),
        cwd=command.cwd,
        environment=environment_of(command),
        operands=dict(_operands(around.workspace, line)),
        profile=around.profile,
    )


def build_command(around: Surroundings, call: ToolCall) -> Command:
    """The command as it was inspected; scripts are sealed with the content that was approved.

    Raises ToolFailure when a script is not what it was.
    """
    line = read_command(call.arguments)
    approved = (
        call.inspection.operands if call.inspection else dict(_operands(around.workspace, line))
    )
    sealed: dict[str, bytes] = {}
    for word in find_scripts(line)[:MAX_OPERANDS]:
        path = _below(around.workspace, _absolute(around.workspace, line.cwd, word))
        if path is not None and path in approved:
            content = _read(around.workspace, path)
            if hashlib.sha256(content).hexdigest() != approved[path]:
                raise ToolFailure(f"{visible(path)} was changed meanwhile: propose the call again")
            sealed[f"{around.workspace.root}/{path}"] = content
    return _command(around, line, find_binary(around.workspace, line), sealed)


def find_binary(workspace: Workspace, line: CommandLine) -> str:
    """The program's path, resolved.  Raises ToolFailure for one that cannot be found."""
    name = line.argv[0]
    if "/" not in name:
        for folder in PATH.split(":"):
            if os.access(found := f"{folder}/{name}", os.X_OK) and Path(found).is_file():
                return found
        raise ToolFailure(f"{visible(name)}: there is no such program in {PATH}")
    if name.startswith(_SYSTEM) and os.path.normpath(name) == name:
        if not Path(name).is_file():
            raise ToolFailure(f"{visible(name)}: there is no such program")
        return name
    found = _absolute(workspace, line.cwd, name)
    path = _below(workspace, found)
    if path is None and not (os.path.realpath(found).startswith(_SYSTEM) and os.path.isfile(found)):  # noqa: PTH113 - as text
        raise ToolFailure(f"{visible(name)}: a program lies in a system folder or the workspace")
    if path is not None:
        with workspace.open_file(path):
            pass
    return found  # a link's own name: the interpreter of a virtual environment goes by it


def _command(
    around: Surroundings, line: CommandLine, binary: str, sealed: Mapping[str, bytes]
) -> Command:
    cwd = normal_path(line.cwd)
    if cwd is None:
        raise refusal(line.cwd)
    with around.workspace.open_folder(cwd):
        pass
    network = None if around.open_egress is None else around.open_egress()
    proxies = {} if network is None else network.environment
    return Command(
        argv=(binary, *line.argv[1:]),
        cwd=f"{around.workspace.root}/{cwd}".rstrip("/"),
        environment={**around.environment, **proxies},
        network=network,
        workspace=around.workspace.root,
        is_writable=True,
        files=sealed,
        limits=around.limits,
        merges_errors=True,
    )


def _operands(workspace: Workspace, line: CommandLine) -> Iterator[tuple[str, str]]:
    """Every word that names a file of the workspace, with what it holds; SHA-256, hex."""
    for word in line.words[:MAX_OPERANDS]:
        path = _below(workspace, _absolute(workspace, line.cwd, word))
        if path is not None:
            with suppress(ToolFailure):
                yield path, _digest(workspace, path)


def _digest(workspace: Workspace, path: str) -> str:
    with workspace.open_file(path) as fd:
        found = os.fstat(fd)
        if found.st_size > MAX_HASHED_BYTES:
            return f"{found.st_size} bytes of {found.st_mtime_ns}"
        with open(fd, "rb", closefd=False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _read(workspace: Workspace, path: str) -> bytes:
    with workspace.open_file(path) as fd, open(fd, "rb", closefd=False) as file:
        content = file.read(MAX_SCRIPT_BYTES + 1)
    if len(content) > MAX_SCRIPT_BYTES:
        raise ToolFailure(f"{visible(path)}: a script of more than {MAX_SCRIPT_BYTES} bytes")
    return content


def _absolute(workspace: Workspace, cwd: str, word: str) -> str:
    return os.path.join(workspace.root, cwd, word)  # noqa: PTH118 - as the program will see it


def _below(workspace: Workspace, path: str) -> str | None:
    """Where that leads within the workspace, links followed; None when it leads out of it."""
    real, root = os.path.realpath(path), str(workspace.root)
    return real[len(root) + 1 :] if real.startswith(f"{root}/") else None
