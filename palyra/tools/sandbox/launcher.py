"""A program of a few system calls that runs inside the jail, right before the command.

Some walls can only be put up from inside, by a process round itself: limits that count from within
the jail's user namespace, and Landlock.  An interpreter would take as long to start as the jail, so
the calls are written as an executable file: straight down, arguments known beforehand, then execve
of the first argument.  A call that must not fail and does ends it with FAILED.

Source: elf(5), syscall(2) for the registers, the instruction sets of x86-64 and A64.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palyra.tools.sandbox.command import SandboxFailure

FAILED = 125  # exit code, when a wall could not be put up
NOT_STARTED = 126  # exit code, when all stands but the program cannot be executed

_BASE = 0x400000
_HEADERS = 64 + 56  # of the file, and of its one segment

NUMBERS: Mapping[str, tuple[int, int]] = {  # x86_64, aarch64
    "write": (1, 64), "close": (3, 57), "openat": (257, 56), "openat2": (437, 437), "prctl": (157, 167), "prlimit64": (302, 261),
    "seccomp": (317, 277), "close_range": (436, 436), "exit_group": (231, 94),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "execve": (59, 221), "dup3": (292, 24),
    "socket": (41, 198), "bind": (49, 200), "listen": (50, 201), "sendmsg": (46, 211),
    # for the self-test
    "connect": (42, 203), "mount": (165, 40), "ptrace": (101, 117), "kill": (62, 129),
    "unshare": (272, 97), "keyctl": (250, 219), "bpf": (321, 280), "io_uring_setup": (425, 425),
    "fchmodat": (268, 53), "utimensat": (280, 88), "setpgid": (109, 154), "inotify_init1": (294, 26),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LauncherWords:
    """A struct of 64-bit words; bytes stand for their address."""

    words: "tuple[int | bytes | LauncherWords, ...]"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One system call.  An argument of bytes or words is passed as their address."""

    name: str
    arguments: tuple[int | bytes | LauncherWords, ...]
    skips: int = 0  # when it fails: calls left out.  0: all is over


@dataclass(frozen=True, slots=True)
class _Machine:
    """How instructions of one processor are written."""

    elf_number: int
    column: int  # in NUMBERS
    registers: tuple[Callable[[int], bytes], ...]  # load a value: number of the call, arguments
    call: bytes
    # Counted from the end of the instruction.
    jump_if_negative: Callable[[int], bytes]
    take_arguments: bytes  # of execve(argv[1], argv + 1, environment), as the stack has them

    def load(self, number: int, arguments: Sequence[int]) -> bytes:
        """Everything a call needs in its registers."""
        return b"".join(
            register(value)
            for register, value in zip(self.registers, (number, *arguments), strict=False)
        )


def _move_x86(opcode: bytes) -> Callable[[int], bytes]:
    return lambda value: opcode + struct.pack("<Q", value)


def _move_arm(register: int) -> Callable[[int], bytes]:
    """Four moves of 16 bits: movz, movk, movk, movk."""

    def move(value: int) -> bytes:
        words = (
            (0xF2800000 if part else 0xD2800000)
            | part << 21
            | (value >> 16 * part & 0xFFFF) << 5
            | register
            for part in range(4)
        )
        return struct.pack("<4I", *words)

    return move


_X86 = _Machine(
    elf_number=62,
    column=0,
    registers=tuple(
        map(
            _move_x86,  # rax, rdi, rsi, rdx, r10, r8, r9
            (b"\x48\xb8", b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8",
             b"\x49\xb9"),
        )
    ),
    call=b"\x0f\x05",  # syscall
    jump_if_negative=lambda distance: (
        b"\x48\x85\xc0\x0f\x88" + struct.pack("<i", distance)  # test rax, rax; js
    ),
    take_arguments=(
        b"\x48\x8b\x7c\x24\x10"  # mov rdi, [rsp + 16]
        b"\x48\x8d\x74\x24\x10"  # lea rsi, [rsp + 16]
        b"\x48\x8b\x0c\x24"  # mov rcx, [rsp]
        b"\x48\x8d\x54\xcc\x10"  # lea rdx, [rsp + rcx * 8 + 16]
    ),
)  # fmt: skip
_ARM = _Machine(
    elf_number=183,
    column=1,
    registers=tuple(map(_move_arm, (8, 0, 1, 2, 3, 4, 5))),
    call=struct.pack("<I", 0xD4000001),  # svc #0
    # tbnz x0, #63; it counts words from its own start
    jump_if_negative=lambda distance: struct.pack(
        "<I", 0xB7F80000 | (distance // 4 + 1 & 0x3FFF) << 5
    ),
    take_arguments=struct.pack(
        "<4I",
        0xF9400BE0,  # ldr x0, [sp, #16]
        0x910043E1,  # add x1, sp, #16
        0xF94003E9,  # ldr x9, [sp]
        0x8B090C22,  # add x2, x1, x9, lsl #3
    ),
)
_MACHINES = {"x86_64": _X86, "aarch64": _ARM}


def build_launcher(calls: Sequence[SystemCall], machine: str) -> bytes:
    """The executable file.  Raises SandboxFailure for a processor it cannot be written for."""
    here = _MACHINES.get(machine)
    if here is None:
        raise SandboxFailure("the launcher can be written for x86_64 and aarch64 only")
    data = [each for call in calls for each in call.arguments if not isinstance(each, int)]
    size = len(_code(here, calls, _Data(0)))  # the same, wherever the data lie
    placed = _Data(_BASE + _HEADERS + size)
    for each in data:
        placed.find(each)
    return _elf(here.elf_number, _code(here, calls, placed) + placed.content)


class _Data:
    """What calls point to, each once, at an address that suits every kind of word."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._places: dict[bytes | LauncherWords, int] = {}
        self.content = b"\0" * (-start % 8)

    def find(self, what: int | bytes | LauncherWords) -> int:
        """The address of it; a number is itself."""
        if isinstance(what, int):
            return what & 0xFFFF_FFFF_FFFF_FFFF
        if what not in self._places:
            text = what
            if isinstance(text, LauncherWords):
                text = struct.pack(f"={len(text.words)}Q", *map(self.find, text.words))
            self._places[what] = self._start + len(self.content)
            self.content += text + b"\0" * (8 - len(text) % 8)
        return self._places[what]


def _code(here: _Machine, calls: Sequence[SystemCall], data: _Data) -> bytes:
    exits = [_exit(here, code) for code in (NOT_STARTED, FAILED)]
    execute = here.take_arguments + here.load(NUMBERS["execve"][here.column], ()) + here.call
    parts = [_straight(here, call, data) for call in calls]
    jump_bytes = len(here.jump_if_negative(0))
    sizes = [len(part) + jump_bytes for part in parts]
    tail = execute + exits[0]
    code = b""
    for at, (call, part) in enumerate(zip(calls, parts, strict=True)):
        skipped = (
            sizes[at + 1 : at + 1 + call.skips] if call.skips else [*sizes[at + 1 :], len(tail)]
        )
        code += part + here.jump_if_negative(sum(skipped))
    return code + tail + exits[1]


def _straight(here: _Machine, call: SystemCall, data: _Data) -> bytes:
    values = [data.find(each) for each in call.arguments]
    return here.load(NUMBERS[call.name][here.column], values) + here.call


def _exit(here: _Machine, code: int) -> bytes:
    return _straight(here, SystemCall("exit_group", (code,)), _Data(0))


def _elf(machine: int, body: bytes) -> bytes:
    """A static executable with everything in one segment that can be read and executed."""
    size = _HEADERS + len(body)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, machine, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + body
