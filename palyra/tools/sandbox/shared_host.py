"""Sandbox level B: isolation of a command on a kernel without user namespaces.

The sandbox knows level B by these functions alone: `find_obstacle`, `spawn`, `kill_group`,
`remove_private_folder`, and for the health check `escape_probes` and `probe_command`.

Theory.  The command sees the host's own file system and processes.  Four mechanisms replace the
namespaces:

- *Landlock* grants rights by path and nothing else: the system's programs, a private folder for HOME
  and TMPDIR, and each entry of the workspace that is neither configuration nor a place for secrets.
  Landlock cannot take back a right below a folder that has it.  A folder with a protected entry
  therefore gets no right itself, the top of the workspace included: nothing new can be created there.
- *A stricter system call filter* refuses what Landlock does not check: modes, owners and times of
  files by name, file notifications, limits and priorities of other processes, shared memory.
- *A process group* replaces the process namespace.  The filter refuses `setsid` and `setpgid`, so one
  signal reaches every process of the command, also one that is being forked.
- *A reaper* (`reaper.py`, a program of its own that imports nothing of the package) is the parent of
  the command, adopts orphans, and exits only when no process of the command is left.

A command that needs more is refused, never run with less: a network, files over others, folders at
other places.  All functions block.  See decision 22.
"""

import json
import os
import platform
import resource
import signal
import subprocess  # noqa: S404 - /bin/rm, on a folder of our own
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from palyra.tools.sandbox.bubblewrap import environment_of
from palyra.tools.sandbox.command import Command, CommandLimits, SandboxFailure
from palyra.tools.sandbox.inside import EVERY_DESCRIPTOR, NO_NEW_PRIVILEGES, limit_calls
from palyra.tools.sandbox.landlock import (
    DEVICE,
    OF_FILE,
    READ,
    READ_DIR,
    SCOPED_ABI,
    WRITE,
    restrict,
)
from palyra.tools.sandbox.launcher import LauncherWords, SystemCall, build_launcher
from palyra.tools.sandbox.protected_paths import PathMask, find_masks, list_entries, parents
from palyra.tools.sandbox.seccomp import (
    Architecture,
    FilterExtension,
    JumpIf,
    JumpTarget,
    Line,
    Load,
    Numbers,
    argument,
    build_filter,
    each_call,
)
from palyra.tools.sandbox.start import ChildPipes, JailEnds, popen, with_ends

REAPER = Path(__file__).with_name("reaper.py")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
           "/etc/alternatives")  # fmt: skip
_SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems",
    "/proc/version", "/proc/uptime", "/proc/loadavg",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_HOME, _TEMPORARY = "home", "temporary"
MAX_RIGHTS = 10_000  # entries of a workspace that get rights of their own; further ones get none
_THREADS_FIELD = 17  # of /proc/PID/stat after the name
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG
_SET_MODE_FILTER = 1  # SECCOMP_SET_MODE_FILTER
_TO_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9; Landlock 6 needs 6.12
_HERE = -100  # AT_FDCWD


class Identity(NamedTuple):
    """User and group a command runs as; None: the daemon's own."""

    uid: int | None
    gid: int | None


# --- whether it can be used ----------------------------------------------------------------------


def find_obstacle(abi: int, workspace: Path) -> str:
    """Return why level B is impossible here; "" if it can be tried."""
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


def _find_identity(command: Command) -> Identity:
    """Return the workspace's owner if the daemon is root.  Raises SandboxFailure if that is root."""
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


def _check_command(command: Command) -> None:
    """Raise SandboxFailure for a command that needs more than level B provides."""
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


# --- start and end -------------------------------------------------------------------------------


def spawn(command: Command, abi: int) -> tuple[int, ChildPipes, str]:
    """Start a reaper that waits at its gate: its process id, the daemon's pipe ends, a folder.

    The caller must collect its exit, and then remove the private folder.  Raises SandboxFailure.
    """
    _check_command(command)
    identity = _find_identity(command)
    folder = ""
    try:
        folder = _make_private_folder(identity)
        uid = os.geteuid() if identity.uid is None else identity.uid
        launcher = build_isolation(
            replace(command.limits, processes=_process_limit(command.limits.processes, uid)),
            abi,
            _system_rights(command, folder),
            _workspace_rights(command),
        )
        specification = {
            "argv": ["launch", *command.argv],
            "cwd": command.cwd,
            "environment": dict(_environment_at(command, folder)),
            "uid": identity.uid,
            "gid": identity.gid,
        }
        pid, pipes = with_ends(command, partial(_spawn, command, specification, launcher))
    except OSError as error:
        remove_private_folder(folder)
        raise SandboxFailure(f"the jail cannot be prepared: {error}") from None
    except SandboxFailure:
        remove_private_folder(folder)
        raise
    return pid, pipes, folder


