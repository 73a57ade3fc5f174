"""Conversion of a shell call into a sandbox command: binary resolved, operands hashed, scripts sealed.

All functions block; they are called from a thread.
"""

import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from palyra.core.text.visible import visible
from palyra.core.tool.paths import MAX_PATH_BYTES, normal_path
from palyra.core.tool.spec import SHARED_HOST, Preflight, ToolCall, ToolFailure
from palyra.core.tool.toolchains import is_below
from palyra.tools.files.workspace import Workspace, refusal
from palyra.tools.programs.command_line import CommandLine, find_scripts, read_command
from palyra.tools.programs.hidden_programs import explain_hidden, explain_link, explain_output
from palyra.tools.sandbox.bubblewrap import environment_of
from palyra.tools.sandbox.command import Command, CommandEgress, CommandLimits, Level
from palyra.tools.sandbox.toolchains import Toolchains

_FIRST_LINE_BYTES = 512  # that may name a script's interpreter
NO_TOOLCHAINS = Toolchains()
MAX_OPERANDS = 256  # files that one call names; a prompt shows fewer
MAX_SCRIPT_BYTES = 4_194_304
MAX_SEALED_BYTES = 8_388_608  # of all scripts of a call: the copies occupy memory
MAX_HASHED_BYTES = 16_777_216  # a larger operand is identified by size and change time
MAX_READ_BYTES = 268_435_456  # of all operands of a call that are hashed: about a second
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_STEPS = MAX_PATH_BYTES  # path components of one word, links followed; only a link loop has more


@dataclass(frozen=True, slots=True)
class CommandEnvironment:
    """Environment of every command of a daemon."""

    workspace: Workspace
    limits: CommandLimits
    environment: Mapping[str, str]  # in addition to PATH, HOME, LANG and TERM
    profile: str  # of the sandbox, as approvals name it
    open_egress: Callable[[], CommandEgress] | None = (
        None  # egress of one command; None: no network
    )
    level: Level = "A"  # of the sandbox
    toolchains: Toolchains = NO_TOOLCHAINS  # folders that programs see besides the system's
    git_obstacle: str = ""  # why git finds no repository in the workspace; "": it may

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Capabilities of a command, for rules and risk."""
        network = () if self.open_egress is None else ("network",)
        return ("process", *network, *([SHARED_HOST] if self.level == "B" else []))


def inspect_program(around: CommandEnvironment, call: ToolCall) -> Preflight:
    """Return the facts a person approves with the arguments.  Raises ToolFailure if it cannot run."""
    line = read_command(call.arguments)
    binary = find_binary(around.workspace, line, around.toolchains)
    command = _command(around, line, binary, {})
    return Preflight(
        binary=_real(around, binary),
        cwd=command.cwd,
        environment=environment_of(command),
        operands=_operands(around.workspace, line),
        profile=around.profile,
    )


def build_command(around: CommandEnvironment, call: ToolCall) -> Command:
    """Return the inspected command, with scripts sealed at their approved content.

    Raises ToolFailure if a script has changed since the approval.
    """
    line = read_command(call.arguments)
    seen = call.inspection
    approved = _operands(around.workspace, line) if seen is None else seen.operands
    sealed: dict[str, bytes] = {}
    for word in _from_folders(line, find_scripts(line)):
        path = _below(around.workspace, _reach(around.workspace, "", word))
        place = f"{around.workspace.root}/{path}"
        if path is None or place in sealed or not _SHA256.fullmatch(approved.get(path, "")):
            continue
        content = _read(around.workspace, path)
        if sum(map(len, sealed.values())) + len(content) > MAX_SEALED_BYTES:
            raise ToolFailure(
                f"the scripts of the call have more than {MAX_SEALED_BYTES} bytes together: make it "
                "several calls"
            )
        if hashlib.sha256(content).hexdigest() != approved[path]:
            raise ToolFailure(f"{visible(path)} was changed meanwhile: propose the call again")
        sealed[place] = content
    return _command(around, line, find_binary(around.workspace, line, around.toolchains), sealed)


def find_binary(
    workspace: Workspace, line: CommandLine, toolchains: Toolchains = NO_TOOLCHAINS
) -> str:
    """Resolve the program's path.  Raises ToolFailure if there is no such program."""
    name = line.argv[0]
    if "/" not in name:
        for folder in toolchains.search_path.split(":"):
            found = f"{folder}/{name}"
            if os.access(found, os.X_OK) and _is_file(found) and toolchains.shows(found):
                return found
        said = f"{visible(name)}: there is no such program in {toolchains.search_path}"
        raise ToolFailure("; ".join(filter(None, (said, explain_hidden(toolchains, name)))))
    if is_below(name, toolchains.visible) and os.path.normpath(name) == name:
        if not _is_file(name):
            raise ToolFailure(f"{visible(name)}: there is no such program")
        return name
    reached = _reach(workspace, line.cwd, name)
    path = _below(workspace, reached)
    if path is not None:
        with workspace.open_file(path):
            pass
    elif not (is_below(reached, toolchains.visible) and _is_file(reached)):
        said = f"{visible(name)}: a program lies in a system folder or the workspace"
        raise ToolFailure("; ".join(filter(None, (said, explain_link(toolchains, name, reached)))))
    # Keep a link's own name: the interpreter of a virtual environment depends on it.
    return _absolute(workspace, line.cwd, name)


