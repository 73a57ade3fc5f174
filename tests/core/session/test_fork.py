"""Forks: their possible start events, their inherited conversation, and their independent tape."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.context.history import NO_HISTORY, view_of
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.replay.replay import Replay
from palyra.core.run.decide import accept
from palyra.core.run.inputs import Begin, CallEnded, Cancel, Steer, TurnFinished
from palyra.core.run.state import fold
from palyra.core.run.step import Transition
from palyra.core.session.commands import InheritedConversation
from palyra.core.session.fork import (
    CHUNK_BYTES,
    find_point,
    inherited_events,
    make_branch,
    require_open_end,
)
from palyra.core.session.fork import given as given_branch
from palyra.core.tape import events as ev
from palyra.errors import InvalidParams, InvariantBroken
from tests.core.run.fates import live, rows
from tests.core.run.run_world import World, environment, turn

LINK = bytes(range(32))
ACCEPTED = ev.RunAccepted(
    principal="ann", session_id="ses_2", agent="default", model="scripted", parent_run_id="run_1"
)


def told() -> World:
    """A run with a call, a word and an answer."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn("allow", "allow", text="look")))
    for call_id in ("c1", "c2"):
        world.hear(
            CallEnded(call_id=call_id, status="succeeded", output=call_id, raw_sha256="0" * 64)
        )
    world.hear(Steer(text="shorter", by="ann"))
    world.hear(TurnFinished(turn=2, attempt=1, result=turn(text="the answer")))
    world.hear(TurnFinished(turn=3, attempt=1, result=turn(text="short")))
    assert world.run.state == "done"
    return world


def seq_of(world: World, kind: str, nth: int = 0) -> int:
    """The seq of the nth event of a kind."""
    return [seq for seq, (found, _, _) in enumerate(world.tape) if found == kind][nth]


def shape(messages: tuple[Message, ...]) -> list[str]:
    """Role and text of each message."""
    return [
        f"tool {m.output}" if isinstance(m, ToolMessage) else f"{m.__class__.__name__[0]} {m.text}"
        for m in messages
    ]


def branch_at(world: World, at_seq: int, text: str | None = "and now?") -> InheritedConversation:
    """The branch at that seq."""
    point = find_point(rows(world), at_seq)
    branch = make_branch(point, LINK, view_of(point.run, NO_HISTORY, 10_000))
    if text is None:
        require_open_end(branch)
    return branch


def fork(branch: InheritedConversation, text: str | None = "and now?") -> Transition:
    """The first step of the fork."""
    message = None if text is None else ev.MessageReceived(text=text)
    return accept("run_2", ACCEPTED, message, environment(), tuple(inherited_events(branch)))


def tape_of(step: Transition) -> list[tuple[str, int, bytes]]:
    """The step's events."""
    return [(draft.kind, step.now_ms, draft.data) for draft in step.drafts]


# --- where ---------------------------------------------------------------------------------------


def test_a_fork_begins_where_every_call_has_its_result() -> None:
    """Between a call and its result the last whole place before the call counts."""
    world = told()
    asked, ended = seq_of(world, "turn.completed"), seq_of(world, "tool.completed", 1)
    answered = seq_of(world, "tool.attested", 1)
    assert [find_point(rows(world), at).seq for at in range(asked, ended)] == [asked - 1] * (
        ended - asked
    )
    assert find_point(rows(world), answered).seq == answered
    assert shape(branch_at(world, asked).messages) == ["U hello"]
    assert shape(branch_at(world, answered).messages) == [
        "U hello",
        "A look",
        "tool c1",
        "tool c2",
    ]


def test_a_fork_at_a_result_has_it() -> None:
    """The last result of a turn, a denied one too, and its attestation are one place."""
    world = told()
    ended, attested = (seq_of(world, f"tool.{kind}", 1) for kind in ("completed", "attested"))
    assert {attested} == {find_point(rows(world), at).seq for at in range(ended, attested + 1)}
    assert "tool c2" == shape(branch_at(world, ended).messages)[-1]
    denied = World()
    denied.hear(Begin(instance_id="i1"))
    denied.hear(TurnFinished(turn=1, attempt=1, result=turn("deny", text="look")))
    seq = seq_of(denied, "tool.decided")
    assert seq_of(denied, "tool.attested") == find_point(rows(denied), seq).seq


def test_a_fork_sees_nothing_of_what_came_after() -> None:
    """A word and an answer behind the place are not inherited."""
    world = told()
    before = seq_of(world, "steer.received") - 1
    assert "U shorter" not in shape(branch_at(world, before).messages)
    assert shape(branch_at(world, before + 1).messages)[-1] == "U shorter"
    head = len(world.tape) - 1
    assert shape(branch_at(world, head).messages)[-3:] == ["A the answer", "U shorter", "A short"]


def test_places_that_are_none_are_refused() -> None:
    """Before the first message, and behind the committed head."""
    world = told()
    head = len(world.tape) - 1
    for at_seq, why in ((0, "the conversation is empty"), (head + 1, f"ends with seq {head}")):
        with pytest.raises(InvalidParams, match=why) as refused:
            find_point(rows(world), at_seq)
        assert refused.value.field == "at_seq"
    with pytest.raises(InvariantBroken):
        find_point(rows(world)[1:], 2)


