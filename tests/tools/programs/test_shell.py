"""shell: what it gives back, what it refuses, and that what was approved is what runs."""

import dataclasses
import hashlib
import os
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.errors import PalyraError
from palyra.tools.files.read import list_dir
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs.disk_watch import DiskWatch, disks_of
from palyra.tools.programs.program import CommandEnvironment, build_command, inspect_program
from palyra.tools.programs.result_notes import file_clock_ns
from palyra.tools.programs.shell import Shell
from palyra.tools.sandbox.bubblewrap import environment_of
from palyra.tools.sandbox.command import MIB, Command, CommandLimits, SandboxFailure
from tests.tools.sandbox.jails import find_alive, needs_bubblewrap, open_sandbox

SHELL = str(Path("/bin/sh").resolve())
CLOSED = (
    "nothing ran"
    if os.geteuid() == 0
    else "permission denied"  # the daemon itself already meets it
)
pytestmark = [pytest.mark.real, needs_bubblewrap]


def call(**arguments: object) -> ToolCall:
    return ToolCall(
        call_id="call",
        run_id="run",
        session_id="ses",
        principal="alice",
        tool="shell",
        tool_version="1",
        arguments=arguments,
    )


class Shop:
    """A shell over one workspace."""

    def __init__(self, shell: Shell, root: Path) -> None:
        self.shell = shell
        self.root = root
        self.heard = ""

    async def run(self, **arguments: object) -> ToolOutput:
        """Inspect, and run what was inspected."""
        wanted = call(**arguments)
        inspection = inspect_program(self.shell.around, wanted)
        return await self.shell.run(
            msgspec.structs.replace(wanted, inspection=inspection), self._hear
        )

    def _hear(self, text: str) -> None:
        self.heard += text


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    around = CommandEnvironment(Workspace(tmp_path), CommandLimits(), {"GIVEN": "1"}, "A: profile")
    async with open_sandbox() as sandbox:
        yield Shop(Shell(sandbox, around, run_sync, 60), tmp_path)


async def test_output_and_exit_code(shop: Shop) -> None:
    """Both streams in order, passed on as they come, and how it ended on the last line."""
    found = await shop.run(command="echo one; echo two >&2; echo $GIVEN")
    assert "one\ntwo\n1\n" == shop.heard
    assert found.text.startswith("one\ntwo\n1\n[exit code 0; 10 bytes of output in ")
    assert (False, False) == (found.is_failure, found.is_truncated)
    assert found.enforcement.startswith("A:bubblewrap+")


@pytest.mark.parametrize(
    ("command", "note"),
    [("exit 3", "[exit code 3;"), ("kill -SEGV $$", "[ended by SIGSEGV;")],
)
async def test_a_program_that_fails_is_a_failed_call(shop: Shop, command: str, note: str) -> None:
    """With its exit code or signal."""
    found = await shop.run(command=command)
    assert found.is_failure
    assert note in found.text


async def test_a_slow_program_is_stopped(shop: Shop) -> None:
    """Its output so far is returned with the limit, and its grandchildren are dead."""
    marker = uuid4().hex
    line = f"setsid sh -c 'trap \"\" TERM; sleep 60; : {marker}' & echo begun; sleep 60; : {marker}"
    found = await shop.run(command=line, timeout_s=1)
    assert found.text.startswith(
        "begun\n[ended by SIGKILL; limit hit: time (timeout_s of the call, "
    )
    assert found.is_failure
    assert [] == find_alive(marker)


async def test_a_flood_is_cut_and_counted(shop: Shop) -> None:
    """At most 1 MiB comes back, with the flag and the counts."""
    found = await shop.run(command="yes", timeout_s=30)
    assert found.is_truncated
    assert len(found.text.encode()) <= MIB
    assert "bytes left out" in found.text
    assert "limit hit: more than 16777216 bytes of output" in found.text


