"""Guests for tests, in WAT: one for each thing that can go wrong, and some for which it does not."""

from palyra.tools.wasm.limits import PAGE_BYTES


def call_guest(body: str, *, imports: str = "", memory: str = "2", extra: str = "") -> str:
    """A module of the kind *call*; `body` leaves the packed output on the stack."""
    return f"""(module {imports}
      (memory (export "memory") {memory})
      (global $top (mut i32) (i32.const 4096))
      (func (export "alloc") (param i32) (result i32)
        (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 0))))
      {extra}
      (func (export "palyra_call") (param $ptr i32) (param $size i32) (result i64) {body}))"""


def packed(start: str, size: str) -> str:
    """Instructions that leave address and size as one i64."""
    return f"(i64.or (i64.shl (i64.extend_i32_u {start}) (i64.const 32)) (i64.extend_i32_u {size}))"


def says(text: str) -> str:
    """A guest that always gives the same output."""
    data = "".join(f"\\{byte:02x}" for byte in text.encode())
    return call_guest(
        packed("(i32.const 16)", f"(i32.const {len(text.encode())})"),
        extra=f'(data (i32.const 16) "{data}")',
    )


HELLO = says('{"result":"hello"}')
ECHO = call_guest(packed("(local.get $ptr)", "(local.get $size)"))  # the input as the output
LOOP = call_guest("(loop (br 0)) unreachable")
TRAP = call_guest("unreachable")
DIVIDE = call_guest("(i64.div_s (i64.const 1) (i64.const 0))")
RECURSE = call_guest(
    packed("(call $down (i32.const 1))", "(i32.const 0)"),
    extra="(func $down (param i32) (result i32)"
    " (i32.add (call $down (local.get 0)) (i32.const 1)))",
)
OUTSIDE = call_guest(packed("(i32.const 0x7fffffff)", "(i32.const 16)"))
HUGE_OUTPUT = call_guest(packed("(i32.const 0)", "(i32.const 0x7fffffff)"))
GROW_UNTIL_REFUSED = call_guest(
    "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable"
)
MEMORY_TOO_LARGE = call_guest(packed("(i32.const 0)", "(i32.const 0)"), memory="2000")
TABLE_TOO_LARGE = call_guest(
    packed("(i32.const 0)", "(i32.const 0)"), extra="(table 20000 funcref)"
)
TABLE_UNTIL_REFUSED = call_guest(
    "(loop $more (br_if $more"
    " (i32.ne (table.grow (ref.null func) (i32.const 10)) (i32.const -1)))) unreachable",
    extra='(table (export "table") 1 funcref)',
)
WRONG_SIGNATURE = """(module (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 0))
  (func (export "palyra_call") (param i64) (result i64) (local.get 0)))"""
WRONG_IMPORT_TYPE = call_guest(
    "(i64.const 0)", imports='(import "palyra" "log" (func (param i64)))'
)
FORBIDDEN_IMPORT = call_guest(
    "(i64.const 0)",
    imports='(import "wasi_snapshot_preview1" "path_open" (func (param i32) (result i32)))',
)
NO_EXPORTS = "(module (func))"


def reaches(megabytes: int) -> str:
    """A guest that says whether it could grow its memory to that size, all at once."""
    pages = megabytes * (1 << 20) // PAGE_BYTES - 2
    return call_guest(
        f"""(if (result i64) (i32.eq (memory.grow (i32.const {pages})) (i32.const -1))
              (then {packed("(i32.const 16)", "(i32.const 16)")})
              (else {packed("(i32.const 48)", "(i32.const 16)")}))""",
        extra='(data (i32.const 16) "{\\22result\\22:\\22no \\22}")'
        '(data (i32.const 48) "{\\22result\\22:\\22yes\\22}")',
    )


