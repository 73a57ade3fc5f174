"""Watch of runs: a snapshot of the open ones, then the newest state of each that changes.

Owns: the ids of the runs that have changed since the last frame.  Notified by: the hub, at each commit.
Talks to: the journal, through `ReadRuns`, which shows what the caller sees, and the client's sink.  Never: keeps the state of a run.

Only ids wait, and the state is read when it is sent, so any number of changes of one run cost one
frame.  A pass takes all ids, waits until the sink has room, and is followed by a pause; so a run is
sent at most four times a second, and a slow reader gets fewer frames instead of a full outbox.  If
more ids wait than `MOST_CHANGED`, or a read of changes fails, the ids are forgotten and the snapshot
is sent again.  A snapshot whose read fails goes on where it stopped, with the ids that wait: begun again, it
would leave the reader runs of its first part that have ended since.  Without a watch a commit costs one look at an empty table.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio

from palyra.core.journal.changes import RunFilter
from palyra.core.session.commands import RunView
from palyra.errors import PalyraError
from palyra.net.delivery.subscription import ClientContext
from palyra.net.protocol.notifications import RunsUpdated

PAUSE_S = 0.25
RUNS_IN_FRAME = 32  # to read, view and encode them takes the loop less than a millisecond
MOST_CHANGED = 4_096

ReadRuns = Callable[[RunFilter], Awaitable[list[RunView]]]
_OPEN = RunFilter(states=("accepted", "in_progress"), limit=RUNS_IN_FRAME)


class RunWatch:
    """One watch of one connection."""

    def __init__(self, client: ClientContext, wanted: RunFilter, read_runs: ReadRuns) -> None:
        self.subscription_id = client.new_id("sub")
        self._client = client
        self._wanted = wanted
        self._read_runs = read_runs
        self._shown: set[str] = set()  # open runs that the reader has
        self._changed: dict[str, None] = {}
        self._is_behind = True  # a snapshot is due
        self._page: RunFilter | None = None  # next part of the snapshot in progress
        self._work = trio.Event()
        self._scope = trio.CancelScope()

    def start(self) -> None:
        """Begin to send; the reply that names the watch must be in the sink."""
        self._client.hub.run_watchers[self] = None
        self._client.spawn(self._serve)

    def close(self) -> None:
        """Send nothing more."""
        self._client.hub.run_watchers.pop(self, None)
        self._scope.cancel("the watch was closed")

    def note_committed(self, heads: Sequence[tuple[str, int]]) -> None:
        """Note that these runs have new committed events.  Called by the hub."""
        self._changed.update(dict.fromkeys(run_id for run_id, _ in heads))
        if len(self._changed) > MOST_CHANGED:
            self._changed.clear()
            self._is_behind = True
        self._work.set()

    async def _serve(self) -> None:
        with self._scope:
            while True:
                await self._send_news()
                await trio.sleep(PAUSE_S)
                await self._work.wait()

    async def _send_news(self) -> None:
        """Send the snapshot if it is due, else the changes; what could not be read is due again."""
        self._work = trio.Event()
        try:
            if self._is_behind or self._page is not None:
                await self._send_snapshot()
            else:
                changed, self._changed = list(self._changed), {}
                await self._send_changes(changed)
        except PalyraError:  # the journal is busy or stopped
            self._is_behind = self._is_behind or self._page is None
            self._work.set()
        if self._changed or self._is_behind:  # noted before this pass
            self._work.set()

    async def _send_snapshot(self) -> None:
        """Send the open runs, newest first; the changes of a run that ended meanwhile wait."""
        if self._page is None:
            self._page, self._is_behind = _OPEN, False
            self._changed.clear()
            self._shown.clear()
        while self._page is not None:
            runs = await self._read(self._page)
            is_last = len(runs) < RUNS_IN_FRAME
            self._send([run for run in runs if run.fits(self._wanted)], [], is_last=is_last)
            self._page = None if is_last else msgspec.structs.replace(_OPEN, before=runs[-1].run_id)

    async def _send_changes(self, changed: list[str]) -> None:
        for start in range(0, len(changed), RUNS_IN_FRAME):
            run_ids = tuple(changed[start : start + RUNS_IN_FRAME])
            found = await self._read(RunFilter(run_ids=run_ids, limit=RUNS_IN_FRAME))
            runs = [run for run in found if run.fits(self._wanted)]
            gone = self._shown.intersection(run_ids).difference(run.run_id for run in runs)
            if runs or gone:
                self._send(runs, sorted(gone))

    async def _read(self, wanted: RunFilter) -> list[RunView]:
        await self._client.sink.wait_room()
        return await self._read_runs(wanted)

    def _send(self, runs: list[RunView], gone: list[str], *, is_last: bool | None = None) -> None:
        """Queue one frame; `is_last` is given for a part of the snapshot."""
        self._shown.difference_update(gone)
        for run in runs:
            (self._shown.discard if run.is_terminal else self._shown.add)(run.run_id)
        news = RunsUpdated(
            subscription=self.subscription_id,
            runs=runs,
            gone=gone,
            snapshot=is_last is not None,
            complete=bool(is_last),
        )
        self._client.sink.put_notice("run.updated", news)