async def test_a_program_runs_in_the_given_folder(shop: Shop) -> None:
    """In a folder of the workspace, and in no other."""
    (shop.root / "part").mkdir()
    assert f"{shop.root}/part\n" in (await shop.run(command="pwd", cwd="part")).text
    for cwd in ("..", "/", "missing", ".ssh"):
        with pytest.raises(ToolFailure):
            await shop.run(command="pwd", cwd=cwd)


async def test_a_python_program_leaves_no_bytecode_in_the_project(shop: Shop) -> None:
    """Imported modules get no `__pycache__`, unless the program asks for it."""
    (shop.root / "mine.py").write_text("x = 1\n", "utf-8")
    for words in ((), ("-m", "unittest", "mine")):
        await shop.run(argv=["python3", *words, *(() if words else ("-c", "import mine"))])
    assert not (shop.root / "__pycache__").exists()
    await shop.run(command="PYTHONDONTWRITEBYTECODE= python3 -c 'import mine'")
    assert (shop.root / "__pycache__").exists()


@pytest.mark.parametrize("program", ["no-such-program", "/etc/passwd", "../x", "/usr/../bin/no"])
async def test_a_missing_program_is_refused(shop: Shop, program: str) -> None:
    """The call is refused before an approval."""
    with pytest.raises(ToolFailure):
        await shop.run(argv=[program])


async def test_the_call_says_what_it_would_run(shop: Shop) -> None:  # noqa: RUF029 - its fixture
    """Binary, folder, variables, and what every operand holds."""
    (shop.root / "x.sh").write_text("echo hi", "utf-8")
    found = inspect_program(shop.shell.around, call(argv=["sh", "x.sh", "other"]))
    assert SHELL == found.binary
    assert str(shop.root) == found.cwd
    # The last one where the workspace lies below /tmp, as it does here.
    known = {"PATH", "HOME", "LANG", "TERM", "PYTHONDONTWRITEBYTECODE", "GIVEN"}
    assert known == found.environment.keys() - {"TMPDIR"}
    assert {"x.sh": hashlib.sha256(b"echo hi").hexdigest()} == found.operands
    assert "A: profile" == found.profile


async def test_a_script_runs_as_it_was_approved(shop: Shop) -> None:
    """Changed before it starts: refused.  Changed while it starts: the approved text runs."""
    script = shop.root / "x.sh"
    script.write_text("echo approved", "utf-8")
    wanted = call(argv=["sh", "x.sh"])
    inspected = inspect_program(shop.shell.around, wanted)
    approved = msgspec.structs.replace(wanted, inspection=inspected)
    command = build_command(shop.shell.around, approved)
    script.write_text("echo changed", "utf-8")
    async with shop.shell.sandbox.open(command) as child:
        assert b"approved\n" == await child.stdout.receive_some()
    with pytest.raises(ToolFailure, match="changed meanwhile"):
        await shop.shell.run(approved, lambda _text: None)


async def test_control_a_plain_child_runs_what_is_there(shop: Shop) -> None:
    """The control: without the sealed copy it is the changed text that runs."""
    script = shop.root / "x.sh"
    script.write_text("echo changed", "utf-8")
    done = await trio.run_process(["/bin/sh", script], capture_stdout=True)
    assert b"changed\n" == done.stdout


async def test_a_link_to_a_script_is_sealed_too(shop: Shop) -> None:
    """The target of the link is hashed and run."""
    (shop.root / "real.sh").write_text("echo real", "utf-8")
    (shop.root / "link.sh").symlink_to("real.sh")
    assert (await shop.run(argv=["sh", "./link.sh"])).text.startswith("real\n")
    inspected = inspect_program(shop.shell.around, call(argv=["sh", "link.sh"]))
    assert {"real.sh"} == inspected.operands.keys()


