"""Several calls in one turn, with real actors: overlap, order, paths, a denied call's place."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.core.model.messages import ToolMessage
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.core.trust.fences import inside_fence
from palyra.tools.toolbox import AsyncTool
from tests.actors.run.office_kit import Kit, call, running, say, spec
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal for one test."""
    journal = MemoryJournal()
    journal.open()
    return journal


class Bench:
    """Tools that take given times and record when each call ran."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}

    async def work(self, call: ToolCall, _on_output: Callable[[str], None]) -> ToolOutput:
        arguments = call.arguments
        began_s = trio.current_time()
        await trio.sleep(arguments["seconds"])
        self.spans[arguments["name"]] = (began_s, trio.current_time())
        return ToolOutput(text=f"result of {arguments['name']}")

    def tools(self) -> list[AsyncTool]:
        """A read, a write of one path, an effect, and one that the rules deny."""
        kinds = {"read": "read_only_safe", "write": "path_scoped", "act": "effect"}
        return [
            *(AsyncTool(a_spec(name, kind), self.work) for name, kind in kinds.items()),
            AsyncTool(a_spec("forbidden", "read_only_safe"), self.work),
        ]

    def overlap(self, one: str, other: str) -> bool:
        """True if the two calls ran at the same time at any moment."""
        (began, ended), (other_began, other_ended) = self.spans[one], self.spans[other]
        return began < other_ended and other_began < ended


def a_spec(name: str, tool_class: str) -> ToolSpec:
    """A tool of the bench; a write has its path to itself."""
    fields = {"name": {"type": "string"}, "seconds": {"type": "number"}, "path": {"type": "string"}}
    return msgspec.structs.replace(
        spec(name, tool_class),
        parameters={"type": "object", "properties": fields},
        path_argument="path" if tool_class == "path_scoped" else None,
    )


def wanted(tool: str, name: str, seconds: float = 1, **more: str) -> tuple[str, dict[str, Any]]:
    """A call the model wants."""
    return tool, {"name": name, "seconds": seconds, **more}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The tools of the kit's daemon."""
    bench = Bench()
    monkeypatch.setattr(Kit, "tools", lambda _kit: bench.tools())
    return bench


async def play(store: MemoryJournal, *calls: tuple[str, Any]) -> tuple[Kit, str, list[str]]:
    """A run of one turn with these calls; the results as the model saw them, in order."""
    async with running(store) as kit:
        kit.model.turns = [call(*calls), say("done")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        results = [m for m in kit.model.requests[-1].messages if isinstance(m, ToolMessage)]
        return kit, run_id, [inside_fence(result.output) for result in results]


async def test_five_safe_calls_run_four_and_one_with_overlap(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """Four at once; the fifth when all of them are done."""
    began_s = trio.current_time()
    kit, run_id, _ = await play(store, *(wanted("read", f"r{n}", 1 + n / 10) for n in range(5)))
    assert all(bench.overlap("r0", f"r{n}") for n in (1, 2, 3))
    assert not any(bench.overlap("r4", f"r{n}") for n in range(4))
    assert [event.batch for event in kit.events(run_id, "tool.started")] == [1, 1, 1, 1, 2]
    assert trio.current_time() - began_s == pytest.approx(1.3 + 1.4, abs=0.01)


async def test_results_are_in_the_models_order_whatever_ends_first(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """The last call is the quickest; outcomes are in order of completion, results in the model's."""
    kit, run_id, results = await play(store, *(wanted("read", f"r{n}", 4 - n) for n in range(4)))
    assert results == [f"result of r{n}" for n in range(4)]
    order = [event.call_id for event in kit.events(run_id, "tool.started")]
    assert [event.call_id for event in kit.events(run_id, "tool.completed")] == order[::-1]


async def test_an_effect_runs_alone(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """Nothing before it is still running, nothing after it has begun."""
    calls = [wanted("read", "a"), wanted("act", "x"), wanted("read", "b"), wanted("act", "y")]
    _, _, results = await play(store, *calls)
    names = ["a", "x", "b", "y"]
    assert not any(bench.overlap(one, other) for one in names for other in names if one != other)
    assert results == [f"result of {name}" for name in names]


async def test_equal_paths_serialise_and_others_overlap(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """Two writes of one path wait for each other; a write elsewhere does not."""
    await play(
        store,
        wanted("write", "a1", path="a"),
        wanted("write", "b", path="b"),
        wanted("write", "a2", path="a"),
        wanted("write", "below", path="a/deeper"),
    )
    assert bench.overlap("a1", "b")
    assert not bench.overlap("a1", "a2")
    assert not bench.overlap("a2", "below")
    assert bench.spans["a2"][0] >= bench.spans["a1"][1]


async def test_a_denied_call_keeps_its_place(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """The others run together round it, and its denial is its result."""
    _, _, results = await play(
        store, wanted("read", "a", 2), wanted("forbidden", "f"), wanted("read", "b", 1)
    )
    assert results == ["result of a", "by name", "result of b"]
    assert bench.overlap("a", "b")
    assert "f" not in bench.spans


async def test_a_malformed_call_keeps_its_place(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """The rejection of an unknown tool is between the results of the others."""
    _, _, results = await play(store, wanted("read", "a"), ("no_such", {}), wanted("act", "b"))
    assert (results[0], results[2]) == ("result of a", "result of b")
    assert "no_such" in results[1]


async def test_a_call_that_fails_stops_none_of_the_others(
    store: MemoryJournal, bench: Bench, autojump_clock: MockClock
) -> None:
    """One that overruns its deadline is one failed result among the good ones."""
    _, _, results = await play(
        store, wanted("read", "a", 1), wanted("read", "slow", 60), wanted("read", "b", 2)
    )
    assert (results[0], results[2]) == ("result of a", "result of b")
    assert "deadline" in results[1]
