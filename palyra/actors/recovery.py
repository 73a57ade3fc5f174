"""Recovery at start: every run that was open when the daemon ended goes on.

Owns: nothing.  Talks to: the journal, then the session of each open run.
Never: decides how a run goes on; that is `core.run`, from the tape.
Restart: transient; it ends when every open run is with its session.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec
import trio

from palyra.actors.office import Office
from palyra.actors.recovered import Recovered, read_run
from palyra.core.alarms import run_stranded
from palyra.core.ports import JournalStore
from palyra.core.records import RunRecord, SessionRecord
from palyra.errors import InvariantBroken

RUNS_A_LOOK = 16  # read and folded in one call of a thread; their steps follow while it reads on


class _Found(msgspec.Struct, frozen=True):
    """The open runs of one session, oldest first, and those that nobody can follow."""

    session: SessionRecord | None
    runs: tuple[Recovered, ...]
    stranded: tuple[tuple[str, str], ...]  # run_id, why


async def recovery(
    office: Office,
    adopt: Callable[[SessionRecord, tuple[Recovered, ...]], None],
    on_done: Callable[[int], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hand every open run to its session, oldest session first; grants and budgets hold by then.

    A tape that nobody can follow is left as it is, and its run is noted as stranded.
    Cancellation: nothing is lost; the next start finds the same tapes.
    """
    task_status.started()
    grants, budgets = office.grants, office.budgets
    open_runs, granted, spendings = await office.journal.read(
        lambda store: (store.list_open_runs(), grants.query(store), budgets.query(store))
    )
    grants.put(granted)
    budgets.put(spendings)
    for sessions in _in_looks(_by_session(open_runs)):
        for found in await office.journal.read(lambda store: _read_all(store, sessions)):  # noqa: B023 - called before the next round
            if found.session is not None:
                adopt(found.session, found.runs)
            for run_id, reason in found.stranded:
                office.directory.stranded[run_id] = reason
                office.incidents.report(run_stranded(run_id, reason))
    office.directory.is_complete = True
    office.incidents.end_start()
    on_done(len(open_runs))


def _by_session(open_runs: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """The runs of each session, oldest first, and so the sessions."""
    by_session: dict[str, list[RunRecord]] = defaultdict(list)
    for record in sorted(open_runs, key=lambda record: (record.created_ms, record.run_id)):
        by_session[record.session_id].append(record)
    return list(by_session.values())


def _in_looks(sessions: list[list[RunRecord]]) -> Iterator[list[list[RunRecord]]]:
    """Whole sessions, together about as many runs as one look may take."""
    look: list[list[RunRecord]] = []
    for records in sessions:
        look.append(records)
        if sum(map(len, look)) >= RUNS_A_LOOK:
            yield look
            look = []
    if look:
        yield look


def _read_all(store: JournalStore, sessions: list[list[RunRecord]]) -> list[_Found]:
    return [_read(store, records) for records in sessions]


def _read(store: JournalStore, records: list[RunRecord]) -> _Found:
    """One session with its open runs."""
    session = store.find_session(records[0].session_id)
    runs: list[Recovered] = []
    stranded: list[tuple[str, str]] = []
    for record in records:
        try:
            runs.append(_follow(store, record, session))
        except InvariantBroken as broken:
            stranded.append((record.run_id, broken.message))
    return _Found(session, tuple(runs), tuple(stranded))


def _follow(store: JournalStore, record: RunRecord, session: SessionRecord | None) -> Recovered:
    """The run from its tape.  Raises InvariantBroken when it has none, or no session."""
    if session is None:
        raise InvariantBroken(f"its session {record.session_id} is not there")
    found = read_run(store, record.run_id)
    if found is None:
        raise InvariantBroken("its tape is not there")
    return found