async def test_paths_outside_are_not_inspected(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: RUF029 - its fixture
    """A model's words make the daemon read nothing outside the workspace and the system."""
    outside = shop.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "key").write_text("key", "utf-8")
    (shop.root / "x.sh").write_text("echo hi", "utf-8")
    (shop.root / "out").symlink_to(outside)
    (shop.root / "whole").symlink_to(shop.root / "x.sh")
    looked: list[str] = []
    for name in ("lstat", "stat", "readlink", "open"):
        monkeypatch.setattr(os, name, _noting(getattr(os, name), looked))
    words = ["/proc/1/exe", "/proc/1/root", "/proc/1/cwd/x", f"{outside}/key", "out/key", "../key"]
    words += ["a/" * 3000, f"../{shop.root.name}/x.sh", "whole"]
    for arguments in ({"argv": ["ls", *words]}, {"command": " ".join(["ls", *words])}):
        found = inspect_program(shop.shell.around, call(**arguments))
        assert {"x.sh"} == found.operands.keys()
    assert [] == [path for path in looked if path.startswith(("/proc/1/", str(outside)))]


def _noting(look: Any, looked: list[str]) -> Any:
    def noting(path: Any, *rest: Any, **named: Any) -> Any:
        looked.append(str(path))
        return look(path, *rest, **named)

    return noting


@pytest.mark.parametrize(
    "program",
    ["/proc/1/exe", "./gone", "./maze", "/usr/bin/" + "a" * 300, "/usr/../proc/1/exe", "\ud800"],
)
async def test_an_unreadable_program_is_refused(shop: Shop, program: str) -> None:
    """Any error of the operating system is a failure of the call."""
    (shop.root / "gone").symlink_to("/proc/1/exe")
    (shop.root / "maze").symlink_to("maze")
    with pytest.raises(ToolFailure):
        await shop.run(argv=[program])


async def test_links_to_programs_of_the_system_are_followed(shop: Shop) -> None:
    """As in a virtual environment: the link's own name runs, the program behind it is shown."""
    (shop.root / "sh").symlink_to("other")
    (shop.root / "other").symlink_to("/bin/sh")
    assert SHELL == inspect_program(shop.shell.around, call(argv=["./sh", "-c", "true"])).binary
    assert (await shop.run(argv=["./sh", "-c", "echo $0"])).text.startswith(f"{shop.root}/./sh\n")


async def test_links_and_commondir_are_restored(shop: Shop) -> None:
    """A link to instructions, and a file that redirects git, are restored and reported."""
    (shop.root / "guide.md").write_text("obey", "utf-8")
    (shop.root / "AGENTS.md").symlink_to("guide.md")
    (shop.root / "CLAUDE.md").symlink_to("/nowhere/at/all")
    (shop.root / ".git").mkdir()
    attack = "rm AGENTS.md && echo evil > AGENTS.md && echo ../evil > .git/commondir"
    found = await shop.run(command=attack)
    assert "because no program may change or make it: .git/commondir, AGENTS.md]" in found.text
    assert Path("guide.md") == (shop.root / "AGENTS.md").readlink()
    assert Path("/nowhere/at/all") == (shop.root / "CLAUDE.md").readlink()
    assert not (shop.root / ".git" / "commondir").exists()


async def test_without_its_workspace_nothing_runs(shop: Shop) -> None:
    """Not an empty folder, and no crash: also when it goes right before the start."""
    wanted = call(argv=["ls"])
    seen = inspect_program(shop.shell.around, wanted)
    command = build_command(shop.shell.around, wanted)
    aside = shop.root.with_name("aside")
    shop.root.rename(aside)
    for attempt in (
        lambda: inspect_program(shop.shell.around, wanted),
        lambda: DiskWatch(*disks_of(command)),
    ):
        with pytest.raises(PalyraError, match=f"{shop.root} cannot be"):
            attempt()
    with pytest.raises(ToolFailure, match=f"the workspace {shop.root} cannot be used: .*make"):
        await shop.shell.run(msgspec.structs.replace(wanted, inspection=seen), print)
    with pytest.raises(SandboxFailure):
        async with shop.shell.sandbox.open(command):
            pass
    shop.root.mkdir()
    (shop.root / "again").touch()
    assert "again\n[exit code 0;" in (await shop.run(argv=["ls"])).text
    assert "again  0 bytes" == list_dir(shop.shell.around.workspace, {}).text