def explain_missing(around: CommandEnvironment, command: Command, text: str) -> str:
    """Return why a program that this output misses is not there, if the sandbox is the reason."""
    root = str(around.workspace.root)
    cwd = command.cwd.removeprefix(root).lstrip("/")

    def follow(word: str) -> str:
        try:
            return _reach(around.workspace, cwd, word)
        except ToolFailure:
            return ""

    def read_first_line(path: str) -> str | None:
        inside = _below(around.workspace, path)
        if inside is None:
            return None
        try:
            with around.workspace.open_file(inside) as fd:
                return (
                    os.pread(fd, _FIRST_LINE_BYTES, 0).partition(b"\n")[0].decode(errors="replace")
                )
        except (ToolFailure, OSError):
            return ""

    return explain_output(around.toolchains, text, follow, read_first_line)


def _is_file(path: str) -> bool:
    """True if the path is a file; False also if it cannot be read."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for an unreadable folder


def _real(around: CommandEnvironment, binary: str) -> str:
    """Resolve the program's links.  Raises ToolFailure if they have changed meanwhile."""
    reached = _reach(around.workspace, "", binary)
    if _below(around.workspace, reached) is not None:
        return reached
    if not is_below(reached, around.toolchains.visible):
        raise ToolFailure(f"{visible(binary)} was changed meanwhile: propose the call again")
    return os.path.realpath(reached)


def _command(
    around: CommandEnvironment, line: CommandLine, binary: str, sealed: Mapping[str, bytes]
) -> Command:
    cwd = normal_path(line.cwd)
    if cwd is None:
        raise refusal(line.cwd)
    with around.workspace.open_folder(cwd):
        pass
    network = None if around.open_egress is None else around.open_egress()
    proxies = {} if network is None else network.environment
    toolchains = around.toolchains
    path = {"PATH": toolchains.search_path} if toolchains.path else {}
    return Command(
        argv=(binary, *line.argv[1:]),
        cwd=f"{around.workspace.root}/{cwd}".rstrip("/"),
        environment={**around.environment, **proxies, **path},
        binds=toolchains.binds(around.level),
        network=network,
        workspace=around.workspace.root,
        is_writable=True,
        files=sealed,
        limits=around.limits,
        least=around.level,
        merges_errors=True,
        tells_survivors=True,
        has_loopback=True,
    )


