"""History: the earlier conversation of a session, as shown to a run's model.

It holds the newest runs of the session that fit a token budget, oldest first.  Only whole runs are
included, so every call keeps its result.  A run whose conversation was supplied by the caller is
the oldest one included: its conversation replaces everything before it.  The list of included runs
is on the run's tape, so a resumed run and a replay use the same list.  The daemon's guidance to
earlier models is left out.
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
    epoch: int | None  # of the session at that time
    is_whole: bool = False  # the caller supplied the whole earlier conversation


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Conversation of the session before a run, oldest first."""

    runs: tuple[PastRun, ...] = ()
    is_cut: bool = False  # an older run did not fit

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of the runs."""
        return tuple(run.run_id for run in self.runs)

    @property
    def is_tainted(self) -> bool:
        """True if one of the runs saw a text with injection findings."""
        return any(run.is_tainted for run in self.runs)


NO_HISTORY = History()


def past_run(run: Run) -> PastRun:
    """Return an ended run for the history of later runs.

    Results of calls handed over to the client are left out: the client may send them later.
    """
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
    """True if `past` belongs to the history of `run`: foreground, since the last session reset."""
    return (
        past.run_id != run.run_id
        and past.is_terminal
        and past.started_ms is not None
        and past.accepted.origin not in BESIDE
        and past.accepted.epoch == run.accepted.epoch
    )


def select(newest_first: Iterable[PastRun], budget_tokens: int) -> History:
    """Return as many of the newest runs as fit, up to the first one that does not."""
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
