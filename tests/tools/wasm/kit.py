"""A pool and a runtime over plain workers, for one test."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
import wasmtime

from palyra.actors.kernel.threads import run_sync
from palyra.core.text.canonical_json import sha256_hex
from palyra.tools.wasm import protocol
from palyra.tools.wasm.launch import Launch
from palyra.tools.wasm.limits import GuestFailure, GuestLimits
from palyra.tools.wasm.pool import WorkerPool
from palyra.tools.wasm.runtime import Guest, Runtime
from tests.tools.wasm.plain import plain_worker


class MemoryCache:
    """Machine code in memory, believed as it is: the MAC's job is tested with the real one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], bytes] = {}

    def find(self, engine: str, module_sha256: str) -> bytes | None:
        return self.kept.get((engine, module_sha256))

    def put(self, engine: str, module_sha256: str, code: bytes) -> None:
        self.kept[engine, module_sha256] = code


@asynccontextmanager
async def open_pool(launch: Launch = plain_worker, size: int = 2) -> AsyncGenerator[WorkerPool]:
    """A pool that keeps that many workers."""
    pool = WorkerPool(launch)
    async with trio.open_nursery() as nursery:
        for _ in range(size):
            await nursery.start(pool.keep_worker)
        try:
            yield pool
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_runtime(launch: Launch = plain_worker, size: int = 1) -> AsyncGenerator[Runtime]:
    """A runtime over such a pool."""
    async with open_pool(launch, size) as pool:
        yield Runtime(pool, MemoryCache(), run_sync)


def module_of(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


async def deny(_call: protocol.HostCall) -> protocol.HostReply:
    """A host that gives nothing."""
    await trio.lowlevel.checkpoint()
    return protocol.HostReply(denied="not granted")


async def run(
    runtime: Runtime,
    module: bytes,
    given: bytes = b"{}",
    *,
    granted: tuple[str, ...] = (),
    limits: GuestLimits | None = None,
    host: object = deny,
) -> bytes:
    """The output of one call."""
    guest = Guest(
        module_sha256=sha256_hex(module),
        read_module=lambda: module,
        input=given,
        limits=limits or GuestLimits(),
        granted=granted,
    )
    return await runtime.run(guest, host)  # type: ignore[arg-type]  # tests hand in functions


async def failure(runtime: Runtime, module: bytes, **options: object) -> GuestFailure:
    """The error of one call."""
    try:
        output = await run(runtime, module, **options)  # type: ignore[arg-type]  # as `run` has them
    except GuestFailure as failed:
        return failed
    raise AssertionError(f"it gave {output!r}")