def _operands(workspace: Workspace, line: CommandLine) -> dict[str, str]:
    """Return the workspace files that words of the call name, with their content digests.

    Raises ToolFailure beyond the bounds: a file that was not hashed would not be approved.
    """
    found: dict[str, str] = {}
    read_bytes = 0
    for word in _from_folders(line, line.names):
        path = _below(workspace, _reach(workspace, "", word))
        seen = None if path is None or path in found else _file(workspace, path)
        if path is None or seen is None:
            continue
        read_bytes += seen.st_size if seen.st_size <= MAX_HASHED_BYTES else 0
        if len(found) == MAX_OPERANDS or read_bytes > MAX_READ_BYTES:
            raise ToolFailure(
                f"the call names more than {MAX_OPERANDS} files, or files of more than "
                f"{MAX_READ_BYTES} bytes together: make it several"
            )
        found[path] = _content(workspace, path, seen)
    return found


def _from_folders(line: CommandLine, words: Iterable[str]) -> Iterator[str]:
    """Yield the words as paths, relative to each folder that the command works in."""
    return (posixpath.join(folder, word) for folder in line.folders for word in words)


def _file(workspace: Workspace, path: str) -> os.stat_result | None:
    found = workspace.look(path)
    return found if found is not None and stat.S_ISREG(found.st_mode) else None


def _content(workspace: Workspace, path: str, found: os.stat_result) -> str:
    """Return an identifier of the file's content.

    That is its SHA-256, hex, or for a file that is too large, or that has a second name and may not
    be opened, its size and change time, which no program can set.
    """
    if found.st_size <= MAX_HASHED_BYTES:
        with (
            suppress(ToolFailure),
            workspace.open_file(path) as fd,
            open(fd, "rb", closefd=False) as file,
        ):
            return hashlib.file_digest(file, "sha256").hexdigest()
    return f"{found.st_size} bytes of {found.st_ino}, changed at {found.st_ctime_ns} ns"


def _read(workspace: Workspace, path: str) -> bytes:
    with workspace.open_file(path) as fd, open(fd, "rb", closefd=False) as file:
        content = file.read(MAX_SCRIPT_BYTES + 1)
    if len(content) > MAX_SCRIPT_BYTES:
        raise ToolFailure(f"{visible(path)}: a script of more than {MAX_SCRIPT_BYTES} bytes")
    return content


# --- resolution of words --------------------------------------------------------------------------


def _absolute(workspace: Workspace, cwd: str, word: str) -> str:
    return os.path.join(workspace.root, cwd, word)  # noqa: PTH118 - as the program will see it


def _below(workspace: Workspace, path: str) -> str | None:
    """Return the path relative to the workspace; None for a path outside."""
    root = f"{workspace.root}/"
    return path.removeprefix(root) if path.startswith(root) else None


def _reach(workspace: Workspace, cwd: str, word: str) -> str:
    """Resolve a word to an absolute path, following links within the workspace as text.

    The file system outside of the workspace is not accessed: a word of a model must not make the
    daemon read other files.  Raises ToolFailure for a link loop.
    """
    path = _absolute(workspace, cwd, word)
    if not _is_path(path):
        return ""
    at: list[str] = []
    left = _names(path)
    for _ in range(MAX_STEPS):
        if not left:
            return "/" + "/".join(at)
        name = left.pop()
        if name == "..":
            del at[-1:]
            continue
        below = _below(workspace, "/" + "/".join([*at, name]))
        link = None if below is None else workspace.read_link(below)
        if link is None:
            at.append(name)
        else:
            left += _names(link)
            at = [] if link.startswith("/") else at
    raise ToolFailure(f"{visible(word)}: too many links")


def _is_path(text: str) -> bool:
    """True if the kernel would accept the text as a path."""
    try:
        return len(os.fsencode(text)) < MAX_PATH_BYTES
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _names(path: str) -> list[str]:
    """Return the components of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
