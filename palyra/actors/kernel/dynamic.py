"""The dynamic supervisor: children started on demand, up to a cap.

Owns: a nursery and the incarnations of its children.  Called by: any task, directly.
Never: restarts a child that failed its first start (the starter decides), keeps an order, or
remembers its children when it is itself restarted.
Semantics: Elixir's `DynamicSupervisor`; stuck children are treated as in `supervisor`.  One difference:
crashes are counted for each child, since the children have nothing to do with one another.  A child
that crashes too often is set aside: it ends, its exit says so, and the supervisor does not escalate.
The count belongs to the id, as a child may end well between two crashes and be started again.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from palyra.actors.kernel.child import Child, ChildSnapshot, ChildSpec, Exit, ExitListener
from palyra.actors.kernel.supervisor import end_child, live, log, report, report_stuck, stop_child
from palyra.core.supervision import (
    CHILD_INTENSITY,
    PERIOD_S,
    Restart,
    RestartWindow,
    charge_restart,
    pause_s,
)
from palyra.errors import ActorGone, Conflict, InvariantBroken, Overloaded

RETRY_AFTER_MS = 250  # a hint: children end much sooner than that


class DynamicSupervisor:
    """A capped, unordered set of `temporary` or `transient` children, stopped all at once."""

    def __init__(
        self,
        name: str,
        *,
        max_children: int,
        intensity: int = CHILD_INTENSITY,
        period_s: float = PERIOD_S,
        on_exit: ExitListener | None = None,
        rng: Callable[[], float] = random.random,  # noqa: S311 - jitter
    ) -> None:
        """`intensity` and `period_s` are those of each child."""
        self.name = name
        self._max_children = max_children
        self._children: dict[str, Child] = {}
        self._fresh = RestartWindow(intensity, period_s)
        self._windows: dict[str, RestartWindow] = {}  # of ids that crashed within the period
        self._on_exit = on_exit
        self._rng = rng
        self._incarnation = 0
        self._restarts = 0
        self._nursery: trio.Nursery | None = None  # None: no child may start
        self._serving = trio.CancelScope()
        self._stop_reason = ""

    def __contains__(self, child_id: object) -> bool:
        return child_id in self._children

    def __len__(self) -> int:
        return len(self._children)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the children that are started meanwhile, until stopped.

        Cancellation: all children were stopped at once, each in its grace.
        """
        self._begin()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                with self._serving:
                    await trio.sleep_forever()
            finally:
                self._nursery = None
                await self._stop_all()  # noqa: ASYNC102 - shielded inside

    async def start_child(self, spec: ChildSpec) -> Any:  # noqa: ANN401 - the child's own value
        """Start the child, wait until it is ready, and return the argument of its `started()`.

        Raises Overloaded over the cap, Conflict for an id in use, ActorGone when the supervisor
        is stopping, and the error of a failed start.  Cancellation: the child is cancelled too.
        """
        changed = trio.Event()
        child = self._admit(spec, changed)
        try:
            await changed.wait()
        finally:
            if not changed.is_set():
                child.cancel("its starter was cancelled")
        if child.is_ready:
            return child.value
        raise _start_error(child)

    def spawn_child(self, spec: ChildSpec) -> None:
        """Start the child without waiting; raises as `start_child`, except the child's errors."""
        self._admit(spec, None)

    def cancel_child(self, child_id: str, reason: str) -> None:
        """Cancel the child now, without a drain; unknown ids are ignored, as children end anytime.

        A child that outlives its grace is reported as stuck.
        """
        child = self._children.get(child_id)
        if child is None:
            return
        child.cancel(reason)
        if self._nursery is not None:
            self._nursery.start_soon(stop_child, child, reason, self._on_exit)

    def stop(self, reason: str) -> None:
        """Start stopping all children, from any task; without effect on a later run."""
        self._stop_reason = reason
        self._serving.cancel(reason)

    def child_spec(self, *, restart: Restart = "permanent", grace_s: float = 11.0) -> ChildSpec:
        """Return the spec under which a supervisor runs this one.

        `grace_s` must exceed twice the longest grace of a child; the default suits their default.
        """
        return ChildSpec(self.name, self.run, restart, grace_s, snapshot=self.snapshot)

    def snapshot(self) -> ChildSnapshot:
        """Return the current state of this subtree."""
        return ChildSnapshot(
            id=self.name,
            state="down" if self._nursery is None else "running",
            incarnation=self._incarnation,
            restarts=self._restarts,
            children=tuple(child.snapshot() for child in self._children.values()),
        )

    def _begin(self) -> None:
        if self._nursery is not None or self._children:
            raise InvariantBroken(f"{self.name} is already running")
        self._incarnation += 1
        self._windows = {}
        self._serving = trio.CancelScope()
        self._stop_reason = f"{self.name} ends"

    def _admit(self, spec: ChildSpec, changed: trio.Event | None) -> Child:
        if self._nursery is None:
            raise ActorGone(f"{self.name} is not running: {spec.id} was not started")
        if spec.restart == "permanent":
            raise InvariantBroken(f"{self.name}: {spec.id} must be temporary or transient")
        if spec.id in self._children:
            raise Conflict(f"{self.name}: {spec.id} is already running")
        if len(self._children) >= self._max_children:
            message = f"{self.name}: all {self._max_children} children are in use"
            raise Overloaded(message, retry_after_ms=RETRY_AFTER_MS)
        child = Child(spec, self.name, None if changed is None else changed.set)
        self._children[spec.id] = child
        child.begin()
        self._nursery.start_soon(self._live, child, name=spec.id)
        return child

    async def _live(self, child: Child) -> None:
        """Run all incarnations of one child, until it has ended for good."""
        try:
            while self._comes_back(child, await live(child)):
                restarts = len(self._windows[child.spec.id].restarts_s)
                if not await child.pause(pause_s(restarts, self._rng)):
                    break
                child.begin()
        finally:
            del self._children[child.spec.id]
            child.close()

    def _comes_back(self, child: Child, end: Exit) -> bool:
        """Report the end; charge the child for its restart, or set it aside."""
        is_first_start = child.incarnation == 1 and child.has_failed_start
        if is_first_start or not child.owes_restart:
            report(end, self._on_exit)
            return False
        now_s = trio.current_time()
        window = charge_restart(self._windows.pop(end.id, self._fresh), now_s)
        if window is None:
            report(msgspec.structs.replace(end, is_set_aside=True), self._on_exit)
            log.critical("a child is set aside", supervisor=self.name, child=end.id)
            return False
        report(end, self._on_exit)
        self._windows = {
            each: known
            for each, known in self._windows.items()
            if now_s - known.restarts_s[-1] <= known.period_s
        }
        self._windows[end.id] = window
        child.restarts += 1
        self._restarts += 1
        return True

    async def _stop_all(self) -> None:
        stuck: list[Exit] = []

        async def stop(child: Child) -> None:
            if await end_child(child, self._stop_reason):
                stuck.append(child.describe_stuck())

        async with trio.open_nursery() as stoppers:
            for child in list(self._children.values()):
                stoppers.start_soon(stop, child)
        report_stuck(stuck, self._on_exit)


def _start_error(child: Child) -> Exception:
    """Return the reason why the child did not become ready."""
    if child.exit is None or child.exit.error is None:
        return ActorGone(f"{child.spec.id} was stopped before it was ready")
    return child.exit.error
