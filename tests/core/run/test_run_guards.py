"""The guards of a run's loop: progress, answers, continuation, the cap; and honest ends."""

import re

import msgspec
import pytest

from palyra.core.context.assembly import CONTINUE
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.model.messages import AssistantMessage, FinishReason, GuidanceMessage, ProposedCall
from palyra.core.run.answer import find_defect
from palyra.core.run.inputs import Begin, CallEnded, Resume, Steer, TurnFailedInput, TurnFinished
from palyra.core.run.state import fold
from tests.core.policy.tool_samples import a_spec
from tests.core.run.run_world import World, turn
from tests.rows import every_row

SHA = "3b5d5c3712955042212316173ccf37be8001f1e1f3b1a8d7f8a0c7e6b1d0e4f2"


def begun(*, json_mode: bool = False, **limits: int) -> World:
    """A run whose first turn is open."""
    world = World(json_mode=json_mode, **limits)
    world.hear(Begin(instance_id="i1"))
    return world


def says(
    world: World, text: str = "", *tools: str, finish: FinishReason | None = None
) -> list[str]:
    """The model ends the open turn."""
    result = turn(*tools, text=text, finish=finish)
    return world.hear(TurnFinished(turn=world.run.turn, attempt=world.run.attempt, result=result))


def calls(world: World, *tools: str, status: str = "succeeded", output: str = "out") -> list[str]:
    """A turn that calls tools, and what they came to; the events after the last outcome."""
    kinds = says(world, "", *tools)
    for call in world.run.calls:
        if call.phase == "started":
            kinds = world.hear(
                CallEnded(
                    call_id=call.call_id,
                    status=status,  # type: ignore[arg-type]  # a literal
                    output=output,
                    raw_sha256="0" * 64,
                )
            )
    return kinds


def answer(world: World) -> str:
    """The one final text."""
    (message,) = world.drafts("message.completed")
    return str(message.text)


def end(world: World) -> tuple[str, str, str]:
    """State, reason and cause of the end."""
    (done,) = world.drafts("run.done")
    return world.run.state, done.reason, done.cause


# --- progress ------------------------------------------------------------------------------------


@every_row(
    ("tool", "status"),
    [("allow:effect", "failed"), ("allow:path_scoped", "timed_out"), ("deny", "")],
)
def test_the_third_failing_effect_or_denial_ends_the_run(tool: str, status: str) -> None:
    """Blocked at the third, without a warning, with an answer that says what is missing."""
    world = begun()
    for _ in range(2):
        assert calls(world, tool, status=status)[-1] == "turn.started"
    assert calls(world, tool, status=status)[-3:] == [
        "guard.blocked",
        "message.completed",
        "run.done",
    ]
    assert end(world) == ("done", "partial", "no_progress")
    assert "Not done:" in answer(world)
    assert f"{tool}(n=1)" in answer(world)
    assert world.drafts("guard.warned") == []


@pytest.mark.parametrize(("status", "rule"), [("failed", "failure"), ("succeeded", "same_read")])
def test_a_failing_or_identical_read_is_warned_of_and_then_ends(status: str, rule: str) -> None:
    """The third warns the model, the fourth ends the run."""
    world = begun()
    for _ in range(2):
        calls(world, "allow", status=status)
    assert calls(world, "allow", status=status)[-3:] == [
        "guard.warned",
        "context.assembled",
        "turn.started",
    ]
    (warned,) = world.drafts("guard.warned")
    assert (warned.rule, warned.count) == (rule, 3)
    messages = world.effects[-1].request.messages
    assert [type(m).__name__ for m in messages[-3:]] == [
        "AssistantMessage",
        "ToolMessage",
        "GuidanceMessage",
    ]
    assert messages[-1].text == warned.guidance
    assert "guard.blocked" in calls(world, "allow", status=status)
    assert end(world) == ("done", "partial", "no_progress")


def test_guidance_is_given_once() -> None:
    """Guidance stays at its place in the conversation and is not repeated."""
    world = begun()
    for _ in range(3):
        calls(world, "allow")
    calls(world, "allow:idempotent_network")
    messages = world.effects[-1].request.messages
    assert sum(isinstance(m, GuidanceMessage) for m in messages) == 1
    assert isinstance(messages[-3], GuidanceMessage)


def test_alternation_is_warned_of_at_four_and_ends_at_six() -> None:
    """A, B, A, B with the same results."""
    world = begun()
    pair = ("allow", "allow:idempotent_network")
    for count in range(1, 6):
        calls(world, pair[count % 2])
        warned = [w.count for w in world.drafts("guard.warned") if w.rule == "alternation"]
        assert warned == ([4] if count >= 4 else [])
    calls(world, pair[0])
    (blocked,) = world.drafts("guard.blocked")
    assert (blocked.rule, blocked.count) == ("alternation", 6)


