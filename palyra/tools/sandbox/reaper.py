"""Reaper of one jail of level B: parent of all processes of a command; exits after the last one.

A process group replaces the process namespace.  The filter refuses setsid and setpgid, so every
process the command starts stays in the group, and one signal to the group reaches all of them, also
one that is being forked.  Orphans become children of this process (PR_SET_CHILD_SUBREAPER), so it
knows when the last one has exited.  When the command ends, or the daemon closes the gate or dies,
the reaper kills the group and waits for it, and only then exits, with the command's exit code in
the convention of shells.

The command cannot interfere: Landlock refuses signals out of its domain.

This file is a program and imports nothing of the package: `python -I -S reaper.py SPEC`, where SPEC
is a descriptor with a JSON object.
Source: prctl(2), kill(2), credentials(7).
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_NOT_STARTED = 126
_GRACE_S, _GRACE_LOOKS = 0.1, 5  # as `child.GRACE_S`
_REPORTED = 1_000  # survivors; their report fits into the pipe
_SIGNAL_BASE = 128  # shells report a signal as this plus its number


def main() -> None:
    """Run the command of the specification until its end; never returns."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec = json.load(file)
    if ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("the reaper may not adopt orphans")
    signals, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    gate_reader, gate_writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        for fd in (gate_writer, spec["info"], spec["gate"]):
            os.close(fd)
        _become(spec, gate_reader)
    os.setpgid(pid, pid)
    _detach_streams()
    os.write(spec["info"], json.dumps({"child-pid": pid}).encode())
    os.close(spec["info"])
    if _attend(pid, spec["gate"], gate_writer, signals):
        report = {"survivors": _find_survivors(pid), "written_bytes": _written(pid)}
        os.write(spec["alive"], json.dumps(report).encode())
    code = _end(pid)
    os._exit(code if code >= 0 else _SIGNAL_BASE - code)


def _detach_streams() -> None:
    """Replace the standard streams: open here, the command's output would never reach its end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


# --- the command ---------------------------------------------------------------------------------


def _become(spec: dict[str, Any], gate_reader: int) -> None:
    """Become the command once the gate is open; never returns."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(
            number, signal.SIG_DFL
        )  # the interpreter ignores some, and exec would keep that
    try:
        if os.read(gate_reader, 1):
            _drop(spec)
            os.chdir(spec["cwd"])
            os.write(spec["alive"], b"!")  # from here on the output is the command's
            os.execve(spec["launcher"], spec["argv"], spec["environment"])  # noqa: S606 - the walls
    except OSError as error:
        os.write(2, f"the command cannot be started: {error}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _drop(spec: dict[str, Any]) -> None:
    """Switch to the command's user and group for good."""
    with suppress(OSError):  # when memory runs out, the kernel kills the command first
        Path("/proc/self/oom_score_adj").write_text("900", "ascii")
    if spec["uid"] is not None:
        os.setgroups([])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])


# --- the end -------------------------------------------------------------------------------------


def _attend(pid: int, gate: int, gate_writer: int, signals: int) -> bool:
    """Return when the command has exited; False if the daemon has closed the gate or died."""
    poll = select.poll()
    poll.register(gate, select.POLLIN)
    poll.register(signals, select.POLLIN)
    while not _has_ended(pid):
        ready = [fd for fd, _ in poll.poll()]
        if signals in ready:
            os.read(signals, 4096)
        if gate in ready:
            if not os.read(gate, 1):
                return False
            os.write(gate_writer, b"1")
    return True


def _find_survivors(group: int) -> list[str]:
    """Return the names of the processes that outlive the command, after a moment for helpers."""
    names = _names(group)
    for _ in range(_GRACE_LOOKS):
        if names:
            time.sleep(_GRACE_S / _GRACE_LOOKS)
            names = _names(group)
    return names


def _names(group: int) -> list[str]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        with suppress(OSError, ValueError):
            stat = Path(f"/proc/{int(name)}/stat").read_text("utf-8", "replace")
            before, _, after = stat.rpartition(")")
            state, _, of = after.split()[:3]
            if int(of) == group and int(name) != group and state not in {"Z", "X"}:
                found.append(before.partition("(")[2])
    return found[:_REPORTED]


def _written(pid: int) -> int | None:
    """Return the bytes that the command and the orphans collected so far have written, if known.

    Only root may ask for those of a process that has exited (proc(5)).
    """
    with suppress(OSError, ValueError, IndexError):
        texts = [Path(f"/proc/{each}/io").read_text("ascii") for each in ("self", pid)]
        return sum(int(text.partition("wchar: ")[2].split()[0]) for text in texts)
    return None


def _has_ended(pid: int) -> bool:
    """True if the command has exited; collects orphans that have.

    The command itself is not collected here, so that its process id, and group id, is not reused.
    """
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == pid:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _end(pid: int) -> int:
    """Kill the command's group, wait for all of it; return its exit code, or minus the signal."""
    os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
