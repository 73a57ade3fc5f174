"""Cost of a call of a skill's guest on a warm, sandboxed worker.  Prints one JSON line of medians.

- `call_ms`: a whole call: pool lookup, request over the pipe, a new store and instance in the
  worker, the guest, the answer
- `raw_ms`: the same module in wasmtime inside this process, with the same limits and a new store
- `plain_ms`: a call on a worker without sandbox
- `cold_ms`: a call that waits for a new worker and loads its code from the cache
- `compile_ms`: compilation of the module in a worker of its own
"""

import json
import os
import platform
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable

import trio
import wasmtime
from _machine import calibrate

from palyra.actors.kernel.threads import DedicatedThread
from palyra.core.text.canonical_json import sha256_hex
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.wasm.engine import make_engine
from palyra.tools.wasm.launch import JailedWorkers
from palyra.tools.wasm.limits import GuestLimits
from palyra.tools.wasm.runtime import Runtime
from tests.tools.wasm.guests import ECHO
from tests.tools.wasm.kit import module_of, open_runtime, run
from tests.tools.wasm.plain import plain_worker

CALLS = 500
COLD = 5
INPUT = b'{"tool":"echo","arguments":{"text":"hello"}}'
MODULE = module_of(ECHO)


async def measure(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the milliseconds of each of `count` calls."""
    took_ms = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        took_ms.append((time.perf_counter() - began) * 1e3)
    return sorted(took_ms)


def raw_call(engine: wasmtime.Engine, module: wasmtime.Module) -> bytes:
    """Make one call as the worker does, without pipe and process."""
    limits = GuestLimits()
    store = wasmtime.Store(engine)
    store.set_fuel(limits.fuel)
    store.set_epoch_deadline(1)
    store.set_limits(limits.memory_bytes, limits.table_elements, 1, limits.tables, 1)
    exports = wasmtime.Instance(store, module, []).exports(store)
    memory, alloc, call = exports["memory"], exports["alloc"], exports["palyra_call"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(alloc, wasmtime.Func)
    assert isinstance(call, wasmtime.Func)
    place = alloc(store, len(INPUT))
    memory.write(store, INPUT, place)
    packed = call(store, place, len(INPUT))
    return bytes(memory.read(store, packed >> 32, (packed >> 32) + (packed & 0xFFFF_FFFF)))


def raw_ms() -> float:
    """Return the median of wasmtime alone."""
    engine = make_engine()
    module = wasmtime.Module(engine, MODULE)
    took_ms = []
    for _ in range(CALLS):
        began = time.perf_counter()
        assert raw_call(engine, module) == INPUT
        took_ms.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took_ms)


async def cold_ms(runtime: Runtime) -> float:
    """Return the median of calls without a ready worker."""

    async def call() -> None:
        await run(runtime, MODULE, INPUT)

    took_ms = []
    for _ in range(COLD):
        took_ms += await measure(call, 1)
        async with runtime.pool.borrow(sha256_hex(MODULE), is_last=True):
            pass
    return statistics.median(took_ms)


async def main() -> None:
    async def call() -> None:
        assert await run(runtime, MODULE, INPUT) == INPUT

    assert shutil.which("bwrap"), "apt install bubblewrap"
    thread = DedicatedThread("jail")
    async with open_runtime(JailedWorkers(Sandbox(thread))) as runtime:
        began = time.perf_counter()
        async with runtime.pool.borrow("compile", is_last=True) as worker:
            ready_ms = (time.perf_counter() - began) * 1e3
            began = time.perf_counter()
            await worker.compile(MODULE)
            compile_ms = (time.perf_counter() - began) * 1e3
        await call()
        took_ms = await measure(call, CALLS)
        slow_ms = await cold_ms(runtime)
    thread.close()
    async with open_runtime(plain_worker) as runtime:
        await call()
        plain_ms = await measure(call, CALLS)
    alone_ms = raw_ms()
    result = {
        "bench": "wasm",
        "calls": CALLS,
        "call_ms": {
            "p50": round(statistics.median(took_ms), 3),
            "p99": round(took_ms[int(CALLS * 0.99)], 3),
        },
        "plain_ms": round(statistics.median(plain_ms), 3),
        "raw_ms": round(alone_ms, 3),
        "times_raw": round(statistics.median(took_ms) / alone_ms, 1),
        "worker_ready_ms": round(ready_ms, 1),
        "cold_ms": round(slow_ms, 1),
        "compile_ms": round(compile_ms, 1),
        "calibration_ms": calibrate(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    trio.run(main)