def test_a_new_effect_resets_the_count() -> None:
    """A run that gets somewhere in between is not stopped."""
    world = begun()
    for _ in range(2):
        calls(world, "deny")
    calls(world, "allow:effect")
    for _ in range(2):
        calls(world, "deny")
    assert not world.run.is_terminal
    calls(world, "deny")
    assert end(world) == ("done", "partial", "no_progress")
    assert "Done:\n- allow:effect(n=1)\n\nNot done:\n- deny(n=1): denied (because)" in answer(world)


def test_a_message_of_a_person_resets_the_count() -> None:
    """It reaches the model: the run is not ended over its head."""
    world = begun()
    for _ in range(2):
        calls(world, "deny")
    world.hear(Steer(text="try again", by="ann"))
    for _ in range(2):
        calls(world, "deny")
    assert not world.run.is_terminal


def test_a_restart_does_not_forget_what_was_tried() -> None:
    """The memory is a fold of the tape."""
    world = begun()
    for _ in range(2):
        calls(world, "deny")
    world.run = world.refold()
    world.hear(Resume())
    calls(world, "deny")
    assert end(world) == ("done", "partial", "no_progress")


@pytest.mark.parametrize(("tool", "times"), [("deny", 3), ("allow", 3)])
def test_a_finding_survives_a_cut_in_the_middle_of_its_step(tool: str, times: int) -> None:
    """Whatever prefix of the step the tape has, the guard has the same say after it."""
    world = begun()
    for _ in range(times):
        calls(world, tool)
    kind = "guard.blocked" if tool == "deny" else "guard.warned"
    cut = [k for k, _, _ in world.tape].index(kind)
    world.tape, world.run = world.tape[:cut], fold("run_1", world.tape[:cut])
    assert world.hear(Resume())[:2] == ["run.recovered", kind]


# --- answers -------------------------------------------------------------------------------------


@every_row(
    ("text", "finish", "reason"),
    [("", "stop", "empty"), ("half", "tool_calls", "cut_off"), ("", "length", "empty")],
)
def test_an_invalid_answer_is_returned_once(text: str, finish: FinishReason, reason: str) -> None:
    """There is one recovery turn; a valid answer then ends the run."""
    world = begun()
    assert says(world, text, finish=finish) == [
        "turn.completed",
        "answer.rejected",
        "context.assembled",
        "turn.started",
    ]
    (rejected,) = world.drafts("answer.rejected")
    assert rejected.reason == reason
    messages = world.effects[-1].request.messages
    assert messages[-2:] == (AssistantMessage(text), GuidanceMessage(rejected.guidance))
    assert says(world, "whole") == ["turn.completed", "message.completed", "run.done"]
    assert answer(world) == "whole"
    assert end(world) == ("done", "answered", "")


def test_a_second_invalid_answer_ends_the_run_in_part() -> None:
    """There is exactly one recovery turn, and a rejected text is never the answer."""
    world = begun()
    says(world, "first half", finish="tool_calls")
    assert says(world, "second half", finish="tool_calls") == [
        "turn.completed",
        "message.completed",
        "run.done",
    ]
    assert end(world) == ("done", "partial", "cut_off")
    assert "half" not in answer(world)
    assert "cut off" in answer(world)


def test_the_recovery_turn_may_call_tools() -> None:
    """A text after those calls is checked without another recovery turn."""
    world = begun()
    says(world, "")
    assert calls(world, "allow")[-1] == "turn.started"
    says(world, " ")
    assert end(world) == ("done", "partial", "empty")
    assert "Done:\n- allow(n=1)" in answer(world)


def test_a_call_written_out_is_sent_back() -> None:
    """The setting knows the tools."""
    world = begun()
    world.env = msgspec.structs.replace(
        world.env, check_answer=lambda run: find_defect(run, {"echo": a_spec("echo")})
    )
    says(world, '{"name": "echo", "arguments": {}}')
    assert world.drafts("answer.rejected")[0].reason == "tool_markup"


@pytest.mark.parametrize("tool", ["deny:effect", "refuse:effect"])
def test_a_claim_that_the_outcomes_contradict_is_sent_back(tool: str) -> None:
    """Nothing was written, and still the answer names its digest."""
    world = begun()
    calls(world, tool)
    says(world, f"Written: {SHA}")
    assert world.drafts("answer.rejected")[0].reason == "contradicted"
    says(world, f"It is written: {SHA}")
    assert end(world) == ("done", "partial", "contradicted")
    assert "Not done:" in answer(world)


