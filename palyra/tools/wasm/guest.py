"""Execution of one guest call inside a worker.

Each call gets a new store and a new instance, so no guest state survives between calls.  Fuel
bounds the instructions; a timer increments the engine's epoch at the deadline and interrupts the
guest.  A trap is mapped to one of the documented problems of `GuestFailure`.
Owns: the store.  Never: outlives the call, or is used by two threads.
"""

from collections.abc import Callable
from functools import partial
from threading import Timer
from typing import Any

import wasmtime

from palyra.tools.wasm.abi import HOST_FUNCTIONS, WASI, HostFunction
from palyra.tools.wasm.engine import GuestMemory, unsigned
from palyra.tools.wasm.limits import (
    HOST_CALLS,
    MAX_OUTPUT_BYTES,
    PAGE_BYTES,
    GuestFailure,
    GuestLimits,
)
from palyra.tools.wasm.wasi import FUNCTIONS, GuestExit, Streams

AskHost = Callable[[str, bytes], bytes]  # function, argument; raises GuestFailure
_TYPES = {"i": wasmtime.ValType.i32, "I": wasmtime.ValType.i64}
_SIZE_BITS = 32


class GuestCall:
    """State shared by the host functions of one call."""

    def __init__(self, given: bytes, granted: frozenset[str], ask_host: AskHost) -> None:
        self.given = given
        self.streams = Streams(given)
        self._granted = granted
        self._ask_host = ask_host
        self._reply = b""
        self._calls = 0

    def host_function(
        self, name: tuple[str, str], caller: wasmtime.Caller, *arguments: int
    ) -> int | None:
        """Serve one imported function.  Raises GuestFailure if its capability is not granted."""
        capability = HOST_FUNCTIONS[name].capability
        if capability and capability not in self._granted:
            raise GuestFailure(
                "capability_denied", f"{'.'.join(name)} needs {capability!r}, which is not granted"
            )
        memory = GuestMemory(caller.get("memory"), caller)
        if name[0] == WASI:
            return FUNCTIONS[name[1]](self.streams, memory, *arguments)
        return self._palyra(name[1], memory, arguments)

    def _palyra(self, function: str, memory: GuestMemory, arguments: tuple[int, ...]) -> int | None:
        if function == "take":
            memory.write(arguments[0], self._reply)
            self._reply = b""
            return None
        self._calls += 1
        if self._calls > HOST_CALLS:
            raise GuestFailure("quota_exceeded", f"more than {HOST_CALLS} calls of the host")
        reply = self._ask_host(function, memory.read(arguments[0], arguments[1]))
        if function == "log":
            return None
        self._reply = reply
        return len(reply)


def run_guest(
    engine: wasmtime.Engine, module: wasmtime.Module, guest: GuestCall, limits: GuestLimits
) -> bytes:
    """Run the guest and return its output.  Raises GuestFailure with the documented problem."""
    store = _make_store(engine, limits)
    timer = Timer(limits.deadline_s, engine.increment_epoch)
    timer.daemon = True
    instance: wasmtime.Instance | None = None
    timer.start()
    try:
        instance = _instantiate(store, module, guest)
        return _enter(store, instance, guest)
    except GuestExit as end:
        if end.code:
            raise GuestFailure("trapped", _with_errors(str(end), guest)) from None
        return bytes(guest.streams.output)
    except wasmtime.Trap as trap:
        raise _explain(trap, store, instance, guest, limits) from None
    finally:
        timer.cancel()
        timer.join()  # a late timer would interrupt the next call


def _make_store(engine: wasmtime.Engine, limits: GuestLimits) -> wasmtime.Store:
    store = wasmtime.Store(engine)
    store.set_fuel(limits.fuel)
    store.set_epoch_deadline(1)
    store.set_limits(
        memory_size=limits.memory_bytes,
        table_elements=limits.table_elements,
        instances=limits.instances,
        tables=limits.tables,
        memories=limits.memories,
    )
    return store


def _instantiate(
    store: wasmtime.Store, module: wasmtime.Module, guest: GuestCall
) -> wasmtime.Instance:
    imports = []
    for each in module.imports:
        name = (each.module, each.name or "")
        function = HOST_FUNCTIONS.get(name)
        if function is None:
            raise GuestFailure("capability_denied", f"no guest is given {'.'.join(name)}")
        serve = partial(guest.host_function, name)
        imports.append(wasmtime.Func(store, _type_of(function), serve, access_caller=True))
    try:
        return wasmtime.Instance(store, module, imports)
    except wasmtime.WasmtimeError as error:
        text = _first_line(error)
        problem = "quota_exceeded" if "limit" in text or "exceeds" in text else "invalid_module"
        raise GuestFailure(problem, text) from None  # type: ignore[arg-type]  # two of them


