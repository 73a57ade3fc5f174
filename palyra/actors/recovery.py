"""Recovery at start: every run that was open when the daemon ended goes on.

Owns: nothing.  Talks to: the journal, then the session of each open run.
Never: decides how a run goes on; that is `core.run`, from the tape.
Restart: transient; it ends when every open run is with its session.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable

import structlog
import trio

from palyra.actors.office import Office
from palyra.actors.resume import Recovered, find_run
from palyra.core.records import RunRecord
from palyra.errors import InvariantBroken

log = structlog.get_logger("palyra.recovery")


async def recovery(
    office: Office,
    adopt: Callable[[str, tuple[Recovered, ...]], Awaitable[None]],
    on_done: Callable[[int], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hand every open run to its session, oldest session first.

    Cancellation: nothing is lost; the next start finds the same tapes.
    """
    task_status.started()
    open_runs = await office.journal.read(lambda store: store.list_open_runs())
    by_session: dict[str, list[RunRecord]] = defaultdict(list)
    for record in sorted(open_runs, key=lambda record: (record.created_ms, record.run_id)):
        by_session[record.session_id].append(record)
    for session_id, records in by_session.items():
        runs = [found for record in records if (found := await _read(office, record)) is not None]
        await adopt(session_id, tuple(runs))
    on_done(len(open_runs))


async def _read(office: Office, record: RunRecord) -> Recovered | None:
    """The run, or None for a tape nobody can follow: it is left alone and reported."""
    try:
        return await find_run(office.journal, record.run_id)
    except InvariantBroken as broken:
        log.critical("a tape cannot be folded", run_id=record.run_id, detail=broken.message)
        return None
