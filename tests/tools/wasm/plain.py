"""Workers as plain children: what tests use where the jail is not the question."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from subprocess import DEVNULL, PIPE

import trio

from palyra.tools.wasm.launch import WorkerProcess, worker_argv


class PlainProcess:
    """A child process without a sandbox."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin = process.stdin
        self.stdout = process.stdout

    async def wait(self) -> object:
        return await self.process.wait()


@asynccontextmanager
async def plain_worker() -> AsyncGenerator[WorkerProcess]:
    """One worker; killed at the end."""
    process = await trio.lowlevel.open_process(
        worker_argv(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield PlainProcess(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
