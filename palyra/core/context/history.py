"""History: what was said in a session before a run, as its model is shown it.

The newest runs of the session that fit a budget of tokens, oldest first; whole runs only, so that
every call keeps its result.  A run that was given its conversation by the caller is the oldest that is
shown: what it was given stands for everything before.  A run's list of them is on its tape, so that a resumed run, and a
replay, see the same.  What the daemon told an earlier model about its run is left out.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.model.messages import GuidanceMessage, Message, ToolMessage, message_tokens
from palyra.core.run.state import Run, has_findings, transcript_with_results
from palyra.core.session.queue import BESIDE
from palyra.core.tool.spec import HANDED_OVER

MAX_RUNS = 200  # of one history


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier run of the session."""

    run_id: str
    messages: tuple[Message, ...]
    tokens: int
    is_tainted: bool
    epoch: int | None  # of the session, as it was then
    is_whole: bool = False  # the caller told it all that was said before


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What came before a run, oldest first."""

    runs: tuple[PastRun, ...] = ()
    is_cut: bool = False  # an older one did not fit

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Which they are."""
        return tuple(run.run_id for run in self.runs)

    @property
    def is_tainted(self) -> bool:
        """Whether one of them saw a text with findings."""
        return any(run.is_tainted for run in self.runs)


NO_HISTORY = History()


def past_run(run: Run) -> PastRun:
    """An ended run, for those that come after it; what the client was to run, it may tell later."""
    said = transcript_with_results(run)
    messages = tuple(message for message in said if not _is_left_out(message))
    return PastRun(
        run_id=run.run_id,
        messages=messages,
        tokens=sum(map(message_tokens, messages)),
        is_tainted=run.is_tainted or has_findings(messages),
        epoch=run.accepted.epoch,
        is_whole=run.is_given,
    )


def _is_left_out(message: Message) -> bool:
    if isinstance(message, ToolMessage):
        return message.status == HANDED_OVER
    return isinstance(message, GuidanceMessage)


def belongs(past: Run, run: Run) -> bool:
    """Whether `past` was said before `run`: in the foreground, since the session's last reset."""
    return (
        past.run_id != run.run_id
        and past.is_terminal
        and past.started_ms is not None
        and past.accepted.origin not in BESIDE
        and past.accepted.epoch == run.accepted.epoch
    )


def select(newest_first: Iterable[PastRun], budget_tokens: int) -> History:
    """As many of the newest as fit; the first that does not fit is the last one looked at."""
    chosen: list[PastRun] = []
    left_tokens = budget_tokens
    for run in newest_first:
        left_tokens -= run.tokens
        if left_tokens < 0 or len(chosen) == MAX_RUNS:
            return History(runs=tuple(reversed(chosen)), is_cut=True)
        chosen.append(run)
        if run.is_whole:
            break
    return History(runs=tuple(reversed(chosen)))