def asks(function: str, argument: str) -> str:
    """A guest that calls `fetch` or `secret` and gives the reply as its result."""
    data = "".join(f"\\{byte:02x}" for byte in argument.encode())
    return call_guest(
        f"""(local $got i32)
        (local.set $got (call $ask (i32.const 1024) (i32.const {len(argument.encode())})))
        (call $take (i32.const 2058))
        (i32.store8 (i32.add (i32.const 2058) (local.get $got)) (i32.const 0x7d))
        {packed("(i32.const 2048)", "(i32.add (local.get $got) (i32.const 11))")}""",
        imports=f'(import "palyra" "{function}" (func $ask (param i32 i32) (result i32)))'
        '(import "palyra" "take" (func $take (param i32)))',
        extra=f'(data (i32.const 1024) "{data}") (data (i32.const 2048) "{{\\22result\\22:")',
    )


LOGS = call_guest(
    f"(call $log (i32.const 16) (i32.const 5)) {packed('(i32.const 32)', '(i32.const 14)')}",
    imports='(import "palyra" "log" (func $log (param i32 i32)))',
    extra='(data (i32.const 16) "hello") (data (i32.const 32) "{\\22result\\22:\\221\\22}")',
)


def command_guest(body: str, imports: str = "") -> str:
    """A WASI command that copies its input to its output and then does `body`."""
    return f"""(module
      (import "wasi_snapshot_preview1" "fd_read"
        (func $read (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      {imports}
      (memory (export "memory") 20)
      (func $copy (local $size i32)
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1000000))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
      (func (export "_start") {body}))"""


COMMAND_ECHO = command_guest("(call $copy)")
COMMAND_EXIT = command_guest("(call $copy) (call $exit (i32.const 3))")
COMMAND_FLOOD_FAST = command_guest(
    "(i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1000000))"
    "(loop (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) (br 0))"
)
CLOCK = command_guest(
    "(drop (call $now (i32.const 0) (i64.const 1) (i32.const 128))) (call $copy)",
    imports='(import "wasi_snapshot_preview1" "clock_time_get"'
    " (func $now (param i32 i64 i32) (result i32)))",
)


def many_functions(count: int) -> str:
    """A module with that many functions."""
    return f'(module (memory (export "memory") 1) {"(func)" * count} (func (export "_start")))'


def compile_bomb(locals_: int = 3_000, loops: int = 20_000) -> str:
    """A module of less than 1 MiB that keeps a compiler busy for more than a minute.

    Every local is alive in every loop, so the work grows with the product of both: far beyond the
    two seconds that are allowed, on any machine.
    """
    load = "".join(f"(local.set {i} (i32.load (i32.const {4 * i})))" for i in range(locals_))
    work = "".join(
        f"(loop (local.set {i % locals_} (i32.add (local.get {i % locals_})"
        f" (local.get {i * 7 % locals_}))) (br_if 0 (local.get {i * 13 % locals_})))"
        for i in range(loops)
    )
    keep = "".join(f"(i32.store (i32.const {4 * i}) (local.get {i}))" for i in range(locals_))
    return (
        '(module (memory (export "memory") 1)'
        f' (func (export "_start") (local {"i32 " * locals_}) {load} {work} {keep}))'
    )


LOG_LOOP = call_guest(
    "(loop $again (call $log (i32.const 16) (i32.const 5)) (br $again)) unreachable",
    imports='(import "palyra" "log" (func $log (param i32 i32)))',
)
# Gives the digit at 16 and then writes another one there.
REMEMBERS = call_guest(
    "(i32.store8 (i32.const 17) (i32.load8_u (i32.const 16)))"
    "(i32.store8 (i32.const 16) (i32.const 57))" + packed("(i32.const 17)", "(i32.const 1)"),
    extra='(data (i32.const 16) "0")',
)
_START = '(func (export "_start"))'
SWITCHED_OFF = (
    f'(module (memory (export "memory") 1) {_START} (func (drop (i32.atomic.load (i32.const 0)))))',
    f'(module (memory (export "memory") 1 2 shared) {_START})',
    f'(module (memory (export "memory") i64 1) {_START})',
    f'(module (memory (export "memory") 1) (memory 1) {_START})',
    f'(module (memory (export "memory") 1) (tag $t) {_START} (func (throw $t)))',
    f'(module (memory (export "memory") 1) (type (struct (field i32))) {_START})',
    f'(module (memory (export "memory") 1) {_START} (func $f) (func (return_call $f)))',
)
