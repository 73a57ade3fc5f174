"""shell: what it gives back, what it refuses, and that what was approved is what runs."""

import hashlib
import os
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
from palyra.tools.programs.shell import Shell
from palyra.tools.sandbox.command import MIB, CommandLimits, SandboxFailure
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
    assert found.text.startswith("begun\n[ended by SIGKILL; limit hit: time;")
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
    assert {"PATH", "HOME", "LANG", "TERM", "GIVEN"} == found.environment.keys()
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
