"""Programs in the background: of one run, read page by page, stopped, ended with the run."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import trio.lowlevel

from palyra.actors.kernel.threads import run_sync
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs import process_tools as module
from palyra.tools.programs.process_tools import MAX_PER_RUN, Processes
from palyra.tools.programs.program import CommandEnvironment
from palyra.tools.sandbox.command import CommandLimits
from palyra.wiring.host import new_id
from tests.tools.sandbox.jails import find_alive, needs_bubblewrap, open_sandbox

pytestmark = [pytest.mark.real, needs_bubblewrap]
WITHIN_S = 120.0  # a bound against hanging, not a promise


class Runs:
    """The process tools, and the runs that are open."""

    def __init__(self) -> None:
        self.open = {"run_1", "run_2"}
        self.processes: Processes | None = None
        self.around: CommandEnvironment | None = None

    async def call(self, tool: str, run_id: str = "run_1", **arguments: object) -> str:
        """The text of one call's result."""
        assert self.processes is not None
        assert self.around is not None
        made = ToolCall(
            call_id="call",
            run_id=run_id,
            session_id="ses",
            principal="alice",
            tool=tool,
            tool_version="1",
            arguments=arguments,
        )
        if tool == "process_status":
            return self.processes.status(made).text
        does: dict[str, Callable[..., Awaitable[ToolOutput]]] = {
            "process_start": partial(self.processes.start, self.around),
            "process_output": self.processes.output,
            "process_stop": self.processes.stop,
        }
        with trio.fail_after(WITHIN_S):
            return (await does[tool](made, lambda _text: None)).text

    async def start(self, command: str, run_id: str = "run_1") -> str:
        """The name of a new process."""
        return (await self.call("process_start", run_id, command=command)).split()[0]


@pytest.fixture
async def runs(tmp_path: Path, nursery: trio.Nursery) -> AsyncGenerator[Runs]:
    made = Runs()

    async def spawn(_name: str, start: Callable[..., Awaitable[None]]) -> object:
        return await nursery.start(start)

    async with open_sandbox() as sandbox:
        made.around = CommandEnvironment(Workspace(tmp_path), CommandLimits(), {}, "A")
        made.processes = Processes(
            sandbox,
            run_sync,
            spawn=spawn,
            is_open=lambda run_id: run_id in made.open,
            new_id=new_id,
        )
        yield made
        made.open.clear()
        with trio.fail_after(WITHIN_S):
            while nursery.child_tasks:
                await trio.lowlevel.checkpoint()


async def test_a_program_is_started_read_and_ended(runs: Runs) -> None:
    """Output is read from a position on, also while it runs; the end is reported."""
    name = await runs.start("echo one; read line; echo two")
    first = await runs.call("process_output", process=name, wait_s=10)
    assert first.startswith("one\n")
    ended = await runs.call("process_output", process=name, offset=4, wait_s=10)
    while "running" in ended:
        ended = await runs.call("process_output", process=name, offset=8, wait_s=10)
    assert "exit code 0" in ended
    assert f"{name}: exit code 0" in await runs.call("process_status")


async def test_stopped_with_all_it_started(runs: Runs) -> None:
    """The whole tree is dead when the call returns."""
    marker = uuid4().hex
    name = await runs.start(f"setsid sleep 600 & echo {marker}; sleep 600; : {marker}")
    await runs.call("process_output", process=name, wait_s=10)
    assert find_alive(marker)
    assert "ended by SIGKILL" in await runs.call("process_stop", process=name)
    assert [] == find_alive(marker)
    assert "ended by SIGKILL" in await runs.call("process_stop", process=name)


async def test_of_its_own_run_only(runs: Runs) -> None:
    """Another run's process, a number of the machine and nonsense are refused alike."""
    name = await runs.start("sleep 600")
    refusals = set()
    for tool in ("process_stop", "process_output"):
        for process in (name, "1", "proc_x"):
            with pytest.raises(ToolFailure) as refused:
                await runs.call(tool, "run_2", process=process)
            refusals.add(refused.value.message)
    assert 1 == len(refusals)
    assert "no program" in await runs.call("process_status", "run_2")
    assert "running" in await runs.call("process_status")


async def test_a_program_ends_with_its_run(runs: Runs) -> None:
    """When the run is over its programs are killed; those of other runs continue."""
    mine, theirs = uuid4().hex, uuid4().hex
    await runs.start(f"sleep 600; : {mine}")
    await runs.start(f"sleep 600; : {theirs}", "run_2")
    runs.open.remove("run_1")
    with trio.fail_after(WITHIN_S):
        while find_alive(mine):
            await trio.lowlevel.checkpoint()
    assert find_alive(theirs)


async def test_as_many_as_there_may_be(runs: Runs) -> None:
    """One more is refused until one is stopped."""
    names = [await runs.start("sleep 600") for _ in range(MAX_PER_RUN)]
    with pytest.raises(ToolFailure, match="stop one"):
        await runs.start("sleep 600")
    await runs.call("process_stop", process=names[0])
    await runs.start("true")


async def test_scripts_in_the_background_are_bounded(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a run's running programs together; one that has ended holds nothing."""
    monkeypatch.setattr(module, "MAX_SEALED_BYTES", 20)
    (tmp_path / "x").write_text("sleep 100\n#\n", "utf-8")  # 12 bytes
    (tmp_path / "y").write_text("echo y\n", "utf-8")
    first = await runs.start("sh x")
    await runs.start("sh y")
    with pytest.raises(ToolFailure, match="more than 20 bytes together: stop one first"):
        await runs.start("sh x")
    await runs.start("sh x", run_id="run_2")
    await runs.call("process_stop", process=first)
    await runs.start("sh x")


async def test_a_jail_that_cannot_be_entered(runs: Runs) -> None:
    """It is reported as not started; the jail's message is not output."""
    assert runs.around
    root = runs.around.workspace.root
    root.chmod(0)
    try:
        name = await runs.start("true")
        ended = await runs.call("process_output", process=name, wait_s=10)
    except ToolFailure as failure:  # the daemon, which is not root, could not enter either
        ended = failure.message
    finally:
        root.chmod(0o755)
    assert "not started: nothing ran" in ended or "permission denied" in ended
    assert "\nbwrap" not in ended
