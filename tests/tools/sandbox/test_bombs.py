"""Programs that take what they can get: stopped, with the limit named, and nothing of them left."""

import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
import trio.lowlevel

from palyra.tools.programs import disk_watch
from palyra.tools.programs.disk_watch import ALLOWED_BYTES, DiskWatch
from palyra.tools.programs.output import OutputBuffer, read_until_exit
from palyra.tools.sandbox.cgroups import find_control_groups
from palyra.tools.sandbox.command import MIB, CommandLimits
from palyra.tools.sandbox.sandbox import Sandbox
from tests.tools.sandbox.jails import find_alive, needs_bubblewrap, open_sandbox, python

pytestmark = [pytest.mark.real, needs_bubblewrap]
GROUPS = find_control_groups()
SMALL = CommandLimits(
    memory_bytes=64 * MIB,
    processes=32,
    files=32,
    file_bytes=2 * MIB,
    cpu_s=1,
    temporary_bytes=4 * MIB,
)
NEEDS_GROUPS = {"memory", "processes"}  # who else would tell


@dataclass
class Seen:
    """The result of a bomb."""

    text: str
    limit: str
    left: list[int]


async def explode(
    sandbox: Sandbox,
    code: str,
    folder: Path,
    limits: CommandLimits = SMALL,
    allowed_bytes: int = ALLOWED_BYTES,
) -> Seen:
    """Let it run behind its limits, until it ends or one of them stops it.

    `allowed_bytes` of a disk on which others write too: little only where that is the question.
    """
    marker = uuid4().hex
    command = python(
        code, marker, workspace=folder, is_writable=True, cwd=str(folder), limits=limits
    )
    capture = OutputBuffer()
    with trio.fail_after(120):
        async with sandbox.open(command) as child:
            limit = await read_until_exit(
                child, capture, DiskWatch(folder, allowed_bytes=allowed_bytes)
            )
    limit = limit or (child.ending.limit if child.ending else "")
    return Seen(capture.result().text, limit, find_alive(marker))


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with open_sandbox() as sandbox:
        yield sandbox


FORKS = """
import os, signal
while True:
    if os.fork() == 0: signal.pause()
"""
THREADS = """
import os, threading
try:
    while True: threading.Thread(target=threading.Event().wait).start()
except RuntimeError: os._exit(1)
"""
MEMORY = "kept = []\nwhile True: kept.append(bytearray(1 << 20))"
CPU = "while True: pass"
OUTPUT = "import os\nblock = b'x' * 65536\nwhile True: os.write(1, block)"
LARGE_FILE = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
file = open('big', 'wb')
while True: file.write(bytes(65536))
"""
DISK = """
n = 0
while True:
    n += 1
    with open(f'part-{n}', 'wb') as file: file.write(bytes(1 << 20))
"""
INODES = "n = 0\nwhile True:\n    n += 1\n    open(f'/tmp/{n}', 'w').close()"


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("processes", FORKS),
        ("processes", THREADS),
        ("memory", MEMORY),
        ("cpu", CPU),
        ("output", OUTPUT),
        ("file size", LARGE_FILE),
        ("disk", DISK),
        ("memory", INODES),
    ],
    ids=["forks", "threads", "memory", "cpu", "output", "file", "disk", "inodes"],
)  # fmt: skip
async def test_a_bomb_is_stopped_and_named(
    sandbox: Sandbox, tmp_path: Path, limit: str, code: str
) -> None:
    """Each takes one thing without end; that limit is reported, and nothing is left alive."""
    if limit in NEEDS_GROUPS and GROUPS is None:
        pytest.skip("no control groups here: it is contained, but the kernel does not tell by what")
    # Thread stacks and arenas would use up the address space first.
    limits = replace(SMALL, address_space_bytes=None)
    if limit != "cpu":
        limits = replace(limits, cpu_s=30, memory_bytes=32 * MIB)
    allowed_bytes = 24 * MIB if limit == "disk" else ALLOWED_BYTES
    seen = await explode(sandbox, code, tmp_path, limits, allowed_bytes)
    assert (limit, []) == (seen.limit, seen.left)


async def test_many_files_in_the_workspace_are_stopped_and_named(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk has room for so many names only."""
    monkeypatch.setattr(disk_watch, "ALLOWED_FILES", 500)
    seen = await explode(sandbox, INODES.replace("/tmp/", ""), tmp_path)  # noqa: S108 - inside
    assert ("inodes", []) == (seen.limit, seen.left)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("Too many open files", "kept = []\nwhile True: kept.append(open('/dev/null'))"),
        ("No space left", "f = open('/tmp/x', 'wb', 0)\nwhile True: f.write(bytes(1 << 20))"),
        ("No space left", "f = open('/dev/shm/x', 'wb', 0)\nwhile True: f.write(bytes(1 << 20))"),
        ("Cannot allocate", "import mmap\nkept = []\nwhile True: kept.append(mmap.mmap(-1, 1 << 28))"),
    ],
    ids=["descriptors", "tmp", "shm", "address-space"],
)  # fmt: skip
async def test_a_process_limit_is_an_error_in_the_program(
    sandbox: Sandbox, tmp_path: Path, error: str, code: str
) -> None:
    """The program meets the limit as an error of its own and prints it."""
    limits = replace(SMALL, file_bytes=64 * MIB, cpu_s=30)
    seen = await explode(sandbox, code, tmp_path, limits)
    assert error in seen.text
    assert [] == seen.left


STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        signal.pause()
    os._exit(0)
if os.fork() == 0:
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.setpgid(0, 0)
    print("group", flush=True)
    while True: pass
signal.pause()
"""


@pytest.mark.parametrize("way", ["leave", "cancel", "deadline"])
async def test_nothing_outlives_its_block(sandbox: Sandbox, tmp_path: Path, way: str) -> None:
    """Ignored signals, a stopped process, a new session, a daemon of its own: all dead after."""
    marker = uuid4().hex
    with trio.CancelScope() as scope:
        async with sandbox.open(python(STUBBORN, marker)) as child:
            seen = b""
            while seen.count(b"\n") < 3:
                seen += await child.stdout.receive_some()
            assert len(find_alive(marker)) >= 4
            if way == "cancel":
                scope.cancel()
            elif way == "deadline":
                scope.deadline = trio.current_time()
            await trio.lowlevel.checkpoint()
    assert [] == find_alive(marker)


async def test_control_without_a_jail_a_daemon_outlives_its_parent() -> None:
    """The control: the same program as a plain child leaves processes behind when it is killed."""
    marker = uuid4().hex
    command = python(STUBBORN, marker)
    process = await trio.lowlevel.open_process(list(command.argv), stdout=-1)
    assert process.stdout is not None
    seen = b""
    while seen.count(b"\n") < 3:
        seen += await process.stdout.receive_some()
    process.kill()
    await process.wait()
    left = find_alive(marker)
    for pid in left:
        os.kill(pid, 9)
    assert left


async def test_a_jail_that_is_being_built_can_be_cancelled(sandbox: Sandbox) -> None:
    """At whatever moment of its start: nothing of it begins, and nothing is left."""
    for wait_ms in range(0, 40, 3):
        marker = uuid4().hex
        with trio.move_on_after(wait_ms / 1000):
            await _hold(sandbox, marker)
        assert [] == find_alive(marker), wait_ms


async def _hold(sandbox: Sandbox, marker: str) -> None:
    async with sandbox.open(python("import signal; signal.pause()", marker)):
        await trio.sleep_forever()
