"""Assembler of launchers: executables that make a few system calls and then become the command.

Landlock can only be applied by a process to itself, and limits set from inside need no capability
(decision 18).  An interpreter would take as long to start as the jail, so the calls are assembled
into an ELF file: straight-line code, arguments known beforehand, then execve of argv[1].  A call that
fails skips the next `skips` calls; without skips the launcher exits with FAILED.

Source: elf(5), syscall(2) for the registers, the instruction sets of x86-64 and A64.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palyra.tools.sandbox.command import SandboxFailure

FAILED = 125  # exit code if an isolation layer could not be set up
NOT_STARTED = 126  # exit code if the program cannot be executed

_BASE = 0x400000
_HEADERS = 64 + 56  # of the file, and of its one segment

NUMBERS: Mapping[str, tuple[int, int]] = {  # x86_64, aarch64
    "write": (1, 64), "close": (3, 57), "openat": (257, 56), "openat2": (437, 437), "prctl": (157, 167), "prlimit64": (302, 261),
    "seccomp": (317, 277), "close_range": (436, 436), "exit_group": (231, 94),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "execve": (59, 221), "dup3": (292, 24),
    "socket": (41, 198), "bind": (49, 200), "listen": (50, 201), "sendmsg": (46, 211),
    # for the escape probes
    "connect": (42, 203), "mount": (165, 40), "ptrace": (101, 117), "kill": (62, 129),
    "unshare": (272, 97), "keyctl": (250, 219), "bpf": (321, 280), "io_uring_setup": (425, 425),
    "fchmodat": (268, 53), "utimensat": (280, 88), "setpgid": (109, 154), "inotify_init1": (294, 26),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LauncherWords:
    """A struct of 64-bit words; bytes are replaced by their address."""

    words: "tuple[int | bytes | LauncherWords, ...]"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One system call.  An argument of bytes or words is passed as their address."""

    name: str
    arguments: tuple[int | bytes | LauncherWords, ...]
    skips: int = 0  # calls to skip if it fails; 0: exit with FAILED


@dataclass(frozen=True, slots=True)
class _Machine:
    """Instruction encodings of one processor family."""

    elf_number: int
    column: int  # in NUMBERS
    registers: tuple[Callable[[int], bytes], ...]  # load a value: call number, arguments
    call: bytes
    # The distance counts from the end of the instruction.
    jump_if_negative: Callable[[int], bytes]
    take_arguments: bytes  # of execve(argv[1], argv + 1, environment), as the stack has them

    def load(self, number: int, arguments: Sequence[int]) -> bytes:
        """Encode loads of a call's number and arguments into their registers."""
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
    """Return the executable file.  Raises SandboxFailure for an unknown processor."""
    machine_code = _MACHINES.get(machine)
    if machine_code is None:
        raise SandboxFailure("the launcher can be written for x86_64 and aarch64 only")
    data = [each for call in calls for each in call.arguments if not isinstance(each, int)]
    size = len(_code(machine_code, calls, _Data(0)))  # independent of the address of the data
    placed = _Data(_BASE + _HEADERS + size)
    for each in data:
        placed.find(each)
    return _elf(machine_code.elf_number, _code(machine_code, calls, placed) + placed.content)


class _Data:
    """Data that calls point to, without duplicates, 8-byte aligned."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._places: dict[bytes | LauncherWords, int] = {}
        self.content = b"\0" * (-start % 8)

    def find(self, what: int | bytes | LauncherWords) -> int:
        """Return the address of data, or a number itself as 64 bits."""
        if isinstance(what, int):
            return what & 0xFFFF_FFFF_FFFF_FFFF
        if what not in self._places:
            text = what
            if isinstance(text, LauncherWords):
                text = struct.pack(f"={len(text.words)}Q", *map(self.find, text.words))
            self._places[what] = self._start + len(self.content)
            self.content += text + b"\0" * (8 - len(text) % 8)
        return self._places[what]


def _code(machine_code: _Machine, calls: Sequence[SystemCall], data: _Data) -> bytes:
    exits = [_exit(machine_code, code) for code in (NOT_STARTED, FAILED)]
    execute = (
        machine_code.take_arguments
        + machine_code.load(NUMBERS["execve"][machine_code.column], ())
        + machine_code.call
    )
    parts = [_encode_call(machine_code, call, data) for call in calls]
    jump_bytes = len(machine_code.jump_if_negative(0))
    sizes = [len(part) + jump_bytes for part in parts]
    tail = execute + exits[0]
    code = b""
    for at, (call, part) in enumerate(zip(calls, parts, strict=True)):
        skipped = (
            sizes[at + 1 : at + 1 + call.skips] if call.skips else [*sizes[at + 1 :], len(tail)]
        )
        code += part + machine_code.jump_if_negative(sum(skipped))
    return code + tail + exits[1]


def _encode_call(machine_code: _Machine, call: SystemCall, data: _Data) -> bytes:
    values = [data.find(each) for each in call.arguments]
    return machine_code.load(NUMBERS[call.name][machine_code.column], values) + machine_code.call


def _exit(machine_code: _Machine, code: int) -> bytes:
    return _encode_call(machine_code, SystemCall("exit_group", (code,)), _Data(0))


def _elf(machine: int, body: bytes) -> bytes:
    """Return a static executable with one segment, readable and executable."""
    size = _HEADERS + len(body)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, machine, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + body