def test_a_claim_without_a_call_is_sent_back_and_may_be_made_good() -> None:
    """Nothing was called: the claim goes back once, and the call that it names makes it an answer."""
    world = begun()
    says(world, "I wrote out.txt.")
    assert world.drafts("answer.rejected")[0].reason == "contradicted"
    calls(world, "allow:effect")
    says(world, "I wrote out.txt.")
    assert end(world) == ("done", "answered", "")


def test_the_truth_about_a_failure_is_an_answer() -> None:
    """A text that reports the failure is accepted, whatever its wording."""
    world = begun()
    calls(world, "deny:effect")
    says(world, "Successfully written? No: it was denied.")
    assert end(world) == ("done", "answered", "")


def test_a_steer_makes_any_text_an_intermediate_one() -> None:
    """A text given before the steering message is not checked."""
    world = begun()
    world.hear(Steer(text="wait", by="ann"))
    assert "answer.rejected" not in says(world, "")
    assert world.effects[-1].request.messages[-1].text == "wait"


# --- JSON mode -----------------------------------------------------------------------------------


def test_json_mode_takes_json_only() -> None:
    """Words are sent back; JSON is the answer."""
    world = begun(json_mode=True)
    says(world, 'Here: {"a": 1}')
    assert world.drafts("answer.rejected")[0].reason == "not_json"
    says(world, '{"a": 1}')
    assert (answer(world), end(world)[1]) == ('{"a": 1}', "answered")


def test_the_partial_answer_of_json_mode_is_json() -> None:
    """A client that parses answers can parse a partial one."""
    world = begun(json_mode=True)
    calls(world, "allow:effect", "deny")
    for text in ("no", "still no"):
        says(world, text)
    assert end(world) == ("done", "partial", "not_json")
    assert msgspec.json.decode(answer(world)) == {
        "partial": True,
        "cause": "not_json",
        "reason": "the answer is not the JSON that was asked for",
        "done": ["allow:effect(n=1)"],
        "not_done": ["deny(n=2): denied (because)"],
    }


def test_a_turn_with_calls_is_not_judged_in_json_mode() -> None:
    """Only the final answer has to be JSON."""
    world = begun(json_mode=True)
    says(world, "let me see", "deny")
    assert world.drafts("answer.rejected") == []


# --- continuation --------------------------------------------------------------------------------


def test_a_text_that_was_cut_is_gone_on_with_and_has_no_seam() -> None:
    """Three more turns; one text in the answer and in what the model sees."""
    world = begun()
    for piece in ("al", "pha", "be"):
        assert says(world, piece, finish="length") == [
            "turn.completed",
            "context.assembled",
            "turn.started",
        ]
        assert world.effects[-1].request.messages[-1] is CONTINUE
    assert world.effects[-1].request.messages[1:] == (
        AssistantMessage("alphabe", turns=3),
        CONTINUE,
    )
    says(world, "t")
    assert answer(world) == "alphabet"
    assert end(world) == ("done", "answered", "")
    assert [e.continues for e in world.drafts("turn.started")] == [False, True, True, True]


def test_a_fourth_cut_ends_as_partial_with_what_there_is() -> None:
    """The beginning is shown, and that it is one."""
    world = begun()
    for piece in "abcd":
        says(world, piece, finish="length")
    assert end(world) == ("done", "partial", "cut_off")
    assert answer(world).startswith("abcd\n\n[The answer stops here: it was cut off")
    assert world.drafts("answer.rejected") == []


def test_a_cut_text_may_end_in_calls() -> None:
    """The joined text and the calls are one message; a later cut is continued again."""
    world = begun()
    says(world, "I loo", finish="length")
    says(world, "k", "deny")
    said, result = world.effects[-1].request.messages[-2:]
    assert (said.text, said.turns, len(said.calls), result.status) == ("I look", 2, 1, "denied")
    for piece in "abc":
        says(world, piece, finish="length")
    says(world, "d")
    assert answer(world) == "abcd"


def test_a_joined_text_is_judged_as_one() -> None:
    """JSON in two pieces is JSON."""
    world = begun(json_mode=True)
    says(world, '{"a":', finish="length")
    says(world, " 1}")
    assert answer(world) == '{"a": 1}'


