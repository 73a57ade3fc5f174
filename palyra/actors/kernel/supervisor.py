"""The supervisor: starts children in order, restarts crashed ones, stops them in reverse.

Owns: a nursery and the incarnations of its children.  Called by: its parent, `stop`, `snapshot`.
Never: touches a child's state, or runs two incarnations of one child at once.
Semantics: Erlang/OTP `supervisor`, including this: under `rest_for_one` a transient child that has
returned is started again with its siblings, and a restarted supervisor starts all of them.
Three differences.  Mailboxes outlive restarts.  A restart that is not the first of its period comes after
a pause, which grows (`core.supervision`); a crash of a child to the left is treated meanwhile.  And a
trio task that shields itself from cancellation cannot be killed: a child that outlives its grace is logged and reported to `on_exit` with outcome
"stuck", its siblings are still stopped in order, and `run` returns only when it ends.  The process
can exit on that report: only `os._exit` does not wait for such a task.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TypeVar

import structlog
import trio

from palyra.actors.kernel.child import (
    Child,
    ChildSnapshot,
    ChildSpec,
    ChildTask,
    Exit,
    ExitListener,
    State,
)
from palyra.core.backoff import Backoff
from palyra.core.supervision import (
    INTENSITY,
    PAUSE,
    PERIOD_S,
    Restart,
    RestartWindow,
    Strategy,
    charge_restart,
    pause_s,
    plan_restart,
)
from palyra.errors import InvariantBroken, PalyraError, Unavailable

log = structlog.get_logger("palyra.supervisor")

TaskT = TypeVar("TaskT", bound=ChildTask)


# A run leaves four nested nurseries, some turns each; a child that ends at all ends within these.
GRACE_TURNS = 100
SHOWN_STUCK = 5


class Escalated(PalyraError):
    """More restarts than the intensity allows; `__cause__` is the last crash."""


async def live(child: Child) -> Exit:
    """Run one incarnation: the boundary at which an exception becomes an exit.

    `except*` because a failure together with a cancelled task arrives as a BaseExceptionGroup; the
    part that is not an Exception passes through.
    """
    error: Exception | None = None
    try:
        with child.scope:
            await child.spec.start(task_status=child)
    except* Exception as group:  # noqa: BLE001 - broad here and in `run_task` only
        error = _unwrap(group)
    finally:
        end = child.end(error)
    return end


async def run_task(
    siblings: dict[str, ChildTask],
    task: TaskT,
    work: Callable[[TaskT], Awaitable[None]],
    on_crash: Callable[[TaskT, Exception], Awaitable[None]] | None = None,
) -> None:
    """Run one task of an actor, listed among its siblings: the boundary of a `ChildTask`.

    An exception of `work` goes to `on_crash`, which makes an outcome of it.  Without `on_crash`, or
    if that raises, it is the crash of the actor.  Cancellation: passed on to `work`.
    """
    error: Exception | None = None
    siblings[task.id] = task
    try:
        await work(task)
    except* Exception as group:  # the boundary of a task, as in `live`
        if on_crash is None:
            raise
        error = _unwrap(group)
    finally:
        if siblings.get(task.id) is task:  # a successor may have started
            del siblings[task.id]
    if error is not None and on_crash is not None:
        await on_crash(task, error)


def _unwrap(error: Exception) -> Exception:
    """Return the exception itself if the group contains only one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def stop_child(child: Child, reason: str, on_exit: ExitListener | None) -> None:
    """Drain the child, then cancel it; on return it has ended or was reported as stuck.

    Cancellation: shielded; takes at most twice the child's grace and `GRACE_TURNS` turns each.
    """
    if await end_child(child, reason):
        report(child.describe_stuck(), on_exit)


async def end_child(child: Child, reason: str) -> bool:
    """Drain the child, then cancel it; return True if it is stuck.  See `stop_child`."""
    grace_s = child.spec.grace_s
    with trio.CancelScope(shield=True):
        is_asked = False
        with trio.move_on_after(grace_s):
            is_asked = await _ask_to_end(child, reason)
            if is_asked:
                await child.wait_ended()
        if is_asked:
            await _give_turns(child)
        child.cancel(reason)
        with trio.move_on_after(grace_s):
            await child.wait_ended()
        await _give_turns(child)
    return child.is_alive


async def _ask_to_end(child: Child, reason: str) -> bool:
    """Queue a Stop for a running child with a mailbox; return True if it was queued."""
    mailbox = child.spec.mailbox
    if child.state != "running" or mailbox is None:
        return False
    child.state = "stopping"
    return await mailbox.stop(reason)


