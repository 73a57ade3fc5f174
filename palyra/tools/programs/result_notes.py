"""Lines below a program's output: the limits it met, survivors, restored paths.

Two sources, which the text keeps apart.  A limit that was *hit* is known: the kernel or the daemon
ended the program, or a control group counted a refusal.  A *hint* quotes words of the output.  A file
that was cut is found by its size: a write beyond the limit fails, and a program need not say so.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from palyra.core.ports import RunBlocking
from palyra.core.text.visible import pluralize, visible
from palyra.tools.programs.disk_watch import ALLOWED_BYTES, ALLOWED_FILES
from palyra.tools.programs.output import FLOOD_BYTES
from palyra.tools.sandbox.child import JailedProcess, ProcessExit
from palyra.tools.sandbox.command import MIB, Command, CommandLimits
from palyra.tools.sandbox.git_folders import find_git_obstacle
from palyra.tools.sandbox.limit_signs import find_limit_signs

_SEARCHED_CHARS = 16_384  # of the beginning and of the end of an output
_LOOKED_AT = 200_000  # entries of the workspace searched for cut files: less than a second
_NAMED = 5  # cut files, and survivors
# Between the names of paths and listings.
_BETWEEN_NAMES = re.compile(r"""[\s/'"`:,;()\[\]\u2018\u2019\u201c\u201d]+""")
_LISTED = 3  # held names that make a listing of a folder
# strerror(3) of calls on a held name, and the words of git, Node and others for them.
_REFUSED_SIGNS = (
    "ermission denied", "ead-only file system", "not permitted", "ile exists", "lready exists",
    "s a directory", "not empty", "evice or resource busy", "EACCES", "EROFS", "EPERM", "EEXIST",
    "EISDIR", "ENOTEMPTY", "EBUSY", "conflict",
)  # fmt: skip
_CLOCK_REALTIME_COARSE = 5  # of linux/time.h: advances once a tick, as the stamps of files do


@dataclass(frozen=True, slots=True)
class CommandTrace:
    """A command that has ended, and what its effects are measured against."""

    command: Command
    started_ns: int  # of `file_clock_ns`
    run_blocking: RunBlocking
    explain_missing: Callable[[Command, str], str]  # why a program that an output misses is hidden


def file_clock_ns() -> int:
    """Return the least time that a file which is changed from now on is stamped with."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


async def find_notes(
    text: str, child: JailedProcess, ending: ProcessExit | None, trace: CommandTrace
) -> list[str]:
    """Return notes on limits, survivors and restored paths, which the output itself need not tell.

    Cancellation: nothing changes.
    """
    limits, root = trace.command.limits, trace.command.workspace
    known = ending.limit if ending else ""
    ends = text[:_SEARCHED_CHARS] + text[_SEARCHED_CHARS:][-_SEARCHED_CHARS:]
    signs = find_limit_signs(ends)
    notes = [
        f"hint: the output says {sign!r}; the limit here: {describe_limit(kind, limits)}"
        for kind, sign in signs.items()
        if kind != known
    ]
    written_bytes = child.remains.written_bytes
    may_be_cut = written_bytes is None or written_bytes >= limits.file_bytes
    if root is not None and ("file size" in {known, *signs} or may_be_cut):
        cut = await trace.run_blocking(find_cut_files, str(root), limits, trace.started_ns)
        notes.append(cut.render(limits))
    if root is not None and "not a git repository" in ends:
        obstacle = await trace.run_blocking(find_git_obstacle, str(root), trace.command.least)
        notes.append(obstacle)
    if ending is not None and ending.exit_code:
        notes.append(await trace.run_blocking(trace.explain_missing, trace.command, ends))
    if held := _find_prevented(ends, child.prevented):
        notes.append(
            f"not there, and no program can make it: {', '.join(held)}; while a program runs, an empty "
            "folder holds the name, because other programs obey what has it. A person can make it "
            "(git init) outside of the sandbox"
        )
    if survivors := child.remains.survivors:
        shown = ", ".join(map(visible, sorted(set(survivors))[:_NAMED]))
        were = "was" if len(survivors) == 1 else "were"
        notes.append(
            f"{pluralize(len(survivors), 'program')} still running {were} ended ({shown}); "
            "process_start keeps one until the end of the run"
        )
    if child.restored:
        names = ", ".join(child.restored)
        notes.append(f"put back or set aside, because no program may change or make it: {names}")
    return [note for note in notes if note]


def _find_prevented(text: str, prevented: Sequence[str]) -> list[str]:
    """Return the held names that an error or a listing in the text shows."""
    shown = [name for name in prevented if name in text]
    words = frozenset(_BETWEEN_NAMES.split(text) if shown else ())
    shown = [name for name in shown if name in words]
    is_error = any(sign in text for sign in _REFUSED_SIGNS)
    return shown if is_error or len(shown) >= _LISTED else []


def describe_ending(ending: ProcessExit | None, limits: CommandLimits) -> str:
    """Describe an exit, with the limit that was hit."""
    if ending is None:
        return "still running"
    how = f"exit code {ending.exit_code}" if not ending.signal else f"ended by {ending.signal}"
    return f"{how}; limit hit: {describe_limit(ending.limit, limits)}" if ending.limit else how


def describe_limit(kind: str, limits: CommandLimits) -> str:
    """Return the limit with its value and setting."""
    memory_mib, each_mib, file_mib, temporary_mib = (
        (size or 0) // MIB
        for size in (
            limits.memory_bytes, limits.address_space_bytes, limits.file_bytes,
            limits.temporary_bytes,
        )
    )  # fmt: skip
    each = f", {each_mib} MiB of address space each (sandbox.address_space_mib)" * bool(each_mib)
    known = {
        "memory": f"memory, {memory_mib} MiB of all processes together (sandbox.memory_mib){each}",
        "processes": f"processes and threads, {limits.processes} (sandbox.processes)",
        "open files": f"open files, {limits.files} of each process (sandbox.open_files)",
        "file size": f"file size, {file_mib} MiB (sandbox.file_mib)",
        "cpu": f"cpu, {limits.cpu_s} s of each process (sandbox.cpu_s)",
        "temporary space": f"temporary space, {temporary_mib} MiB each in /tmp, /dev/shm and HOME "
        "(sandbox.temporary_mib), or a full disk",
        "time": "time (timeout_s of the call, at most sandbox.deadline_s)",
        "output": f"more than {FLOOD_BYTES} bytes of output",
        "folder": "a folder it writes to is not there any more",
        "disk": f"disk, {ALLOWED_BYTES // MIB} MiB less free than at the start",
        "inodes": f"inodes, {ALLOWED_FILES} fewer free on the disk than at the start",
    }
    return known.get(kind, kind)


@dataclass(frozen=True, slots=True)
class CutFiles:
    """Files that ended up exactly as large as the limit allows."""

    paths: tuple[str, ...]  # relative to the workspace, at most _NAMED
    total: int

    def render(self, limits: CommandLimits) -> str:
        """Return the note; "" without such a file."""
        if not self.total:
            return ""
        names = ", ".join([*map(visible, self.paths), *["…"] * (self.total > len(self.paths))])
        return (
            f"{pluralize(self.total, 'file')} ended exactly at the limit, nothing beyond it was "
            f"written: {names}; {describe_limit('file size', limits)}"
        )


def find_cut_files(root: str, limits: CommandLimits, since_ns: int) -> CutFiles:
    """Find the files of the limit's size that were changed since then.

    Blocks, for up to a second in a large workspace.  Folders beyond the bound are not searched.
    """
    found = list(_find_cut(root, limits.file_bytes, since_ns))
    return CutFiles(tuple(sorted(found)[:_NAMED]), len(found))


def _find_cut(root: str, size: int, since_ns: int) -> Iterator[str]:
    looked_at, folders = 0, [""]
    while folders and looked_at < _LOOKED_AT:
        folder = folders.pop()
        try:
            entries = list(os.scandir(f"{root}/{folder}"))
        except OSError:
            continue
        looked_at += len(entries)
        for entry in entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False) and _is_cut(entry, size, since_ns):
                yield path


def _is_cut(entry: os.DirEntry[str], size: int, since_ns: int) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return found.st_size == size and found.st_ctime_ns >= since_ns
