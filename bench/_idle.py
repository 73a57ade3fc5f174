"""Ten thousand idle actors: bytes per actor, and messages per second through all of them.

`mailbox.py` runs this script in a process of its own, so that no other work has grown its memory.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import Mailbox

IDLE_ACTORS = 10_000


def rss_bytes() -> int:
    gc.collect()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def idle_actors() -> dict[str, float]:
    """Measure actors of a dynamic supervisor, each waiting for the first message of its mailbox."""
    served = 0

    def actor(inbox: Mailbox[int]) -> Callable[..., Awaitable[None]]:
        async def loop(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal served
            with inbox.receiver() as messages:
                task_status.started()
                async for _ in messages:
                    served += 1

        return loop

    supervisor = DynamicSupervisor("bench", max_children=IDLE_ACTORS)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        before_bytes = rss_bytes()
        inboxes = [Mailbox[int](str(number), 16) for number in range(IDLE_ACTORS)]
        for inbox in inboxes:
            spec = ChildSpec(inbox.name, actor(inbox), "temporary", mailbox=inbox)
            supervisor.spawn_child(spec)
        await wait_all_tasks_blocked()
        used_bytes = rss_bytes() - before_bytes
        begun_s = time.perf_counter()
        for inbox in inboxes:
            inbox.offer(1)
        await wait_all_tasks_blocked()
        rate = served / (time.perf_counter() - begun_s)
        assert served == IDLE_ACTORS, "an actor did not get its message"
        nursery.cancel_scope.cancel()
    return {"bytes": used_bytes / IDLE_ACTORS, "per_s": rate}


async def raw_idle_tasks() -> dict[str, float]:
    """Measure bare tasks in one nursery, each waiting on a channel."""
    served = 0

    async def loop(channel: trio.MemoryReceiveChannel[int]) -> None:
        nonlocal served
        async for _ in channel:
            served += 1

    async with trio.open_nursery() as nursery:
        before_bytes = rss_bytes()
        ends = [trio.open_memory_channel[int](16) for _ in range(IDLE_ACTORS)]
        for number, (_, channel) in enumerate(ends):
            nursery.start_soon(loop, channel, name=str(number))
        await wait_all_tasks_blocked()
        used_bytes = rss_bytes() - before_bytes
        begun_s = time.perf_counter()
        for send, _ in ends:
            send.send_nowait(1)
        await wait_all_tasks_blocked()
        rate = served / (time.perf_counter() - begun_s)
        assert served == IDLE_ACTORS, "a task did not get its message"
        nursery.cancel_scope.cancel()
    return {"bytes": used_bytes / IDLE_ACTORS, "per_s": rate}


KINDS = {"actors": idle_actors, "tasks": raw_idle_tasks}

if __name__ == "__main__":
    print(json.dumps(trio.run(KINDS[sys.argv[1]])))
