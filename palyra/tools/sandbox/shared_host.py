"""Level B: what surrounds a command where there are no namespaces.

The command sees the host's own file system; Landlock leaves it the system's programs, a private
folder for HOME and temporary files, and of its workspace every entry that is neither configuration
nor a place for secrets.  Landlock cannot take back what it gave a folder, so nothing is given to a
folder that holds such a thing, the top of the workspace among them: nothing new can be made there.

What cannot be had here is refused, never left out: a network, files laid over others, folders at
other places.  All functions block.
"""

import json
import os
import resource
import subprocess  # noqa: S404 - /bin/rm, on a folder of our own
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from palyra.tools.sandbox.bubblewrap import environment_of
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.landlock import DEVICE, OF_FILE, READ, READ_DIR, SCOPED_ABI, WRITE
from palyra.tools.sandbox.protected_paths import PathMask, find_masks, list_entries, parents
from palyra.tools.sandbox.start import ChildPipes, _Ends, _guarded, _popen

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
           "/etc/alternatives")  # fmt: skip
_SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems",
    "/proc/version", "/proc/uptime", "/proc/loadavg",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_HOME, _TEMPORARY = "home", "temporary"
MAX_RIGHTS = 10_000  # entries of a workspace that get rights of their own; there are none for more
_THREADS_FIELD = 17  # of /proc/PID/stat after the name


class Identity(NamedTuple):
    """Who a command is run as; None: who the daemon is."""

    uid: int | None
    gid: int | None


def find_obstacle(abi: int, workspace: Path) -> str:
    """Why there can be no level B here; "" when it can be tried."""
    if abi < SCOPED_ABI:
        has = f"version {abi}" if abi else "none"
        return f"level B needs Landlock of version {SCOPED_ABI} (Linux 6.12); this kernel has {has}"
    try:
        owner = workspace.stat().st_uid
    except OSError as error:
        return f"the workspace {workspace} cannot be looked at ({error.strerror})"
    if os.geteuid() == 0 and owner == 0:
        return (
            "level B runs programs of a daemon that is root as the owner of the workspace, and root "
            f"owns {workspace}: give it to another user, or run the daemon as one"
        )
    return ""


def find_identity(command: Command) -> Identity:
    """The workspace's owner, for a daemon that is root.  Raises SandboxFailure for root itself."""
    if os.geteuid() != 0:
        return Identity(None, None)
    try:
        owner = None if command.workspace is None else command.workspace.stat()
    except OSError as error:
        raise SandboxFailure(
            f"the workspace {command.workspace} cannot be looked at ({error.strerror})"
        ) from None
    if owner is None or owner.st_uid == 0:
        raise SandboxFailure("level B runs nothing as root: the workspace needs another owner")
    return Identity(owner.st_uid, owner.st_gid)


def check_command(command: Command) -> None:
    """Raise SandboxFailure for what level B cannot give."""
    if command.least != "B":
        raise SandboxFailure("this is run at level A only, and the sandbox is at level B")
    if command.network is not None:
        raise SandboxFailure("at level B no program has a network")
    for bind in command.binds:
        if bind.place != str(bind.source):
            raise SandboxFailure(f"at level B {bind.source} cannot be shown at another place")
    for path, content in command.files.items():
        with suppress(OSError):
            if Path(path).read_bytes() == content:
                continue
        raise SandboxFailure(f"{path} is not what it was: propose the call again")


# --- the private folder --------------------------------------------------------------------------


def make_private_folder(identity: Identity) -> str:
    """A folder of the command alone, with one for HOME and one for TMPDIR in it.  Raises OSError."""
    folder = tempfile.mkdtemp(prefix="palyra-b-")
    for path in (folder, f"{folder}/{_HOME}", f"{folder}/{_TEMPORARY}"):
        Path(path).mkdir(mode=0o700, exist_ok=True)
        if identity.uid is not None and identity.gid is not None:
            os.chown(path, identity.uid, identity.gid)
    return folder


def remove_private_folder(folder: str) -> None:
    """Remove it, whatever the command has made of it: no depth is too deep, no mode too strict."""
    for words in (["/bin/rm", "-rf"], ["/bin/chmod", "-R", "u+rwX"], ["/bin/rm", "-rf"]):
        if not os.path.lexists(folder):
            return
        subprocess.run([*words, "--", folder], check=False, capture_output=True)  # noqa: S603 - our own words


