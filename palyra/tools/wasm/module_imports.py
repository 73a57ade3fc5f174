"""Parser for the outline of a WASM module: imports, exports and function count.

The daemon reads an untrusted module only with this parser.  The parser is plain Python, skips the
code section and enforces a bound on every count.  wasmtime is native, and its compiler is outside
its own security promise.  wasmtime therefore receives a module only in a worker, and only after
this parser has accepted it.
Source: WebAssembly Core Specification 2.0, chapter 5 (binary format).
"""

from typing import Literal, NamedTuple

from palyra.tools.wasm.limits import MAX_FUNCTIONS, MAX_MODULE_BYTES, GuestFailure

HEADER = b"\0asm\x01\0\0\0"
COMPONENT = b"\0asm\x0d\0\x01\0"
_IMPORTS, _FUNCTIONS, _EXPORTS, _LAST = 2, 3, 7, 13
_MAX_NAME_BYTES = 256
_MAX_SECTIONS = 1_000
_MAX_EXTERNS = 2 * MAX_FUNCTIONS

Kind = Literal["func", "table", "memory", "global", "tag"]
_KINDS: tuple[Kind, ...] = ("func", "table", "memory", "global", "tag")


class Import(NamedTuple):
    """One import of the module."""

    module: str
    name: str
    kind: Kind


class ModuleImports(NamedTuple):
    """Properties of a module that are known before compilation."""

    functions: int  # imported ones included
    imports: tuple[Import, ...]
    exports: dict[str, Kind]


def read_outline(module: bytes) -> ModuleImports:
    """Parse the outline.  Raises GuestFailure (`invalid_module`) if malformed or above a limit."""
    _check_head(module)
    imports: tuple[Import, ...] = ()
    exports: dict[str, Kind] = {}
    functions = 0
    for section, body in _sections(module):
        if section == _IMPORTS:
            imports = _read_imports(body)
        elif section == _FUNCTIONS:
            functions = body.number()
        elif section == _EXPORTS:
            exports = _read_exports(body)
    functions += sum(each.kind == "func" for each in imports)
    if functions > MAX_FUNCTIONS:
        raise _invalid(f"the module has {functions} functions; the limit is {MAX_FUNCTIONS}")
    return ModuleImports(functions, imports, exports)


def _check_head(module: bytes) -> None:
    if len(module) > MAX_MODULE_BYTES:
        raise _invalid(f"the module has {len(module)} bytes; the limit is {MAX_MODULE_BYTES}")
    if module.startswith(COMPONENT):
        raise _invalid("this is a component; build a core module (wasm32-wasip1 or freestanding)")
    if not module.startswith(HEADER):
        raise _invalid("this is not a WASM module: its first eight bytes are others")


def _sections(module: bytes) -> list[tuple[int, "_Reader"]]:
    """Return each section id with its body.  Only custom sections (id 0) may repeat."""
    reader = _Reader(module, len(HEADER), len(module))
    found: list[tuple[int, _Reader]] = []
    seen: set[int] = set()
    while not reader.is_at_end:
        section = reader.byte()
        size = reader.number()
        if section > _LAST or section in seen:
            raise _invalid(f"section {section} is unknown or there twice")
        found.append((section, reader.part(size)))
        if section:
            seen.add(section)
        if len(found) > _MAX_SECTIONS:
            raise _invalid(f"the module has more than {_MAX_SECTIONS} sections")
    return found


def _read_imports(body: "_Reader") -> tuple[Import, ...]:
    found = []
    for _ in range(body.count()):
        module, name = body.name(), body.name()
        kind = body.kind()
        _skip_type(body, kind)
        found.append(Import(module, name, kind))
    return tuple(found)


def _skip_type(body: "_Reader", kind: Kind) -> None:
    """Skip the type of an import."""
    match kind:
        case "func":
            body.number()
        case "table":
            body.byte()
            _skip_bounds(body)
        case "memory":
            _skip_bounds(body)
        case "global":
            body.byte()
            body.byte()
        case "tag":
            body.byte()
            body.number()


def _skip_bounds(body: "_Reader") -> None:
    flags = body.byte()
    body.number()
    if flags & 1:
        body.number()


def _read_exports(body: "_Reader") -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for _ in range(body.count()):
        name, kind = body.name(), body.kind()
        body.number()
        found[name] = kind
    return found


def _invalid(text: str) -> GuestFailure:
    return GuestFailure("invalid_module", text)


class _Reader:
    """Bounds-checked cursor over a part of the module."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data, self._at, self._end = data, start, end

    @property
    def is_at_end(self) -> bool:
        return self._at >= self._end

    def byte(self) -> int:
        if self._at >= self._end:
            raise _invalid("the module ends in the middle of a section")
        self._at += 1
        return self._data[self._at - 1]

    def number(self) -> int:
        """Read an unsigned LEB128 integer of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last byte has no continuation bit
                if value >> 32:
                    break
                return value
        raise _invalid("a number in the module has more than 32 bits")

    def count(self) -> int:
        """Read a number of entries, at most _MAX_EXTERNS."""
        count = self.number()
        if count > _MAX_EXTERNS:
            raise _invalid(f"a section has {count} entries; the limit is {_MAX_EXTERNS}")
        return count

    def kind(self) -> Kind:
        byte = self.byte()
        if byte >= len(_KINDS):
            raise _invalid(f"an import or export of unknown kind {byte}")
        return _KINDS[byte]

    def name(self) -> str:
        size = self.number()
        if size > _MAX_NAME_BYTES:
            raise _invalid(f"a name of {size} bytes; the limit is {_MAX_NAME_BYTES}")
        self.part(size)
        try:
            return self._data[self._at - size : self._at].decode()
        except UnicodeDecodeError:
            raise _invalid("a name is not UTF-8") from None

    def part(self, size: int) -> "_Reader":
        """Return a reader of the next `size` bytes and skip them."""
        start = self._at
        if size > self._end - start:
            raise _invalid("a section reaches beyond the end of the module")
        self._at += size
        return _Reader(self._data, start, self._at)
