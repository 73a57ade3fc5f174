"""Processes of a jail that are still running when its program has exited.

All processes of a process namespace descend from its first one, which adopts orphans, so they are found
along the lists of children.  All functions block, for some ten microseconds a process.

Source: proc(5), `/proc/PID/task/TID/children` (CONFIG_PROC_CHILDREN) and `/proc/PID/io`.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class JailRemains(NamedTuple):
    """State of a jail whose program has exited."""

    survivors: tuple[str, ...] = ()  # names, as the processes chose them
    written_bytes: int | None = None  # by all processes that have exited; None: unknown


def find_child(pid: int) -> int | None:
    """Return the only child of a process; None if there is none, or the kernel does not tell."""
    children = _children(pid)
    return children[0] if len(children) == 1 else None


def find_remains(init_pid: int, program_pid: int) -> JailRemains:
    """Return what is left below the jail's first process, without that and the program."""
    # The first process collects the program at any moment, and has its count from then on.  Asked in
    # this order, nothing is missed.
    written = [_written(program_pid), _written(init_pid)]
    names: list[str] = []
    pids = _children(init_pid)
    while pids:
        pid = pids.pop()
        pids += _children(pid)
        name, state = _name_and_state(pid)
        if pid != program_pid and state not in {"", "Z", "X"}:
            names.append(name)
    known = written[1]
    return JailRemains(tuple(names), None if known is None else known + (written[0] or 0))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
            with suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii")
                found += map(int, text.split())
    return found


def _name_and_state(pid: int) -> tuple[str, str]:
    """Return name and state of a process; empty for one that is gone."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        before, _, after = stat.rpartition(")")
        return before.partition("(")[2], after.split()[0]
    return "", ""


def _written(pid: int) -> int | None:
    """Return the bytes that a process and the children it has collected have written."""
    with suppress(OSError, ValueError, KeyError):
        lines = dict(
            line.split(": ") for line in Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
        )
        return max(int(lines["wchar"]), int(lines["write_bytes"]))
    return None
