"""The launcher: machine code that does exactly what was requested, or nothing."""

import os
import platform
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.launcher import (
    FAILED,
    NOT_STARTED,
    LauncherWords,
    SystemCall,
    build_launcher,
)

pytestmark = pytest.mark.real
HERE = platform.machine()


def launch(folder: Path, calls: list[SystemCall], *argv: str) -> subprocess.CompletedProcess[str]:
    path = folder / "launch"
    path.write_bytes(build_launcher(calls, HERE))
    path.chmod(0o755)
    return subprocess.run(
        [path, *argv], capture_output=True, text=True, env={"A": "1"}, check=False
    )


def test_it_becomes_the_program_with_arguments_and_environment(tmp_path: Path) -> None:
    """With nothing to do it is the program it is given."""
    done = launch(tmp_path, [], "/bin/sh", "-c", 'echo "$0 $1 $A"', "zero", "one")
    assert (0, "zero one 1\n") == (done.returncode, done.stdout)


def test_calls_take_numbers_bytes_and_structs(tmp_path: Path) -> None:
    """A limit that was set from a struct applies in the program."""
    calls = [SystemCall("prlimit64", (0, 7, struct.pack("=QQ", 33, 34), 0))]
    assert "33\n" == launch(tmp_path, calls, "/bin/sh", "-c", "ulimit -n").stdout


def test_a_required_call_that_fails_prevents_the_start(tmp_path: Path) -> None:
    """The program is not started without a layer."""
    done = launch(tmp_path, [SystemCall("close", (99,))], "/bin/echo", "x")
    assert (FAILED, "") == (done.returncode, done.stdout)


def test_a_call_that_may_fail_leaves_out_what_follows(tmp_path: Path) -> None:
    """As many calls as it says, no more."""
    calls = [
        SystemCall("close", (99,), skips=2),
        SystemCall("exit_group", (7,)),
        SystemCall("exit_group", (8,)),
    ]
    assert 0 == launch(tmp_path, calls, "/bin/true").returncode
    assert 9 == launch(tmp_path, [*calls, SystemCall("exit_group", (9,))], "/bin/true").returncode


def test_a_missing_program_has_its_own_exit_code(tmp_path: Path) -> None:
    """It is distinguished from a layer that failed."""
    assert NOT_STARTED == launch(tmp_path, [], "/does/not/exist").returncode


def test_structs_may_point_to_others(tmp_path: Path) -> None:
    """A message of two parts arrives whole."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 - as it is called
        parts = LauncherWords((b"hello ", 6, b"world", 5))
        message = LauncherWords((0, 0, parts, 2, 0, 0, 0))
        path = tmp_path / "launch"
        path.write_bytes(
            build_launcher([SystemCall("sendmsg", (theirs.fileno(), message, 0))], HERE)
        )
        path.chmod(0o755)
        subprocess.run([path, "/bin/true"], check=True, pass_fds=[theirs.fileno()])
        assert b"hello world" == ours.recv(100)


def test_instructions_of_both_processors() -> None:
    """The other processor's program is made of the right words, as its manual has them."""
    arm = build_launcher(
        [SystemCall("close", (0x12345,), skips=1), SystemCall("close", (4,))], "aarch64"
    )
    assert (183, 0x400078) == (
        struct.unpack_from("<H", arm, 18)[0],
        struct.unpack_from("<Q", arm, 24)[0],
    )
    words = struct.unpack_from("<20I", arm, 120)
    assert (0xD2800008 | 57 << 5) == words[0]  # movz x8, #57
    assert (0xD2800000 | 0x2345 << 5) == words[4]  # movz x0, #0x2345
    assert (0xF2A00000 | 1 << 5) == words[5]  # movk x0, #1, lsl #16
    assert (0xD4000001, 0xB7F80000 | 11 << 5) == words[8:10]  # svc #0; tbnz x0, #63, +11 words
    with pytest.raises(SandboxFailure):
        build_launcher([], "riscv64")
