"""Native memory of the process: few arenas of malloc, and free pages given back.

glibc gives threads arenas of their own, and keeps the free memory of each; a large buffer that is
freed also raises the size below which it keeps them.  Threads that read the journal, redact and store then
hold tens of megabytes that nothing uses, so the process seems to grow with its work.  Two arenas are
enough for threads that share one interpreter lock, and fixed thresholds give large buffers back at once.
What is left between small objects is trimmed while the daemon is idle.

Elsewhere than under glibc nothing is done.  Source: mallopt(3), malloc_trim(3).
"""

import ctypes
from collections.abc import Callable
from functools import partial

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.core.ports import RunBlocking

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of malloc.h
ARENAS = 2
LARGE_BYTES = 512 << 10  # a buffer from here on is a mapping of its own, unmapped when it is freed
TRIM_S = 60.0


def limit_arenas() -> None:
    """Set the parameters of malloc; call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


async def trim(
    is_idle: Callable[[], bool],
    run_blocking: RunBlocking,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Give free memory back once a minute if the daemon is idle, until cancelled.

    Cancellation: the thread ends its trim.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    task_status.started()
    if malloc_trim is None:
        await trio.sleep_forever()
    while True:
        await trio.sleep(TRIM_S)
        if is_idle():
            await run_blocking(partial(malloc_trim, 0))


def child_spec(is_idle: Callable[[], bool], run_blocking: RunBlocking) -> ChildSpec:
    """Return the spec: permanent, without a mailbox."""
    return ChildSpec("native-memory", partial(trim, is_idle, run_blocking))
