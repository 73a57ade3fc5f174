"""Verdict on a task from the end of the run that did its work.

A task of a run succeeded if the run is done and none of its calls was refused: a model that was denied
a call says so in its answer only, which may never be read.  A run that failed
because its provider was down can be repeated as long as none of its calls was started, since nothing
has happened that a repetition would make twice.

Pure: the rows of the tape are an argument.
"""

from collections.abc import Iterable
from typing import NamedTuple

from palyra.core.journal.records import RunState
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import RETRYABLE
from palyra.core.tape import events as ev
from palyra.errors import Unavailable

KINDS = frozenset({ev.ToolDecided.KIND, ev.ToolStarted.KIND, ev.RunFailed.KIND})


class RunFailedEarly(Unavailable):
    """The run of a task failed before it did anything: the next attempt is another run."""


class RunEnd(NamedTuple):
    """The facts of an ended run that decide about its task."""

    refused: tuple[str, ...] = ()  # reasons of calls that were denied
    has_acted: bool = False  # a call was started
    failure: str = ""  # class of the failure that ended it


def read_end(rows: Iterable[TapeRow]) -> RunEnd:
    """Read the facts off the tape of a run; the payload of other kinds is not decoded.

    A damaged event may have been the start of a call.
    """
    wanted = [row for row in rows if row.kind in KINDS]
    events = [event for _, event in ev.read_events(wanted)]
    refused, has_acted, failure = list[str](), len(events) < len(wanted), ""
    for event in events:
        match event:
            case ev.ToolDecided(verdict="deny", reason_code=code, reason=reason):
                refused.append(f"{code}: {reason}")
            case ev.ToolStarted():
                has_acted = True
            case ev.RunFailed(failure_class=failure):
                pass
            case _:
                pass
    return RunEnd(tuple(refused), has_acted, failure)


def find_failure(state: RunState, reason: str, end: RunEnd) -> str:
    """Return why a run with this end fails its task; "" if the task has succeeded."""
    if state != "done":
        return f"ended as {state}: {reason}" if reason else f"ended as {state}"
    if end.refused:
        return f"is done, but {len(end.refused)} of its calls were refused; {end.refused[0]}"
    return ""


def may_repeat(state: RunState, end: RunEnd) -> bool:
    """True if another run can do the work: the provider was down, and no call was started."""
    return state == "failed" and end.failure in RETRYABLE and not end.has_acted
