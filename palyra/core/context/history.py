"""History: the earlier conversation of a session, as shown to a run's model.

It holds the newest runs of the session that fit a token budget, oldest first.  Only whole runs are
included, so every call keeps its result.  A run whose conversation was supplied by the caller is
the oldest one included: its conversation replaces everything before it.  The list of included runs
is on the run's tape, so a resumed run and a replay use the same list.  The daemon's guidance to
earlier models is left out.

A run may carry a summary (`core.context.session_compaction`).  The newest one replaces all messages it
covers: older runs contribute only what it does not cover, and the first run that it mentions is the
oldest one included.
"""

from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.model.messages import GuidanceMessage, Message, ToolMessage, message_tokens
from palyra.core.model.summary import Summary
from palyra.core.run.refused_items import without_refused
from palyra.core.run.state import COMPACTION, Run, has_findings, transcript_with_results
from palyra.core.session.fork import InheritedView
from palyra.core.session.queue import BESIDE
from palyra.core.tape.events import Todo
from palyra.core.tool.spec import HANDED_OVER
from palyra.core.trust.labels import Trust

MAX_RUNS = 200  # of one history


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier run of the session."""

    run_id: str
    messages: tuple[Message, ...]
    tokens: int
    is_tainted: bool
    epoch: int | None  # of the session at that time
    is_whole: bool = False  # the caller supplied the whole earlier conversation
    first: int = 0  # index of `messages[0]` in the run's conversation
    summary: Summary | None = None  # made in that run, or inherited by it
    trust: Trust = "trusted_local"  # lowest label of its words and of what it read
    refused: tuple[str, ...] = ()  # items that a provider refused, in it or before
    inherited: int = 0  # leading messages of the run's conversation from another session
    todos: tuple[Todo, ...] = ()  # the model's list at its end

    @property
    def inherited_tokens(self) -> int:
        """Tokens of the messages from another session."""
        return sum(map(message_tokens, self.messages[: max(0, self.inherited - self.first)]))

    def after(self, count: int) -> "PastRun":
        """Return the run without the first `count` messages of its conversation."""
        if count <= self.first:
            return self
        messages = self.messages[count - self.first :]
        return msgspec.structs.replace(
            self, messages=messages, first=count, tokens=sum(map(message_tokens, messages))
        )


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Conversation of the session before a run, oldest first."""

    runs: tuple[PastRun, ...] = ()
    is_cut: bool = False  # an older run did not fit
    summary: Summary | None = None  # of what came before, and of what is left out of the runs

    def summarised(self, summary: Summary) -> "History":
        """Return what a newer summary leaves of the history."""
        runs = tuple(past.after(summary.covered_of(past.run_id) or 0) for past in self.runs)
        return msgspec.structs.replace(self, runs=runs, summary=summary)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of the runs."""
        return tuple(run.run_id for run in self.runs)

    @property
    def refused(self) -> tuple[str, ...]:
        """Items that a provider refused in one of the runs, or before."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.refused))

    @property
    def is_tainted(self) -> bool:
        """True if one of the runs, or a summarised one, saw a text with injection findings."""
        is_tainted = self.summary is not None and self.summary.is_tainted
        return is_tainted or any(run.is_tainted for run in self.runs)


NO_HISTORY = History()


def past_run(run: Run) -> PastRun:
    """Return an ended run for the history of later runs.

    Results of calls handed over to the client are left out: the client may send them later.
    """
    said = () if run.accepted.origin == COMPACTION else transcript_with_results(run)
    messages = tuple(message for message in said if not is_left_out(message))
    first = 0 if run.summary is None else run.summary.covered_of(run.run_id) or 0
    return PastRun(
        run_id=run.run_id,
        messages=messages,
        tokens=sum(map(message_tokens, messages)),
        is_tainted=run.is_tainted or has_findings(messages),
        epoch=run.accepted.epoch,
        is_whole=run.is_given,
        summary=run.summary,
        trust=run.trust,
        refused=tuple(name for name in run.refused if not name.startswith("reasoning:")),
        inherited=_count_inherited(run),
        todos=run.todos,
    ).after(first)


