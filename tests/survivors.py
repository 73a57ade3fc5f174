"""Run a command and fail if a process that it started is still alive when it has ended.

    python -m tests.survivors COMMAND [ARGUMENT ...]

It becomes the parent of every orphan below it (PR_SET_CHILD_SUBREAPER, prctl(2)), so a process
cannot hide in a session of its own, behind a dead parent or a cleared environment.  Like init it
reaps all of them.  The look is taken at once: a leak that would end by itself a second later is
reported, too.  Only a process that the kernel is already ending, and the servers of
`multiprocessing`, which end with the command's pipe, are waited for.

Survivors are named and killed.  The exit code is the command's; 1 if that was 0 and something
survived.  SIGTERM, SIGHUP and SIGQUIT are passed on, and a second one kills the command; in either
case its processes end with it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

_PR_SET_CHILD_SUBREAPER = 36
_PF_EXITING = 0x4  # of `flags` in /proc/PID/stat; include/linux/sched.h
_CMDLINE_CHARS = 200
_HELPERS = (
    "from multiprocessing.forkserver import",
    "from multiprocessing.resource_tracker import",
)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_S = 20.0  # for what is ending; a machine with much to write takes seconds to free memory
LOOK_S = 0.02
NOT_FOUND = 127  # of a shell


class _Signals:
    """Signals to this process, passed on to the command.

    The handlers are in place before the command is: what arrives before its pid is known is passed
    on by `begin`.  They never reap, and after `end` they do nothing, so the pid is always its own.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._waiting: list[int] = []
        self._count = 0
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGINT, lambda *_: None)  # the terminal interrupts the command, too

    def begin(self, pid: int) -> None:
        self._pid = pid
        while self._waiting:
            self._send(self._waiting.pop(0))

    def end(self) -> None:
        self._pid = 0

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._pid:
            self._send(number)
        else:
            self._waiting.append(number)

    def _send(self, number: int) -> None:
        self._count += 1
        os.kill(self._pid, number if self._count == 1 else signal.SIGKILL)


def main(
    command: Sequence[str],
    grace_s: float = GRACE_S,
    start: "Callable[[Sequence[str]], subprocess.Popen[bytes]]" = subprocess.Popen,
) -> int:
    """Run the command; its exit code, or 1 for survivors."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel has no subreapers")
    signals = _Signals()
    try:
        process = start(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND
    signals.begin(process.pid)
    code = _wait(process, signals)
    _wait_for_ending(grace_s)
    return code or 1 if _end_survivors(grace_s) else code


def _wait(process: "subprocess.Popen[bytes]", signals: _Signals) -> int:
    """Reap whatever ends until the command does; its exit code as a shell has it."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # it waits
        if ended.si_pid == process.pid:
            signals.end()  # before the pid is given free
        _, status = os.waitpid(ended.si_pid, 0)
        if ended.si_pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _wait_for_ending(limit_s: float) -> None:
    """Wait until no process is left of which all that can be said is that it ends."""
    until = time.monotonic() + limit_s
    while any(map(_is_ending, find_children())) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _end_survivors(limit_s: float) -> bool:
    """Name and kill children until there are none: those of a killed one become ours.

    Whether there were any.
    """
    named: set[int] = set()
    until = time.monotonic() + max(limit_s, GRACE_S)  # one that cannot be killed is not waited for
    while (found := find_children()) and time.monotonic() < until:
        for pid in found:
            if _is_exiting(pid):  # since the last look; it is reaped at the next one
                continue
            if pid not in named:
                sys.stderr.write(f"SURVIVOR {pid}: {describe(pid)}\n")
                named.add(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    return bool(named)


def find_children() -> list[int]:
    """Processes whose parent is this one; what has ended is reaped first."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        stat = _read_stat(int(folder.name))
        if stat and int(stat[1]) == os.getpid():
            found.append(int(folder.name))
    return sorted(found)


def _read_stat(pid: int) -> list[str]:
    """The fields of proc(5) from `state` on; none for a process that is gone."""
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return []


def _is_exiting(pid: int) -> bool:
    """Whether the kernel ends it, or has."""
    stat = _read_stat(pid)
    return not stat or stat[0] in "ZX" or bool(int(stat[6]) & _PF_EXITING)


def _is_ending(pid: int) -> bool:
    """Whether it ends without anything being done: the kernel ends it, or a closed pipe does."""
    if _is_exiting(pid):
        return True
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return len(words) > 2 and any(words[-2].startswith(helper) for helper in _HELPERS)
    return True


def describe(pid: int) -> str:
    """Its command line and working directory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        command = b" ".join(words).decode(errors="replace").strip()
        return f"{command[:_CMDLINE_CHARS]} (in {os.readlink(f'/proc/{pid}/cwd')})"  # noqa: PTH115 - it may be deleted
    except OSError as error:
        return f"({error.strerror})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
