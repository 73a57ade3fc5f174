"""All cases, so many at once, until they are done or somebody says stop.

Stopping is always the same: requests under way are dropped, files are whole, runs go on at the
daemon.  The same command finds them again.
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

SYNC_EVERY_S = 1.0  # a power cut costs at most so many seconds of results, found again


@dataclass(frozen=True, slots=True)
class Selection:
    """How much of a file is run."""

    path: Path
    facts: InputFacts
    repeat: int
    seed: int  # of repeat 0 of cases that name none
    limit: int | None

    @property
    def total(self) -> int:
        """How many results there will be."""
        return self.repeat * min(self.facts.cases, self.limit or self.facts.cases)

    def walk(self) -> Iterator[CaseRun]:
        """Every case of every repeat, in file order; the file is read once a repeat."""
        for repeat in range(self.repeat):
            for case in islice(read_cases(self.path, self.facts), self.limit):
                seed = self.seed if case.seed is None else case.seed
                yield CaseRun(case, repeat, seed + repeat)


@dataclass(slots=True)
class CaseCounts:
    """How far it is."""

    total: int
    done: int = 0  # results of earlier commands included
    new: int = 0  # results of this one
    unmet: int = 0  # of these, expectations that did not hold
    fallen: int = 0  # of these, not done
    began_s: float = field(default_factory=time.perf_counter)

    def note(self, result: CaseResult) -> None:
        """Count a result."""
        self.done += 1
        self.new += 1
        self.unmet += result.met is False
        self.fallen += result.state != "done"

    @property
    def per_s(self) -> float:
        """Results a second, of this command."""
        return self.new / max(1e-9, time.perf_counter() - self.began_s)


@dataclass(frozen=True, slots=True)
class _Job:
    work: CaseRun
    after: trio.Event | None  # the case before it in its session
    done: trio.Event = field(default_factory=trio.Event)


class Drive:
    """One command's way through the cases."""

    def __init__(
        self, extent: Selection, performer: Performer, on_result: Callable[[CaseCounts], None]
    ) -> None:
        self._extent = extent
        self._performer = performer
        self._directory = performer.directory
        self._on_result = on_result
        self._sessions: dict[tuple[str, int], trio.Event] = {}
        self.tally = CaseCounts(extent.total)

    async def run(self, connect: Connect, concurrency: int) -> None:
        """Return when every case has its result.  Raises what concerns more than one case.

        Cancellation: an orderly stop, see above.
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
        """Ask again for the tapes that a crash of the machine took."""
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
            # Nobody takes jobs any more only when one of them raised: that is what counts.
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
        """Perform cases until there are none.  Jobs come in order: who is waited for is under way."""
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
