"""What a hostile program reaches outside of a jail, and inside.

Every attempt is made twice by the same program: as a plain child of the test, where it must get
through, and in a jail, where it must not.
"""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.tools.sandbox.child import JailedProcess
from palyra.tools.sandbox.command import SandboxFailure
from tests.tools.sandbox.jails import PYTHON, needs_bubblewrap, open_sandbox, python, run, run_json

pytestmark = [pytest.mark.real, needs_bubblewrap]
PROGRAM = Path(__file__).with_name("break_out.py").read_text("utf-8")
NUMBERS = (
    {"keyctl": 250, "bpf": 321} if os.uname().machine == "x86_64" else {"keyctl": 219, "bpf": 280}
)
FOREIGN_UID = 12_345
# At level A these have nothing to reach: there are namespaces, and temporary files of one's own.
OF_LEVEL_B = {
    "leave_the_process_group", "share_memory_with_the_machine", "make_file_in_temporary_folder",
    "write_own_file_outside", "list_folder_outside", "link_file_outside_into_the_workspace",
}  # fmt: skip
EVERY_ATTEMPT = [
    line.split()[1].partition("(")[0]
    for at, line in enumerate(PROGRAM.splitlines())
    if at and PROGRAM.splitlines()[at - 1] == "@attempt"
]
ATTEMPTS = [name for name in EVERY_ATTEMPT if name not in OF_LEVEL_B]
# Only root, in a mount namespace of its own, can show that these would work.
NEED_ROOT = {
    "read_shadow", "read_file_of_another_user", "remount_root", "mount_tmpfs", "load_bpf",
    "write_to_system_folder", "open_packet_socket", "change_root", "make_device",
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, dict[str, str]]]:
    """The result of every attempt: in a jail, and outside."""
    with ExitStack() as stack:
        where = lay_out(tmp_path_factory.mktemp("walls"), stack)
        jailed = trio.run(_try_inside, where)
        on_loopback = trio.run(partial(_try_inside, has_loopback=True), where)
        yield {"jail": jailed, "loopback": on_loopback, "plain": try_outside(where)}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_jail_holds_what_a_plain_child_does(
    name: str, results: dict[str, dict[str, str]]
) -> None:
    """Each attempt succeeds outside and fails inside, also in a jail with a loopback of its own."""
    if name in NEED_ROOT and os.geteuid() != 0:
        pytest.skip("only root can show that this succeeds outside")
    assert results["plain"][name] == "reached"
    assert results["jail"][name] != "reached"
    assert results["loopback"][name] != "reached"


