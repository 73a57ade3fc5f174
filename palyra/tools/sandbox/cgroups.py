"""Control groups: limits on memory and number of all processes of a jail together.

Version 2 is used where this process may divide its own group, else version 1 below its own groups,
else none: resource limits then hold for each process alone, and `enforcement` shows it.  Groups are
opened through descriptors, so the thread's mount namespace does not matter.

All functions block, as a rule for well below a millisecond.  Source: cgroups(7), the kernel's
admin-guide/cgroup-v1/memory and cgroup-v2.
"""

import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from palyra.tools.sandbox.command import CommandLimits

_MOUNT = Path("/sys/fs/cgroup")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CONTROLLERS = ("memory", "pids")
REMOVE_TRIES, REMOVE_PAUSE_S = 10, 0.005
_PREFIXED = re.compile(r"palyra-([0-9]+)-[0-9a-f]+")  # with the daemon's process id


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of the files of one version of the interface."""

    memory: str
    swap: str
    memory_events: str  # a file of `name count` lines
    oom: str  # the line that counts processes killed for lack of memory


_V1 = _Files(
    "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "oom_kill"
)
_V2 = _Files("memory.max", "memory.swap.max", "memory.events", "oom_kill")


class ControlGroups:
    """The parent groups below which this process can create groups."""

    def __init__(self, kind: str, files: _Files, folders: Mapping[str, int]) -> None:
        """`folders`: descriptor of the parent group of each controller."""
        self.kind = kind  # v1, v2
        self._files = files
        self._folders = folders

    def make(self, limits: CommandLimits) -> "Group":
        """Create a group with these limits.  Raises OSError."""
        name = f"palyra-{os.getpid()}-{secrets.token_hex(4)}"
        group = Group(name, self._folders, self._files)
        try:
            group.set_up(limits)
        except OSError:
            group.remove()
            raise
        return group

    def sweep(self) -> None:
        """Remove the groups of daemons that have exited; a group in use stays."""
        for folder in set(self._folders.values()):
            for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
                owner = _PREFIXED.fullmatch(name)
                if owner is not None and not Path(f"/proc/{owner[1]}").exists():
                    Group(name, self._folders, self._files).remove()

    def find(self, name: str) -> "Group":
        """Return the group of that name, made by this or an earlier daemon."""
        return Group(name, self._folders, self._files)


class Group:
    """One group, for one jail."""

    def __init__(self, name: str, folders: Mapping[str, int], files: _Files) -> None:
        self.name = name
        self._folders = folders
        self._files = files

    def set_up(self, limits: CommandLimits) -> None:
        """Create the group and set its limits.  Raises OSError."""
        for folder in set(self._folders.values()):
            os.mkdir(self.name, dir_fd=folder)
        self._write("pids", "pids.max", limits.processes)
        if limits.memory_bytes is not None:
            self._write("memory", self._files.memory, limits.memory_bytes)
            with suppress(OSError):  # the file is missing without swap accounting
                swap = (
                    limits.memory_bytes if self._files is _V1 else 0
                )  # version 1 counts memory and swap together
                self._write("memory", self._files.swap, swap)

    def add(self, pids: Iterable[int]) -> None:
        """Move processes into the group; their later children belong to it.  Raises OSError."""
        for folder in set(self._folders.values()):
            for pid in pids:
                _write_at(folder, f"{self.name}/cgroup.procs", str(pid))

    def find_limit(self) -> str:
        """Return the limit its processes have hit: memory, processes; "" for none."""
        if self._count("memory", self._files.memory_events, self._files.oom):
            return "memory"
        return "processes" if self._count("pids", "pids.events", "max") else ""

    def remove(self) -> None:
        """Remove the group after its processes; one that cannot be removed is left.

        Waits at most REMOVE_TRIES pauses for exiting processes.
        """
        for folder in set(self._folders.values()):
            for _ in range(REMOVE_TRIES):
                if _try_remove(folder, self.name):
                    break
                time.sleep(REMOVE_PAUSE_S)

    def _write(self, controller: str, file: str, value: int) -> None:
        _write_at(self._folders[controller], f"{self.name}/{file}", str(value))

    def _count(self, controller: str, file: str, name: str) -> int:
        with suppress(OSError):
            for line in _read_at(self._folders[controller], f"{self.name}/{file}").splitlines():
                if line.split()[0] == name:
                    return int(line.split()[1])
        return 0


def find_control_groups() -> ControlGroups | None:
    """Find the groups below which this process may create groups; None if there are none."""
    own = _read_own()
    with suppress(OSError):
        folders = {
            each: os.open(_MOUNT / each / own[each], _FOLDER)
            for each in _CONTROLLERS
            if each in own
        }
        if len(folders) == len(_CONTROLLERS):
            return _after_trial(ControlGroups("v1", _V1, folders))
    with suppress(OSError):
        if "" in own:
            return _after_trial(_divide(_MOUNT / own[""]))
    return None


def _read_own() -> dict[str, str]:
    """Return the relative path of this process's group by controller; "" is version 2."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            found |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    return found


def _divide(own: Path) -> ControlGroups:
    """Set up version 2: move this process into a child group and enable controllers.

    A group of version 2 with processes cannot have limited child groups.  Done only if this process
    is alone in its group, as in a service with `Delegate=yes`.  Raises OSError.
    """
    if own == _MOUNT or (own / "cgroup.procs").read_text("ascii").split() != [str(os.getpid())]:
        raise PermissionError("the group is shared")
    (own / "daemon").mkdir(exist_ok=True)
    (own / "daemon" / "cgroup.procs").write_text(str(os.getpid()), "ascii")
    (own / "cgroup.subtree_control").write_text("+memory +pids", "ascii")
    return ControlGroups("v2", _V2, dict.fromkeys(_CONTROLLERS, os.open(own, _FOLDER)))


def _after_trial(groups: ControlGroups) -> ControlGroups:
    """Return the groups after a trial of creating one.  Raises OSError."""
    groups.make(CommandLimits()).remove()
    return groups


def _try_remove(folder: int, name: str) -> bool:
    """Try to remove a group; False if it is busy and a retry may succeed."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


def _write_at(folder: int, path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read_at(folder: int, path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 4096).decode()
    finally:
        os.close(fd)
