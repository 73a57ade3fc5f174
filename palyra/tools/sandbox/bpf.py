"""A small assembler of classic BPF, the language of seccomp filters.  Source: seccomp(2), bpf(4).

A program is a list of tests; a test that holds jumps to a named place, else the next line runs.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_RETURN = 0x06  # BPF_RET | BPF_K
_MAX_JUMP = 255
TESTS: Mapping[str, int] = {"==": 0x15, ">": 0x25, ">=": 0x35, "&": 0x45}

# Offsets into struct seccomp_data; arguments are 64 bit, and the low word comes first on the two
# architectures we know.
NUMBER, ARCHITECTURE = 0, 4


def argument(index: int) -> int:
    """Where the low word of a system call's argument lies."""
    return 16 + 8 * index


@dataclass(frozen=True, slots=True)
class Load:
    """Take a word of the call into the accumulator."""

    offset: int


@dataclass(frozen=True, slots=True)
class JumpIf:
    """Go to a place further down if the accumulator passes the test, or else to `otherwise`."""

    test: str  # of TESTS
    value: int
    to: str = ""  # "": the next line
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """End with a verdict."""

    action: int


@dataclass(frozen=True, slots=True)
class Place:
    """A name for the next line."""

    name: str


Line = Load | JumpIf | Return | Place


def assemble(lines: Sequence[Line]) -> bytes:
    """The program as an array of struct sock_filter.  Raises ValueError for a jump too far."""
    places: dict[str, int] = {}
    count = 0
    for line in lines:
        if isinstance(line, Place):
            places[line.name] = count
        else:
            count += 1
    real = [line for line in lines if not isinstance(line, Place)]
    return b"".join(_encode(line, at, places) for at, line in enumerate(real))


def _encode(line: Load | JumpIf | Return, at: int, places: Mapping[str, int]) -> bytes:
    match line:
        case Load(offset):
            return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)
        case Return(action):
            return struct.pack("=HBBI", _RETURN, 0, 0, action)
        case JumpIf(test, value, to, otherwise):
            yes, no = (places[name] - at - 1 if name else 0 for name in (to, otherwise))
            if not (0 <= yes <= _MAX_JUMP and 0 <= no <= _MAX_JUMP):
                raise ValueError(f"the jump to {to or otherwise} is too far or leads back")
            return struct.pack("=HBBI", TESTS[test], yes, no, value)