def _spawn(
    command: Command, specification: Mapping[str, object], launcher: bytes, ends: JailEnds
) -> tuple[int, ChildPipes]:
    info, gate, alive, stdout = ends.outward(), ends.inward(), ends.outward(), ends.outward()
    stdin = ends.inward() if command.takes_input else (None, None)
    stderr = (None, None) if command.merges_errors else ends.outward()
    descriptors = {"launcher": ends.sealed(launcher), "info": info[0], "gate": gate[0]}
    whole = {**specification, **descriptors, "alive": alive[0]}
    python = str(Path(sys.executable).resolve())
    spec_fd = ends.sealed(json.dumps(whole).encode())
    argv = [python, "-I", "-S", "-B", str(REAPER), str(spec_fd)]
    pid, process = popen(python, argv, (stdin[0], stdout[0], stderr[0]), ends.theirs)
    return pid, ChildPipes(
        process, info[1], gate[1], stdin[1], stdout[1], stderr[1], alive[1], None
    )


def kill_group(first_pidfd: int) -> None:
    """Kill the process group of a command's first process; the reaper collects them and exits."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(first_pidfd, signal.SIGKILL, None, _TO_GROUP)


# --- the private folder --------------------------------------------------------------------------


def _make_private_folder(identity: Identity) -> str:
    """Make a folder for this command alone, with HOME and TMPDIR in it.  Raises OSError."""
    folder = tempfile.mkdtemp(prefix="palyra-b-")
    for path in (folder, f"{folder}/{_HOME}", f"{folder}/{_TEMPORARY}"):
        Path(path).mkdir(mode=0o700, exist_ok=True)
        if identity.uid is not None and identity.gid is not None:
            os.chown(path, identity.uid, identity.gid)
    return folder


def remove_private_folder(folder: str) -> None:
    """Remove a private folder at any depth and with any modes inside; "" is ignored."""
    for words in (["/bin/rm", "-rf"], ["/bin/chmod", "-R", "u+rwX"], ["/bin/rm", "-rf"]):
        if not folder or not os.path.lexists(folder):
            return
        subprocess.run([*words, "--", folder], check=False, capture_output=True)  # noqa: S603 - our own words


def _environment_at(command: Command, folder: str) -> Mapping[str, str]:
    """Return all environment variables of the program."""
    private = {"HOME": f"{folder}/{_HOME}", "TMPDIR": f"{folder}/{_TEMPORARY}"}
    # git fails on a system configuration it may not read, and that file may hold credentials.
    return {**environment_of(command), **private, "GIT_CONFIG_NOSYSTEM": "1"}


# --- rights --------------------------------------------------------------------------------------


def _system_rights(command: Command, folder: str) -> dict[str, int]:
    """Return the Landlock rights outside of the workspace, by path."""
    rights = dict.fromkeys(_SYSTEM, READ) | dict.fromkeys(_SYSTEM_FILES, READ & OF_FILE)
    rights |= dict.fromkeys(_DEVICES, DEVICE & OF_FILE)
    rights |= {
        bind.place: READ if bind.source.is_dir() else READ & OF_FILE for bind in command.binds
    }
    return rights | {folder: WRITE}


def _workspace_rights(command: Command) -> dict[str, int]:
    """Return the rights on each entry of the workspace; an entry without a right is closed."""
    if command.workspace is None:
        return {}
    root = str(command.workspace)
    most = WRITE if command.is_writable else READ
    entries = islice(_entries(root, find_masks(root), most), MAX_RIGHTS)
    return {root: READ_DIR, **dict(entries)}


def _entries(root: str, masks: Iterable[PathMask], most: int) -> Iterator[tuple[str, int]]:
    """Yield path and right, descending only into folders that lie above a masked path."""
    masked = {mask.path: mask.kind for mask in masks if not mask.is_missing}
    above = {parent for path in masked for parent in parents(path)}
    folders = [""]
    while folders:
        for path, is_folder in list_entries(root, folders.pop()):
            if path in above and path not in masked:
                folders.append(path)
                continue
            if masked.get(path) in {"no-file", "no-folder"}:
                continue
            right = READ if path in masked else most
            yield f"{root}/{path}", right if is_folder else right & OF_FILE


def _process_limit(processes: int, uid: int) -> int:
    """Return the limit that leaves a user so many more processes, within the present hard limit.

    Without a namespace the kernel counts all threads of the user on this machine.
    """
    threads = 0
    for entry in os.scandir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                text = Path(f"/proc/{entry.name}/stat").read_text("utf-8", "replace")
                threads += int(text.rpartition(")")[2].split()[_THREADS_FIELD])
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = threads + processes
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


# --- launcher and filter -------------------------------------------------------------------------

# Calls that reach other processes, machine-wide messages and shared memory, and calls that Landlock
# does not check, such as modes and owners of files by name.  Without a session or group of its own
# a process cannot leave the command's group.
REFUSED_AT_B: Numbers = {
    "setsid": (112, 157), "setpgid": (109, 154),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "process_mrelease": (448, 448),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "chmod": (90, None), "fchmodat": (268, 53), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "inotify_init": (253, None), "inotify_init1": (294, 26),
}  # fmt: skip
# Allowed for the caller itself: the first argument, a process, must be 0.
ON_CALLER: Numbers = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
ON_OPEN_FILE: Numbers = {"utimensat": (280, 88)}  # allowed if the second argument, a name, is null


def _number_tests(here: Architecture) -> Iterator[Line]:
    yield from each_call(here, REFUSED_AT_B, "refuse")
    yield from each_call(here, ON_CALLER, "on caller")
    yield from each_call(here, ON_OPEN_FILE, "on open file")


def _argument_tests() -> Iterator[Line]:
    yield JumpTarget("on caller")
    yield Load(argument(0))
    yield JumpIf("==", 0, to="allow", otherwise="refuse")
    yield JumpTarget("on open file")
    yield Load(argument(1))
    yield JumpIf("==", 0, otherwise="refuse")
    yield Load(argument(1) + 4)
    yield JumpIf("==", 0, to="allow", otherwise="refuse")


STRICTER = FilterExtension(_number_tests, _argument_tests)


def build_isolation(
    limits: CommandLimits,
    abi: int,
    rights: Mapping[str, int],
    strict: Mapping[str, int],
    *,
    machine: str | None = None,
) -> bytes:
    """Return the launcher that sets up every isolation layer of level B on itself.

    `rights` and `strict`: as `landlock.restrict` takes them.  Raises SandboxFailure for a processor
    without an instruction table.
    """
    program = build_filter(sockets="none", extension=STRICTER, machine=machine)
    lines = LauncherWords((len(program) // 8, program))  # struct sock_fprog
    calls = [
        SystemCall("close_range", (3, EVERY_DESCRIPTOR, 0)),
        SystemCall("prctl", (_DEATH_OF_PARENT, signal.SIGKILL, 0, 0, 0)),
        *limit_calls(limits),
        SystemCall("prctl", (NO_NEW_PRIVILEGES, 1, 0, 0, 0)),
        *restrict(abi, rights, has_network=False, strict=strict),
        SystemCall("seccomp", (_SET_MODE_FILTER, 0, lines)),
    ]
    return build_launcher(calls, machine or platform.machine())


# --- for the health check ------------------------------------------------------------------------


def escape_probes(canary: Path, folder: Path) -> Mapping[str, tuple[SystemCall, ...]]:
    """Return attempts that only the filter and Landlock stop where no namespace does."""
    name = str(canary).encode() + b"\0"
    new = str(folder / "new").encode() + b"\0"
    return {
        "the mode of a file outside": (SystemCall("fchmodat", (_HERE, name, 0o600)),),
        "the times of a file outside": (SystemCall("utimensat", (_HERE, name, 0, 0)),),
        "a process group of its own": (SystemCall("setpgid", (0, 0)),),
        "news of files outside": (SystemCall("inotify_init1", (0,)),),
        "the limits of the daemon": (SystemCall("prlimit64", (os.getpid(), 0, 0, 0)),),
        "a new file at the top": (
            SystemCall("openat", (_HERE, new, os.O_WRONLY | os.O_CREAT, 0o600)),
        ),
    }


def probe_command(folder: Path, canary: Path, program: bytes, uid: int) -> Command:
    """Place the probes in a workspace and return the command that runs them.

    The command runs as the workspace's owner.  A daemon that is root gives the workspace and the
    canary to `uid`, so that isolation alone protects the canary, not its owner.
    """
    part = folder / "part"
    part.mkdir()
    probe = part / "probe"
    probe.write_bytes(program)
    probe.chmod(0o755)
    if os.geteuid() == 0:
        for path in (folder, part, probe, canary):
            os.chown(path, uid, uid)
    return Command(
        argv=(str(probe), "/bin/true"),
        cwd=str(folder),
        workspace=folder,
        is_writable=True,
        least="B",
    )
