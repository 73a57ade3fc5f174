"""Continuation: does a client's message list continue the conversation that a session stores?

A client without server-side memory sends the whole conversation with each request.  If that equals
the stored one, only the new messages are appended: nothing is recorded twice, and the stored record
stays authoritative, which also has the results of tools that no client sees.
"""

from collections.abc import Iterator, Sequence

import msgspec

from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage

BREAK = "\n\n"  # between the texts of two turns, as clients see them


def continues_conversation(
    stored: Sequence[Message], sent: Sequence[Message], results: Sequence[ToolMessage] = ()
) -> bool:
    """True if the client's messages equal the stored ones, and every result answers an open call.

    Both conversations are compared in the client view.
    """
    if list(_client_view(stored)) != list(_client_view(sent)):
        return False
    return {result.call_id for result in results} <= set(open_calls(stored))


def open_calls(stored: Sequence[Message]) -> dict[str, str]:
    """Return the tools of the last turn's calls without a result, by call id."""
    answered: set[str] = set()
    for message in reversed(stored):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return {c.call_id: c.tool for c in message.calls if c.call_id not in answered}
        else:
            break
    return {}


def with_thoughts(sent: Sequence[Message], stored: Sequence[Message]) -> tuple[Message, ...]:
    """Return the client's messages, with the stored reasoning behind the same calls."""
    thoughts = {
        call.call_id: message.thought
        for message in stored
        if isinstance(message, AssistantMessage) and message.thought is not None
        for call in message.calls
    }
    return tuple(
        msgspec.structs.replace(message, thought=thoughts.get(message.calls[0].call_id))
        if isinstance(message, AssistantMessage) and message.calls
        else message
        for message in sent
    )


def _client_view(messages: Sequence[Message]) -> Iterator[tuple[bool, str]]:
    """Yield (is_user, text); consecutive turns of the model are one text."""
    texts: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and message.text:
            texts.append(message.text)
        elif isinstance(message, UserMessage):
            if texts:
                yield False, BREAK.join(texts)
            texts = []
            yield True, message.text
    if texts:
        yield False, BREAK.join(texts)
