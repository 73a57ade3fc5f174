"""Escape probes: attempts to break out of a jail, all of which must fail.

A kernel may accept the options of an isolation layer without enforcing it, so the daemon tests each
layer instead of trusting it.  A probe is one or two system calls against a target that exists: a
world-readable file, listening sockets, a live process.  A test shows that the same program reaches
every target outside of a jail.

All probes of a level are one launcher program.  It exits with the code of the first attempt whose
calls all succeed, or executes `/bin/true`, so one start of a jail tests everything.
"""

import os
import platform
import shutil
import socket
import struct
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from palyra.core.ports import RunBlocking
from palyra.tools.sandbox import shared_host
from palyra.tools.sandbox.command import Command, Level, SandboxFailure
from palyra.tools.sandbox.launcher import SystemCall, build_launcher
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.spawner import JAIL_UID

TEST_S = 30.0  # for all probes, under extreme load
_FIRST_CODE = 10  # exit code of the first probe
_PROGRAM = "/run/probe"
_HERE = -100  # AT_FDCWD
_OPENED = 3  # the descriptor that the first call of a probe gets
_HIGH_PID = 100  # no process of the jail has a higher number
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_SEIZE = 0x4206  # PTRACE_SEIZE: attaches without stopping the process
_ONE_MAP = struct.pack("=IIII112x", 2, 4, 4, 1)  # BPF_MAP_TYPE_ARRAY of one word
_REMOUNT = 0x1020  # MS_REMOUNT | MS_BIND
_SESSION_KEYRING = -3
_LOOPBACK6 = bytes(15) + b"\1"
_CREATE = os.O_WRONLY | os.O_CREAT


@dataclass(frozen=True, slots=True)
class ProbeTargets:
    """Targets outside of the jail."""

    folder: Path  # the workspace of the probes
    canary: Path
    port: int  # on the loopback
    port6: int  # on the loopback of IPv6; 0: this machine has none
    abstract_name: bytes


def probes(targets: ProbeTargets, level: Level = "A") -> Mapping[str, tuple[SystemCall, ...]]:
    """Return the attempts by name; a target is reached if all calls of its attempt succeed."""
    in_workspace = str(targets.folder / "listener").encode()
    pid = os.getpid()
    inet6 = struct.pack("=H", socket.AF_INET6) + struct.pack(
        "!HI16sI", targets.port6, 0, _LOOPBACK6, 0
    )
    inet = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", targets.port, b"\x7f\0\0\1")
    attempts: dict[str, tuple[SystemCall, ...]] = {
        "a file outside": (_open(str(targets.canary), os.O_RDONLY),),
        "the accounts' passwords": (_open("/etc/shadow", os.O_RDONLY),),
        "a folder of the system": (_open("/usr/palyra-probe", _CREATE),),
        "a configuration file": (_open(f"{targets.folder}/.envrc", _CREATE),),
        "a configuration folder": (_open(f"{targets.folder}/.vscode/probe", _CREATE),),
        "a listener on the loopback": _connect(socket.AF_INET, inet),
        "an abstract socket": _connect(socket.AF_UNIX, _unix(b"\0" + targets.abstract_name)),
        "a socket in the workspace": _connect(socket.AF_UNIX, _unix(in_workspace + b"\0")),
        "a packet socket": (SystemCall("socket", (socket.AF_PACKET, socket.SOCK_RAW, 0)),),
        "a remount": (SystemCall("mount", (b"none\0", b"/\0", 0, _REMOUNT, 0)),),
        "a user namespace": (SystemCall("unshare", (_NEW_USER,)),),
        "a keyring": (SystemCall("keyctl", (0, _SESSION_KEYRING, 1)),),
        "bpf": (SystemCall("bpf", (0, _ONE_MAP, len(_ONE_MAP))),),
        "io_uring": (SystemCall("io_uring_setup", (1, b"\0" * 120)),),
    }
    if targets.port6:
        attempts["a listener on the loopback of IPv6"] = _connect(socket.AF_INET6, inet6)
    if pid > _HIGH_PID:
        attempts["the daemon's process"] = (SystemCall("kill", (pid, 0)),)
        attempts["the daemon's memory"] = (SystemCall("ptrace", (_SEIZE, pid, 0, 0)),)
    if level == "B":
        attempts |= shared_host.escape_probes(targets.canary, targets.folder)
    return attempts


