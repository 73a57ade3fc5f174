"""Level B: what a hostile program reaches where there are no namespaces, and who survives it.

Every attempt is made as a plain child of the same user first, where it must get through.  A test
that is root runs its programs as somebody else, as the daemon would.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.tools.programs.disk_watch import DiskWatch, disks_of
from palyra.tools.programs.output import OutputBuffer, read_until_exit
from palyra.tools.sandbox import escape_probes, shared_host
from palyra.tools.sandbox.command import MIB, Bind, Command, CommandLimits, SandboxFailure
from palyra.tools.sandbox.escape_probes import (
    ProbeTargets,
    build_probe,
    find_leak,
    lay_out_targets,
    probes,
)
from palyra.tools.sandbox.landlock import SCOPED_ABI, find_abi
from palyra.tools.sandbox.launcher import SystemCall
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.shared_host import find_obstacle, remove_private_folder
from tests.optional import needs
from tests.tools.sandbox.jails import PREFIX, PYTHON, find_alive, open_sandbox
from tests.tools.sandbox.test_walls import EVERY_ATTEMPT, NEED_ROOT, PROGRAM, lay_out, try_outside

SOMEBODY = 4_242 if os.geteuid() == 0 else os.geteuid()
AS_ROOT = os.geteuid() == 0
SYSTEM_PYTHON = Path("/usr/bin/python3") if AS_ROOT else PYTHON  # root's own may be hidden
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a disk of its own
DEADLINE_S = 20.0
LOOK_S = 0.01

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        find_abi() < SCOPED_ABI,
        reason="the kernel's Landlock is older than version 6 (no level B was tested)",
    ),
    pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="no Python that another user may start"),
]


@contextmanager
def folder_of_somebody() -> Generator[Path]:
    """A folder that every user may enter; `give` sets the owner of its entries."""
    folder = Path(tempfile.mkdtemp(prefix="palyra-test-b-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def give(folder: Path) -> None:
    """It and everything in it belongs to whom programs run as."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, SOMEBODY, SOMEBODY if AS_ROOT else -1, follow_symlinks=False)


@pytest.fixture
def workspace() -> Generator[Path]:
    with folder_of_somebody() as folder:
        (folder / "src").mkdir()
        (folder / "file").write_text("old", "utf-8")
        give(folder)
        yield folder


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with open_sandbox() as made:
        made.set_level("B", "")
        yield made


def line(text: str, workspace: Path, **more: Any) -> Command:
    """A command line in the workspace, as `shell` runs it."""
    wanted: dict[str, Any] = {"is_writable": True, "least": "B", "merges_errors": True, **more}
    return Command(argv=("/bin/sh", "-c", text), workspace=workspace, cwd=str(workspace), **wanted)


def program(code: str, workspace: Path, *arguments: str, **more: Any) -> Command:
    """The same for Python."""
    binds = () if AS_ROOT or PREFIX.is_relative_to("/usr") else (Bind(PREFIX),)
    argv = (str(SYSTEM_PYTHON), "-I", "-S", "-B", "-c", code, *arguments)
    return replace(line("", workspace, **more), argv=argv, binds=binds)


async def run(sandbox: Sandbox, command: Command) -> tuple[str, int | str | None]:
    """The program's output, and its exit code or signal."""
    output = b""
    async with sandbox.open(command) as child:
        async for piece in child.stdout:
            output += piece
        ending = await child.wait()
    return output.decode(), ending.signal or ending.exit_code


# --- what cannot be reached ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def results() -> Generator[dict[str, dict[str, str]]]:
    """The result of every attempt: in a jail, as the same user outside, and as root if possible."""
    with ExitStack() as stack:
        root = stack.enter_context(folder_of_somebody())
        where = lay_out(root, stack, SOMEBODY if AS_ROOT else None)
        foreign = root / "foreign"
        owner = foreign.stat()
        give(root)
        os.chown(foreign, owner.st_uid, owner.st_gid)
        found = {"jail": trio.run(_try_inside, where), "plain": _try_as_somebody(where)}
        yield {**found, "root": try_outside(where) if AS_ROOT else {}}


