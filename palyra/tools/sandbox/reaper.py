"""The reaper of one jail of level B: the parent of everything a command starts, and its end.

Where there is no process namespace, the process group takes its place: the filter refuses setsid
and setpgid, so whatever the command starts stays in the group, and one signal to it reaches all at
once, also those that are just being born.  Orphans become children of this process
(PR_SET_CHILD_SUBREAPER), so it knows when the last one is gone.  When the command ends, or the
daemon closes the gate or dies, the group is killed and waited for, and only then does this process
end, with the command's exit code as shells tell it.

The command cannot hinder it: signals out of its Landlock domain are refused.

It stands alone: `python -I -S reaper.py SPEC`, where SPEC is a descriptor with a JSON object.
Source: prctl(2), kill(2), credentials(7).
"""

import ctypes
import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_NOT_STARTED = 126
_SIGNAL_BASE = 128  # as shells tell a signal in an exit code


def main() -> None:
    """Run the command of the specification to its end; never returns."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec = json.load(file)
    if ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("the reaper may not take orphans")
    news, tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    held, begin = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        for fd in (begin, spec["info"], spec["gate"]):
            os.close(fd)
        _become(spec, held)
    os.setpgid(pid, pid)
    _let_go_of_streams()
    os.write(spec["info"], json.dumps({"child-pid": pid}).encode())
    os.close(spec["info"])
    _attend(pid, spec["gate"], begin, news)
    code = _end(pid)
    os._exit(code if code >= 0 else _SIGNAL_BASE - code)


def _let_go_of_streams() -> None:
    """They are the command's: held here as well, its output would never end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


# --- the command ---------------------------------------------------------------------------------


def _become(spec: dict[str, Any], held: int) -> None:
    """The command itself, once it may begin; never returns."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # an interpreter ignores some, and they stay so
    try:
        if os.read(held, 1):
            _drop(spec)
            os.chdir(spec["cwd"])
            os.write(spec["alive"], b"!")  # from here on the output is the command's
            os.execve(spec["launcher"], spec["argv"], spec["environment"])  # noqa: S606 - the walls
    except OSError as error:
        os.write(2, f"the command cannot be started: {error}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _drop(spec: dict[str, Any]) -> None:
    """Be who the command is run as, and nobody else any more."""
    with suppress(OSError):  # when memory runs out, this goes before the reaper
        Path("/proc/self/oom_score_adj").write_text("900", "ascii")
    if spec["uid"] is not None:
        os.setgroups([])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])


# --- its end -------------------------------------------------------------------------------------


def _attend(pid: int, gate: int, begin: int, news: int) -> None:
    """Return when the command has ended, or the daemon says so or is gone."""
    poll = select.poll()
    poll.register(gate, select.POLLIN)
    poll.register(news, select.POLLIN)
    while not _has_ended(pid):
        ready = [fd for fd, _ in poll.poll()]
        if news in ready:
            os.read(news, 4096)
        if gate in ready:
            if not os.read(gate, 1):
                return
            os.write(begin, b"1")


def _has_ended(pid: int) -> bool:
    """Whether the command has; orphans that have are collected on the way.

    The command itself is not: as long as it is not collected, nobody else gets its number.
    """
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == pid:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _end(pid: int) -> int:
    """Kill the command's group and wait for all of it; the command's exit code, or signal below 0."""
    os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
