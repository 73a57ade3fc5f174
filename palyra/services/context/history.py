"""Conversation history: the earlier runs of a session, read from their tapes.

Owns: a bounded cache of ended runs, which never change.  Talks to: the journal.
Tapes are read and folded in a reader's thread, never on the event loop.
"""

from collections.abc import Iterable, Iterator, Mapping

from palyra.core.context.history import (
    MAX_RUNS,
    NO_HISTORY,
    History,
    PastRun,
    belongs,
    past_run,
    recorded,
    select,
    view_of,
)
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import RunState
from palyra.core.ports import Journal, JournalStore
from palyra.core.run.refused_items import without_refused
from palyra.core.run.state import Run
from palyra.core.session.fork import InheritedView
from palyra.errors import Damaged, Unreadable
from palyra.services.tape.run_loader import read_run

ENDED: tuple[RunState, ...] = ("done", "failed", "cancelled")
MAX_KNOWN_BYTES = 16 << 20  # of runs in memory, estimated
_BYTES_A_TOKEN = 4
_BYTES_A_MESSAGE = 700  # of objects; most of the memory of a short conversation


class ConversationHistory:
    """Histories of runs, with a cache of ended ones.

    Readers' threads look runs up in the cache while the event loop changes it: a look-up is atomic, and
    a copy for each run would take the loop's time in proportion to the cache.
    """

    def __init__(self, journal: Journal, budget_tokens: int) -> None:
        self._journal = journal
        self._budget_tokens = budget_tokens
        self._known: dict[str, PastRun] = {}
        self._known_bytes = 0
        self._forgets = 0  # a read that began before one may have read what was purged

    async def find(self, run: Run) -> History:
        """Select the history of a run that is about to begin.

        Cancellation: nothing happened.
        """
        if not self._budget_tokens:
            return NO_HISTORY
        forgets = self._forgets
        found = await self._journal.read(
            lambda store: select(_past(store, run, self._known), self._budget_tokens)
        )
        self._remember(found, forgets)
        return found

    async def repeat(self, run_ids: tuple[str, ...]) -> History:
        """Return the history of these runs; runs whose tape cannot be read are skipped.

        Cancellation: nothing happened.
        """
        if not run_ids:
            return NO_HISTORY
        forgets = self._forgets
        found = await self._journal.read(
            lambda store: recorded(_named(store, run_ids, self._known))
        )
        self._remember(found, forgets)
        return found

    async def conversation(self, run_id: str) -> InheritedView:
        """Return the conversation up to the end of a run; empty if its tape cannot be folded.

        Raises Purged for a run without its content.  Cancellation: nothing happened.
        """
        found = await self._journal.read(lambda store: _fold(store, run_id))
        if found is None:
            return InheritedView(messages=())
        history = await self.repeat(found.history)
        last = past_run(found)
        summary = found.summary or history.summary
        if found.summary is not None:
            history = history.summarised(found.summary)
        before = (message for run in history.runs for message in run.messages)
        return InheritedView(
            messages=tuple(
                without_refused(message, found.refused) for message in (*before, *last.messages)
            ),
            summary=summary,
            is_tainted=found.is_tainted or history.is_tainted,
        )

    async def view(self, run: Run, run_ids: tuple[str, ...] | None) -> InheritedView:
        """Return the conversation that the model of `run` is shown, after these earlier runs.

        None means the history that the run would get if it began now.
        Cancellation: nothing happened.
        """
        history = await (self.find(run) if run_ids is None else self.repeat(run_ids))
        return view_of(run, history, self._budget_tokens)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Drop these runs, which were purged, from memory; reads that began before are not kept."""
        self._forgets += 1
        for run_id in run_ids:
            run = self._known.pop(run_id, None)
            self._known_bytes -= 0 if run is None else _size(run)

    def _remember(self, history: History, forgets: int) -> None:
        if forgets != self._forgets:
            return
        for run in history.runs:
            own = None if run.summary is None else run.summary.covered_of(run.run_id)
            is_shortened = run.first != (own or 0)  # by the summary of a later run
            if run.run_id not in self._known and not is_shortened:
                self._known[run.run_id] = run
                self._known_bytes += _size(run)
        while self._known_bytes > MAX_KNOWN_BYTES:  # the first that were read go first
            gone = self._known.pop(next(iter(self._known)))
            self._known_bytes -= _size(gone)


def _size(run: PastRun) -> int:
    """Return an estimate of the run's memory, in bytes."""
    return run.tokens * _BYTES_A_TOKEN + len(run.messages) * _BYTES_A_MESSAGE


def _past(store: JournalStore, run: Run, known: Mapping[str, PastRun]) -> Iterator[PastRun]:
    """Yield the session's runs before this one, latest start first.  Blocks."""
    session_id = run.accepted.session_id
    wanted = RunFilter(session_id=session_id, states=ENDED, limit=MAX_RUNS)
    for run_id in store.list_started_ids(wanted):
        past = known.get(run_id)
        if past is None:
            found = _read(store, run_id)
            past = past_run(found) if found is not None and belongs(found, run) else None
        if past is not None and past.epoch == run.accepted.epoch:
            yield past


def _named(
    store: JournalStore, run_ids: tuple[str, ...], known: Mapping[str, PastRun]
) -> Iterator[PastRun]:
    for run_id in run_ids:
        past = known.get(run_id)
        if past is None and (found := _read(store, run_id)) is not None:
            past = past_run(found)
        if past is not None:
            yield past


def _read(store: JournalStore, run_id: str) -> Run | None:
    try:
        return _fold(store, run_id)
    except Unreadable:
        return None


def _fold(store: JournalStore, run_id: str) -> Run | None:
    """Return the run; None if there is none or its tape cannot be folded.  Raises Purged."""
    try:
        found = read_run(store, run_id)
    except Damaged:
        return None
    return None if found is None else found.run
