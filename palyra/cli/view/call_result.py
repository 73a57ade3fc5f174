"""Result of a call for a person: one line, and below it the last lines that a program printed.

Pure.  Lines stay as they are, in number and in width; only characters that control a terminal are
escaped when they are printed.
"""

import re
from itertools import takewhile
from typing import NamedTuple

from palyra.cli.command.output import one_line
from palyra.core.tape.events import ToolCompleted
from palyra.core.text.visible import pluralize

KEPT_LINES = 10  # of a call that succeeded
FAILED_LINES = 20
PROGRAM = "process"  # executor of calls that run programs
MIN_SUMMARY_CHARS = 20
_ENDING = re.compile(r"; [\d,]+ bytes? of output in [\d.]+ s\]$")


class CallResult(NamedTuple):
    """The end of a call: status and time, a summary on the same line, and lines below it."""

    status: str
    summary: str
    lines: tuple[str, ...] = ()
    left_out: int = 0  # lines before those

    def render(self, width: int) -> str:
        """Return the first line, of at most `width` characters."""
        room = max(width - len(self.status) - 2, MIN_SUMMARY_CHARS)
        return f"{self.status}: {one_line(self.summary, room)}" if self.summary else self.status

    def list_lines(self, where: str) -> tuple[str, ...]:
        """Return the lines; those that are left out are counted, with the command that prints all."""
        if not self.left_out:
            return self.lines
        return (f"… {pluralize(self.left_out, 'line')} before these: {where}", *self.lines)


def describe_result(
    done: ToolCompleted, width: int, *, is_program: bool, limit: int | None = None
) -> CallResult:
    """Return what to show of a result.

    Lines are shown of programs and of failed calls, unless one line of `width` holds all.  `limit` is
    that of the lines; None shows more of a failed call than of one that succeeded.
    """
    is_good = done.status == "succeeded"
    text = done.output if is_good else (done.output if is_program else done.error or done.output)
    text = text or done.error or ""
    status = f"{done.status.replace('_', ' ')}, {done.duration_ms} ms"
    lines = split_lines(text)
    if not is_program and is_good:
        return CallResult(status, text)
    summary, notes = "", []
    if is_program and (count := _count_notes(lines)):
        summary, *notes = [line[1:-1] for line in lines[-count:]]  # how the program ended
        del lines[-count:]
    room = width - len(status) - 2
    if not summary and len(lines) == 1 and len(lines[0]) <= room:
        return CallResult(status, lines[0])
    kept = limit if limit is not None else KEPT_LINES if is_good else FAILED_LINES
    shown = lines[-kept:]
    said = () if is_good else notes  # why it failed, and what a person can do about it
    return CallResult(status, summary, (*shown, *said), len(lines) - len(shown))


def _count_notes(lines: list[str]) -> int:
    """Return the number of lines at the end that are the daemon's: the end of the program and notes on it."""
    last = list(takewhile(lambda line: line[:1] == "[" and line[-1:] == "]", reversed(lines)))
    return next((at for at, line in enumerate(last, 1) if _ENDING.search(line)), min(len(last), 1))


def name_whole(done: ToolCompleted, run_id: str, session_id: str) -> str:
    """Return the command that prints the whole output."""
    if done.artifact is not None:
        return f"palyra artifacts print {session_id} {done.artifact}"
    return f"palyra tape show --full {run_id}"


def split_lines(text: str) -> list[str]:
    """Return the lines of an output as a terminal would leave them, without empty ones at the ends.

    A program that rewrites its line with carriage returns has left what it wrote last.
    """
    lines = [line.removesuffix("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


class LiveOutput:
    """End of the output that a program has printed so far."""

    MAX_CHARS = 16_384

    def __init__(self) -> None:
        self._text = ""

    def add(self, delta: str) -> None:
        """Append a piece."""
        self._text = (self._text + delta)[-self.MAX_CHARS :]

    def last_lines(self, limit: int) -> list[str]:
        """Return the last lines, the unfinished one included."""
        return split_lines(self._text)[-limit:]
