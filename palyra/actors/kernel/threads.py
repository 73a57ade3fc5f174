"""Blocking calls in threads: a pool for short calls, a dedicated thread for a resource.

Owns: the pool's limit.  Never: re-enters trio from a thread.
A call in a thread runs to its end even if the calling task is cancelled: both kinds of call wait for
it, so that no two owners use one resource at once.  A call that may hang therefore needs its own
limit (a socket timeout, a busy timeout), not a cancel scope; a long one polls `run_stoppable`'s flag.
"""

import queue
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import outcome
import trio

from palyra.errors import ActorGone, PalyraError

T = TypeVar("T")
Args = TypeVarTuple("Args")

# Files, git and hashing: mostly waiting for a disk.  Far below the 40 of trio's own default, so
# that a burst of file tools cannot starve two cores.
POOL_SIZE = 16
_POOL = trio.lowlevel.RunVar[trio.CapacityLimiter]("palyra.blocking")


async def run_sync(fn: Callable[[*Args], T], *args: *Args) -> T:
    """Run `fn(*args)` in a pool thread and return its result; 100 to 140 microseconds a call.

    `fn` must not call back into this pool through `trio.from_thread`: it would deadlock on the
    limit.  Cancellation: ignored; waits until `fn` returns.
    """
    return await trio.to_thread.run_sync(fn, *args, limiter=_pool(), abandon_on_cancel=False)


def _pool() -> trio.CapacityLimiter:
    """Return the limiter of this trio run."""
    try:
        return _POOL.get()
    except LookupError:
        limiter = trio.CapacityLimiter(POOL_SIZE)
        _POOL.set(limiter)
        return limiter


async def run_stoppable(call: Callable[[Callable[[], bool]], Awaitable[T]]) -> T:
    """Return the result of `call(is_stopped)`, whose thread polls `is_stopped` and returns early.

    Raises the PalyraErrors of the call as they are.
    Cancellation: `is_stopped` returns true from then on; waits until the call returns.
    """
    stop = threading.Event()
    error: PalyraError | None = None
    results: list[T] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_when_cancelled, stop)
        try:
            results.append(await call(stop.is_set))
        except PalyraError as refused:  # the nursery would wrap it in a group
            error = refused
        nursery.cancel_scope.cancel("the call has returned")
    if error is not None:
        raise error
    return results[0]


async def _set_when_cancelled(stop: threading.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stop.set()


class DedicatedThread:
    """One thread that owns a resource and runs calls in order.

    It is a daemon thread, so that a hanging call cannot keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # Unbounded on purpose: at most one call per waiting task.
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, fn: Callable[[*Args], T], *args: *Args) -> T:
        """Run `fn(*args)` in the thread and return its result; about 50 microseconds a call.

        Raises the exceptions of `fn`, and ActorGone after `close`.
        Cancellation: ignored once the call is queued; waits until `fn` returns.
        """
        if self._is_closed:
            raise ActorGone(f"thread {self.name} is closed")
        await trio.lowlevel.checkpoint_if_cancelled()
        token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()

        def work() -> None:
            result = outcome.capture(fn, *args)
            token.run_sync_soon(trio.lowlevel.reschedule, task, result)

        self._calls.put(work)
        value: T = await trio.lowlevel.wait_task_rescheduled(_refuse_abort)
        return value

    def close(self) -> None:
        """Refuse further calls; the thread ends after the queued ones.  Does not wait."""
        self._is_closed = True
        self._calls.put(None)

    def _work(self) -> None:
        for work in iter(self._calls.get, None):
            work()


def _refuse_abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
