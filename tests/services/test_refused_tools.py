"""Tools that a provider refuses without naming them: found by halving, in few questions."""

from collections.abc import Callable
from math import ceil, log2
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.core.journal.records import Usage
from palyra.core.model.messages import Delta, FailureClass, ModelFailure, ModelRequest, ModelTurn
from palyra.core.run.refused_items import Suspects, names_no_tool
from palyra.services.policy.refused_tools import MAX_QUESTIONS, find_refused_tools
from tests.actors.run.office_kit import Model, running
from tests.actors.run.test_runs import store
from tests.models.model_kit import REQUEST
from tests.rows import every_row
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]
VAGUE = "HTTP 400: Invalid tool schema"


def tool(number: int) -> dict[str, Any]:
    """One of many with an ordinary schema."""
    return {"name": f"mcp:s.t{number}", "description": "", "parameters": {"type": "object"}}


class Refusing(Model):
    """A model whose provider refuses some tools, or more than so many, in the vaguest words."""

    def __init__(
        self, *names: str, most: int = 1_000, failure: FailureClass = "invalid_request"
    ) -> None:
        super().__init__()
        self.names, self.most, self.failure = names, most, failure

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Answer, unless a tool is refused."""
        offered = [each["name"] for each in request.tools]
        if len(offered) > self.most or any(name in self.names for name in offered):
            self.requests.append(request)
            await trio.lowlevel.checkpoint()
            raise ModelFailure(self.failure, VAGUE)
        turn = await super().stream(request, on_delta)
        return msgspec.structs.replace(turn, usage=Usage(input_tokens=3, output_tokens=1))


def many(count: int) -> ModelRequest:
    """A request with so many tools."""
    return msgspec.structs.replace(REQUEST, tools=tuple(map(tool, range(count))))


@pytest.mark.parametrize("count", [1, 2, 19, 128])
async def test_every_single_one_is_found(count: int) -> None:
    """In about twice the logarithm of their number, by questions without the conversation."""
    for bad in range(0, count, max(1, count // 8)):
        model = Refusing(f"mcp:s.t{bad}")
        found = await find_refused_tools(model, many(count))
        assert (f"mcp:s.t{bad}",) == found.names
        assert len(model.requests) <= 2 + 2 * ceil(log2(count))
        assert all(1 == len(each.messages) for each in model.requests)
        accepted = sum(
            f"mcp:s.t{bad}" not in {t["name"] for t in each.tools} for each in model.requests
        )
        assert 3 * accepted == found.usage.input_tokens


@every_row(
    ("bad", "most", "failure"),
    [
        ((), 1_000, "invalid_request"),
        ((), 10, "invalid_request"),
        (("mcp:s.t3",), 1_000, "rate_limited"),
    ],
)
def test_another_cause_accuses_no_tool(
    bad: tuple[str, ...], most: int, failure: FailureClass
) -> None:
    """Not the tools, only their number, or a question that failed for another reason."""
    model = Refusing(*bad, most=most, failure=failure)
    assert () == trio.run(find_refused_tools, model, many(20)).names


async def test_several_are_found_within_the_bound() -> None:
    """Two and three exactly; of very many the whole rest is left out, and the questions end."""
    for bad in ((0, 19), (3, 4), (0, 9, 17)):
        names = {f"mcp:s.t{number}" for number in bad}
        assert names == set((await find_refused_tools(Refusing(*names), many(20))).names)
    model = Refusing(*(f"mcp:s.t{number}" for number in range(0, 128, 2)))
    await find_refused_tools(model, many(128))
    assert len(model.requests) <= MAX_QUESTIONS + 1


@every_row(
    ("detail", "expected"),
    [
        (VAGUE, True),
        ("HTTP 400: tools: invalid function declaration", True),
        ("HTTP 400: tools.1.custom.input_schema: invalid", False),
        ("HTTP 400: the tool mcp_s_t1 is invalid", False),
        ("HTTP 400: messages.2: tool_use without tool_result", False),
        ("HTTP 400: bad request", False),
    ],
)
def test_a_search_begins_only_where_no_tool_is_named(detail: str, *, expected: bool) -> None:
    """Words that name a tool, a place or the history need none."""
    suspects = Suspects(tools=(tool(0), tool(1)))
    assert expected == names_no_tool("invalid_request", detail, suspects)
    assert not names_no_tool("transient", detail, suspects)


async def test_the_run_goes_on_with_the_other_tools(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same turn; the tape names the refused ones, and the next run does not offer them."""
    model = Refusing("forbidden", "hang")
    async with running(store, history_tokens=10_000, models={"scripted": model}) as kit:
        run_id = await kit.start(session_key="k")
        assert "done" == await kit.end(run_id)
        (refused,) = kit.events(run_id, "item.refused")
        assert {"forbidden", "hang"} == {refused.name, *refused.also}
        (failed,) = kit.events(run_id, "turn.failed")
        assert failed.charge is not None
        assert failed.charge.usage.input_tokens > 0
        names = {each["name"] for each in model.requests[-1].tools}
        assert "note" in names
        before = len(model.requests)
        await kit.end(await kit.start("again", session_key="k"))
        assert names == {each["name"] for each in model.requests[-1].tools}
        assert before + 1 == len(model.requests)