def build_probe(attempts: Mapping[str, tuple[SystemCall, ...]], machine: str) -> bytes:
    """Build a program that exits with the code of the first successful attempt, or runs its argument."""
    return build_launcher(list(_calls(attempts)), machine)


def _calls(attempts: Mapping[str, tuple[SystemCall, ...]]) -> Iterator[SystemCall]:
    for code, calls in enumerate(attempts.values(), _FIRST_CODE):
        for at, call in enumerate(calls):
            yield SystemCall(call.name, call.arguments, skips=len(calls) - at)
        yield SystemCall("exit_group", (code,))
        yield SystemCall("close_range", (_OPENED, 0xFFFFFFFF, 0))


def name_leak(attempts: Mapping[str, tuple[SystemCall, ...]], exit_code: int | None) -> str:
    """Return the attempt with that exit code; "" for none."""
    names = dict(enumerate(attempts, _FIRST_CODE))
    return "" if exit_code is None else names.get(exit_code, "")


async def find_leak(sandbox: Sandbox, run_blocking: RunBlocking, level: Level = "A") -> str:
    """Return the target that a jail of that level could reach; "" if there is none.

    Raises SandboxFailure if the probes could not run.  Cancellation: the jail is gone.
    """
    with ExitStack() as stack:
        targets = await run_blocking(stack.enter_context, lay_out_targets())
        attempts = probes(targets, level)
        program = build_probe(attempts, platform.machine())
        if level == "A":
            command = Command(
                argv=(_PROGRAM, "/bin/true"),
                workspace=targets.folder,
                is_writable=True,
                files={_PROGRAM: program},
                has_loopback=True,  # as programs of calls have it, the most that any has
            )
        else:
            command = await run_blocking(
                shared_host.probe_command, targets.folder, targets.canary, program, JAIL_UID
            )
        with trio.move_on_after(TEST_S) as scope:
            async with sandbox.open(command, probed=level) as child:
                ending = await child.wait()
        if scope.cancelled_caught:
            raise SandboxFailure(f"the self-test did not end within {TEST_S:g} s")
        leak = name_leak(attempts, ending.exit_code)
        if ending.exit_code != 0 and not leak:
            how = ending.signal or f"exit code {ending.exit_code}"
            raise SandboxFailure(f"the self-test ended with {how}")
        return leak


@contextmanager
def lay_out_targets() -> Generator[ProbeTargets]:
    """Create files and listeners for the length of the block; blocks for about a millisecond."""
    folder = Path(tempfile.mkdtemp(prefix="palyra-walls-"))
    outside = Path(tempfile.mkdtemp(prefix="palyra-canary-"))
    name = f"palyra-{outside.name}".encode()
    try:
        outside.chmod(0o755)
        (folder / ".vscode").mkdir()
        canary = outside / "canary"
        canary.write_text("anybody may read this", "ascii")
        with (
            socket.create_server(("127.0.0.1", 0)) as loopback,
            _listening(str(folder / "listener").encode()),
            _listening(b"\0" + name),
            _listening_on_ipv6() as port6,
        ):
            yield ProbeTargets(folder, canary, loopback.getsockname()[1], port6, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(outside, ignore_errors=True)


@contextmanager
def _listening(address: bytes) -> Generator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        yield


@contextmanager
def _listening_on_ipv6() -> Generator[int]:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:  # this machine has no IPv6
        yield 0
        return
    with listener:
        yield listener.getsockname()[1]


def _open(path: str, flags: int) -> SystemCall:
    return SystemCall("openat", (_HERE, path.encode() + b"\0", flags, 0o600))


def _connect(family: int, address: bytes) -> tuple[SystemCall, ...]:
    return (
        SystemCall("socket", (family, socket.SOCK_STREAM, 0)),
        SystemCall("connect", (_OPENED, address, len(address))),
    )


def _unix(path: bytes) -> bytes:
    return struct.pack("=H", socket.AF_UNIX) + path
