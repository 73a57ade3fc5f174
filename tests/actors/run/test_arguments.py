"""The operands of a turn: intake once for each call, ahead of the run where it takes long."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, TypeVarTuple

import msgspec
import pytest

from palyra.actors.run.environment import CallArguments
from palyra.core.context.assembly import stable_prefix
from palyra.core.journal.records import AgentRecord
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import NeedsApproval
from palyra.core.run.call import Call
from palyra.core.run.state import Run
from palyra.core.tool.arguments import Refused
from palyra.core.tool.spec import CallFacts, ToolOutput
from palyra.services.policy.gate import Gate
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.toolbox import InlineTool, Toolbox
from tests.actors.run.office_kit import inline_blocking
from tests.core.policy.tool_samples import a_spec
from tests.core.run.run_world import World

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Counted:
    """Operands over a tool whose facets are counted, and a thread that is."""

    def __init__(self) -> None:
        self.looked_at: list[str] = []
        self.hops = 0
        self.tool = InlineTool(
            a_spec("probe", tool_class="effect", capabilities=("process",), parameters=TEXT),
            lambda _call: ToolOutput(text=""),
            facets=self.find_facets,
        )
        self.toolbox = Toolbox([], inline_blocking)
        self.toolbox.put("server", [self.tool])
        prefix = stable_prefix(
            AgentRecord(name="default", version=0, instructions=""), self.toolbox.catalogue()
        )
        gate = Gate(self.toolbox, CedarPolicy(), lambda _principal: 0)
        self.operands = CallArguments(gate, prefix, str)

    def find_facets(self, arguments: Any) -> CallFacts:
        """None; who asks is noted."""
        self.looked_at.append(arguments["text"])
        return CallFacts()

    async def run_blocking(self, function: Callable[[*Args], T], *arguments: *Args) -> T:
        """A thread."""
        self.hops += 1
        return await inline_blocking(function, *arguments)

    async def hear(self, calls: Iterable[ProposedCall]) -> Run:
        """A turn as a run takes it: intake ahead, then kept; the run that has it."""
        calls = tuple(calls)
        await self.operands.validate_ahead(calls, self.run_blocking)
        self.operands.keep(calls)
        return with_calls(calls)

    def prepare(self, run: Run, index: int) -> Any:
        """The gate's word on one of its calls."""
        return self.operands.evaluate(run, run.calls[index])


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def a_turn(*texts: str) -> list[ProposedCall]:
    """Calls with these texts; their ids are their places."""
    return [
        ProposedCall(call_id=f"c{place}", tool="probe", arguments={"text": text})
        for place, text in enumerate(texts)
    ]


def with_calls(calls: Iterable[ProposedCall]) -> Run:
    """A run with a turn of these calls."""
    named = [Call(call_id=c.call_id, tool=c.tool, arguments=c.arguments) for c in calls]
    return msgspec.structs.replace(World().run, calls=tuple(named))


async def test_a_long_turn_is_validated_once_in_a_thread() -> None:
    """Validation is not repeated by the gate or by the search for duplicates."""
    counted = Counted()
    texts = [f"{place} " + "x" * 100 for place in range(20)]
    run = await counted.hear(a_turn(*texts))
    assert (1, texts) == (counted.hops, counted.looked_at)
    for index in range(20):
        assert isinstance(counted.prepare(run, index).verdict, NeedsApproval)
    assert texts == counted.looked_at


async def test_intake_of_a_short_turn_is_done_where_it_is_asked_for() -> None:
    """A thread costs more than the look; once is enough all the same."""
    counted = Counted()
    run = await counted.hear(a_turn("a", "b"))
    assert (0, []) == (counted.hops, counted.looked_at)
    for index in (0, 1, 0):
        counted.prepare(run, index)
    assert ["a", "b"] == counted.looked_at


async def test_calls_whose_ids_were_redacted_are_taken_in_once_as_well() -> None:
    """The tape knows them by other ids than the model does."""
    counted = Counted()
    written = a_turn("a", "b", "a")
    await counted.hear(written)
    redacted = [msgspec.structs.replace(call, call_id=f"[{call.call_id}]") for call in written]
    run = with_calls(redacted)
    for index in (0, 1, 2, 0):
        counted.prepare(run, index)
    assert ["a", "a", "b"] == sorted(counted.looked_at)


async def test_a_name_that_is_none_is_looked_for_in_a_thread() -> None:
    """Among hundreds of tools, the one whose name comes next to it takes long to find."""
    counted = Counted()
    run = await counted.hear([ProposedCall(call_id="c0", tool="prob", arguments={})])
    assert 1 == counted.hops
    assert "'probe'" in counted.prepare(run, 0).verdict.repair_hint


@pytest.mark.parametrize("size", [1, 1_000])
async def test_a_repeated_call_id_is_another_call(size: int) -> None:
    """A cached validation is for its own call, not for a later one with the same id."""
    counted = Counted()
    first = counted.prepare(await counted.hear(a_turn("a" * size)), 0)
    again = counted.prepare(await counted.hear(a_turn("b" * size)), 0)
    assert ({"text": "a" * size}, {"text": "b" * size}) == (first.arguments, again.arguments)
    assert first.digest != again.digest


async def test_duplicates_are_found_among_validated_calls() -> None:
    """Duplicates are later calls with the same arguments, and no others."""
    counted = Counted()
    run = await counted.hear(a_turn("a" * 600, "b" * 600, "a" * 600, "a" * 600))
    assert ("c2", "c3") == counted.prepare(run, 0).duplicates
    assert ("c3",) == counted.prepare(run, 2).duplicates
    assert () == counted.prepare(run, 1).duplicates


async def test_a_call_without_facts_is_not_evaluated() -> None:
    """A tool that was missing at validation and exists at the gate has no facts for policies."""
    counted = Counted()
    counted.toolbox.put("server", [])
    run = await counted.hear(a_turn("a" * 600))
    counted.toolbox.put("server", [counted.tool])
    verdict = counted.prepare(run, 0).verdict
    assert isinstance(verdict, Refused)
    assert "not available" in verdict.reason


async def test_after_a_restart_intake_is_ahead_as_well() -> None:
    """Of the calls as the tape has them."""
    counted = Counted()
    run = with_calls(a_turn("a" * 600, "a" * 600))
    await counted.operands.reload(run, counted.run_blocking)
    assert (1, 2) == (counted.hops, len(counted.looked_at))
    assert ("c1",) == counted.prepare(run, 0).duplicates
    assert 2 == len(counted.looked_at)