def _count_inherited(run: Run) -> int:
    """Count the messages that a branch continues; what the caller supplied is its own."""
    if run.is_given:
        return 0
    return sum(not is_left_out(message) for message in run.transcript[: run.inherited])


def fresh_tokens(run: Run, history: History) -> int | None:
    """Return the tokens of what was said since a branch began; None if nothing is inherited."""
    inherited = (
        0 if run.is_given or (run.summary and run.summary.covered_of(run.run_id)) else run.inherited
    )
    if not inherited and not any(past.inherited_tokens for past in history.runs):
        return None
    past = sum(each.tokens - each.inherited_tokens for each in history.runs)
    return past + sum(map(message_tokens, transcript_with_results(run)[inherited:]))


def is_left_out(message: Message) -> bool:
    """True if later runs do not see the message; summaries do not count it."""
    if isinstance(message, ToolMessage):
        return message.status == HANDED_OVER
    return isinstance(message, GuidanceMessage)


def view_of(run: Run, history: History, budget_tokens: int) -> InheritedView:
    """Return the conversation that the model of `run` is shown.

    Of the history the newest runs are taken that fit the budget together with the run's own part.
    """
    said = () if run.accepted.origin == COMPACTION else transcript_with_results(run)
    own = said[uncovered(run, said) :]
    if run.summary is not None:
        history = history.summarised(run.summary)
    left_tokens = budget_tokens - sum(map(message_tokens, own))
    past: list[PastRun] = []
    for each in reversed(history.runs):
        left_tokens -= each.tokens
        if left_tokens < 0:
            break
        past.insert(0, each)
    shown = (*(message for each in past for message in each.messages), *own)
    return InheritedView(
        messages=tuple(without_refused(message, run.refused) for message in shown),
        summary=run.summary or history.summary,
        is_tainted=run.is_tainted or history.is_tainted,
    )


def belongs(past: Run, run: Run) -> bool:
    """True if `past` belongs to the history of `run`: foreground, since the last session reset."""
    return (
        past.run_id != run.run_id
        and past.is_terminal
        and past.clock.started_ms is not None
        and past.accepted.origin not in BESIDE
        and past.accepted.epoch == run.accepted.epoch
    )


def select(newest_first: Iterable[PastRun], budget_tokens: int) -> History:
    """Return as many of the newest runs as fit, up to the first one that does not."""
    chosen: list[PastRun] = []
    left_tokens = budget_tokens
    for past in newest_first:
        summary = _summary_of(chosen)
        covered = None if summary is None else summary.covered_of(past.run_id)
        run = past.after(covered or 0)
        left_tokens -= run.tokens
        if summary is None and run.summary is not None:
            left_tokens -= run.summary.after_tokens
        if left_tokens < 0 or len(chosen) == MAX_RUNS:
            return _history(chosen, is_cut=True)
        chosen.append(run)
        if run.is_whole or covered is not None:
            break
    return _history(chosen, is_cut=False)


def recorded(runs: Iterable[PastRun]) -> History:
    """Return the history of exactly these runs, oldest first, as `select` has chosen them."""
    newest_first = list(runs)[::-1]
    summary = _summary_of(newest_first)
    if summary is not None:
        newest_first = [run.after(summary.covered_of(run.run_id) or 0) for run in newest_first]
    return _history(newest_first, is_cut=False)


def _history(newest_first: Sequence[PastRun], *, is_cut: bool) -> History:
    runs = tuple(reversed(newest_first))
    return History(runs=runs, is_cut=is_cut, summary=_summary_of(newest_first))


def _summary_of(newest_first: Iterable[PastRun]) -> Summary | None:
    return next((run.summary for run in newest_first if run.summary is not None), None)


def uncovered(run: Run, said: Sequence[Message]) -> int:
    """Return the index of the first message of an open run that its summary does not cover."""
    left = 0 if run.summary is None else run.summary.covered_of(run.run_id) or 0
    for place, message in enumerate(said):
        if left == 0:
            return place
        left -= not is_left_out(message)
    return len(said)
