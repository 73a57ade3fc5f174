"""What a guest may use, and what is said when it asks for more.

wasmtime's own defaults are "unlimited", so every one of these is set on every call.

How wasmtime is set up for guests that nobody trusts, as data that the daemon can read too.
"""

import hashlib
import platform
from importlib.metadata import version
from typing import Literal

import msgspec

from palyra.errors import PalyraError

MIB = 1 << 20
PAGE_BYTES = 65_536  # of a linear memory

MAX_MODULE_BYTES = MIB
MAX_FUNCTIONS = 10_000
MAX_INPUT_BYTES = MIB
MAX_OUTPUT_BYTES = MIB
MAX_STACK_BYTES = 512 * 1024
MAX_COMPILED_BYTES = 32 * MIB  # 1 MiB of code becomes 5 to 10 of machine code
COMPILE_CPU_S = 2.0
COMPILE_WALL_S = 20.0  # on a busy machine two seconds of CPU may take a while
HOST_CALLS = 256  # of one call
LOG_BYTES = 16_384  # of one call
WORKER_ADDRESS_SPACE = 1024 * MIB

GuestProblem = Literal[
    "disabled",  # the skill is quarantined, removed, or WASM is off
    "invalid_module",  # not a module, or one that no worker takes
    "capability_denied",  # it wants what it was not granted
    "timed_out",
    "quota_exceeded",  # fuel, memory, tables, stack, sizes, time to compile
    "trapped",  # the guest broke down, or said so by its exit code
    "bad_output",  # what came back is not the JSON that was agreed on
]


class GuestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one call."""

    fuel: int = 10_000_000_000  # about one for each instruction; three to ten seconds
    deadline_s: float = 5.0
    memory_bytes: int = 64 * MIB
    table_elements: int = 10_000
    tables: int = 4
    instances: int = 1
    memories: int = 1


class GuestFailure(PalyraError):
    """A call of a guest failed; `problem` is one of the documented errors."""

    def __init__(self, problem: GuestProblem, message: str) -> None:
        super().__init__(f"{problem}: {message}")
        self.problem = problem


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