def environment_at(command: Command, folder: str) -> Mapping[str, str]:
    """Every variable the program finds."""
    private = {"HOME": f"{folder}/{_HOME}", "TMPDIR": f"{folder}/{_TEMPORARY}"}
    # The system's configuration of git may hold credentials; what it may not read, git dies of.
    return {**environment_of(command), **private, "GIT_CONFIG_NOSYSTEM": "1"}


# --- rights --------------------------------------------------------------------------------------


def system_rights(command: Command, folder: str) -> dict[str, int]:
    """What may be done outside of the workspace."""
    rights = dict.fromkeys(_SYSTEM, READ) | dict.fromkeys(_SYSTEM_FILES, READ & OF_FILE)
    rights |= dict.fromkeys(_DEVICES, DEVICE & OF_FILE)
    rights |= {
        bind.place: READ if bind.source.is_dir() else READ & OF_FILE for bind in command.binds
    }
    return rights | {folder: WRITE}


def workspace_rights(command: Command) -> dict[str, int]:
    """What may be done with each entry of the workspace; with what is not listed, nothing."""
    if command.workspace is None:
        return {}
    root = str(command.workspace)
    most = WRITE if command.is_writable else READ
    entries = islice(_entries(root, find_masks(root), most), MAX_RIGHTS)
    return {root: READ_DIR, **dict(entries)}


def _entries(root: str, masks: Iterable[PathMask], most: int) -> Iterator[tuple[str, int]]:
    held = {mask.path: mask.kind for mask in masks if not mask.is_missing}
    above = {parent for path in held for parent in parents(path)}
    folders = [""]
    while folders:
        for path, is_folder in list_entries(root, folders.pop()):
            if path in above and path not in held:
                folders.append(path)
                continue
            if held.get(path) in {"no-file", "no-folder"}:
                continue
            right = READ if path in held else most
            yield f"{root}/{path}", right if is_folder else right & OF_FILE


# --- limits --------------------------------------------------------------------------------------


def count_threads(uid: int) -> int:
    """How many threads a user has on this machine: the limit counts these, too."""
    found = 0
    for entry in os.scandir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                text = Path(f"/proc/{entry.name}/stat").read_text("utf-8", "replace")
                found += int(text.rpartition(")")[2].split()[_THREADS_FIELD])
    return found


def process_limit(processes: int, uid: int) -> int:
    """The limit that leaves a user so many more, within the one that is set already."""
    wanted = count_threads(uid) + processes
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


REAPER = Path(__file__).with_name("reaper.py")


@dataclass(frozen=True, slots=True)
class SharedHostSpawnRequest:
    """What a reaper starts, and as whom; see `shared_host`."""

    command: Command
    identity: Identity
    folder: str  # the command's own
    launcher: bytes


def spawn_reaper(start: SharedHostSpawnRequest) -> tuple[int, ChildPipes]:
    """The process id of a reaper that waits at its gate, and the daemon's ends of the pipes.

    Its end is the caller's to collect.  Raises SandboxFailure.
    """
    return _guarded(start.command, partial(_spawn_reaper, start))


def _spawn_reaper(start: SharedHostSpawnRequest, ends: _Ends) -> tuple[int, ChildPipes]:
    command = start.command
    info, gate, alive, stdout = ends.outward(), ends.inward(), ends.outward(), ends.outward()
    stdin = ends.inward() if command.takes_input else (None, None)
    stderr = (None, None) if command.merges_errors else ends.outward()
    specification = {
        "argv": ["launch", *command.argv],
        "cwd": command.cwd,
        "environment": dict(environment_at(command, start.folder)),
        "launcher": ends.sealed(start.launcher),
        "info": info[0],
        "gate": gate[0],
        "alive": alive[0],
        "uid": start.identity.uid,
        "gid": start.identity.gid,
    }
    python = str(Path(sys.executable).resolve())
    words = ends.sealed(json.dumps(specification).encode())
    argv = [python, "-I", "-S", "-B", str(REAPER), str(words)]
    pid, process = _popen(python, argv, (stdin[0], stdout[0], stderr[0]), ends.theirs)
    return pid, ChildPipes(
        process, info[1], gate[1], stdin[1], stdout[1], stderr[1], alive[1], None
    )