@pytest.mark.parametrize("name", EVERY_ATTEMPT)
def test_a_jail_holds_what_a_plain_child_does(
    name: str, results: dict[str, dict[str, str]]
) -> None:
    """Each attempt succeeds outside and fails inside."""
    if name in NEED_ROOT and not AS_ROOT:
        pytest.skip("only root can show that this succeeds outside")
    controls = {results[who].get(name, "") for who in ("plain", "root")}
    assert "reached" in controls, controls
    assert results["jail"][name] != "reached"


async def _try_inside(where: dict[str, Any]) -> dict[str, str]:
    os.environ["PALYRA_TEST_SECRET"] = "1"
    os.set_inheritable(where["descriptor"], True)  # noqa: FBT003 - as it is called
    try:
        async with open_sandbox() as made:
            made.set_level("B", "")
            command = program(PROGRAM, Path(where["workspace"]), json.dumps(where))
            output, _ = await run(made, command)
            found: dict[str, str] = json.loads(output)
            return found
    finally:
        del os.environ["PALYRA_TEST_SECRET"]


def _try_as_somebody(where: dict[str, Any]) -> dict[str, str]:
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-S", "-B", "-c", PROGRAM, json.dumps(where)],
        capture_output=True, check=True, text=True, cwd="/", pass_fds=[where["descriptor"]],
        env={"PALYRA_TEST_SECRET": "1"}, user=SOMEBODY if AS_ROOT else None,
        extra_groups=[] if AS_ROOT else None,
    )  # fmt: skip
    found: dict[str, str] = json.loads(done.stdout)
    return found


# --- what a command finds ------------------------------------------------------------------------


async def test_a_program_works_in_the_folders_of_its_workspace(
    sandbox: Sandbox, workspace: Path
) -> None:
    """It reads, writes files below folders, and creates nothing at the top."""
    text = "cat file; echo new > src/made; echo changed > file; cat src/made; echo x > top || true"
    output, code = await run(sandbox, line(text, workspace))
    assert 0 == code
    assert output.startswith("oldnew\n")
    assert "top" in output
    assert ["file", "src"] == sorted(os.listdir(workspace))  # noqa: PTH208 - as text
    assert ("changed\n", SOMEBODY) == (
        (workspace / "file").read_text("utf-8"),
        (workspace / "src/made").stat().st_uid,
    )


@needs("git")
async def test_git_reads_a_repository(sandbox: Sandbox, workspace: Path) -> None:
    """Whatever the system's own configuration is."""
    await trio.run_process(["git", "init", "-q", workspace])
    give(workspace)
    assert ("?? file\n", 0) == await run(sandbox, line("git status --short", workspace))


async def test_a_workspace_is_read_only_unless_asked_for(sandbox: Sandbox, workspace: Path) -> None:
    """Without `is_writable` nothing in it can be changed."""
    _, code = await run(sandbox, line("echo x > src/new", workspace, is_writable=False))
    assert 0 != code
    assert ("old", 0) == await run(sandbox, line("cat file", workspace, is_writable=False))


async def test_variables_descriptors_and_private_folders(sandbox: Sandbox, workspace: Path) -> None:
    """The documented names, three streams, and a home that is gone afterwards, however it is left."""
    code = (
        "import json, os\nfound = []\n"
        "for fd in range(200):\n"
        "    try: os.fstat(fd); found.append(fd)\n"
        "    except OSError: pass\n"
        "os.makedirs(os.environ['HOME'] + '/a/b/c'); os.chdir(os.environ['HOME'])\n"
        "for deep in range(1200): os.mkdir('d'); os.chdir('d')\n"
        "print(json.dumps([found, dict(os.environ)]))"
    )
    output, _ = await run(sandbox, program(code, workspace, environment={"GIVEN": "1"}))
    descriptors, variables = json.loads(output)
    names = {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "GIVEN", "GIT_CONFIG_NOSYSTEM"}
    names |= {"PYTHONDONTWRITEBYTECODE"}
    assert ([0, 1, 2], names) == (descriptors, variables.keys() - {"PWD", "LC_CTYPE"})
    assert not Path(variables["HOME"]).parent.exists()


