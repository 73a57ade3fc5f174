"""A worker without a process: two streams in memory and a script of what it answers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import memory_stream_pair

from palyra.errors import Unavailable
from palyra.tools.wasm import protocol
from palyra.tools.wasm.launch import WorkerProcess


class FakeProcess:
    """`Process` in memory."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stream, self.inside = memory_stream_pair()
        self.died = trio.Event()

    @property
    def stdin(self) -> trio.abc.SendStream:
        return self.stream

    @property
    def stdout(self) -> trio.abc.ReceiveStream:
        return self.stream

    async def wait(self) -> object:
        await self.died.wait()
        return None


class FakeLaunch:
    """Starts fake workers and records them; each sends hello by default."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.alive: list[int] = []
        self.obstacle = ""
        self.say: Callable[[], bytes] = lambda: protocol.encode(protocol.WorkerHello())

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[WorkerProcess]:
        if self.obstacle:
            raise Unavailable(self.obstacle)
        process = FakeProcess(len(self.started) + 1)
        self.started.append(process)
        self.alive.append(process.number)
        try:
            await process.inside.send_all(self.say())
            yield process
        finally:
            self.alive.remove(process.number)
