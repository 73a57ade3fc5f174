"""What a daemon that was killed leaves behind, written down beforehand.

One small file per jail: which processes, which control group, which placeholders, and how the
workspace was where it must be put back.  A jail dies with its daemon by itself, so as a rule only a
group and placeholders are left.  The files survive the daemon, not the machine, and need no more:
what they name does not survive the machine either.

One thing is left before anything can be written down: killed at a bad moment, bubblewrap's parent
half is gone and its child half, which holds the namespaces, waits for a word from it for ever.  It
runs nothing, and it is known by its name, which says whose jail it was to be.

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
from palyra.tools.sandbox.restored_paths import Before, put_back
from palyra.tools.sandbox.shared_host import remove_private_folder

_DEATH_MS = 5_000
_ROUNDS = 5
_START_FIELD = 19  # of /proc/PID/stat after the name: when it was started, in clock ticks


class RecordedProcess(msgspec.Struct, frozen=True):
    """A process for certain: numbers are used again, but not with the same start."""

    pid: int
    started: int


class JailRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What must be gone when a jail is gone."""

    boot_id: str
    processes: tuple[RecordedProcess, ...]
    group: str = ""
    placeholders: tuple[str, ...] = ()
    folder: str = ""  # private to the command, at level B
    root: str = ""  # of the workspace that could be written
    state: Before = Before()  # how what no mount can hold was there; was `before` in another form


class JailRecords:
    """The files, in a folder of the daemon's own."""

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
        state: Before | None = None,
    ) -> Path:
        """Write a jail down; the file to remove when it is gone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        processes = [process for pid in pids if (process := find_process(pid)) is not None]
        record = JailRecord(
            boot_id=self._boot_id,
            processes=tuple(processes),
            group=group,
            placeholders=tuple(placeholders),
            folder=folder,
            root=root,
            state=state or Before(),
        )
        path = self._folder / f"{pids[0]}.json"
        with open(path, "wb", opener=_private) as file:
            file.write(json.dumps(msgspec.to_builtins(record)).encode())  # names may be no UTF-8
        return path

    def reap(self) -> int:
        """End what is left of an earlier life; how many processes had to be killed."""
        killed = 0
        for path in sorted(self._folder.glob("*.json")):
            with suppress(ValueError, OSError):
                killed += self._reap(msgspec.convert(json.loads(path.read_bytes()), JailRecord))
            path.unlink(missing_ok=True)
        for _ in range(_ROUNDS):  # one that is killed may have had a child a moment before
            named = find_named(self.name)
            if not named:
                break
            killed += sum(kill_process(process) for process in named)
        return killed

    def _reap(self, record: JailRecord) -> int:
        killed = 0
        if record.boot_id == self._boot_id:
            killed = sum(kill_process(process) for process in record.processes)
            if record.group and self._groups is not None:
                self._groups.find(record.group).remove()
        put_back(record.root, record.state)
        for placeholder in record.placeholders:
            remove_placeholder(placeholder)
        if record.folder:
            remove_private_folder(record.folder)
        return killed


def find_process(pid: int) -> RecordedProcess | None:
    """The process that has this number now."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        fields = stat.rpartition(")")[2].split()
        if fields[0] != "Z":
            return RecordedProcess(pid, int(fields[_START_FIELD]))
    return None


def find_named(name: str) -> list[RecordedProcess]:
    """The processes whose first word is this name; their users may be others'."""
    word = name.encode() + b"\0"
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    named = [pid for pid in pids if _command_line(pid).startswith(word)]
    return [process for pid in named if (process := find_process(pid)) is not None]


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill_process(process: RecordedProcess) -> bool:
    """Kill exactly that one, and wait until it is gone; False when it was gone already."""
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