def test_a_closed_private_folder_is_removed(tmp_path: Path) -> None:
    """Also if its permissions deny access to its content."""
    (tmp_path / "private/locked/in").mkdir(parents=True)
    (tmp_path / "private/locked").chmod(0)
    remove_private_folder(str(tmp_path / "private"))
    assert not (tmp_path / "private").exists()


async def test_the_result_names_the_level(sandbox: Sandbox, workspace: Path) -> None:
    """The level in force is attested."""
    async with sandbox.open(line("true", workspace)) as child:
        await child.wait()
    assert child.enforcement.startswith("B:seccomp+landlock")
    assert sandbox.enforcement == child.enforcement


class Everywhere:
    """Egress that must not be granted."""

    port, environment = 1, Mapping[str, str]

    def attach(self, _listener: object) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"least": "A"}, "level A only"),
        ({"network": Everywhere()}, "network"),
        ({"binds": (Bind(Path("/usr"), "/elsewhere"),)}, "another place"),
        ({"files": {"/usr/bin/env": b"other"}}, "propose the call again"),
    ],
)
async def test_an_unsupported_grant_is_refused(
    change: dict[str, Any], reason: str, sandbox: Sandbox, workspace: Path
) -> None:
    """A command that needs network does not run."""
    with pytest.raises(SandboxFailure, match=reason):
        await run(sandbox, replace(line("true", workspace), **change))


def test_where_it_cannot_be_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an older kernel, and for root's own workspace under a daemon that is root."""
    assert "Linux 6.12" in find_obstacle(5, tmp_path)
    assert "has none" in find_obstacle(0, tmp_path)
    monkeypatch.setattr("palyra.tools.sandbox.shared_host.os.geteuid", lambda: 0)
    if AS_ROOT:
        assert "another user" in find_obstacle(6, tmp_path)
        os.chown(tmp_path, SOMEBODY, SOMEBODY)
        assert not find_obstacle(6, tmp_path)
    assert "cannot be looked at" in find_obstacle(6, tmp_path / "gone")


async def attend_once(sandbox: Sandbox, command: Command) -> None:
    """Run it as `shell` does."""
    async with sandbox.open(command) as child:
        await read_until_exit(child, OutputBuffer(), DiskWatch(*disks_of(command)))
    child.check_started()


async def test_a_folder_that_cannot_be_entered_is_no_output(
    sandbox: Sandbox, workspace: Path
) -> None:
    """A closed or missing workspace is a failure; no part of the command ran."""
    await attend_once(sandbox, line("true", workspace))
    os.chmod(workspace, 0)  # noqa: PTH101 - a moment
    try:
        with pytest.raises(SandboxFailure, match=r"nothing ran|cannot be"):
            await attend_once(sandbox, line("true", workspace))
    finally:
        os.chmod(workspace, 0o700)  # noqa: PTH101
    with pytest.raises(SandboxFailure):  # of another's daemon only once it begins
        await attend_once(sandbox, line("true", workspace / "gone"))


# --- who survives it -----------------------------------------------------------------------------

_DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        os._exit(0) if {leaves} else time.sleep(600)
if {leaves}:
    try: os.setsid()
    except OSError: pass
