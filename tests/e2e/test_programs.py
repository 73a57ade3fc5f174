"""Programs in a real daemon: run, cancelled with their run, and gone after SIGKILL."""

import json
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import LOOK_S, find_events, wait_alive, wait_tool
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.wire import WITHIN_S
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = [pytest.mark.real, needs_bubblewrap]

PERMIT = """
permit (principal, action, resource)
when { resource.capabilities.contains("process") || resource == Tool::"process_stop" };
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose rules let programs run; every test leaves it running."""
    base = tmp_path_factory.mktemp("programs")
    rules = base / "home" / "policies"
    rules.mkdir(parents=True)
    (rules / "user.cedar").write_text(PERMIT, "utf-8")
    with running(base) as process:
        yield process


async def begin(client: Client, *lines: str) -> str:
    """A run of these calls, once programs can be run."""
    await wait_tool(client, "shell")
    return (await client.start_run("\n".join(lines))).run_id


async def finish(client: Client, run_id: str) -> list[TapeEvent]:
    """Its tape, once it has ended."""
    with trio.fail_after(WITHIN_S):
        await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    return tape


def call(tool: str, **arguments: object) -> str:
    """A line that makes the scripted model call a tool."""
    return f"/call {tool} {json.dumps(arguments)}"


def outcomes(tape: list[TapeEvent]) -> list[tuple[str, str]]:
    """Status and output of every call."""
    found = find_events(tape, ev.ToolCompleted)
    return [(each.status, each.output) for each in found if isinstance(each, ev.ToolCompleted)]


async def test_a_program_runs_in_the_jail(programs: DaemonProcess) -> None:
    """Output and exit code are returned, a failure is a failed call, and the isolation is attested."""
    async with programs.connect() as client:
        run_id = await begin(
            client,
            call("shell", argv=["/bin/echo", "hello"]),
            "/then",
            call("shell", command="echo oops >&2; exit 3"),
        )
        tape = await finish(client, run_id)
    (first, second), attested = outcomes(tape), find_events(tape, ev.ToolAttested)
    assert first[0] == "succeeded"
    assert first[1].startswith("hello\n[exit code 0;")
    assert second[0] == "failed"
    assert "oops\n[exit code 3;" in second[1]
    for each in attested:
        assert isinstance(each, ev.ToolAttested)
        assert each.attestation["enforcement"].startswith("A:bubblewrap+seccomp")


async def test_a_program_finds_the_documented_names_and_nothing_of_the_daemon(
    programs: DaemonProcess,
) -> None:
    """Five variables; neither the daemon's folder and its database, nor accounts, nor its process."""
    looked_for = [programs.home, programs.home / "journal.sqlite3", Path("/etc/shadow")]
    looked_for.append(Path(f"/proc/{programs.pid}/environ"))
    assert [] == [path for path in looked_for if not path.exists()], "the control: they are there"
    halves = [(str(path)[:4], str(path)[4:]) for path in looked_for]  # not what the rules look for
    look = call("shell", command="; ".join(f"a={one}; ls ${{a}}{two}" for one, two in halves))
    async with programs.connect() as client:
        run_id = await begin(client, call("shell", argv=["env"]), "/then", look)
        listed, missed = outcomes(await finish(client, run_id))
    names = {line.partition("=")[0] for line in listed[1].splitlines()[:-1]}
    # The last one where the workspace lies below /tmp.
    documented = {"PATH", "HOME", "LANG", "TERM", "PWD", "PYTHONDONTWRITEBYTECODE"}
    assert documented == names - {"TMPDIR"}
    assert len(looked_for) == missed[1].count("No such file or directory")


async def test_cancelling_a_run_kills_the_whole_tree(programs: DaemonProcess) -> None:
    """Grandchildren in a session of their own die with the run."""
    marker = uuid4().hex
    async with programs.connect() as client:
        command = f"setsid sh -c 'trap \"\" TERM; sleep 600; : {marker}' & sleep 600; : {marker}"
        run_id = await begin(client, call("shell", command=command))
        await wait_alive(marker, wanted=True)
        await client.cancel(run_id)
        await finish(client, run_id)
        await wait_alive(marker, wanted=False)


async def test_a_program_in_the_background_ends_with_its_run(programs: DaemonProcess) -> None:
    """It is started, read and listed by its run, refused to another, and dead after its run."""
    marker = uuid4().hex
    loop = f"echo ready; while :; do sleep 1; done; : {marker}"
    async with programs.connect() as client:
        run_id = await begin(
            client,
            call("process_start", command=loop),
            "/then",
            call("process_status"),
            "/then",
            call("sleep", seconds=2),
        )
        await wait_alive(marker, wanted=True)
        with trio.fail_after(WITHIN_S):
            started = await programs.reach(run_id, "tool.completed")
            await programs.reach(run_id, "tool.completed", after_seq=started)
        process_id = outcomes(await read_whole(client, run_id))[0][1].split()[0]
        other = await begin(client, call("process_stop", process=process_id))
        refused = outcomes(await finish(client, other))[0]
        tape = await finish(client, run_id)
        await wait_alive(marker, wanted=False)
    assert "failed" == refused[0]
    assert process_id.startswith("proc_")
    assert "running" in outcomes(tape)[1][1]


async def test_a_removed_workspace(programs: DaemonProcess) -> None:
    """Every tool reports it and no run ends by it; all use the folder that appears again."""
    root = programs.workspace
    calls = (call("shell", argv=["ls"]), call("list_dir"), call("process_start", argv=["ls"]))
    aside = root.with_name("aside")
    async with programs.connect() as client:
        await wait_tool(client, "shell")
        root.rename(aside)
        try:
            tape = await finish(client, await begin(client, "\n".join(calls)))
        finally:
            root.mkdir()
        (root / "again").touch()
        found = outcomes(await finish(client, await begin(client, "\n".join(calls[:2]))))
    gone = [
        each for each in find_events(tape, ev.ToolCompleted) if isinstance(each, ev.ToolCompleted)
    ]
    assert ["failed"] * 3 == [each.status for each in gone]
    assert all(f"the workspace {root} cannot be used" in (each.error or "") for each in gone)
    assert ["succeeded"] * 2 == [status for status, _ in found]
    assert all("again" in output for _, output in found)


async def test_nothing_is_left_of_a_killed_daemon(programs: DaemonProcess) -> None:
    """Its programs die with it; the next life finds and clears what they left in the workspace."""
    marker = uuid4().hex
    async with programs.connect() as client:
        await begin(client, call("shell", command=f"touch {marker}; sleep 600; : {marker}"))
        with trio.fail_after(WITHIN_S):  # before that the jail may not be tied to the daemon yet
            while not (programs.workspace / marker).exists():  # noqa: ASYNC110 - another process
                await trio.sleep(LOOK_S)
    (record,) = list_records(programs)
    await trio.to_thread.run_sync(programs.kill)
    await wait_alive(marker, wanted=False)
    left = find_left(record["placeholders"])
    await trio.to_thread.run_sync(programs.start)
    async with programs.connect() as client:
        await begin(client, "/say hello")
    assert left, "the control: a killed daemon leaves what was mounted on"
    assert [] == find_left(left)
    assert [] == list_records(programs)


def list_records(daemon: DaemonProcess) -> list[dict[str, list[str]]]:
    """The records of jails."""
    folder = daemon.home / "jails"
    return [json.loads(path.read_bytes()) for path in folder.glob("*.json")]


def find_left(paths: list[str]) -> list[str]:
    """The recorded jails that still exist."""
    return [path for path in paths if Path(path).exists()]
