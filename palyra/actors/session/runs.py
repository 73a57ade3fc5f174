"""The runs of one session: start the next one, resume lost ones, adopt those of the last daemon.

The part of the session actor that starts and ends the actors of runs; its state is the session's
handle.  A run's actor is started with its first input: Begin for a run that is only accepted,
Resume for one that had begun, Cancel if its end is decided already.  A run whose memory may be
ahead of its tape is first loaded from the tape (`resume_run`).
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.run.actor import run_actor
from palyra.actors.run.handle import RunHandle, RunLifecycle
from palyra.actors.session.handle import SessionHandle
from palyra.actors.session.services import SessionServices
from palyra.core.incident.kinds import run_stranded
from palyra.core.journal.changes import Change
from palyra.core.run.inputs import Begin, Cancel, Resume
from palyra.core.session.queue import plan_adoption
from palyra.errors import ActorGone, Overloaded, Unavailable
from palyra.services.run_loader import LoadedRun, read_run

RUN_GRACE_S = 2.0  # a run has nothing to drain: what it did is on the tape
MAX_CRASHES = 4  # of the actors of one run in one life of the daemon; one more strands it


@dataclass(frozen=True, slots=True)
class SessionRuns:
    """Starts and ends the actors of runs; used by the session's own task only."""

    handle: SessionHandle
    services: SessionServices
    work: DynamicSupervisor

    # --- the queue

    @property
    def is_held(self) -> bool:
        """True if the only waiting run collects messages and its window is open."""
        handle = self.handle
        if handle.active is not None or handle.is_paused or len(handle.waiting) != 1:
            return False
        run = handle.waiting[0].run
        is_collecting = run.state == "accepted" and run.accepted.queue_mode == "collect"
        return is_collecting and trio.current_time() < handle.holds_until_s

    def start_next(self) -> None:
        """Start the next waiting run if none is active."""
        handle = self.handle
        if handle.active is not None or handle.is_paused or not handle.waiting:
            return
        self.drop_unaccepted()
        if handle.waiting and not self.is_held:
            handle.active = handle.waiting.popleft()
            self.begin(handle.active)

    def drop_unaccepted(self) -> None:
        """Drop waiting runs whose acceptance was refused; their senders got the commit's error."""
        waiting = self.handle.waiting
        for run in [run for run in waiting if run.find_refused_acceptance()]:
            waiting.remove(run)
            del self.services.registry.runs[run.run_id]
            run.wake()

    # --- actors of runs

    def begin(self, run: RunHandle) -> None:
        """Start the run's actor, from the tape if memory is ahead of the tape."""
        if run.find_refused_append():
            self._start(run, partial(resume_run, run, self.services))
        else:
            first = first_input(run, self.services)
            self._start(run, partial(run_actor, run, self.services, first))

    def _start(self, run: RunHandle, start: Callable[..., Awaitable[None]]) -> None:
        run.refusals = self.services.journal.refusals
        run.advance("actor_started")
        tree = partial(run.snapshot, self.services.now_ms)
        spec = ChildSpec(f"run:{run.run_id}", start, "temporary", RUN_GRACE_S, run.inbox, tree)
        with suppress(ActorGone):  # `work` is stopping, this session too; the tape stays
            self.work.spawn_child(spec)

    def drop(self, run: RunHandle, cancel: Cancel) -> None:
        """Cancel a waiting run: its actor is started with the Cancel as its first input."""
        self.handle.waiting.remove(run)
        self.handle.beside[run.run_id] = run
        run.ending = cancel
        self.begin(run)

    def end(self, run: RunHandle, cancel: Cancel) -> None:
        """Send Cancel to an active run.  Should its actor end first, the next one begins with it."""
        if run.ending is not None:
            return
        run.ending = cancel
        try:
            run.inbox.offer(cancel)
        except ActorGone:
            pass  # it has no actor at the moment
        except Overloaded:
            self.work.cancel_child(f"run:{run.run_id}", cancel.reason)

    def end_foreground(self, cancel: Cancel) -> None:
        """Cancel the active run and all waiting ones."""
        if self.handle.active is not None:
            self.end(self.handle.active, cancel)
        for run in list(self.handle.waiting):
            self.drop(run, cancel)

    def handle_end(self, run_id: str) -> None:
        """Handle the end of a run's actor: forget a run that is over, resume or strand another."""
        registry, handle = self.services.registry, self.handle
        run = registry.runs.get(run_id)
        if run is None:
            return
        run.wake()
        if not run.is_over:
            is_refused = run.refusals < self.services.journal.refusals
            run.advance("append_refused" if is_refused else "actor_crashed")
            if is_refused or run.crash_count < MAX_CRASHES:
                self._resume(run)
                return
            why = registry.stranded[run_id] = f"its actor was lost {run.crash_count + 1} times"
            self.services.incidents.report(run_stranded(run_id, why))
        del registry.runs[run_id]
        handle.beside.pop(run_id, None)
        if handle.active is run:
            handle.active = None

    def _resume(self, lost: RunHandle) -> None:
        """Start another actor, from the tape, once the journal takes writes again."""
        registry, handle = self.services.registry, self.handle
        crash_count = lost.crash_count + (lost.lifecycle == "lost")
        run = RunHandle(lost.run, lifecycle=lost.lifecycle, crash_count=crash_count)
        run.ending = lost.ending
        registry.runs[run.run_id] = run
        if handle.active is lost:
            handle.active = run
        else:
            handle.beside[run.run_id] = run
        self._start(run, partial(resume_run, run, self.services))

    # --- after a restart

    def adopt(self, recovered: tuple[LoadedRun, ...]) -> None:
        """Take over the session's open runs, oldest first, after a restart of the daemon.

        Runs of messages that arrived before keep their places.
        """
        registry, handle = self.services.registry, self.handle
        found = [each for each in recovered if each.run.run_id not in registry.runs]
        runs = {each.run.run_id: _adopted(each) for each in found}
        registry.runs.update(runs)
        plan = plan_adoption(handle.record, [each.run for each in found])
        for run_id, reason in plan.doomed.items():
            runs[run_id].ending = Cancel(reason=reason, by=handle.record.principal)
        for run_id in plan.beside:
            handle.beside[run_id] = runs[run_id]
            self.begin(runs[run_id])
        self._enqueue(
            [runs[run_id] for run_id in plan.waiting],
            runs[plan.first] if plan.first is not None else None,
        )
        self._restore_window(found)

    def _enqueue(self, waiting: list[RunHandle], first: RunHandle | None) -> None:
        handle = self.handle
        if first is not None and handle.active is not None:
            waiting = [first, *waiting]
        elif first is not None:
            handle.active = first
            self.begin(first)
        handle.waiting = deque([*waiting, *handle.waiting])
        handle.left = ()
        for run in waiting:
            if run.ending is not None:
                self.drop(run, run.ending)

    def _restore_window(self, found: list[LoadedRun]) -> None:
        """Restore the rest of the window of a collecting run."""
        debounce_ms = self.services.debounce_ms
        ends_ms = max((each.last_ms for each in found), default=0) + debounce_ms
        left_ms = min(max(ends_ms - self.services.now_ms(), 0), debounce_ms)
        holds_until_s = trio.current_time() + left_ms / 1000
        self.handle.holds_until_s = max(self.handle.holds_until_s, holds_until_s)