print("there", flush=True)
{stops}
time.sleep(600)
"""


@pytest.mark.parametrize("stops", ["", "os.kill(os.getpid(), signal.SIGSTOP)"])
@pytest.mark.parametrize("ends", ["", "and ends"])
async def test_nothing_outlives_its_block(
    ends: str, stops: str, sandbox: Sandbox, workspace: Path
) -> None:
    """Grandchildren, orphans, those that ignore signals and those that are stopped."""
    marker = f"palyra-b-{os.getpid()}-{bool(ends)}-{bool(stops)}"
    code = _DAEMON.format(leaves="False", stops=stops)
    if ends:  # the command itself ends; what it started goes on in the background
        code = f"import os\nif os.fork():\n    import time; time.sleep(0.5); os._exit(0)\n{code}"
    command = program(code, workspace, marker)
    with trio.fail_after(DEADLINE_S):
        async with sandbox.open(command) as child:
            assert b"there" in await child.stdout.receive_some()
            assert find_alive(marker)
            if ends:
                await child.wait()
    assert [] == find_alive(marker)


def test_control_a_plain_daemon_outlives_its_parent() -> None:
    """The same program, killed by its process number only: what it started is still there."""
    marker = f"palyra-b-control-{os.getpid()}"
    code = _DAEMON.format(leaves="True", stops="")
    with subprocess.Popen([sys.executable, "-c", code, marker], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"there" in process.stdout.readline()
        process.kill()
        process.wait()
        left = find_alive(marker)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left


async def test_a_fork_bomb_is_contained(sandbox: Sandbox, workspace: Path) -> None:
    """It gets as many processes as it may, and all are gone at its deadline."""
    marker = f"palyra-b-bomb-{os.getpid()}"
    code = (
        "import os, time\n"
        "print('there', flush=True)\n"
        "while True:\n"
        "    try: os.fork()\n"
        "    except OSError: time.sleep(0.05)"
    )
    limits = replace(CommandLimits(), processes=20)
    async with sandbox.open(program(code, workspace, marker, limits=limits)) as child:
        await child.stdout.receive_some()
        with trio.fail_after(DEADLINE_S):
            while len(find_alive(marker)) < 2:  # noqa: ASYNC110 - other processes
                await trio.sleep(LOOK_S)
        with trio.move_on_after(0.5):  # more come, if they can
            await child.wait()
        # With the reaper's interpreter, not named so.  Without privileges the limit is for all
        # processes of the user: those that end meanwhile leave their places to the bomb.
        alive = find_alive(marker)
        assert 1 < len(alive) <= (21 if os.geteuid() == 0 else most_processes(alive[0]))
    assert [] == find_alive(marker)


def most_processes(pid: int) -> int:
    """The limit of processes that this one has."""
    limits = Path(f"/proc/{pid}/limits").read_text("ascii").splitlines()
    (line,) = [each for each in limits if each.startswith("Max processes")]
    return int(line.split()[2])


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="no second file system")
async def test_a_full_temporary_folder_is_contained(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private folder lies on a disk of the host, so that one is watched, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(SHARED_MEMORY))
    code = (
        "import os\nfor n in range(8):\n"
        "    with open(f'{os.environ[\"TMPDIR\"]}/{n}', 'wb') as file: file.write(bytes(4 << 20))\n"
        "import signal; signal.pause()"
    )
    command = program(code, workspace)
    assert [workspace, SHARED_MEMORY] == disks_of(command)
    with trio.fail_after(DEADLINE_S):
        async with sandbox.open(command) as child:
            watch = DiskWatch(*disks_of(command), allowed_bytes=24 * MIB)
            assert "disk" == await read_until_exit(child, OutputBuffer(), watch)


async def test_killing_the_reaper_kills_its_command(sandbox: Sandbox, workspace: Path) -> None:
    """No process is alive after the block."""
    marker = f"palyra-b-reaper-{os.getpid()}"
    async with sandbox.open(line(f"sleep 600 & sleep 600; : {marker}", workspace)) as child:
        with trio.fail_after(DEADLINE_S):
            while not find_alive(marker):
                await trio.lowlevel.checkpoint()
        os.kill(child.pid, signal.SIGKILL)
        assert "SIGKILL" == (await child.wait()).signal
    assert [] == find_alive(marker)


def test_killing_the_daemon_kills_its_jails(workspace: Path, tmp_path: Path) -> None:
    """The reaper notices the closed gate; the next start removes the private folder."""
    marker = f"palyra-b-orphan-{os.getpid()}"
    code = (
        "import sys, trio\nfrom pathlib import Path\n"
        "from tests.tools.sandbox.test_level_b import hold\n"
        f"trio.run(hold, Path({str(workspace)!r}), Path({str(tmp_path)!r}), {marker!r})"
    )
    here = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=here
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert find_alive(f": {marker}")
        process.kill()
    trio.run(_until_gone, f": {marker}")
    (record,) = tmp_path.glob("*.json")
    private = Path(json.loads(record.read_bytes())["folder"])
    assert private.exists()
    trio.run(_reap, tmp_path)
    assert not private.exists()


async def _reap(records: Path) -> None:
    async with open_sandbox(records) as sandbox:
        await sandbox.reap()


async def hold(workspace: Path, records: Path, marker: str) -> None:
    """Run a program until this process is killed."""
    async with open_sandbox(records) as sandbox:
        sandbox.set_level("B", "")
        command = line(f"sleep 600 & echo there; sleep 600; : {marker}", workspace)
        async with sandbox.open(command) as child:
            await child.stdout.receive_some()
            sys.stdout.write("there\n")
            sys.stdout.flush()
            await child.wait()


async def _until_gone(marker: str) -> None:
    with trio.fail_after(DEADLINE_S):
        while find_alive(marker):
            await trio.lowlevel.checkpoint()


# --- the self-test -------------------------------------------------------------------------------


async def test_level_b_passes_its_test() -> None:
    """On this machine level B holds, tested like level A."""
    async with open_sandbox() as made:
        assert not await find_leak(made, run_sync, "B")


def test_every_probe_of_this_level_gets_through_outside(tmp_path: Path) -> None:
    """The control: as a plain child of the same user each of them succeeds."""
    program_file = tmp_path / "probe"
    with lay_out_targets() as bait:
        of_a = probes(bait)
        for name, calls in probes(bait, "B").items():
            if name in of_a:
                continue  # tests of level A
            program_file.write_bytes(build_probe({name: calls}, platform.machine()))
            program_file.chmod(0o755)
            done = subprocess.run([program_file, "/bin/true"], check=False)
            assert 10 == done.returncode, name


@pytest.mark.parametrize(
    ("missing", "reached"),
    [
        ("filter", "the mode of a file outside"),
        ("filter", "a process group of its own"),
        ("filter", "news of files outside"),
        ("landlock", "a file outside"),
        ("landlock", "a new file at the top"),
    ],
)
async def test_a_missing_layer_is_found(
    missing: str, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the filter, or without Landlock, the self-test names the reached target."""
    build = shared_host.build_isolation

    def half(limits: CommandLimits, abi: int, *rights: Mapping[str, int], **_: object) -> bytes:
        everything = ({"/": 0xFFFF}, {}) if missing == "landlock" else rights
        return build(limits, abi, *everything)

    monkeypatch.setattr(shared_host, "build_isolation", half)
    if missing == "filter":
        monkeypatch.setattr(
            shared_host, "build_filter", lambda **_: bytes([6, 0, 0, 0, 0, 0, 0xFF, 0x7F])
        )

    def one(bait: ProbeTargets, level: Any) -> Mapping[str, tuple[SystemCall, ...]]:
        return {reached: probes(bait, level)[reached]}

    monkeypatch.setattr(escape_probes, "probes", one)
    async with open_sandbox() as made:
        assert reached == await find_leak(made, run_sync, "B")


async def test_programs_that_outlive_the_command_are_named(
    sandbox: Sandbox, workspace: Path
) -> None:
    """The reaper counts the group before it kills it; the control has waited for its own."""
    for text, names in (("sleep 97 & (sleep 98 &)", ("sleep", "sleep")), ("sleep 0 & wait", ())):
        async with sandbox.open(
            line(f"{text}; head -c 70000 /dev/zero > src/x", workspace)
        ) as child:
            await child.wait()
        assert names == child.remains.survivors
        written_bytes = child.remains.written_bytes
        if os.geteuid():  # the figures of a process that has exited are root's alone: proc(5)
            assert written_bytes is None
        else:
            assert written_bytes is not None
            assert written_bytes >= 70_000
