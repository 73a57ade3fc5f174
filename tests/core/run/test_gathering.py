"""Texts from outside the run: when they are gathered, what the tape keeps, how a replay reads it."""

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.messages import AssistantMessage, ModelTurn, UserMessage
from palyra.core.model.sources import ContextSource
from palyra.core.replay.replay import Replay
from palyra.core.run.inputs import (
    Begin,
    CallModel,
    Cancel,
    Gather,
    Gathered,
    Resume,
    Steer,
    TurnFinished,
)
from palyra.core.run.state import Run, apply, find_unresolved, fold
from palyra.core.tape import events as ev
from palyra.core.text.tokens import FACTOR, learn_factor
from palyra.errors import InvariantBroken
from tests.core.run.fates import rows
from tests.core.run.run_world import World, turn

FILE = ContextSource(name="@file:a.py", kind="file", text="x = 1")
MISSING = ContextSource(name="@file:b.py", kind="file", error="no such file")


def find_sources(run: Run) -> Gather | None:
    """What the live environment asks for, without project files."""
    missing = find_unresolved(run) if run.has_references else ()
    return Gather(messages=missing) if missing else None


def world(text: str = "see @file:a.py") -> World:
    """A run that was accepted with this message."""
    made = World(text=text)
    made.env = msgspec.structs.replace(made.env, find_sources=find_sources)
    return made


def resolved(*sources: ContextSource, message: int = 0) -> Gathered:
    """References of one message, as its task reports them."""
    event = ev.ContextGathered(layer="references", message=message, sources=sources)
    return Gathered(events=(event,))


def answered(text: str) -> TurnFinished:
    """The first turn's answer."""
    return TurnFinished(turn=1, attempt=1, result=turn(text=text))


def kinds(made: World) -> list[str]:
    """The kinds of the tape."""
    return [kind for kind, _, _ in made.tape]


def test_a_turn_waits_for_its_references() -> None:
    """The first step only asks for them; the model is called with what came."""
    made = world()
    made.hear(Begin(instance_id="i"))
    assert [Gather(messages=((0, "see @file:a.py"),))] == made.effects
    assert "run.started" == kinds(made)[-1]
    made.hear(resolved(FILE, MISSING))
    assert ["context.gathered", "context.assembled", "turn.started"] == kinds(made)[-3:]
    (effect,) = [each for each in made.effects if isinstance(each, CallModel)]
    (message,) = effect.request.messages
    assert isinstance(message, UserMessage)
    assert message.text.startswith("see \n\n<context_references>\n[1] @file:a.py\n<fenced ")
    assert "x = 1" in message.text
    assert "[2] @file:b.py: not available: no such file" in message.text


def test_without_references_nothing_waits() -> None:
    """An e-mail address is none: the model is called in the first step."""
    made = world("mail ann@example.org")
    made.hear(Begin(instance_id="i"))
    assert "turn.started" == kinds(made)[-1]


def test_a_steering_message_is_resolved_before_its_turn() -> None:
    """It reaches the model with its references, and the first message keeps its own."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(resolved(FILE))
    made.hear(Steer(text="and @file:c.py", by="ann"))
    made.hear(answered("first"))
    assert Gather(messages=((1, "and @file:c.py"),)) == made.effects[-1]
    second = ContextSource(name="@file:c.py", kind="file", text="y = 2")
    made.hear(resolved(second, message=1))
    said = made.effects[-1].request.messages
    assert ["UserMessage", "AssistantMessage", "UserMessage"] == [type(x).__name__ for x in said]
    assert "x = 1" in said[0].text
    assert "y = 2" in said[2].text
    assert not made.run.has_references


def test_a_message_that_arrives_meanwhile_is_asked_for_next() -> None:
    """No turn starts with a reference that nothing was gathered for."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(Steer(text="@file:c.py", by="ann"))
    made.hear(resolved(FILE))
    assert Gather(messages=((1, "@file:c.py"),)) == made.effects[-1]
    assert "context.gathered" == kinds(made)[-1]


def test_a_resumed_run_gathers_what_its_tape_lacks() -> None:
    """Before the event: again.  After it: the text of the tape, without a question."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(Resume())
    assert isinstance(made.effects[-1], Gather)
    made.hear(resolved(FILE))
    made.hear(Resume())
    assert isinstance(made.effects[-1], CallModel)
    shown = made.effects[-1].request.messages[0]
    assert isinstance(shown, UserMessage)
    assert "x = 1" in shown.text
    assert fold("run_1", made.tape) == made.run


def test_a_late_answer_is_ignored() -> None:
    """After the turn has started, or the run has ended, nothing is added."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(resolved(FILE))
    before = len(made.tape)
    made.hear(resolved(FILE))
    assert before == len(made.tape)
    made.hear(Cancel(reason="r", by="ann"))
    made.hear(resolved(FILE))
    assert "run.cancelled" == kinds(made)[-1]


