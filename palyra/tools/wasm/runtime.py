"""WASM runtime: compile a module once, load it into a worker and run guest calls.

Owns: the worker pool and the cache of machine code.
Never: compiles in a worker that has run a guest, or runs a guest in a worker that has compiled.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import msgspec

from palyra.core.ports import RunBlocking
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Unavailable
from palyra.tools.wasm import protocol
from palyra.tools.wasm.abi import find_kind, needed_capabilities
from palyra.tools.wasm.limits import MAX_INPUT_BYTES, GuestFailure, GuestLimits, fingerprint
from palyra.tools.wasm.module_imports import read_outline
from palyra.tools.wasm.pool import WorkerPool
from palyra.tools.wasm.worker_client import ServeHost, WorkerGone


class CompiledCode(Protocol):
    """Persistent cache of machine code (`store.files.compiled`); its methods block."""

    def find(self, engine: str, module_sha256: str) -> bytes | None: ...
    def put(self, engine: str, module_sha256: str, code: bytes) -> None: ...


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a module."""

    module_sha256: str
    read_module: Callable[[], bytes]  # blocks; called only if the module must be compiled
    input: bytes
    limits: GuestLimits = GuestLimits()
    granted: tuple[str, ...] = ()  # kinds of capabilities


class Runtime:
    """Runs guests in sandboxed workers."""

    def __init__(self, pool: WorkerPool, cache: CompiledCode, run_blocking: RunBlocking) -> None:
        self.pool = pool
        self._cache = cache
        self._run_blocking = run_blocking

    @cached_property
    def _engine(self) -> str:
        """Cache key of machine code.  Raises Unavailable without wasmtime."""
        return fingerprint()

    async def compile(self, digest: str, read_module: Callable[[], bytes]) -> bytes:
        """Return machine code from the cache, or compile it in a worker that is ended afterwards.

        Raises GuestFailure for a refused module, Unavailable without workers.
        """
        code = await self._run_blocking(self._cache.find, self._engine, digest)
        if code is not None:
            return code
        module = await self._run_blocking(_checked, digest, read_module)
        async with self.pool.borrow(f"compile {digest}", is_last=True) as worker:
            code = await worker.compile(module)
        await self._run_blocking(self._keep, digest, code)
        return code

    async def run(self, guest: Guest, serve_host: ServeHost) -> bytes:
        """Run the guest and return its output, not validated.

        Raises GuestFailure; missing workers are the problem `disabled`.
        Cancellation: the worker that runs the guest is ended.
        """
        if len(guest.input) > MAX_INPUT_BYTES:
            raise GuestFailure("quota_exceeded", f"an input of {len(guest.input)} bytes")
        request = protocol.RunGuest(input=guest.input, limits=guest.limits, granted=guest.granted)
        try:
            code = await self._find_code(guest)
            async with self.pool.borrow(guest.module_sha256) as worker:
                if worker.loaded != guest.module_sha256:
                    await worker.load(guest.module_sha256, code or await self._compile(guest))
                return await worker.run(request, serve_host)
        except Unavailable as error:
            raise GuestFailure("disabled", error.message) from None
        except WorkerGone as error:
            raise GuestFailure("trapped", f"the worker broke down: {error}") from None

    async def _find_code(self, guest: Guest) -> bytes | None:
        """Return machine code for an unassigned worker, None if an idle worker has the module.

        Runs before a worker is borrowed: a call that held a worker while waiting for another one
        to compile could deadlock.
        """
        if self.pool.has(guest.module_sha256):
            return None
        return await self._compile(guest)

    async def _compile(self, guest: Guest) -> bytes:
        return await self.compile(guest.module_sha256, guest.read_module)

    def _keep(self, digest: str, code: bytes) -> None:
        try:
            self._cache.put(self._engine, digest, code)
        except OSError as error:
            raise GuestFailure("disabled", f"machine code cannot be kept: {error}") from None


def _checked(digest: str, read_module: Callable[[], bytes]) -> bytes:
    module = read_module()
    if sha256_hex(module) != digest:
        raise GuestFailure("disabled", "the module is not the one that was installed")
    check_module(module)
    return module


def check_module(module: bytes) -> frozenset[str]:
    """Return the capabilities required by the imports of a module (blocks, 1 to 2 ms).

    Raises GuestFailure for a module that must not be passed to a worker.
    """
    outline = read_outline(module)
    find_kind(outline)
    return needed_capabilities(outline)
