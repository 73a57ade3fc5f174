"""Thread hops: values and errors come back, order is kept, a cancel waits for the call."""

import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from palyra.actors.kernel import threads
from palyra.actors.kernel.threads import POOL_SIZE, DedicatedThread, run_stoppable, run_sync
from palyra.errors import ActorGone, Unavailable

pytestmark = pytest.mark.real


def fail(message: str) -> None:
    raise ValueError(message)


async def test_pool_call_returns_the_value() -> None:
    """The call runs in another thread and its value comes back."""
    assert (5, True) == await run_sync(lambda a, b: (a + b, in_other_thread()), 2, 3)


def in_other_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


async def test_pool_call_raises_the_error() -> None:
    """An exception of the call is raised in the caller."""
    with pytest.raises(ValueError, match="broken"):
        await run_sync(fail, "broken")


async def test_pool_is_bounded() -> None:
    """No more calls run at once than the pool has places."""
    arrived, leave = threading.Semaphore(0), threading.Event()

    def occupy() -> None:
        arrived.release()
        leave.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(POOL_SIZE + 3):
            nursery.start_soon(run_sync, occupy)
        for _ in range(POOL_SIZE):
            await trio.to_thread.run_sync(arrived.acquire)
        assert (POOL_SIZE, 3) == (threads._pool().borrowed_tokens, waiting())
        assert not arrived.acquire(blocking=False)
        leave.set()


def waiting() -> int:
    return threads._pool().statistics().tasks_waiting


async def test_cancel_of_a_stoppable_call_sets_the_flag_that_its_thread_polls() -> None:
    """A cancelled call sees the flag, returns, and leaves no task or result behind."""
    seen: list[bool] = []

    def poll(is_stopped: Callable[[], bool]) -> None:
        trio.from_thread.run_sync(scope.cancel, "test")
        while not is_stopped():
            threading.Event().wait(0.001)
        seen.append(True)

    with trio.CancelScope() as scope:
        await run_stoppable(lambda is_stopped: run_sync(poll, is_stopped))
        seen.append(False)
    assert [True] == seen


async def test_stoppable_call_returns_and_raises_as_the_call_does() -> None:
    """The result and a typed error reach the caller as they are, and the flag stays down."""

    def refuse(_: Callable[[], bool]) -> None:
        raise Unavailable("the disk is gone")

    assert False is await run_stoppable(run_sync)
    with pytest.raises(Unavailable, match="the disk is gone"):
        await run_stoppable(lambda is_stopped: run_sync(refuse, is_stopped))


async def test_cancelled_pool_call_has_happened() -> None:
    """A cancelled caller still waits for the call and gets its value."""
    await check_cancel_waits(run_sync)


async def test_cancelled_thread_call_has_happened() -> None:
    """A cancelled caller still waits for the call and gets its value."""
    thread = DedicatedThread("owner")
    await check_cancel_waits(thread.call)
    thread.close()


async def check_cancel_waits(call: Callable[[Callable[[], str]], Awaitable[str]]) -> None:
    begun, leave = threading.Event(), threading.Event()
    answers: list[str] = []

    def work() -> str:
        begun.set()
        leave.wait()
        return "done"

    async def wait() -> None:
        answers.append(await call(work))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
        leave.set()
    assert ["done"] == answers


async def test_thread_keeps_the_order_of_calls() -> None:
    """Calls run one after the other, all in the one thread that bears the name."""
    thread = DedicatedThread("owner")
    calls: list[tuple[int, str]] = []
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(thread.call, note_call, calls, number)
    thread.close()
    assert 20 == len(calls)
    assert {"owner"} == {name for _, name in calls}


def note_call(calls: list[tuple[int, str]], number: int) -> None:
    calls.append((number, threading.current_thread().name))


async def test_thread_call_returns_value_or_error() -> None:
    """The function's result or exception reaches the caller, and the thread stays usable."""
    thread = DedicatedThread("owner")
    with pytest.raises(ValueError, match="broken"):
        await thread.call(fail, "broken")
    assert 8 == await thread.call(pow, 2, 3)
    thread.close()


async def test_closed_thread_finishes_what_it_has_and_takes_no_more() -> None:
    """A close lets the calls already made end, ends the thread and refuses the next call."""
    thread = DedicatedThread("owner")
    leave, calls = threading.Event(), list[tuple[int, str]]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread.call, wait_for, leave)
        nursery.start_soon(thread.call, note_call, calls, 1)
        await trio.testing.wait_all_tasks_blocked()
        thread.close()
        with pytest.raises(ActorGone, match="thread owner is closed"):
            await thread.call(note_call, calls, 2)
        leave.set()
    assert [(1, "owner")] == calls
    await run_sync(partial(thread._thread.join, 30))
    assert not thread._thread.is_alive()


def wait_for(event: threading.Event) -> None:
    event.wait()


async def test_cancelled_caller_does_not_begin_a_call() -> None:
    """A call made in a cancelled scope does not reach the thread."""
    thread = DedicatedThread("owner")
    calls: list[tuple[int, str]] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await thread.call(note_call, calls, 1)
    await thread.call(note_call, calls, 2)
    thread.close()
    assert [(2, "owner")] == calls