async def test_a_vanished_workspace_ends_the_program(shop: Shop) -> None:
    """Its disk use could not be bounded any more; the result says so."""
    (shop.root / "begun").touch()

    def take_away(_text: str) -> None:
        shop.root.rename(shop.root.with_name("aside"))

    wanted = call(command="echo begun; sleep 60")
    found = await shop.shell.run(wanted, take_away)
    assert "ended by SIGKILL; limit hit: a folder it writes to is not there any more" in found.text


async def test_a_jail_that_cannot_be_entered_is_a_failure(shop: Shop) -> None:
    """A folder closed to its owner is no output; the failure names the remedy."""
    (shop.root / "part").mkdir()
    for line, folder in (("chmod 000 part", "part"), ("chmod 000 .", "")):
        assert not (await shop.run(command=line)).is_failure
        with pytest.raises(ToolFailure, match=CLOSED):
            await shop.run(argv=["ls"], cwd=folder)
        (shop.root / folder).chmod(0o755)
        assert not (await shop.run(argv=["ls"], cwd=folder)).is_failure
    assert "bwrap" not in shop.heard


async def test_an_exit_code_of_its_own_stays_its_own(shop: Shop) -> None:
    """Control: a program that began may say whatever bubblewrap would."""
    found = await shop.run(command="echo bwrap: no such luck; exit 1")
    assert found.text.startswith("bwrap: no such luck\n[exit code 1;")


TOO_MANY_FILES = "kept = []\nwhile True: kept.append(open('/dev/null'))"
TOO_MANY_THREADS = "import threading\nwhile True: threading.Thread(target=threading.Event().wait, daemon=True).start()"
TOO_LARGE = "open('big', 'wb').write(bytes(3 << 20))"


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            f'exec python3 -c "{TOO_MANY_FILES}"',
            "'Too many open files'; the limit here: open files, 40 of each process (sandbox.open_files)]",
        ),
        (
            f'python3 -c "{TOO_MANY_FILES}" 2>&1 | tail -1',
            "the output says 'Too many open files'",
        ),
        (
            f'python3 -c "{TOO_LARGE}"',
            "the output says 'File too large'; the limit here: file size, 2 MiB (sandbox.file_mib)]",
        ),
        (
            "head -c 9000000 /dev/zero > big",
            "ended by SIGXFSZ; limit hit: file size, 2 MiB (sandbox.file_mib);",
        ),
        (
            "cat /dev/zero > /tmp/x; cat /dev/zero > /tmp/y; cat /dev/zero > /tmp/z",
            "the output says 'No space left on device'; the limit here: temporary space, 4 MiB each",
        ),
        (
            'python3 -c "x = bytes(1 << 30)"',
            "64 MiB of all processes together (sandbox.memory_mib), 200 MiB of address space each (",
        ),
        ("while :; do :; done", "limit hit: cpu, 1 s of each process (sandbox.cpu_s);"),
    ],
    ids=["files", "pipeline", "large", "signal", "temporary", "memory", "cpu"],
)  # fmt: skip
async def test_a_limit_is_named_with_its_value_and_setting(
    shop: Shop, line: str, note: str
) -> None:
    """Whether the kernel reports it, or only words of the program, which are marked as a hint."""
    assert note in (await small(shop).run(command=line)).text


def small(shop: Shop) -> Shop:
    """The same shell with limits that are quickly reached."""
    limits = CommandLimits(
        address_space_bytes=200 * MIB,
        memory_bytes=64 * MIB,
        processes=20,
        files=40,
        file_bytes=2 * MIB,
        cpu_s=1,
        temporary_bytes=4 * MIB,
    )
    around = dataclasses.replace(shop.shell.around, limits=limits)
    return Shop(dataclasses.replace(shop.shell, around=around), shop.root)


async def test_the_limit_of_processes_is_named(shop: Shop) -> None:
    """By the control group's count, or without one by the words of the program."""
    found = await small(shop).run(argv=["python3", "-c", TOO_MANY_THREADS])
    assert "processes and threads, 20 (sandbox.processes)" in found.text