def _type_of(function: HostFunction) -> wasmtime.FuncType:
    return wasmtime.FuncType(
        [_TYPES[each]() for each in function.parameters],
        [_TYPES[each]() for each in function.results],
    )


def _enter(store: wasmtime.Store, instance: wasmtime.Instance, guest: GuestCall) -> bytes:
    exports = instance.exports(store)
    call = exports.get("palyra_call")
    if call is None:
        _typed(store, exports.get("_start"), "_start", "", "")(store)
        return bytes(guest.streams.output)
    if "_initialize" in exports:
        _typed(store, exports["_initialize"], "_initialize", "", "")(store)
    size = len(guest.given)
    place = _typed(store, exports.get("alloc"), "alloc", "i", "i")(store, size)
    memory = GuestMemory(exports.get("memory"), store)
    memory.write(place, guest.given)
    packed = _typed(store, call, "palyra_call", "ii", "I")(store, place, size)
    size = unsigned(packed)
    if size > MAX_OUTPUT_BYTES:
        raise GuestFailure("quota_exceeded", f"an output of {size} bytes; at most 1 MiB")
    return memory.read(packed >> _SIZE_BITS, size)


def _typed(
    store: wasmtime.Store, export: object, name: str, parameters: str, results: str
) -> Callable[..., Any]:
    """Return the exported function.  Raises GuestFailure if its type differs."""
    wanted = HostFunction(parameters, results)
    if not isinstance(export, wasmtime.Func) or not _is_of(export.type(store), wanted):
        raise GuestFailure(
            "invalid_module", f"{name} is not a function of type ({parameters}) -> ({results})"
        )
    return export


def _is_of(found: wasmtime.FuncType, wanted: HostFunction) -> bool:
    letters = {str(kind()): letter for letter, kind in _TYPES.items()}
    parameters = "".join(letters.get(str(each), "?") for each in found.params)
    results = "".join(letters.get(str(each), "?") for each in found.results)
    return (parameters, results) == (wanted.parameters, wanted.results)


def _explain(
    trap: wasmtime.Trap,
    store: wasmtime.Store,
    instance: wasmtime.Instance | None,
    guest: GuestCall,
    limits: GuestLimits,
) -> GuestFailure:
    match trap.trap_code:
        case wasmtime.TrapCode.OUT_OF_FUEL:
            return GuestFailure("quota_exceeded", f"the guest used up its fuel of {limits.fuel}")
        case wasmtime.TrapCode.INTERRUPT:
            return GuestFailure("timed_out", f"the guest ran longer than {limits.deadline_s:g} s")
        case wasmtime.TrapCode.STACK_OVERFLOW:
            return GuestFailure("quota_exceeded", "the guest's stack is used up: deep recursion")
        case _:
            return _explain_breakdown(trap, store, instance, guest, limits)


def _explain_breakdown(
    trap: wasmtime.Trap,
    store: wasmtime.Store,
    instance: wasmtime.Instance | None,
    guest: GuestCall,
    limits: GuestLimits,
) -> GuestFailure:
    """Classify another trap: `quota_exceeded` if a memory or table is nearly full, else `trapped`."""
    if instance is not None:
        for name, export in instance.exports(store).items():
            if isinstance(export, wasmtime.Memory | wasmtime.Table) and _is_full(
                store, export, limits
            ):
                return GuestFailure("quota_exceeded", f"the guest could not grow its {name!r}")
    return GuestFailure("trapped", _with_errors(_first_line(trap), guest))


def _is_full(
    store: wasmtime.Store, export: wasmtime.Memory | wasmtime.Table, limits: GuestLimits
) -> bool:
    """True if the export cannot grow by a sixteenth of its limit."""
    try:
        if isinstance(export, wasmtime.Memory):
            export.grow(store, limits.memory_bytes // PAGE_BYTES // 16)
        else:
            export.grow(store, limits.table_elements // 16, None)
    except wasmtime.WasmtimeError:
        return True
    return False


def _first_line(error: Exception) -> str:
    """Return the cause from a wasmtime error, without the backtrace."""
    text = str(error)
    cause = text.rsplit("Caused by:", 1)[-1].strip().splitlines()
    return (cause or ["no reason given"])[0].strip()[:200]


def _with_errors(text: str, guest: GuestCall) -> str:
    said = bytes(guest.streams.errors).decode("utf-8", "replace").strip()
    return f"{text}; it said: {said}" if said else text
