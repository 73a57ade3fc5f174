"""Turns, tool calls and questions as tasks of the tree, below their run."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.kernel.child import ChildSnapshot
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.errors import Unavailable
from palyra.tools.toolbox import AsyncTool
from tests.actors.run import office_kit
from tests.actors.run.office_kit import Kit, call, running, say, spec
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """An empty journal."""
    store = MemoryJournal()
    store.open()
    return store


async def settle() -> None:
    """Let every task come to rest."""
    await trio.testing.wait_all_tasks_blocked()


def below(kit: Kit, run_id: str) -> dict[str, tuple[str | None, int | None]]:
    """The tasks of the run in the tree: what each waits for, and its age."""

    def walk(node: ChildSnapshot) -> Iterator[ChildSnapshot]:
        yield node
        for child in node.children:
            yield from walk(child)

    (run,) = (node for node in walk(kit.work.snapshot()) if node.id == f"run:{run_id}")
    assert {"running"} >= {task.state for task in run.children}
    return {task.id: (task.waits_for, task.age_ms) for task in run.children}


async def test_the_tree_shows_a_turn_while_it_waits_for_the_model(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """With its age; after its end the run has no task."""
    async with running(store) as kit:
        answer = trio.Event()
        kit.model.turns = [answer]
        run_id = await kit.start()
        await settle()
        autojump_clock.jump(1.5)
        assert {"turn": ("model", 1_500)} == below(kit, run_id)
        handle = kit.live(run_id)
        answer.set()
        assert await kit.end(run_id) == "done"
        assert {} == handle.tasks


async def test_the_tree_shows_a_tool_call_by_its_step(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It waits for its start to be committed, then for its tool."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {"text": "x"}), ("hang", {"text": "y"}))]
        run_id = await kit.start()
        await settle()
        calls = [each.call_id for each in kit.live(run_id).run.calls]
        waits = {task: waits_for for task, (waits_for, _) in below(kit, run_id).items()}
        assert waits == {f"tool:{calls[0]}": "tool"}
        kit.journal.hold = True
        kit.gate_open.set()
        await settle()
        waits = {task: waits_for for task, (waits_for, _) in below(kit, run_id).items()}
        assert waits == {f"tool:{calls[1]}": "commit"}
        kit.journal.release()
        assert await kit.end(run_id) == "done"


async def test_the_tree_shows_an_approval(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Its age counts from its request."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        await settle()
        autojump_clock.jump(20)
        (approval_id,) = kit.live(run_id).prompts
        assert {f"approval:{approval_id}": ("person", 20_000)} == below(kit, run_id)


class CrashKit(Kit):
    """Its tool `buggy` raises what is not a failure that it announces."""

    error: Exception = RuntimeError("a bug")

    def tools(self) -> list[Any]:
        async def crash(_call: ToolCall, _on_output: Any) -> ToolOutput:
            await trio.lowlevel.checkpoint()
            raise self.error

        return [*super().tools(), AsyncTool(spec("buggy"), crash)]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), Unavailable("it is down")])
async def test_the_crash_of_a_tool_call_fails_that_call_only(
    store: MemoryJournal, autojump_clock: MockClock, error: Exception
) -> None:
    """The run continues with the next call in the same actor; an incident names the tool."""
    with patch.object(office_kit, "Kit", CrashKit), patch.object(CrashKit, "error", error):
        async with running(store) as kit:
            kit.model.turns = [
                call(("buggy", {"text": "x"}), ("note", {"text": "y"})),
                say("I see"),
            ]
            with capture_logs() as logs:
                run_id = await kit.start()
                assert await kit.end(run_id) == "done"
            crashed, _ = kit.events(run_id, "tool.completed")
            (attested, _) = kit.events(run_id, "tool.attested")
            assert attested.attestation["status"] == "failed"
            assert f"buggy crashed ({type(error).__name__})" in crashed.error
            assert kit.effects == ["y"]
            assert "run.recovered" not in kit.kinds(run_id)
            assert "tool_crashed:buggy" in kit.incidents._open
            names = [line["child"] for line in logs if line["event"] == "child crashed"]
            assert names == [f"tool:{crashed.call_id}"]


async def test_a_tool_call_that_loses_its_journal_is_no_crash_of_the_tool(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Negative control: its start was not committed, so the run is resumed and the call runs."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait, call(("note", {"text": "x"})), say("done")]
        run_id = await kit.start()
        await settle()
        kit.journal.fail_with = Unavailable("disk full")
        wait.set()
        await settle()
        kit.journal.fail_with = None
        kit.model.turns = [call(("note", {"text": "x"})), say("done")]
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["x"]
        assert "run.recovered" in kit.kinds(run_id)
        assert not [key for key in kit.incidents._open if "tool_crashed" in key]
