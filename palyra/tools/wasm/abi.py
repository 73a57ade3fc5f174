"""Guest ABI: permitted imports and required exports, as data for the audit and the worker.

Input and output are JSON texts of at most 1 MiB.  A guest is one of two kinds:

- *call*: exports `memory`, `alloc(size: i32) -> i32` and `palyra_call(ptr: i32, size: i32) -> i64`.
  The host calls `alloc`, writes the input to the returned address and calls `palyra_call`.  The
  result locates the output: address in the upper 32 bits, size in the lower.
- *command*: a WASI command (preview 1).  Exports `memory` and `_start()`; the input is on standard
  input, the output is its standard output, and success is exit code 0.

Host functions are in the module `palyra`.  `fetch` and `secret` return the size of their reply;
`take(ptr)` copies the reply to `ptr`, once.
"""

from typing import Literal, NamedTuple

from palyra.tools.wasm.limits import GuestFailure
from palyra.tools.wasm.module_imports import ModuleImports

WASI = "wasi_snapshot_preview1"
HOST = "palyra"

GuestKind = Literal["call", "command"]
Capability = Literal["", "clock", "random", "log", "fetch", "secret"]


class HostFunction(NamedTuple):
    """One host function: its type, and the capability a skill must declare to import it."""

    parameters: str  # i: i32, I: i64
    results: str
    capability: Capability = ""


HOST_FUNCTIONS: dict[tuple[str, str], HostFunction] = {
    (WASI, "args_get"): HostFunction("ii", "i"),
    (WASI, "args_sizes_get"): HostFunction("ii", "i"),
    (WASI, "environ_get"): HostFunction("ii", "i"),
    (WASI, "environ_sizes_get"): HostFunction("ii", "i"),
    (WASI, "fd_close"): HostFunction("i", "i"),
    (WASI, "fd_fdstat_get"): HostFunction("ii", "i"),
    (WASI, "fd_fdstat_set_flags"): HostFunction("ii", "i"),
    (WASI, "fd_prestat_dir_name"): HostFunction("iii", "i"),
    (WASI, "fd_prestat_get"): HostFunction("ii", "i"),
    (WASI, "fd_read"): HostFunction("iiii", "i"),
    (WASI, "fd_seek"): HostFunction("iIii", "i"),
    (WASI, "fd_write"): HostFunction("iiii", "i"),
    (WASI, "proc_exit"): HostFunction("i", ""),
    (WASI, "sched_yield"): HostFunction("", "i"),
    (WASI, "clock_res_get"): HostFunction("ii", "i", "clock"),
    (WASI, "clock_time_get"): HostFunction("iIi", "i", "clock"),
    (WASI, "random_get"): HostFunction("ii", "i", "random"),
    (HOST, "log"): HostFunction("ii", "", "log"),
    (HOST, "fetch"): HostFunction("ii", "i", "fetch"),
    (HOST, "secret"): HostFunction("ii", "i", "secret"),
    (HOST, "take"): HostFunction("i", ""),
}


def find_kind(outline: ModuleImports) -> GuestKind:
    """Return the kind of the module.  Raises GuestFailure (`invalid_module`)."""
    functions = {name for name, kind in outline.exports.items() if kind == "func"}
    if outline.exports.get("memory") != "memory":
        raise GuestFailure("invalid_module", "the module does not export its memory as `memory`")
    if {"palyra_call", "alloc"} <= functions:
        return "call"
    if "_start" in functions:
        return "command"
    raise GuestFailure(
        "invalid_module", "the module exports neither `palyra_call` with `alloc` nor `_start`"
    )


def needed_capabilities(outline: ModuleImports) -> frozenset[str]:
    """Return the capabilities of the imports.  Raises GuestFailure (`capability_denied`) if unknown."""
    needed: set[str] = set()
    for each in outline.imports:
        function = HOST_FUNCTIONS.get((each.module, each.name))
        if function is None or each.kind != "func":
            raise GuestFailure(
                "capability_denied",
                f"the module imports {each.module}.{each.name} ({each.kind}), "
                "which no guest is given",
            )
        needed.add(function.capability)
    return frozenset(needed - {""})
