"""The model that plays procedures: one step a turn, and an end at the first failure."""

import pytest

from palyra.core.learning.procedures import MODEL, PlannedCall, render_plan
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.models.procedure import SHOWN_CHARS, ProcedurePlayer

PLAN = UserMessage(
    text=render_plan("x", (PlannedCall("one", {"a": 1}), PlannedCall("two", {"b": "c"})))
)


def result(tool: str, status: str = "succeeded", output: str = "fine") -> list[Message]:
    call = ProposedCall(call_id=tool, tool=tool, arguments={})
    return [
        AssistantMessage("", (call,)),
        ToolMessage(call_id=tool, tool=tool, status=status, output=output),
    ]


async def play(*messages: Message) -> ModelTurn:
    request = ModelRequest(
        run_id="run", turn=1, attempt=1, model=MODEL, instructions="", messages=messages
    )
    return await ProcedurePlayer(lambda prefix: f"{prefix}_1").stream(request, lambda _delta: None)


async def test_each_turn_is_the_next_step() -> None:
    """A message of a person before or between changes nothing; the results are the answer."""
    first = await play(UserMessage("@memory"), PLAN)
    assert ("one", {"a": 1}) == (first.calls[0].tool, first.calls[0].arguments)
    second = await play(PLAN, *result("one"), UserMessage("faster"))
    assert ("two", {"b": "c"}) == (second.calls[0].tool, second.calls[0].arguments)
    last = await play(PLAN, *result("one"), *result("two", output="y" * 9_999))
    assert () == last.calls
    assert last.text.startswith("1. one succeeded: fine\n2. two succeeded: yyy")
    assert len(last.text) < SHOWN_CHARS + 100


@pytest.mark.parametrize("status", ["failed", "denied", "rejected", "timed_out", "unknown"])
async def test_the_first_step_that_does_not_succeed_is_the_end(status: str) -> None:
    """The failure is not repeated with this or another model, and it says which steps ran."""
    with pytest.raises(ModelFailure, match=rf"step 2 of 2 \(two\) ended {status}, after 1") as met:
        await play(PLAN, *result("one"), *result("two", status, "no such file"))
    assert "step_failed" == met.value.failure_class
    assert "no such file" in met.value.message


async def test_a_run_without_a_plan_fails() -> None:
    """The model plays nothing else."""
    with pytest.raises(ModelFailure, match="no plan"):
        await play(UserMessage("hello"))
