"""The system call filter, run by a small machine of the test's own: every call, both processors."""

import errno
import struct
from collections.abc import Mapping
from itertools import product

import pytest

from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    CLONE,
    KILL_PROCESS,
    LAST_KNOWN,
    MODES,
    NETWORK,
    OPENS,
    REFUSED,
    SOCKET,
    SOCKETPAIR,
    UNKNOWN,
    Architecture,
    Sockets,
    build_filter,
)
from palyra.tools.sandbox.shared_host import ON_CALLER, ON_OPEN_FILE, REFUSED_AT_B, STRICTER

EPERM, ENOSYS, NO_FAMILY = (
    0x50000 | code for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
)
MACHINES = sorted(ARCHITECTURES)


def judge(
    machine: str,
    number: int,
    *arguments: int,
    sockets: Sockets = "none",
    shared: bool = False,
    audit: int | None = None,
) -> int:
    """The filter's verdict about one call."""
    program = build_filter(sockets=sockets, extension=STRICTER if shared else None, machine=machine)
    here = ARCHITECTURES[machine]
    values = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, here.audit if audit is None else audit, 0, *values)
    return run_bpf(program, data)


def run_bpf(program: bytes, data: bytes) -> int:
    lines = list(struct.iter_unpack("=HBBI", program))
    word = at = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            (word,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            tests = {
                0x15: word == value,
                0x25: word > value,
                0x35: word >= value,
                0x45: word & value,
            }
            at += yes if tests[code] else no


def numbers(calls: Mapping[str, tuple[int | None, int | None]], here: Architecture) -> list[int]:
    return [each for pair in calls.values() if (each := pair[here.column]) is not None]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_listed_call_is_refused_and_the_rest_is_not(machine: str) -> None:
    """Refused are exactly the calls on the lists; calls younger than the lists do not exist."""
    here = ARCHITECTURES[machine]
    refused = {*numbers(REFUSED, here), *numbers(NETWORK, here)}
    unknown = set(numbers(UNKNOWN, here))
    families = {*numbers(SOCKET, here), *numbers(SOCKETPAIR, here)}
    for number in range(LAST_KNOWN + 50):
        expected = ALLOW
        if number in refused:
            expected = EPERM
        elif number in unknown or number > LAST_KNOWN:
            expected = ENOSYS
        elif number in families:
            expected = NO_FAMILY
        assert expected == judge(machine, number), number


@pytest.mark.parametrize("machine", MACHINES)
def test_another_interface_is_death(machine: str) -> None:
    """32-bit calls, x32 calls and those of another processor end the program."""
    assert KILL_PROCESS == judge(machine, 0, audit=0x40000003)  # i386
    if machine == "x86_64":
        assert KILL_PROCESS == judge(machine, 0x40000000 | 1)


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_makes_no_namespaces(machine: str) -> None:
    """Threads and children may be made, namespaces of every kind may not."""
    (clone,) = numbers(CLONE, ARCHITECTURES[machine])
    threads = 0x3D0F00  # what pthread_create asks for
    assert (ALLOW, ALLOW) == (judge(machine, clone, 17), judge(machine, clone, threads))
    for bit in (7, 17, 25, 26, 27, 28, 29, 30):
        assert EPERM == judge(machine, clone, 1 << bit | 17), bit


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_by_family_and_kind(machine: str) -> None:
    """Pairs of local streams always; over IP and local ones as far as the kind of jail has them."""
    here = ARCHITECTURES[machine]
    (make,), (pair,) = numbers(SOCKET, here), numbers(SOCKETPAIR, here)
    ip = [(2, 1), (10, 1)]
    allowed: dict[Sockets, list[tuple[int, int]]] = {
        "none": [], "network": ip, "loopback": [*ip, (2, 2), (10, 2)],
        "local": [*ip, (2, 2), (10, 2), (1, 1)],
    }  # fmt: skip
    for sockets, kinds in allowed.items():
        for family, kind, flags in product(range(46), range(8), (0, 0o4000, 0o2004000, 0o10000)):
            fits = (family, kind) in kinds and flags != 0o10000
            verdict = judge(machine, make, family, kind | flags, sockets=sockets)
            assert (ALLOW if fits else NO_FAMILY) == verdict, (sockets, family, kind)
        for number in numbers(NETWORK, here):
            assert (EPERM if sockets == "none" else ALLOW) == judge(
                machine, number, sockets=sockets
            )
        assert ALLOW == judge(machine, pair, 1, 1 | 0o2004000, sockets=sockets)
        for family, kind in ((1, 2), (1, 5), (2, 1), (10, 1), (16, 3)):
            assert NO_FAMILY == judge(machine, pair, family, kind, sockets=sockets)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_file_runs_as_its_owner(machine: str) -> None:
    """A mode with set-user-id or set-group-id is refused wherever a mode is an argument."""
    here = ARCHITECTURES[machine]
    for calls, index in MODES:
        for number in numbers(calls, here):
            before = (0,) * index
            assert ALLOW == judge(machine, number, *before, 0o755)
            assert EPERM == judge(machine, number, *before, 0o4755)
            assert EPERM == judge(machine, number, *before, 0o2755)
    for calls, index in OPENS:
        for number in numbers(calls, here):
            before = (0,) * index
            assert EPERM == judge(machine, number, *before, 0o101, 0o4755)
            assert EPERM == judge(machine, number, *before, 0o20200001, 0o4755)
            assert ALLOW == judge(machine, number, *before, 0, 0o4755)  # makes nothing


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_more_is_refused(machine: str) -> None:
    """Calls about other processes of the host are refused; about the caller itself they are not."""
    here = ARCHITECTURES[machine]
    for number in numbers(REFUSED_AT_B, here):
        assert (ALLOW, EPERM) == (judge(machine, number), judge(machine, number, shared=True))
    for number in numbers(ON_CALLER, here):
        assert ALLOW == judge(machine, number, 0, shared=True)
        assert EPERM == judge(machine, number, 1, shared=True)
        assert ALLOW == judge(machine, number, 1)
    for number in numbers(ON_OPEN_FILE, here):
        assert ALLOW == judge(machine, number, 3, 0, shared=True)
        for name in (1, 1 << 32):
            assert EPERM == judge(machine, number, 3, name, shared=True)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_nothing_is_allowed_that_was_not(machine: str) -> None:
    """The longer filter is the shorter one and more."""
    for number in range(LAST_KNOWN + 5):
        if judge(machine, number) != ALLOW:
            assert ALLOW != judge(machine, number, shared=True), number


def test_an_unknown_processor_has_no_filter() -> None:
    """And so no jail."""
    with pytest.raises(SandboxFailure):
        build_filter(sockets="none", machine="riscv64")
