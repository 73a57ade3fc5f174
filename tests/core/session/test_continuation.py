"""Comparison of a client's conversation with the stored one."""

from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.session.continuation import continues_conversation, open_calls

CALLS = (
    ProposedCall(call_id="mine", tool="weather", arguments={}),
    ProposedCall(call_id="ours", tool="read_file", arguments={}),
)
HELD: list[Message] = [
    UserMessage("hi"),
    AssistantMessage("let me see", CALLS),
    ToolMessage("ours", "read_file", "succeeded", "a file"),
    AssistantMessage("", (ProposedCall(call_id="more", tool="read_file", arguments={}),)),
    ToolMessage("more", "read_file", "succeeded", "another"),
    AssistantMessage("it rains"),
]


def test_turns_and_tools_of_the_daemon_are_not_seen_by_a_client() -> None:
    """It has one text for all turns between two words of a person."""
    assert continues_conversation(
        HELD, [UserMessage("hi"), AssistantMessage("let me see\n\nit rains")]
    )
    assert continues_conversation([], [])


def test_another_conversation_is_another_one() -> None:
    """One word more, less or different, and the client's own telling counts."""
    told: list[Message] = [UserMessage("hi"), AssistantMessage("let me see\n\nit rains")]
    assert not continues_conversation(HELD, told[:1])
    assert not continues_conversation(HELD, [*told, UserMessage("and?")])
    assert not continues_conversation(HELD, [UserMessage("hi"), AssistantMessage("it snows")])
    assert not continues_conversation(HELD, [])
    assert not continues_conversation(
        HELD, [AssistantMessage("hi"), UserMessage("let me see\n\nit rains")]
    )


def test_only_calls_without_a_result_take_one() -> None:
    """Of the last turn; those of the daemon have theirs."""
    assert {"mine": "weather"} == open_calls(HELD[:3])
    assert {} == open_calls(HELD)
    assert {} == open_calls([*HELD[:3], UserMessage("never mind")])
    told: list[Message] = [UserMessage("hi"), AssistantMessage("let me see", CALLS[:1])]
    result = ToolMessage("mine", "weather", "succeeded", "rain")
    assert continues_conversation(HELD[:3], told, [result])
    assert continues_conversation(HELD[:3], told)  # the others may come later
    assert not continues_conversation(HELD, told, [result])
    assert not continues_conversation(HELD[:3], told, [ToolMessage("ours", "x", "succeeded", "y")])
