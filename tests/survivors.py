"""Run a command and fail if a process that it started is still alive when it has ended.

    python -m tests.survivors COMMAND [ARGUMENT ...]

It becomes the parent of every orphan below it (PR_SET_CHILD_SUBREAPER, prctl(2)), so a process
cannot hide in a session of its own, behind a dead parent or a cleared environment.  Like init it
reaps all of them.  Survivors are named and killed.  The exit code is the command's; 1 if that was 0
and something survived.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_CMDLINE_CHARS = 200
GRACE_S = 20.0  # for processes that end because the command did, such as a forkserver
LOOK_S = 0.02


def main(command: Sequence[str], grace_s: float = GRACE_S) -> int:
    """Run the command; its exit code, or 1 for survivors."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel has no subreapers")
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts the command, too
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    code = _wait(process)
    if _wait_empty(grace_s):
        return code
    for pid in find_children():
        sys.stderr.write(f"SURVIVOR {pid}: {describe(pid)}\n")
    _kill_all()
    return code or 1


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Reap whatever ends until the command does; its exit code as a shell has it."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _wait_empty(limit_s: float) -> bool:
    """Whether no process is left within the limit."""
    until = time.monotonic() + limit_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_S)


def find_children() -> list[int]:
    """Processes whose parent is this one and that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.append(int(folder.name))
    return sorted(found)


def describe(pid: int) -> str:
    """Its command line and working directory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        command = b" ".join(words).decode(errors="replace").strip()
        return f"{command[:_CMDLINE_CHARS]} (in {os.readlink(f'/proc/{pid}/cwd')})"  # noqa: PTH115 - it may be deleted
    except OSError as error:
        return f"({error.strerror})"


def _kill_all() -> None:
    """Kill children until there are none: those of a killed one become ours."""
    while not _wait_empty(0):
        for pid in find_children():
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