async def _give_turns(child: Child) -> None:
    """Let the event loop run a child whose grace has passed on the clock only.

    When ten thousand children stop at once, one turn of the loop takes longer than their grace, and
    none of them is stuck.  In each checkpoint every runnable task gets one turn.
    """
    for _ in range(GRACE_TURNS):
        if not child.is_alive:
            return
        await trio.lowlevel.checkpoint()


def report_stuck(ends: Sequence[Exit], on_exit: ExitListener | None) -> None:
    """Log all stuck children in one line, and report each to the listener."""
    if len(ends) == 1:
        report(ends[0], on_exit)
        return
    if ends:
        log.critical(
            "children ignore their cancellation after the grace period",
            supervisor=ends[0].supervisor,
            count=len(ends),
            first=[end.id for end in ends[:SHOWN_STUCK]],
        )
    if on_exit is not None:
        for end in ends:
            on_exit(end)


def report(end: Exit, on_exit: ExitListener | None) -> None:
    """Log a crash or a stuck child, and report every exit to the listener."""
    facts = {"supervisor": end.supervisor, "child": end.id, "incarnation": end.incarnation}
    if isinstance(end.error, Unavailable):  # not a bug: a traceback does not help
        cause = str(end.error.__cause__ or "")
        log.error("child crashed", **facts, reason=end.error.message, cause=cause)
    elif end.outcome == "crashed":
        log.error("child crashed", **facts, exc_info=end.error)
    elif end.outcome == "stuck":
        log.critical("child ignores its cancellation after the grace period", **facts)
    if on_exit is not None:
        on_exit(end)


class RestartBudget:
    """The restarts that one incarnation of a supervisor has left."""

    def __init__(self, supervisor: str, intensity: int, period_s: float) -> None:
        self._supervisor = supervisor
        self._fresh = self._window = RestartWindow(intensity, period_s)

    def renew(self) -> None:
        """Start a new incarnation with all restarts left."""
        self._window = self._fresh

    def charge(self, child: Child) -> Escalated | None:
        """Count the restart of a child; return the error to raise if that is one too many."""
        window = charge_restart(self._window, trio.current_time())
        if window is None:
            return self._escalate(child)
        self._window = window
        child.restarts += 1
        return None

    def pause_s(self, rng: Callable[[], float], backoff: Backoff) -> float:
        """Return the wait before the restart that was charged last."""
        return pause_s(len(self._window.restarts_s), rng, backoff)

    def _escalate(self, child: Child) -> Escalated:
        cause = None if child.exit is None else child.exit.error
        last = "it returned" if cause is None else child.crash_text
        window = self._window
        escalated = Escalated(
            f"{self._supervisor}: {child.spec.id} failed again after {window.intensity} restarts "
            f"within {window.period_s:g} s: {last}"
        )
        escalated.__cause__ = cause
        return escalated