def test_without_a_text_the_model_must_have_something_to_answer() -> None:
    """A fork without a text is allowed after a result or a message, not after the model's answer."""
    world = told()
    head = len(world.tape) - 1
    with pytest.raises(InvalidParams, match="ends with an answer") as refused:
        branch_at(world, head, None)
    assert refused.value.field == "text"
    assert branch_at(world, 1, None).messages == (UserMessage("hello"),)
    assert isinstance(
        branch_at(world, seq_of(world, "tool.attested", 1), None).messages[-1], ToolMessage
    )


def test_a_cancelled_turn_leaves_no_half_of_it() -> None:
    """Calls that were named and never proposed are not inherited, nor is what named them."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    world.hear(TurnFinished(turn=1, attempt=1, result=turn("ask", "allow")))
    world.hear(Cancel(reason="enough", by="ann"))
    branch = branch_at(world, len(world.tape) - 1, None)
    assert shape(branch.messages) == ["U hello"]


# --- what ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["and now?", None])
def test_a_fork_is_folded_from_its_own_tape(text: str | None) -> None:
    """The fork's tape alone gives the same conversation and names its origin."""
    world = told()
    branch = branch_at(world, seq_of(world, "tool.attested", 1), text)
    step = fork(branch, text)
    run = fold("run_2", tape_of(step))
    assert run.transcript == (*branch.messages, *([UserMessage(text)] if text else []))
    inherited = ev.decode_event(*tape_of(step)[1][::2])
    assert isinstance(inherited, ev.ConversationInherited)
    assert (inherited.run_id, inherited.at_seq) == ("run_1", branch.at_seq)
    assert inherited.link == LINK.hex()
    assert run.accepted.parent_run_id == "run_1"


@pytest.mark.parametrize("text", ["and now?", None])
def test_the_first_request_of_a_fork_is_the_conversation(text: str | None) -> None:
    """The model sees what was inherited, then the text, and answers."""
    world = World()
    world.tape, world.states = [], []
    step = fork(branch_at(told(), 1, text), text)
    world.keep(step)
    world.hear(Begin(instance_id="i1"))
    request = world.effects[-1].request
    assert shape(request.messages) == ["U hello", *(["U and now?"] if text else [])]
    world.hear(TurnFinished(turn=1, attempt=1, result=turn(text="hi")))
    assert world.run.state == "done"
    replayed = Replay(
        [msgspec.structs.replace(row, run_id="run_2") for row in rows(world)],
        environment().redact,
        now=environment(),
    )
    while replayed.advance(10):
        pass
    assert replayed.report().first_divergence is None


def test_a_long_conversation_takes_several_events() -> None:
    """No event is larger than a tape takes; the messages and their order stay."""
    messages: tuple[Message, ...] = tuple(
        UserMessage(f"{number} " + "x" * (CHUNK_BYTES // 2 - 200)) for number in range(9)
    )
    whole = InheritedConversation(run_id="run_1", at_seq=3, link="", messages=messages)
    parts = list(inherited_events(whole))
    assert len(parts) > 3
    assert max(len(ev.encode_event(part)) for part in parts) <= MAX_PAYLOAD_BYTES
    assert tuple(message for part in parts for message in part.messages) == messages
    alone = (UserMessage("x" * CHUNK_BYTES), UserMessage("y"))
    one = InheritedConversation(run_id="run_1", at_seq=3, link="", messages=alone)
    assert [len(part.messages) for part in inherited_events(one)] == [1, 1]


@settings(max_examples=150)
@given(
    choices=st.lists(st.integers(min_value=0, max_value=2**20), max_size=40),
    where=st.integers(min_value=0, max_value=10_000),
)
def test_a_fork_at_any_seq_has_paired_calls(choices: list[int], where: int) -> None:
    """At any seq of any run every call has one result, and no later event is included."""
    world = live(choices)
    at_seq = 1 + where % (len(world.tape) - 1)
    point = find_point(rows(world), at_seq)
    later = [kind for kind, _, _ in world.tape[at_seq + 1 : point.seq + 1]]
    assert {"tool.attested", "delegation.ended"} >= set(later)
    branch = branch_at(world, at_seq, "go on")
    called = [
        call.call_id
        for message in branch.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    results = [message.call_id for message in branch.messages if isinstance(message, ToolMessage)]
    assert called == results
    assert fold("run_2", tape_of(fork(branch))).transcript[:-1] == branch.messages


def test_a_conversation_of_a_caller_has_no_run() -> None:
    """It is inherited completely and in order, with an empty run id."""
    messages: tuple[Message, ...] = (UserMessage("hello"), AssistantMessage("hi"))
    (event,) = inherited_events(given_branch(messages))
    assert ("", -1, messages) == (event.run_id, event.at_seq, event.messages)


def test_an_empty_conversation_is_no_event() -> None:
    """A conversation without messages adds nothing to the tape."""
    assert [] == list(inherited_events(given_branch(())))
    assert 1 == len(list(inherited_events(given_branch((UserMessage("hi"),)))))
