"""Retention: apply the bounds of `[retention]`, and return the space to the file system.

Owns: the flag that retention is being applied.  Called by clients, and by periodic maintenance with
`maintain`.
Never: removes what is in use (`store.sqlite.retention`), or a row of a tape.

A tape over a bound is pruned by the mechanism of a purge (`actors.purge`): its payloads are replaced,
its hashes stay, and `run.purged`, whose id starts with `ret_`, proves it.  Each run is one commit, so
other commits wait for one run at most.  After an interruption the removed part stays removed, and the
next application makes a new plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import structlog
import trio

from palyra.actors.session.registry import SessionServices
from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.journal.records import (
    IncidentRemoval,
    PageRelease,
    RunRecord,
    SessionPurge,
    TaskRemoval,
)
from palyra.core.journal.retention import (
    CompactionReport,
    RetentionLimits,
    RetentionPlan,
    RetentionReport,
    RunToPrune,
    Space,
)
from palyra.core.ports import JournalStore, NowMs
from palyra.errors import Overloaded, Unavailable
from palyra.operations.purge import DataRights

log = structlog.get_logger("palyra.retention")
SCOPE = "retention:write"
DAEMON = "palyra"  # applies retention on a schedule
BATCH_RUNS = 256  # of one plan
BATCH_RECORDS = 500  # of one commit
STEP_PAGES = 256  # of one commit: 1 MiB
ALL_RUNS = 1_000_000_000


class RetentionSource(Protocol):
    """Queries of the journal.  Blocks; any thread may call.  Each raises Unavailable."""

    def plan(self, limits: RetentionLimits, now_ms: int, *, limit: int) -> RetentionPlan: ...
    def measure(self) -> Space: ...


class PrunableFiles(Protocol):
    """Files next to the journal.  Blocks; any thread may call."""

    def sweep(self, *, is_dry: bool) -> tuple[int, int]:
        """Delete files over a bound that are not in use; return their number and bytes.

        Raises Unavailable.
        """
        ...


@dataclass(frozen=True, slots=True)
class RetentionStores:
    """The stores that retention prunes; `source` is None if the journal is not in files."""

    age_ms: NowMs  # the time by which content ages

    source: RetentionSource | None
    artifacts: PrunableFiles
    checkpoints: PrunableFiles


class Retention:
    """The methods of retention; those for clients take the authenticated caller first."""

    def __init__(
        self,
        limits: RetentionLimits,
        kept: RetentionStores,
        data_rights: DataRights,
        services: SessionServices,
    ) -> None:
        self._limits = limits
        self._kept = kept
        self._data_rights = data_rights
        self._age_ms = kept.age_ms
        self._journal = services.journal
        self._run_blocking = services.run_blocking
        self._now_ms = services.now_ms
        self._new_id = services.new_id
        self._is_busy = False

    # --- for clients

    async def preview(self, caller: Caller) -> RetentionReport:
        """Return counts of what is over the bounds.  Raises Forbidden, Unavailable.

        Cancellation: nothing happened.
        """
        caller.require(SCOPE)
        source = self._get_source()
        plan = await self._run_blocking(self._plan, source, ALL_RUNS)
        files = await self._run_blocking(partial(self._sweep_files, is_dry=True))
        space = await self._run_blocking(source.measure)
        return _report(self._limits, plan.runs, plan, files, space)

    async def apply(self, caller: Caller, *, max_runs: int | None = None) -> RetentionReport:
        """Remove what is over the bounds, at most `max_runs` tapes.

        Raises Forbidden, Overloaded while it is being applied, Unavailable.
        Cancellation: some of it may be removed; the same request removes the rest.
        """
        caller.require(SCOPE)
        return await self.enforce(caller.principal, max_runs=max_runs)

    async def compact(self, caller: Caller, *, max_steps: int | None = None) -> CompactionReport:
        """Return free pages of the database file to the file system, in steps of 1 MiB.

        Raises Forbidden, Unavailable.  Cancellation: some may be returned.
        """
        caller.require(SCOPE)
        return await self.release_pages(max_steps=max_steps)

    # --- for the daemon itself

    async def maintain(self, *, max_runs: int = BATCH_RUNS, max_steps: int = 64) -> RetentionReport:
        """Apply retention and compact the journal, a bounded part of both.

        For a periodic task: `is_complete` is False if there is more to do at once.  Raises Overloaded,
        Unavailable.  Cancellation: a part may be done.
        """
        report = await self.enforce(DAEMON, max_runs=max_runs)
        space = await self.release_pages(max_steps=max_steps)
        is_complete = report.is_complete and (space.is_complete or bool(space.remedy))
        return msgspec.structs.replace(report, is_complete=is_complete)

    async def enforce(self, by: str, *, max_runs: int | None = None) -> RetentionReport:
        """Remove what is over the bounds, as `apply` does for a client.

        Raises Overloaded, Unavailable.  Cancellation: a part may be removed.
        """
        source = self._get_source()
        if self._is_busy:
            raise Overloaded("retention is being applied: wait for its end", retry_after_ms=1_000)
        self._is_busy = True
        try:
            return await self._enforce(source, by, ALL_RUNS if max_runs is None else max_runs)
        finally:
            self._is_busy = False

    async def release_pages(self, *, max_steps: int | None = None) -> CompactionReport:
        """Shorten the database file, as `compact` does for a client.

        Raises Unavailable.  Cancellation: some pages may be returned.
        """
        source = self._get_source()
        before = space = await self._run_blocking(source.measure)
        steps = 0
        while space.is_incremental and space.free_bytes and steps != max_steps:
            await self._journal.commit(Change(records=(PageRelease(pages=STEP_PAGES),)))
            steps += 1
            space = await self._run_blocking(source.measure)
        remedy = ""
        if not space.is_incremental and space.free_bytes:
            remedy = "stop the daemon and run `palyra retention compact`"
        return CompactionReport(
            before_bytes=before.size_bytes,
            after_bytes=space.size_bytes,
            steps=steps,
            is_complete=not space.free_bytes,
            remedy=remedy,
        )

    # --- steps

    def _get_source(self) -> RetentionSource:
        if self._kept.source is None:
            raise Unavailable("this daemon keeps no files: there is nothing to retain")
        return self._kept.source

    def _plan(self, source: RetentionSource, limit: int) -> RetentionPlan:
        """Return what is over the bounds.  Blocks."""
        return source.plan(self._limits, self._age_ms(), limit=limit)

    def _sweep_files(self, *, is_dry: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        """Sweep artifacts and file checkpoints.  Blocks."""
        return self._kept.artifacts.sweep(is_dry=is_dry), self._kept.checkpoints.sweep(
            is_dry=is_dry
        )

    async def _enforce(self, source: RetentionSource, by: str, max_runs: int) -> RetentionReport:
        purge = SessionPurge(purge_id=self._new_id("ret"), by=by, requested_ms=self._now_ms())
        first = plan = await self._run_blocking(self._plan, source, min(BATCH_RUNS, max_runs))
        pruned: list[RunToPrune] = []
        while plan.runs and len(pruned) < max_runs:
            done = await self._prune_runs(plan.runs, purge)
            pruned += done
            if not done:
                break
            room = min(BATCH_RUNS, max_runs - len(pruned))
            plan = await self._run_blocking(self._plan, source, max(room, 1))
        await self._remove_records(first)
        files = await self._run_blocking(partial(self._sweep_files, is_dry=False))
        space = await self._run_blocking(source.measure)
        report = _report(self._limits, pruned, first, files, space, is_complete=not plan.runs)
        log.info("retention.applied", purge_id=purge.purge_id, by=by, runs=len(pruned))
        return report

    async def _prune_runs(
        self, runs: Sequence[RunToPrune], purge: SessionPurge
    ) -> list[RunToPrune]:
        """Prune these runs, one commit each; return those that were pruned now."""
        done: list[RunToPrune] = []
        for each in runs:
            record = await self._journal.find(partial(_find_run, run_id=each.run_id))
            if record is None or not record.is_terminal or record.purged_ms is not None:
                continue
            if await self._data_rights.purge_unpurged(record, purge):
                done.append(each)
            await trio.lowlevel.checkpoint()
        self._data_rights.forget_runs([each.run_id for each in done])
        return done

    async def _remove_records(self, plan: RetentionPlan) -> None:
        """Remove the incidents and the tasks of the plan, in batches."""
        for _ in range(0, plan.incidents, BATCH_RECORDS):
            removal = IncidentRemoval(until_ms=plan.incidents_until_ms, limit=BATCH_RECORDS)
            await self._journal.commit(Change(records=(removal,)))
        for _ in range(0, plan.tasks, BATCH_RECORDS):
            ended = TaskRemoval(until_ms=plan.tasks_until_ms, limit=BATCH_RECORDS)
            await self._journal.commit(Change(records=(ended,)))


def _find_run(store: JournalStore, *, run_id: str) -> RunRecord | None:
    return store.find_run(run_id)


def _report(
    limits: RetentionLimits,
    runs: Sequence[RunToPrune],
    plan: RetentionPlan,
    files: tuple[tuple[int, int], tuple[int, int]],
    space: Space,
    *,
    is_complete: bool = True,
) -> RetentionReport:
    (artifacts, artifact_bytes), (checkpoints, checkpoint_bytes) = files
    return RetentionReport(
        is_set=limits.are_set,
        runs=len(runs),
        kept_runs=plan.kept_runs,
        tape_bytes=sum(each.size_bytes for each in runs),
        artifacts=artifacts,
        artifact_bytes=artifact_bytes,
        file_checkpoints=checkpoints,
        file_checkpoint_bytes=checkpoint_bytes,
        incidents=plan.incidents,
        tasks=plan.tasks,
        receipts=plan.receipts,
        is_complete=is_complete,
        database_bytes=space.size_bytes,
        free_bytes=space.free_bytes,
        is_incremental=space.is_incremental,
    )