class Supervisor:
    """A fixed list of children; under `rest_for_one` each depends on those before it."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        name: str,
        children: Sequence[ChildSpec],
        *,
        strategy: Strategy,
        intensity: int = INTENSITY,
        period_s: float = PERIOD_S,
        on_exit: ExitListener | None = None,
        backoff: Backoff | None = PAUSE,
        rng: Callable[[], float] = random.random,  # noqa: S311 - jitter
    ) -> None:
        """`backoff` bounds the pauses before restarts; None: there are none."""
        if len({spec.id for spec in children}) != len(children):
            raise InvariantBroken(f"{name}: child ids repeat: {[spec.id for spec in children]}")
        self.name = name
        self._children = [Child(spec, name, self._notice) for spec in children]
        self._strategy = strategy
        self._budget = RestartBudget(name, intensity, period_s)
        self._on_exit = on_exit
        self._backoff = backoff
        self._rng = rng
        self._incarnation = 0
        self._is_running = False
        self._is_announced = False
        self._serving = trio.CancelScope()
        self._stop_reason = ""
        self._changed = trio.Event()
        self._failure: Exception | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the children until stopped; ready when the last of them is.

        Raises Escalated, or the error of a child that failed to start before all were ready.
        Cancellation: the children were stopped in reverse order, each within its grace.
        """
        self._begin()
        async with trio.open_nursery() as nursery:
            try:
                with self._serving:
                    await self._keep_alive(nursery, task_status)
            finally:
                self._is_running = False
                reason = self._stop_reason
                await self._stop(self._children, reason)  # noqa: ASYNC102 - shielded inside
        if self._failure is not None:
            raise self._failure

    def stop(self, reason: str) -> None:
        """Start an orderly stop, from any task; without effect on a later run."""
        self._stop_reason = reason
        self._serving.cancel(reason)

    def restart_child(self, child_id: str, reason: str) -> bool:
        """Cancel a running child, which is started again with its dependants; False for no such child.

        No restart is charged.  A child that is temporary or ignores its cancel does not come back.
        """
        for child in self._children:
            if child.spec.id == child_id and child.state == "running":
                child.cancel(reason)
                return True
        return False

    def close(self) -> None:
        """Close every mailbox below, so that no asker waits; the supervisor will not run again."""
        for child in self._children:
            child.close()

    def child_spec(self, *, restart: Restart = "permanent") -> ChildSpec:
        """Return the spec under which another supervisor runs this one, with the needed grace."""
        return ChildSpec(
            id=self.name,
            start=self.run,
            restart=restart,
            grace_s=1.0 + sum(2 * child.spec.grace_s for child in self._children),
            snapshot=self.snapshot,
            close=self.close,
        )

    def snapshot(self) -> ChildSnapshot:
        """Return the current state of this subtree."""
        return ChildSnapshot(
            id=self.name,
            state=self._state,
            incarnation=self._incarnation,
            restarts=sum(child.restarts for child in self._children),
            children=tuple(child.snapshot() for child in self._children),
        )

    @property
    def _state(self) -> State:
        if self._is_running:
            return "running"
        return "stopping" if any(child.is_alive for child in self._children) else "down"

    def _begin(self) -> None:
        if self._state != "down":
            raise InvariantBroken(f"{self.name} is already running")
        self._is_running = True
        self._is_announced = False
        self._incarnation += 1
        self._budget.renew()
        self._serving = trio.CancelScope()
        self._stop_reason = f"{self.name} ends"
        self._failure = None
        for child in self._children:
            child.revive()

    def _notice(self) -> None:
        self._changed.set()

    async def _keep_alive(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        """Start the leftmost child that is down, again and again, until stopped or failed.

        It acts on what is, not on what happened.  So a late report is harmless: an exit that the
        restart of a sibling has already repaired leaves nothing to do.
        """
        while self._failure is None:
            await trio.lowlevel.checkpoint_if_cancelled()  # a stop goes before a restart
            self._changed = trio.Event()
            index = self._find_unready()
            if index is None:
                self._announce(task_status)
            elif self._children[index].state == "down":
                await self._bring_up(nursery, index)
                continue
            with trio.move_on_at(self._next_start_s()):
                await self._changed.wait()

    def _find_unready(self) -> int | None:
        """Return the position of the leftmost child that is down or still starting.

        A child that pauses is passed over, unless those after it depend on it.
        """
        now_s = trio.current_time()
        for index, child in enumerate(self._children):
            if child.state == "down" and not child.owes_restart and child.not_before_s > now_s:
                if self._strategy == "rest_for_one":
                    return None
            elif child.state in {"down", "starting"}:
                return index
        return None

    def _next_start_s(self) -> float:
        """Return when the pause of a child ends."""
        now_s = trio.current_time()
        return min(
            (
                child.not_before_s
                for child in self._children
                if child.state == "down" and child.not_before_s > now_s
            ),
            default=inf,
        )

    def _announce(self, task_status: trio.TaskStatus[None]) -> None:
        if not self._is_announced and all(child.state != "down" for child in self._children):
            self._is_announced = True
            task_status.started()

    async def _bring_up(self, nursery: trio.Nursery, index: int) -> None:
        """Start the child after its dependants are down; the loop then starts those too."""
        child = self._children[index]
        if child.owes_restart:
            child.owes_restart = False
            self._failure = self._budget.charge(child)
            if self._failure is not None:
                return
            if self._backoff is not None:
                pause = self._budget.pause_s(self._rng, self._backoff)
                child.not_before_s = trio.current_time() + pause
        affected = plan_restart(self._strategy, index, len(self._children))
        await self._take_down(self._children[index + 1 : affected.stop], child.spec.id)
        if child.not_before_s > trio.current_time():
            return
        child.begin()
        nursery.start_soon(self._live, child, name=f"{self.name}/{child.spec.id}")

    async def _take_down(self, children: Sequence[Child], crashed: str) -> None:
        """Stop the dependants of the crashed child, and wait even for stuck ones."""
        await self._stop(children, f"{crashed} restarts")
        for child in children:
            await child.wait_ended()
            if child.spec.restart != "temporary":
                child.revive()  # if it crashed too, this restart repairs both

    async def _live(self, child: Child) -> None:
        end = await live(child)
        if child.state == "ended":
            child.close()
        if child.has_failed_start and not self._is_announced and not end.was_asked:
            self._failure = end.error
        report(end, self._on_exit)

    async def _stop(self, children: Sequence[Child], reason: str) -> None:
        for child in reversed(children):
            await stop_child(child, reason, self._on_exit)
