"""Overflow: what is left out of a prompt that was too large, decided from sizes alone."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.assembly import assemble
from palyra.core.context.history import NO_HISTORY, History, PastRun
from palyra.core.context.overflow import plan_compaction
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
    message_tokens,
)
from palyra.core.run.inputs import Begin, CallEnded, TurnFailedInput, TurnFinished
from palyra.core.run.state import PromptCuts, Run
from palyra.core.tape.events import Compaction
from tests.core.run.run_world import PREFIX, World, turn


def conversation(*sizes: int, exchanges: int = 0) -> Run:
    """A run whose calls gave outputs of these sizes, after that many inherited exchanges."""
    world = World()
    said: list[Message] = []
    for number in range(exchanges):
        said += [UserMessage(f"question {number}"), AssistantMessage("answer " * 200)]
    inherited = len(said)
    said.append(UserMessage("hello"))
    for number, size in enumerate(sizes):
        call = ProposedCall(call_id=f"c{number}", tool="t", arguments={})
        said.append(AssistantMessage("", (call,)))
        said.append(ToolMessage(call.call_id, "t", "succeeded", "word " * size))
    return msgspec.structs.replace(
        world.run, transcript=tuple(said), inherited=inherited, turn=1, attempt=1
    )


def past(*tokens: int) -> History:
    """Earlier runs of these sizes."""
    return History(
        runs=tuple(
            PastRun(
                run_id=f"run_{number}",
                messages=(UserMessage("word " * size),),
                tokens=message_tokens(UserMessage("word " * size)),
                is_tainted=False,
                epoch=0,
            )
            for number, size in enumerate(tokens)
        )
    )


def cut(run: Run, history: History = NO_HISTORY, prefix_tokens: int = 0) -> Compaction:
    """The compaction of a prompt; fails if nothing was left out."""
    found = plan_compaction(run, history, prefix_tokens)
    assert found is not None
    assert found.after_tokens < found.before_tokens
    return found


def test_the_oldest_runs_go_first() -> None:
    """Whole runs of the history, as many as it takes, and nothing else."""
    found = cut(conversation(10), past(300, 300, 300, 300))
    assert (3, 0, 0) == (found.history_runs, found.inherited_messages, found.output_bytes)


def test_then_inherited_exchanges_but_not_what_the_run_is_about() -> None:
    """They go as wholes, a question with its answer."""
    found = cut(conversation(exchanges=6), past(50))
    assert 1 == found.history_runs
    assert found.inherited_messages % 2 == 0
    assert 0 < found.inherited_messages <= 12


def test_then_old_outputs_are_shortened_and_the_newest_stays_whole() -> None:
    """The outputs that the model has answered to are head and tail; the last one is all there."""
    run = conversation(20_000, 20_000, 500)
    found = cut(run)
    assert (8_192, len(run.transcript) - 2) == (found.output_bytes, found.through)
    shown = assemble(
        msgspec.structs.replace(run, cuts=PromptCuts(compacted=found)), PREFIX, 1, 2, b"k"
    )[1]
    outputs = [each.output for each in shown.messages if isinstance(each, ToolMessage)]
    assert [True, True, False] == ["bytes left out" in output for output in outputs]


def test_last_the_newest_output_too() -> None:
    """One output that alone is too large is shortened as well."""
    run = conversation(50_000)
    assert len(run.transcript) == cut(run).through


def test_shortened_outputs_are_fenced() -> None:
    """Between fences with a nonce of their own, opened and closed."""
    run = conversation(50_000)
    whole = assemble(run, PREFIX, 1, 2, b"k")[1].messages[-1]
    short = assemble(
        msgspec.structs.replace(run, cuts=PromptCuts(compacted=cut(run))), PREFIX, 1, 2, b"k"
    )
    last = short[1].messages[-1]
    assert isinstance(last, ToolMessage)
    assert isinstance(whole, ToolMessage)
    assert (1, 1) == (last.output.count("<fenced"), last.output.count("</fenced"))
    assert len(last.output) < len(whole.output) // 2
    kept = [layer["kept"] for layer in short[0].segments if layer["layer"] == "conversation"]
    assert [False] == kept


def test_a_long_user_message_cannot_be_compacted() -> None:
    """User messages are never left out, so compaction of one long message fails."""
    assert plan_compaction(conversation(), NO_HISTORY, 100_000) is None


def test_what_the_window_cut_before_counts_no_more() -> None:
    """Removing runs that no prompt shows any more is no gain: the outputs have to go."""
    history = past(3_000, 3_000)
    run = msgspec.structs.replace(conversation(9_000, 10), cuts=PromptCuts(omitted=2))
    found = cut(run, history)
    assert found.output_bytes
    assert found.before_tokens < 4_000 + sum(map(message_tokens, run.transcript))


def test_stubs_count_as_stubs() -> None:
    """An output that is a stub already gives nothing more."""
    run = conversation(*[3_000] * 12)
    plain = cut(run)
    pruned = msgspec.structs.replace(run, cuts=PromptCuts(pruned=16))
    assert cut(pruned).before_tokens < plain.before_tokens - 10_000


def test_once_in_a_turn() -> None:
    """The same turn is not cut twice; a later one may be, and further."""
    run = conversation(50_000, 50_000)
    first = cut(run)
    again = msgspec.structs.replace(run, cuts=PromptCuts(compacted=first))
    assert plan_compaction(again, NO_HISTORY, 0) is None
    later = msgspec.structs.replace(
        again, turn=2, transcript=(*run.transcript, *conversation(9_000).transcript[1:])
    )
    second = cut(later)
    assert second.through > first.through


SIZES = st.lists(st.integers(0, 3_000), max_size=5)


@given(SIZES, SIZES, st.integers(0, 4), st.integers(0, 5_000))
def test_a_cut_shows_less_and_keeps_pairs(
    outputs: list[int], runs: list[int], exchanges: int, prefix_tokens: int
) -> None:
    """Whatever the sizes: the same cut twice, a smaller prompt, every call with its result."""
    run, history = conversation(*outputs, exchanges=exchanges), past(*runs)
    found = plan_compaction(run, history, prefix_tokens)
    assert found == plan_compaction(run, history, prefix_tokens)
    if found is None:
        return
    compacted = msgspec.structs.replace(run, cuts=PromptCuts(compacted=found))
    before = assemble(run, PREFIX, 1, 2, b"k", history=history)
    after = assemble(compacted, PREFIX, 1, 2, b"k", history=history)
    assert after[0].input_tokens < before[0].input_tokens
    said = after[1].messages
    calls = [
        call.call_id for each in said if isinstance(each, AssistantMessage) for call in each.calls
    ]
    assert calls == [each.call_id for each in said if isinstance(each, ToolMessage)]
    own = run.transcript[run.inherited :]
    assert [m for m in said if isinstance(m, UserMessage)][-1:] == [
        m for m in own if isinstance(m, UserMessage)
    ]


# --- in a run ------------------------------------------------------------------------------------


def overflowing(world: World) -> list[str]:
    """The open turn does not fit."""
    run = world.run
    return world.hear(
        TurnFailedInput(
            turn=run.turn,
            attempt=run.attempt,
            failure_class="context_overflow",
            detail="too many tokens",
        )
    )


def long_run(**limits: Any) -> World:
    """A run whose second turn is open, after a call with a long output."""
    world = World(**limits)
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn("allow")))
    world.hear(CallEnded(call_id="c1", status="succeeded", output="word " * 9_000, raw_sha256=""))
    return world


def test_an_overflow_is_retried_with_a_smaller_prompt() -> None:
    """The turn is requested again at once with a smaller prompt, and this counts as no retry."""
    world = long_run(model_retries=0)
    before = len(world.drafts("context.assembled"))
    kinds = overflowing(world)
    assert ["turn.failed", "context.compacted", "context.assembled", "turn.started"] == kinds
    failed = world.drafts("turn.failed")[-1]
    assert (True, 0) == (failed.retry, failed.delay_ms)
    sizes = [each.input_tokens for each in world.drafts("context.assembled")[before - 1 :]]
    assert sizes[1] < sizes[0] // 2
    assert world.refold() == world.run


def test_a_second_overflow_ends_the_run() -> None:
    """The run fails with the class of the failure and a remedy."""
    world = long_run()
    overflowing(world)
    assert ["turn.failed", "run.failed"] == overflowing(world)
    failed = world.drafts("run.failed")[-1]
    assert "context_overflow" == failed.failure_class
    assert "window" in failed.action


def test_later_turns_leave_out_the_same_parts() -> None:
    """A part that was left out of one turn's prompt is left out of all later ones."""
    world = long_run()
    overflowing(world)
    small = world.effects[-1].request.messages
    world.hear(TurnFinished(turn=2, attempt=2, result=turn("allow:path_scoped", text="on")))
    world.hear(CallEnded(call_id="c1", status="succeeded", output="short", raw_sha256=""))
    assert small == world.effects[-1].request.messages[: len(small)]
