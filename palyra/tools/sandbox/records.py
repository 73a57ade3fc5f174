"""Records of running jails, for the cleanup after a killed daemon.

One small file per jail names its processes, control group, placeholders, private folder and the
snapshot to restore.  A jail dies with its daemon, so as a rule only a group and placeholders are
left.  The files must survive the daemon and not the machine, so they are not synced: nothing they
name survives the machine either.

One process can be left before a record is written.  If the daemon is killed at the wrong moment,
bubblewrap's parent half is gone and its child half, which owns the namespaces, waits forever for a
byte from it.  It runs no command.  `find_named` finds it by argv[0], which names the daemon's folder.

All functions block.
"""

import hashlib
import json
import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from palyra.tools.sandbox.cgroups import ControlGroups
from palyra.tools.sandbox.protected_paths import remove_placeholder
from palyra.tools.sandbox.restored_paths import PathSnapshot, restore
from palyra.tools.sandbox.shared_host import remove_private_folder

_DEATH_MS = 5_000
_ROUNDS = 8
_LOOKS_WITHOUT = 2
_START_FIELD = 19  # of /proc/PID/stat after the name: start time in clock ticks


class RecordedProcess(msgspec.Struct, frozen=True):
    """Identity of a process: ids are reused, but not with the same start time."""

    pid: int
    started: int


class JailRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to clean up after a jail."""

    boot_id: str
    processes: tuple[RecordedProcess, ...]
    group: str = ""
    placeholders: tuple[str, ...] = ()
    folder: str = ""  # the private folder of level B
    root: str = ""  # of the writable workspace
    state: PathSnapshot = PathSnapshot()  # links and names to restore


class JailRecords:
    """Record files in a folder of the daemon's own."""

    def __init__(self, folder: Path, groups: ControlGroups | None) -> None:
        self._folder = folder
        self._groups = groups
        self._boot_id = _read_boot_id()
        self.name = f"palyra-jail-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"

    def write(
        self,
        pids: Sequence[int],
        group: str,
        placeholders: Sequence[str],
        *,
        folder: str = "",
        root: str = "",
        state: PathSnapshot | None = None,
    ) -> Path:
        """Write the record of a jail; return the file to remove after its cleanup."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        processes = [process for pid in pids if (process := find_process(pid)) is not None]
        record = JailRecord(
            boot_id=self._boot_id,
            processes=tuple(processes),
            group=group,
            placeholders=tuple(placeholders),
            folder=folder,
            root=root,
            state=state or PathSnapshot(),
        )
        path = self._folder / f"{pids[0]}.json"
        with open(path, "wb", opener=_private) as file:
            file.write(json.dumps(msgspec.to_builtins(record)).encode())  # names may be no UTF-8
        return path

    def reap(self) -> int:
        """Clean up after a killed daemon; return the number of processes killed."""
        killed = 0
        for path in sorted(self._folder.glob("*.json")):
            with suppress(ValueError, OSError):
                killed += self._reap(msgspec.convert(json.loads(path.read_bytes()), JailRecord))
            path.unlink(missing_ok=True)
        # A process may have forked a moment before its end: its child can be missing from the list
        # in which it is itself already dead.  So one look without a find is not enough.
        looks_without = 0
        for _ in range(_ROUNDS):
            named = find_named(self.name)
            killed += sum(kill_process(process) for process in named)
            looks_without = 0 if named else looks_without + 1
            if looks_without == _LOOKS_WITHOUT:
                break
        return killed

    def _reap(self, record: JailRecord) -> int:
        killed = 0
        if record.boot_id == self._boot_id:
            killed = sum(kill_process(process) for process in record.processes)
            if record.group and self._groups is not None:
                self._groups.find(record.group).remove()
        restore(record.root, record.state)
        for placeholder in record.placeholders:
            remove_placeholder(placeholder)
        if record.folder:
            remove_private_folder(record.folder)
        return killed


def find_process(pid: int) -> RecordedProcess | None:
    """Return the process with this id; None if there is none, or a zombie."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        fields = stat.rpartition(")")[2].split()
        if fields[0] != "Z":
            return RecordedProcess(pid, int(fields[_START_FIELD]))
    return None


def find_named(name: str) -> list[RecordedProcess]:
    """Return the processes of any user whose argv[0] is this name."""
    word = name.encode() + b"\0"
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    named = [pid for pid in pids if _command_line(pid).startswith(word)]
    return [process for pid in named if (process := find_process(pid)) is not None]


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill_process(process: RecordedProcess) -> bool:
    """Kill exactly that process and wait for its exit; False if it had exited before."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if find_process(process.pid) != process:
            return False
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(_DEATH_MS)
        return True
    finally:
        os.close(fd)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _read_boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""