def test_a_retried_continuation_has_the_same_text() -> None:
    """A failed attempt, a restart and a steering message in between do not change the text."""
    world = begun()
    says(world, "al", finish="length")
    broke = TurnFailedInput(turn=2, attempt=1, failure_class="transient", detail="")
    world.hear(broke)
    assert world.effects[-1].request.messages[1:] == (AssistantMessage("al"), CONTINUE)
    world.hear(Steer(text="hurry", by="ann"))
    world.run = world.refold()
    world.hear(Resume())
    assert world.effects[-1].request.messages[1:] == (AssistantMessage("al"), CONTINUE)
    says(world, "pha")
    assert [m.text for m in world.effects[-1].request.messages[1:]] == ["alpha", "hurry"]


def test_a_steering_message_ends_a_cut_text() -> None:
    """A steering message has precedence: the cut text is not continued."""
    world = begun()
    world.hear(Steer(text="stop", by="ann"))
    says(world, "al", finish="length")
    assert [m.text for m in world.effects[-1].request.messages[1:]] == ["al", "stop"]
    assert not world.drafts("turn.started")[-1].continues


def test_an_answer_too_large_for_one_event_is_cut_openly() -> None:
    """Its parts are on the tape; the final text says that it is incomplete."""
    world = begun()
    piece = "x" * (MAX_PAYLOAD_BYTES - 1_000)
    says(world, piece, finish="length")
    says(world, piece)
    assert end(world) == ("done", "partial", "too_large")
    assert "bytes left out" in answer(world)


def test_a_turn_whose_calls_would_not_fit_is_malformed() -> None:
    """The events of a call hold its arguments again: a turn must leave room for them."""
    world = begun()
    call = ProposedCall(call_id="c1", tool="refuse", arguments="x" * (MAX_PAYLOAD_BYTES - 500))
    result = msgspec.structs.replace(turn("refuse"), calls=(call,))
    kinds = world.hear(TurnFinished(turn=1, attempt=1, result=result))
    assert kinds == ["turn.failed", "run.failed"]
    assert world.drafts("run.failed")[0].failure_class == "malformed"


@every_row("tool", ["allow", "ask", "refuse"])
def test_a_turn_with_two_equal_call_ids_is_malformed(tool: str) -> None:
    """Calls with equal ids never start; the tape names them and folds again."""
    world = begun()
    result = turn("deny", tool, tool)
    first, second, third = result.calls
    third = msgspec.structs.replace(third, call_id=second.call_id)
    result = msgspec.structs.replace(result, calls=(first, second, third))
    kinds = world.hear(TurnFinished(turn=1, attempt=1, result=result))
    assert kinds == ["turn.failed", "run.failed"]
    (failed,) = world.drafts("turn.failed")
    assert (failed.failure_class, failed.retry) == ("malformed", False)
    assert "calls 2 and 3" in failed.detail
    assert world.refold() == world.run


def test_call_ids_that_redaction_makes_equal_are_malformed() -> None:
    """Ids are compared as they will be on the tape."""
    world = begun()
    world.env = msgspec.structs.replace(world.env, redact=_redact_digits_of_ids)
    kinds = world.hear(TurnFinished(turn=1, attempt=1, result=turn("allow", "allow")))
    assert kinds == ["turn.failed", "run.failed"]


def _redact_digits_of_ids(data: bytes) -> tuple[bytes, bool]:
    redacted = re.sub(rb'"c[0-9]"', b'"secret"', data)
    return redacted, redacted != data


# --- the cap -------------------------------------------------------------------------------------


def test_the_turn_cap_ends_the_run_with_what_was_done() -> None:
    """A run that never answers is done in part, and names the setting."""
    world = begun(max_turns=2)
    calls(world, "allow:effect")
    calls(world, "deny")
    assert end(world) == ("done", "partial", "turn_cap")
    assert "runs.max_turns" in world.drafts("run.done")[0].missing
    assert "Done:\n- allow:effect(n=1)\n\nNot done:\n- deny(n=1)" in answer(world)


def test_the_default_cap_is_256_turns() -> None:
    """Not one more, whatever the model does."""
    world = begun()
    for number in range(256):
        calls(world, "allow", output=str(number))
        assert world.run.is_terminal == (number == 255)
    assert world.run.turn == 256
    assert end(world)[2] == "turn_cap"


def test_the_cap_counts_continuations_and_keeps_the_text() -> None:
    """A text cut off in the last turn is shown as far as it goes."""
    world = begun(max_turns=1)
    says(world, "alpha", finish="length")
    assert end(world) == ("done", "partial", "turn_cap")
    assert answer(world).startswith("alpha\n")


def test_the_cap_leaves_no_turn_for_a_recovery() -> None:
    """A refused text in the last turn: sent back, and over."""
    world = begun(max_turns=1)
    assert says(world, "") == [
        "turn.completed",
        "answer.rejected",
        "message.completed",
        "run.done",
    ]
