"""How wasmtime is set up for guests that nobody trusts, as data that the daemon can read too."""

import hashlib
import platform
from importlib.metadata import version

from palyra.tools.wasm.limits import MAX_STACK_BYTES, MIB, PAGE_BYTES

# Switched off: what no guest needs and what is younger than the rest of the compiler.
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
    "memory_init_cow",  # it makes files in memory, and a worker may write no file
    "parallel_compilation",  # one thread, so that a limit of CPU time is one of time
)
# A memory is reserved whole, so that growing it copies nothing; the default of 4 GiB would not fit
# into a worker's address space.
NUMBERS = {
    "max_wasm_stack": MAX_STACK_BYTES,
    "memory_reservation": 64 * MIB,
    "memory_reservation_for_growth": MIB,
    "memory_guard_size": PAGE_BYTES,
}


def fingerprint() -> str:
    """What machine code made by a worker is good for: this version, this machine, these settings.

    Told by the daemon itself; a worker's word would be worth nothing.
    """
    settings = hashlib.sha256(repr((OFF, NUMBERS)).encode()).hexdigest()[:12]
    return f"wasmtime-{version('wasmtime')}-{platform.machine()}-{settings}"
