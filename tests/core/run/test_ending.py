"""The partial answer: what was done and what was not, from outcomes alone."""

import msgspec
import pytest

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.run.call import Call
from palyra.core.run.ending import MAX_LISTED, EndReason, partial_answer
from palyra.core.run.state import Run, RunClock
from palyra.core.tape import events as ev

ENDING = EndReason("no_progress", "it went round in circles")


def run_of(*turns: Message, calls: tuple[Call, ...] = (), json_mode: bool = False) -> Run:
    """A run with this conversation."""
    accepted = ev.RunAccepted(
        principal="ann", session_id="s", agent="a", model="m", json_mode=json_mode
    )
    return Run(
        run_id="r",
        state="in_progress",
        accepted=accepted,
        clock=RunClock(created_ms=0),
        last_ms=0,
        next_seq=9,
        transcript=(UserMessage("go"), *turns),
        calls=calls,
    )


def turn(*results: tuple[str, str, str]) -> list[Message]:
    """A turn of calls (tool, status, output); ids restart in each turn."""
    named = [
        ProposedCall(call_id=f"c{n}", tool=tool, arguments={"a": 1})
        for n, (tool, _, _) in enumerate(results)
    ]
    told = [
        ToolMessage(f"c{n}", tool, status, output)
        for n, (tool, status, output) in enumerate(results)
    ]
    return [AssistantMessage("I did it all!", tuple(named)), *told]


def test_a_partial_answer_lists_calls_and_outcomes() -> None:
    """Each call has its outcome, in the order of the first attempt, without the model's words."""
    text = partial_answer(
        run_of(
            *turn(("read", "succeeded", "secret text"), ("write", "denied", "not\ntoday")),
            GuidanceMessage("careful"),
            *turn(("read", "succeeded", "more"), ("send", "unknown", "")),
        ),
        ENDING,
    )
    assert text == (
        "This run ended without a full answer: it went round in circles.\n\n"
        "Done:\n- read(a=1) (2 times)\n\n"
        "Not done:\n- write(a=1): denied (not today)\n"
        "- send(a=1): it is unknown whether it took effect"
    )


def test_the_last_outcome_counts_and_what_happened_is_not_forgotten() -> None:
    """Repaired: done.  Done once and failing now: both."""
    repaired = partial_answer(
        run_of(*turn(("w", "failed", "full")), *turn(("w", "succeeded", ""))), ENDING
    )
    assert "Not done" not in repaired
    undone = partial_answer(
        run_of(*turn(("w", "succeeded", "")), *turn(("w", "failed", "full"))), ENDING
    )
    assert "Done:\n- w(a=1)\n\nNot done:\n- w(a=1): failed (full)" in undone


def test_the_calls_of_the_last_turn_count() -> None:
    """Also before they are part of the conversation."""
    said = AssistantMessage("", (ProposedCall(call_id="c1", tool="t", arguments=[1]),))
    call = Call(call_id="c1", tool="t", arguments=[1], phase="attested", status="timed_out")
    assert "- t([1]): stopped at its deadline" in partial_answer(
        run_of(said, calls=(call,)), ENDING
    )


def test_a_run_without_calls_says_so() -> None:
    """Nothing was done at all."""
    text = partial_answer(run_of(AssistantMessage("hm")), ENDING)
    assert text.endswith("it went round in circles.\n\nNo tool was called.")


def test_the_beginning_of_a_cut_answer_is_kept() -> None:
    """As far as it goes, and with a mark where it stops."""
    text = partial_answer(run_of(*turn(("t", "succeeded", ""))), ENDING, "The answer is")
    assert text.startswith("The answer is\n\n[The answer stops here: it went round in circles.]")


def test_long_lists_and_outputs_are_cut() -> None:
    """A run of a thousand calls has a readable end."""
    results = [(f"t{n}", "failed", "x" * 1_000) for n in range(MAX_LISTED + 5)]
    text = partial_answer(run_of(*turn(*results)), ENDING)
    assert "- … and 5 more" in text
    assert len(text) < 250 * MAX_LISTED


def test_json_mode_gets_json() -> None:
    """The same account as an object; the beginning of a text is no part of it."""
    run = run_of(*turn(("r", "succeeded", ""), ("w", "rejected", "")), json_mode=True)
    assert msgspec.json.decode(partial_answer(run, ENDING, "half a text")) == {
        "partial": True,
        "cause": "no_progress",
        "reason": "it went round in circles",
        "done": ["r(a=1)"],
        "not_done": ["w(a=1): malformed"],
    }


@pytest.mark.parametrize("status", ["failed", "something new"])
def test_an_unknown_status_is_shown_as_it_is(status: str) -> None:
    """A later version may have more of them."""
    assert f"- t(a=1): {status}" in partial_answer(run_of(*turn(("t", status, ""))), ENDING)


def test_a_result_without_its_call_is_left_out() -> None:
    """It names nothing that could be shown."""
    run = run_of(ToolMessage("c9", "t", "failed", ""))
    assert "No tool was called." in partial_answer(run, ENDING)


def test_a_fork_lists_only_its_own_calls() -> None:
    """Calls of the original run are not in a fork's partial answer."""
    inherited = turn(("theirs", "succeeded", ""))
    run = run_of(*inherited, *turn(("ours", "succeeded", "")))
    run = msgspec.structs.replace(run, inherited=1 + len(inherited))
    assert "Done:\n- ours(a=1)" in partial_answer(run, ENDING)