@pytest.mark.parametrize(
    "line",
    [
        "head -c 9000000 /dev/zero > big 2> /dev/null; true",
        'python3 -c "import os; f = os.open(\'big\', 65)\nwhile os.write(f, bytes(1 << 20)) == 1 << 20: pass" 2>&1 | true',
        "mkdir deep; head -c 9000000 /dev/zero 2> /dev/null | cat > deep/big 2> /dev/null; true",
    ],
    ids=["shell", "short-write", "folder"],
)  # fmt: skip
async def test_a_file_that_was_cut_is_named(shop: Shop, line: str) -> None:
    """Also if the program that wrote it says nothing, and the line succeeds."""
    old = shop.root / "old"
    old.write_bytes(bytes(2 * MIB))
    while file_clock_ns() <= old.stat().st_ctime_ns:
        pass  # until the next tick of the clock of files
    found = await small(shop).run(command=line)
    assert not found.is_failure
    assert "[1 file ended exactly at the limit, nothing beyond it was written: " in found.text
    assert "big; file size, 2 MiB (sandbox.file_mib)]" in found.text


async def test_control_an_ordinary_program_gets_no_note(shop: Shop) -> None:
    """The control: below all limits the result is output and exit code."""
    line = "head -c 1000000 /dev/zero > small; python3 -c 'print(1)'"
    assert 2 == (await small(shop).run(command=line)).text.count("\n") + 1


async def test_the_default_limits_fit_watchers_and_pools(shop: Shop) -> None:
    """Hundreds of open files and of threads."""
    code = (
        "import threading\nkept = [open('/dev/null') for _ in range(900)]\nstop = threading.Event()\n"
        "made = [threading.Thread(target=stop.wait) for _ in range(300)]\n"
        "threading.stack_size(65536)\n[each.start() for each in made]\nstop.set()\nprint('all')"
    )
    assert (await shop.run(argv=["python3", "-c", code])).text.startswith("all\n[exit code 0;")


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("sleep 97 & echo started", "1 program still running was ended (sleep)"),
        ("sleep 97 & sleep 98 & sh -c 'sleep 99; true' & echo started", "4 programs still running"),
        ("setsid nohup sleep 97 > /dev/null 2>&1 & echo started", "1 program still running"),
        ("(sleep 97 &) ; echo started", "1 program still running was ended (sleep)"),
        ("sleep 97 & echo started; exit 3", "1 program still running was ended (sleep)"),
    ],
    ids=["background", "several", "session", "orphan", "failed"],
)  # fmt: skip
async def test_programs_that_outlive_the_line_are_counted(shop: Shop, line: str, note: str) -> None:
    """The line ends with its program, and the result names the rest and the tool that keeps one."""
    found = await shop.run(command=line, timeout_s=30)
    code = 3 if "exit 3" in line else 0
    assert found.text.startswith(f"started\n[exit code {code}; 8 bytes of output in ")
    assert f"\n[{note}" in found.text
    assert "; process_start keeps one until the end of the run]" in found.text


@pytest.mark.parametrize(
    "line",
    [
        "sleep 0 & wait; echo started",
        "sleep 60 & kill $!; wait; echo started",
        "seq 100000 | tail -1 > /dev/null; echo started",
    ],
)
async def test_control_programs_that_have_ended_are_not_counted(shop: Shop, line: str) -> None:
    """The control: nothing is left, nothing is said."""
    found = await shop.run(command=line)
    assert found.text.startswith("started\n[exit code 0;")
    assert "still running" not in found.text


async def test_the_output_of_a_line_with_survivors_is_whole(shop: Shop) -> None:
    """All of it is read although a process that holds the stream open is killed."""
    found = await shop.run(command="sleep 97 & seq 30000")
    assert "\n30000\n[exit code 0;" in found.text
    assert not found.is_truncated