def test_findings_taint_the_run() -> None:
    """A gathered text with an injection counts like a tool's output."""
    made = world()
    made.hear(Begin(instance_id="i"))
    assert not made.run.is_tainted
    made.hear(resolved(msgspec.structs.replace(FILE, findings=("override",))))
    assert made.run.is_tainted


def test_references_of_no_message_are_illegal() -> None:
    """An event for a message that is not there changes nothing and raises."""
    made = world()
    made.hear(Begin(instance_id="i"))
    event = ev.ContextGathered(layer="references", message=1, sources=(FILE,))
    with pytest.raises(InvariantBroken):
        apply(made.run, event, 1)


def test_a_replay_reads_what_was_gathered() -> None:
    """Every event is the same again, in each place where a run may stop."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(Steer(text="@file:c.py", by="ann"))
    made.hear(Resume())
    made.hear(resolved(FILE))
    made.hear(resolved(MISSING, message=1))
    made.hear(answered("done"))
    assert "run.done" == kinds(made)[-1]
    tape = rows(made)
    ends = [at for at, row in enumerate(tape) if row.at_ms != tape[at - 1].at_ms] + [len(tape)]
    for end in ends[1:]:
        under_way = Replay(tape[:end], made.env.redact, limits=made.env.limits)
        while under_way.advance(1):
            pass
        assert under_way.report().matched, (end, under_way.report().first_divergence)


def test_too_little_room_ends_the_run_with_the_numbers() -> None:
    """The prompt is described, no model is called, and the reason has every figure."""
    made = world("hello")
    budget = ev.ContextBudget(
        window=100, reserved=25, tools=10, margin=3, available=62, needed=70, is_exhausted=True
    )
    assemble = made.env.assemble
    made.env = msgspec.structs.replace(
        made.env,
        assemble=lambda run, number, attempt: (
            msgspec.structs.replace(assemble(run, number, attempt)[0], budget=budget),
            assemble(run, number, attempt)[1],
        ),
    )
    made.hear(Begin(instance_id="i"))
    assert ["context.assembled", "run.failed"] == kinds(made)[-2:]
    assert not made.effects
    assert made.run.reason == (
        "context_budget_exhausted: instructions, message and references need 70 tokens; 62 are "
        "available: a window of 100, less 25 for the answer, 10 for tools and 3 as margin"
    )
    under_way = Replay(rows(made), made.env.redact, limits=made.env.limits)
    assert not under_way.advance(9)
    assert under_way.report().matched


def test_the_providers_count_corrects_the_estimate() -> None:
    """Only of a prompt that is large enough; a quarter of the difference at a time, bounded."""
    made = world("word " * 2_000)
    made.hear(Begin(instance_id="i", token_bps={"other": 12_000}))
    expected = made.run.asked.input_tokens
    assert expected > 1_000
    answer = ModelTurn(
        text="x", calls=(), finish_reason="stop", usage=Usage(input_tokens=2 * expected)
    )
    made.hear(TurnFinished(turn=1, attempt=1, result=answer))
    assert {"other": 12_000, "scripted": 12_500} == made.run.token_bps
    assert isinstance(made.run.transcript[-1], AssistantMessage)
    small = world("hello")
    small.hear(Begin(instance_id="i"))
    small.hear(answered("x"))
    assert {} == small.run.token_bps


def test_a_tampered_count_of_events_is_a_divergence() -> None:
    """The number of further events follows from the step."""
    made = world()
    made.hear(Begin(instance_id="i"))
    made.hear(resolved(FILE))
    tape = rows(made)
    at = next(index for index, row in enumerate(tape) if row.kind == "context.gathered")
    changed = msgspec.json.encode({**msgspec.json.decode(tape[at].data), "following": 3})
    tape[at] = msgspec.structs.replace(tape[at], data=changed)
    under_way = Replay(tape, made.env.redact, limits=made.env.limits)
    assert not under_way.advance(9)
    assert not under_way.report().matched


def test_the_factor_is_bounded() -> None:
    """Whatever a provider reports, the factor stays between a half and two."""
    low = high = FACTOR
    for _ in range(100):
        low = learn_factor(low, 10_000, 1)
        high = learn_factor(high, 10_000, 10**9)
    assert 5_000 <= low < 5_200
    assert 19_800 < high <= 20_000
    assert FACTOR == learn_factor(FACTOR, 10_000, 10_199)
    assert 10_050 == learn_factor(FACTOR, 10_000, 10_200)
    assert FACTOR == learn_factor(FACTOR, 10_000, 0)
    assert FACTOR == learn_factor(FACTOR, 999, 5_000)