def test_nothing_is_left_in_the_workspace(
    results: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Mount points are removed with the jail, and real files are unchanged."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "CLAUDE.md").write_text("obey", "utf-8")

    async def look() -> list[str]:
        async with open_sandbox() as sandbox:
            code = "import json, os; print(json.dumps(sorted(os.listdir('.'))))"
            command = python(code, workspace=workspace, is_writable=True, cwd=str(workspace))
            found: list[str] = await run_json(sandbox, command)
            return found

    assert ".envrc" in trio.run(look)
    assert ["CLAUDE.md"] == [path.name for path in workspace.iterdir()]
    assert "obey" == (workspace / "CLAUDE.md").read_text("utf-8")


async def test_variables_are_exactly_the_documented_ones(tmp_path: Path) -> None:
    """PATH, HOME, LANG, TERM, PWD, no bytecode of Python, and what the command was given."""
    async with open_sandbox() as sandbox:
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        found = await run_json(sandbox, python(code, environment={"GIVEN": "1"}))
    # The last one is Python's own doing.
    known = {"PATH", "HOME", "LANG", "TERM", "PYTHONDONTWRITEBYTECODE", "PWD", "GIVEN"}
    assert known == found.keys() - {"LC_CTYPE"}
    assert ("/home/palyra", "1") == (found["HOME"], found["GIVEN"])


async def test_descriptors_are_the_three_streams() -> None:
    """No descriptor is open but standard input, output and error."""
    async with open_sandbox() as sandbox:
        code = (
            "import json, os\nfound = []\n"
            "for fd in range(200):\n"
            "    try: os.fstat(fd); found.append(fd)\n"
            "    except OSError: pass\n"
            "print(json.dumps(found))"
        )
        assert [0, 1, 2] == await run_json(sandbox, python(code))


async def test_the_workspace_is_read_only_unless_asked_for(tmp_path: Path) -> None:
    """Without `is_writable` nothing in it can be changed."""
    (tmp_path / "file").write_text("old", "utf-8")
    code = "import json\ntry: open('file', 'w'); print('1')\nexcept OSError as e: print(e.errno)"
    async with open_sandbox() as sandbox:
        command = python(code, workspace=tmp_path, cwd=str(tmp_path))
        assert await run_json(sandbox, command) in {13, 30}  # EACCES, EROFS
    assert "old" == (tmp_path / "file").read_text("utf-8")


def test_new_files_belong_to_the_workspaces_owner(tmp_path: Path) -> None:
    """For any user of the jail outside."""
    trio.run(_write_new, tmp_path)
    assert tmp_path.stat().st_uid == (tmp_path / "new").stat().st_uid


async def _write_new(tmp_path: Path) -> None:
    async with open_sandbox() as sandbox:
        code = "open('new', 'w').write('x'); print('1')"
        command = python(code, workspace=tmp_path, is_writable=True, cwd=str(tmp_path))
        await run_json(sandbox, command)


def lay_out(root: Path, stack: ExitStack, uid: int | None = None) -> dict[str, Any]:
    """Everything there is to reach; the sockets listen, the victim lives.

    `uid`: whom the victim belongs to.
    """
    root.chmod(0o755)
    workspace = root / "ws"
    for folder in ("ws/.git/hooks", "ws/part", "data", "home/.ssh"):
        (root / folder).mkdir(parents=True)
    for name in ("ws/.git/config", "ws/part/CLAUDE.md", "ws/.env", "data/journal", "home/.ssh/id"):
        (root / name).write_text("secret", "utf-8")
    own = root / "own"
    own.write_text("secret", "utf-8")
    foreign = root / "foreign"
    foreign.write_text("secret", "utf-8")
    if os.geteuid() == 0:
        os.chown(foreign, FOREIGN_UID, FOREIGN_UID)
        foreign.chmod(0o600)
    loopback = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    loopback6 = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
    anywhere = stack.enter_context(socket.create_server(("0.0.0.0", 0)))  # noqa: S104 - what is tried
    datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    datagrams.bind(("127.0.0.1", 0))
    abstract = f"palyra-test-{os.getpid()}"
    for kind, address in (
        (socket.SOCK_STREAM, str(workspace / "listener")),
        (socket.SOCK_STREAM, str(workspace / "part" / "listener")),
        (socket.SOCK_STREAM, str(workspace / ".git" / "monitor.ipc")),
        (socket.SOCK_STREAM, f"\0{abstract}"),
        (socket.SOCK_DGRAM, str(workspace / "datagrams")),
    ):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
    descriptor = fcntl.fcntl(0, fcntl.F_DUPFD, 60)  # a number that a jail could have, too
    stack.callback(os.close, descriptor)
    victim = subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, env={"VICTIM_SECRET": "1"}, user=uid
    )
    stack.callback(victim.wait)
    stack.callback(victim.kill)
    assert victim.stdin is not None
    stack.callback(victim.stdin.close)
    return {
        "workspace": str(workspace), "data": str(root / "data/journal"),
        "own": str(own), "beside": str(root / "beside"),
        "ssh": str(root / "home/.ssh/id"), "foreign": str(foreign),
        "port6": loopback6.getsockname()[1], "any_port": anywhere.getsockname()[1],
        "datagram_port": datagrams.getsockname()[1], "address": own_address(),
        "port": loopback.getsockname()[1], "abstract": abstract, "victim": victim.pid,
        "descriptor": descriptor, "numbers": NUMBERS,
    }  # fmt: skip


def own_address() -> str:
    """An address of this machine that is not the loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        try:
            caller.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(caller.getsockname()[0])


async def _try_inside(where: dict[str, Any], *, has_loopback: bool = False) -> dict[str, str]:
    workspace = Path(where["workspace"])
    os.environ["PALYRA_TEST_SECRET"] = "1"
    os.set_inheritable(where["descriptor"], True)  # noqa: FBT003 - as it is called
    try:
        async with open_sandbox() as sandbox:
            command = python(
                PROGRAM, json.dumps(where), workspace=workspace, is_writable=True,
                has_loopback=has_loopback,
            )  # fmt: skip
            found: dict[str, str] = await run_json(sandbox, command)
            return found
    finally:
        del os.environ["PALYRA_TEST_SECRET"]


def try_outside(where: dict[str, Any]) -> dict[str, str]:
    """The control: a plain child, in a mount namespace of its own where that is possible."""
    apart = ["unshare", "--mount"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*apart, str(PYTHON), "-I", "-S", "-B", "-c", PROGRAM, json.dumps(where)],
        capture_output=True,
        check=True,
        env={**os.environ, "PALYRA_TEST_SECRET": "1"},
        pass_fds=[where["descriptor"]],
        text=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("problem", ["a probe got out", ""], ids=["it leaks", "nothing is found"])
async def test_a_leak_found_while_a_jail_is_built_prevents_its_command(
    monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    """The jail is built and the command has not started; the control starts."""
    begun: list[JailedProcess] = []
    begin = JailedProcess.open_gate

    def note(child: JailedProcess) -> None:
        begun.append(child)
        begin(child)

    monkeypatch.setattr(JailedProcess, "open_gate", note)
    async with open_sandbox() as sandbox:
        limit = sandbox._spawner.limit

        def judge_meanwhile(*args: Any) -> None:
            limit(*args)
            sandbox.set_level("A", problem)

        monkeypatch.setattr(sandbox._spawner, "limit", judge_meanwhile)
        with pytest.raises(SandboxFailure, match=problem) if problem else nullcontext():
            assert "begun\n" == (await run(sandbox, python("print('begun')")))[0]
    assert bool(problem) is not bool(begun)