async def test_a_line_that_is_stopped_has_no_survivors(shop: Shop) -> None:
    """The time was up: the whole tree was ended, which the result says already."""
    found = await shop.run(command="sleep 97 & sleep 98", timeout_s=1)
    assert "limit hit: time" in found.text
    assert "still running" not in found.text


SERVE = """
import http.server, socket, threading, urllib.request
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in HOST else socket.AF_INET
server = Server((HOST, 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
place = f'[{HOST}]' if ':' in HOST else HOST
print(urllib.request.urlopen(f'http://{place}:{server.server_port}/file').read().decode())
"""
MANAGE = """
import multiprocessing
if __name__ == '__main__':
    multiprocessing.set_start_method('METHOD')
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a='served')
        print(shared['a'])
"""
DATAGRAMS = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(('127.0.0.1', 0))
two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); two.sendto(b'served', one.getsockname())
print(one.recv(9).decode())
"""
LOCAL = """
import asyncio, tempfile
async def main():
    path = tempfile.mkdtemp() + '/socket'
    async def answer(reader, writer): writer.write(b'served'); writer.close()
    async with await asyncio.start_unix_server(answer, path):
        reader, _ = await asyncio.open_unix_connection(path)
        print((await reader.read()).decode())
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    [
        *(f"HOST = '{host}'\n{SERVE}" for host in ("127.0.0.1", "::1", "localhost")),
        *(MANAGE.replace("METHOD", method) for method in ("fork", "spawn", "forkserver")),
        DATAGRAMS,
        LOCAL,
    ],
    ids=["ipv4", "ipv6", "localhost", "fork", "spawn", "forkserver", "datagrams", "local"],
)  # fmt: skip
async def test_programs_serve_on_their_own_loopback(shop: Shop, code: str) -> None:
    """A server and its client in one command, over IP and over sockets of the file system."""
    (shop.root / "file").write_text("served", "utf-8")
    (shop.root / "serve.py").write_text(code, "utf-8")
    found = await shop.run(argv=["python3", "serve.py"], timeout_s=30)
    assert "served\n" in found.text, found.text
    assert "exit code 0" in found.text


def test_temporary_files_are_in_home_only_for_a_workspace_below_tmp() -> None:
    """Elsewhere local sockets can be made in /tmp itself."""
    for root, found in (("/tmp/ws", "/home/palyra"), ("/srv/ws", None), ("/tmpfiles", None)):  # noqa: S108 - a path
        command = Command(argv=("x",), workspace=Path(root), has_loopback=True)
        assert found == environment_of(command).get("TMPDIR")


async def test_the_loopback_is_that_of_the_command_alone(shop: Shop) -> None:
    """A server of the host, or of another command, is not there; the control: on the host it is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        found = await shop.run(argv=["python3", "-c", code])
        assert "ConnectionRefusedError" in found.text
        done = await trio.run_process(["python3", "-c", code])
        assert 0 == done.returncode


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("git init", ".git"),
        ("echo x > AGENTS.md", "AGENTS.md"),
        ("mkdir .vscode", ".vscode"),
        ("python3 -c \"open('CLAUDE.md', 'w')\"", "CLAUDE.md"),
        ("ls", "AGENTS.md, CLAUDE.md"),
    ],
)  # fmt: skip
async def test_a_name_that_no_program_can_make_is_said(shop: Shop, line: str, names: str) -> None:
    """After an error that names it, and in a listing that shows what is not there."""
    found = await shop.run(command=line)
    assert f"\n[not there, and no program can make it: {names}" in found.text
    assert "A person can make it" in found.text
    assert [] == list(shop.root.iterdir())


@pytest.mark.parametrize(
    "line",
    ["echo see CLAUDE.md", "git init -q below && git -C below status", "cat AGENTS.md", "ls x"],
)
async def test_control_names_that_are_there_or_only_mentioned(shop: Shop, line: str) -> None:
    """The control: what is there is no held name, and a word is no error."""
    (shop.root / "AGENTS.md").write_text("obey\n", "utf-8")
    assert "no program can make it" not in (await shop.run(command=line)).text
