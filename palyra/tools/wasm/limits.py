"""Limits of WASM guests, the failures for exceeding them, and wasmtime's settings as data.

wasmtime's own defaults are unlimited, so every limit is set on every call.  The engine settings
are plain data, so that the daemon can read them without importing wasmtime.
"""

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import msgspec

from palyra.errors import PalyraError, Unavailable

MIB = 1 << 20
PAGE_BYTES = 65_536  # page of a linear memory

MAX_MODULE_BYTES = MIB
MAX_FUNCTIONS = 10_000
MAX_INPUT_BYTES = MIB
MAX_OUTPUT_BYTES = MIB
MAX_STACK_BYTES = 512 * 1024
MAX_COMPILED_BYTES = 32 * MIB  # 1 MiB of WASM compiles to 5 to 10 MiB of machine code
COMPILE_CPU_S = 2.0
COMPILE_WALL_S = 20.0  # allows for COMPILE_CPU_S on a loaded machine
HOST_CALLS = 256  # per guest call
LOG_BYTES = 16_384  # per guest call
WORKER_ADDRESS_SPACE = 1024 * MIB

GuestProblem = Literal[
    "disabled",  # the skill is quarantined or removed, or WASM is unavailable
    "invalid_module",  # not a module, or refused by the audit or the compiler
    "capability_denied",  # the guest used a capability that is not granted
    "timed_out",
    "quota_exceeded",  # fuel, memory, tables, stack, sizes, time to compile
    "trapped",  # the guest crashed or exited with a nonzero code
    "bad_output",  # the output is not JSON of the agreed form
]


class GuestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one guest call."""

    fuel: int = 10_000_000_000  # about one per instruction; three to ten seconds
    deadline_s: float = 5.0
    memory_bytes: int = 64 * MIB
    table_elements: int = 10_000
    tables: int = 4
    instances: int = 1
    memories: int = 1


class GuestFailure(PalyraError):
    """A guest call failed; `problem` is one of the documented errors."""

    def __init__(self, problem: GuestProblem, message: str) -> None:
        super().__init__(f"{problem}: {message}")
        self.problem = problem


# Disabled: features that guests do not need, and recent features of the compiler.
OFF = (
    "wasm_threads",
    "shared_memory",
    "wasm_memory64",
    "wasm_multi_memory",
    "wasm_gc",
    "wasm_function_references",
    "wasm_exceptions",
    "wasm_stack_switching",
    "wasm_component_model",
    "wasm_custom_page_sizes",
    "wasm_wide_arithmetic",
    "wasm_relaxed_simd",
    "wasm_tail_call",
    "memory_init_cow",  # creates memory files; a worker may not write files
    "parallel_compilation",  # one thread, so that CPU time bounds wall time
)
# The full memory is reserved, so that growth copies nothing.  The default reservation of 4 GiB
# exceeds a worker's address space.
NUMBERS = {
    "max_wasm_stack": MAX_STACK_BYTES,
    "memory_reservation": 64 * MIB,
    "memory_reservation_for_growth": MIB,
    "memory_guard_size": PAGE_BYTES,
}


def fingerprint() -> str:
    """Return the cache key of machine code: wasmtime version, architecture and engine settings.

    The daemon computes the key itself, because workers are not trusted.  Raises Unavailable
    without wasmtime.
    """
    try:
        engine = version("wasmtime")
    except PackageNotFoundError:
        raise Unavailable("wasmtime is not installed: pip install 'palyra[wasm]'") from None
    settings = hashlib.sha256(repr((OFF, NUMBERS)).encode()).hexdigest()[:12]
    return f"wasmtime-{engine}-{platform.machine()}-{settings}"
