"""The outline of a module, and modules that are refused by it."""

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from palyra.tools.wasm.abi import find_kind, needed_capabilities
from palyra.tools.wasm.limits import MAX_FUNCTIONS, MAX_MODULE_BYTES, GuestFailure
from palyra.tools.wasm.module_imports import COMPONENT, HEADER, Import, read_outline
from palyra.tools.wasm.runtime import check_module
from tests.rows import every_row
from tests.tools.wasm import guests

HELLO = bytes(wasmtime.wat2wasm(guests.HELLO))
COMMAND = bytes(wasmtime.wat2wasm(guests.CLOCK))


def refusal(module: bytes) -> str:
    """Why the module is not taken."""
    with pytest.raises(GuestFailure) as caught:
        check_module(module)
    return caught.value.message


def test_an_outline_agrees_with_wasmtime() -> None:
    """Imports and exports, in their order."""
    for module in (HELLO, COMMAND):
        compiled = wasmtime.Module(wasmtime.Engine(), module)
        outline = read_outline(module)
        assert [(each.module, each.name) for each in compiled.imports] == [
            (each.module, each.name) for each in outline.imports
        ]
        assert [each.name for each in compiled.exports] == list(outline.exports)


def test_imported_functions_count() -> None:
    """Four imported, two of its own."""
    assert 6 == read_outline(COMMAND).functions


def test_every_kind_of_import_is_read() -> None:
    """The imports after any kind are found."""
    text = """(module (import "a" "t" (table 1 2 funcref)) (import "a" "m" (memory 1 2))
      (import "a" "g" (global (mut i64))) (import "a" "f" (func)))"""
    assert [
        Import("a", "t", "table"),
        Import("a", "m", "memory"),
        Import("a", "g", "global"),
        Import("a", "f", "func"),
    ] == list(read_outline(bytes(wasmtime.wat2wasm(text))).imports)


def test_the_kind_of_a_guest_is_what_it_exports() -> None:
    """Two kinds, and none."""
    assert "call" == find_kind(read_outline(HELLO))
    assert "command" == find_kind(read_outline(COMMAND))
    assert "does not export its memory" in refusal(bytes(wasmtime.wat2wasm("(module)")))
    no_entry = '(module (memory (export "memory") 1))'
    assert "neither `palyra_call`" in refusal(bytes(wasmtime.wat2wasm(no_entry)))


def test_imports_say_what_must_be_declared() -> None:
    """The clock; reading and writing streams is free."""
    assert frozenset({"clock"}) == needed_capabilities(read_outline(COMMAND))
    assert frozenset() == needed_capabilities(read_outline(HELLO))


def test_a_forbidden_import_is_denied_by_name() -> None:
    """A guest is given no files."""
    text = refusal(bytes(wasmtime.wat2wasm(guests.FORBIDDEN_IMPORT)))
    assert text.startswith("capability_denied: ")
    assert "path_open" in text


def test_too_many_functions_are_refused() -> None:
    """The last number that is allowed, and the first that is not."""
    most = bytes(wasmtime.wat2wasm(guests.many_functions(MAX_FUNCTIONS - 1)))
    assert MAX_FUNCTIONS == read_outline(most).functions
    check_module(most)
    text = refusal(bytes(wasmtime.wat2wasm(guests.many_functions(MAX_FUNCTIONS))))
    assert text.startswith("invalid_module: ")
    assert "10001 functions; the limit is 10000" in text


@every_row(
    ("module", "said"),
    [
        (b"", "first eight bytes"),
        (b"\x7fELF", "first eight bytes"),
        (COMPONENT + b"\0" * 8, "a component"),
        (b"x" * (MAX_MODULE_BYTES + 1), "the limit is 1048576"),
        (HEADER + b"\x63\x00", "unknown or there twice"),
        (HEADER + b"\x01\x00\x01\x00", "unknown or there twice"),
        (HEADER + b"\x01\xff\xff\xff\xff\x7f", "32 bits"),
        (HEADER + b"\x01\x05", "beyond the end"),
        (HEADER + b"\x02\x05\xff\xff\xff\xff\x0f", "entries; the limit"),
        (HEADER + b"\x02\x04\x01\x01\xff\x00", "not UTF-8"),
        (HEADER + b"\x02\x04\x01\xff\xff\x7f", "a name of"),
        (HEADER + b"\x07\x04\x01\x01a\x09", "unknown kind 9"),
        (HEADER + b"\x00\x00" * 1_001, "more than 1000 sections"),
    ],
)
def test_a_module_that_is_none_is_refused(module: bytes, said: str) -> None:
    """With what is wrong."""
    assert said in refusal(module)


@given(st.sampled_from([HELLO, COMMAND]), st.data())
def test_no_damage_gets_past_the_parser_as_a_crash(module: bytes, data: st.DataObject) -> None:
    """Cut and flipped modules are read or refused, never anything else."""
    end = data.draw(st.integers(0, len(module)))
    changed = bytearray(module[:end])
    if changed:
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    try:
        read_outline(bytes(changed))
    except GuestFailure as failure:
        assert "invalid_module" == failure.problem  # noqa: PT017 - it need not fail
