"""Concurrent execution of all cases, which can be stopped and continued at any time.

Theory: one producer walks through the cases in file order and hands each one without a result to
`concurrency` worker tasks over a channel without a buffer.  Cases of one session and repeat run one
after another: each waits for the event `done` of the case before it.  Because jobs are handed out
in order, that earlier case has already been taken by a worker, so waiting cannot deadlock.

A stop is a cancellation: requests in flight are dropped, the files stay complete, and runs continue
at the daemon.  The next command with the same output directory finds those runs by their
idempotency keys.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import trio

from palyra.harness.case_runner import CaseRun, Performer, fetch_tape
from palyra.harness.cases import InputFacts, read_cases
from palyra.harness.connections import Connect, PacedConnection, count_lanes, open_lanes
from palyra.harness.outcome import CaseResult

SYNC_EVERY_S = 1.0  # results of at most this time must be fetched again after a power failure


@dataclass(frozen=True, slots=True)
class InputSelection:
    """Part of an input file to execute: the number of repeats, the seed and the limit."""

    path: Path
    facts: InputFacts
    repeat: int
    seed: int  # of repeat 0, for cases without a seed
    limit: int | None

    @property
    def total(self) -> int:
        """Number of results when every case has run."""
        return self.repeat * min(self.facts.cases, self.limit or self.facts.cases)

    def walk(self) -> Iterator[CaseRun]:
        """Yield every case of every repeat, in file order; the file is read once a repeat."""
        for repeat in range(self.repeat):
            for case in islice(read_cases(self.path, self.facts), self.limit):
                seed = self.seed if case.seed is None else case.seed
                yield CaseRun(case, repeat, seed + repeat)


@dataclass(slots=True)
class CaseCounts:
    """Progress counters of one command."""

    total: int
    done: int = 0  # all results, including those of earlier commands
    new: int = 0  # results of this command
    unmet: int = 0  # new results whose expectations did not hold
    fallen: int = 0  # new results whose run did not end in the state "done"
    began_s: float = field(default_factory=time.perf_counter)

    def note(self, result: CaseResult) -> None:
        """Count a result."""
        self.done += 1
        self.new += 1
        self.unmet += result.met is False
        self.fallen += result.state != "done"

    @property
    def per_s(self) -> float:
        """New results per second."""
        return self.new / max(1e-9, time.perf_counter() - self.began_s)


@dataclass(frozen=True, slots=True)
class _Job:
    work: CaseRun
    after: trio.Event | None  # `done` of the previous case in the same session
    done: trio.Event = field(default_factory=trio.Event)


class Drive:
    """Scheduler of the cases of one command."""

    def __init__(
        self, extent: InputSelection, performer: Performer, on_result: Callable[[CaseCounts], None]
    ) -> None:
        self._extent = extent
        self._performer = performer
        self._directory = performer.directory
        self._on_result = on_result
        self._sessions: dict[tuple[str, int], trio.Event] = {}
        self.tally = CaseCounts(extent.total)

    async def run(self, connect: Connect, concurrency: int) -> None:
        """Execute the cases and return when each has a result.

        Raises errors that concern more than one case.
        Cancellation: an orderly stop, as described at the top of the module.
        """
        lanes = count_lanes(concurrency)
        try:
            async with open_lanes(connect, lanes) as opened, trio.open_nursery() as nursery:
                nursery.start_soon(self._sync_often)
                await self._mend_tapes(opened[0])
                await self._work_through(opened, concurrency)
                nursery.cancel_scope.cancel("every case has its result")
        finally:
            self._directory.sync()

    async def _sync_often(self) -> None:
        while True:
            await trio.sleep(SYNC_EVERY_S)
            self._directory.sync()

    async def _mend_tapes(self, lane: PacedConnection) -> None:
        """Fetch tapes again that were lost or incomplete after a crash of the machine."""
        for run_id in list(self._directory.torn):
            export = await fetch_tape(lane, run_id)
            self._directory.keep_tape(run_id, export.encode())

    async def _work_through(self, lanes: Sequence[PacedConnection], concurrency: int) -> None:
        sender, receiver = trio.open_memory_channel[_Job](0)
        async with trio.open_nursery() as nursery:
            for number in range(concurrency):
                lane = lanes[number % len(lanes)]
                nursery.start_soon(self._serve, lane, receiver.clone())
            receiver.close()
            # The channel breaks only if a worker has raised; the nursery then raises its error.
            with sender, suppress(trio.BrokenResourceError):
                for work in self._extent.walk():
                    await self._hand_out(sender, work)

    async def _hand_out(self, sender: trio.MemorySendChannel[_Job], work: CaseRun) -> None:
        if (work.case.id, work.repeat) in self._directory.finished:
            self.tally.done += 1
            return
        job = _Job(work, None)
        if work.case.session is not None:
            place = work.case.session, work.repeat
            job = _Job(work, self._sessions.get(place))
            self._sessions[place] = job.done
        await sender.send(job)

    async def _serve(self, lane: PacedConnection, jobs: trio.MemoryReceiveChannel[_Job]) -> None:
        """Execute jobs until the channel is closed.

        The previous case of a session is already with a worker, because jobs arrive in order.
        """
        with jobs:
            async for job in jobs:
                if job.after is not None:
                    await job.after.wait()
                result = await self._performer.perform(lane, job.work)
                self._directory.keep_result(result)
                self._forget(job)
                self.tally.note(result)
                self._on_result(self.tally)

    def _forget(self, job: _Job) -> None:
        job.done.set()
        place = job.work.case.session or "", job.work.repeat
        if self._sessions.get(place) is job.done:
            del self._sessions[place]
