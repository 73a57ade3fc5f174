"""Every call with one result right behind it, whatever a conversation looked like before."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.tool_results import NO_RESULT, pair_results


def asked(*ids: str) -> AssistantMessage:
    return AssistantMessage(
        "", tuple(ProposedCall(call_id=one, tool=f"t_{one}", arguments={}) for one in ids)
    )


def result(call_id: str) -> ToolMessage:
    return ToolMessage(call_id, f"t_{call_id}", "succeeded", f"of {call_id}")


MESSAGES = st.lists(
    st.one_of(
        st.builds(asked, st.sampled_from("abc"), st.sampled_from("de")),
        st.builds(result, st.sampled_from("abcde")),
        st.just(UserMessage("hello")),
        st.just(AssistantMessage("text")),
    ),
    max_size=8,
)


def check_paired(messages: tuple[Message, ...]) -> None:
    """Exactly one result a call, in order, right behind; no other results."""
    due: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert due.pop(0) == message.call_id
            continue
        assert not due
        if isinstance(message, AssistantMessage):
            due = [call.call_id for call in message.calls]
    assert not due


@given(MESSAGES)
def test_calls_and_results_are_paired(messages: list[Message]) -> None:
    """Every call has one result, in the order of the providers' APIs, and no message is lost."""
    paired = pair_results(messages)
    check_paired(paired)
    said = "".join(m.output if isinstance(m, ToolMessage) else m.text for m in paired)
    for message in messages:
        assert (message.output if isinstance(message, ToolMessage) else message.text) in said
    assert paired == pair_results(paired)


def test_a_paired_conversation_stays_as_it_is() -> None:
    """Not even an order changes."""
    messages = (UserMessage("go"), asked("a", "b"), result("a"), result("b"), asked("a"))
    whole = (*messages, result("a"))
    assert whole == pair_results(whole)


def test_late_results_are_placed_in_the_order_of_the_calls() -> None:
    """Late results are moved behind their calls; a missing one is marked as missing."""
    paired = pair_results([asked("a", "b", "c"), result("c"), result("a"), UserMessage("go")])
    assert ["a", "b", "c"] == [m.call_id for m in paired if isinstance(m, ToolMessage)]
    assert NO_RESULT == paired[2].output  # type: ignore[union-attr]  # a result, as just seen


def test_a_result_without_its_call_becomes_text() -> None:
    """A result whose call is not in the history is shown as text."""
    (told,) = pair_results([result("a")])
    assert isinstance(told, GuidanceMessage)
    assert "of a" in told.text
    assert "t_a" in told.text