def _adopted(found: LoadedRun) -> RunHandle:
    lifecycle: RunLifecycle = "queued" if found.run.state == "accepted" else "lost"
    handle = RunHandle(found.run, found.prompts, lifecycle=lifecycle)
    handle.approved = {asked.approval_id: asked for asked in found.approved}
    return handle


RETRY_S = 0.25  # between attempts to find the journal writable again


async def find_run(journal: JournalHandle, run_id: str) -> LoadedRun | None:
    """Load a run from its tape, in a reader's thread.  See `read_run`."""
    return await journal.read(lambda store: read_run(store, run_id))


async def resume_run(
    handle: RunHandle,
    services: SessionServices,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Restart a run from its committed tape, discarding its state in memory.

    Wait first until its last appends are settled and the journal takes writes again.
    Cancellation: as for `run_actor`.
    """
    await trio.sleep(RETRY_S * handle.crash_count)
    while not await _is_settled_and_writable(services.journal):  # noqa: ASYNC110 - the journal sends no notification
        await trio.sleep(RETRY_S)
    recovered = await find_run(services.journal, handle.run_id)
    if recovered is None:
        task_status.started()
        handle.advance("acceptance_refused")
        return
    handle.run = recovered.run
    handle.prompts = {prompt.approval_id: prompt for prompt in recovered.prompts}
    handle.approved = {asked.approval_id: asked for asked in recovered.approved}
    if recovered.run.is_terminal:  # its end was committed without an actor
        task_status.started()
        handle.advance("end_committed")
        return
    await run_actor(handle, services, first_input(handle, services), task_status=task_status)


async def _is_settled_and_writable(journal: JournalHandle) -> bool:
    """True if everything appended so far is settled and the journal takes writes."""
    try:
        await journal.commit(Change())
    except Unavailable:
        return False
    return journal.has_room  # an empty change commits even on a full disk


def first_input(handle: RunHandle, services: SessionServices) -> Begin | Resume | Cancel:
    """Return the first input of a run's next actor."""
    if handle.ending is not None:
        return handle.ending
    if handle.run.state == "accepted":
        return Begin(instance_id=services.instance_id, token_bps=services.factors.bps)
    return Resume(is_put_off=handle.lifecycle == "suspended")
