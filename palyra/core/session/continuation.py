"""Continuing: does a conversation that a client tells go on from what a session holds already?

A client without a memory of ours sends everything again with each request.  Where what it sends
is what the session holds, only what is new counts: nothing is there twice, and the session's own
record, with the results of tools that no client sees, is the better one.
"""

from collections.abc import Iterator, Sequence

from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage

BREAK = "\n\n"  # between the texts of two turns, as clients see them


def continues_conversation(
    held: Sequence[Message], told: Sequence[Message], results: Sequence[ToolMessage] = ()
) -> bool:
    """Whether `told` is all of `held` as a client sees it, and the results are of its last calls."""
    if list(_seen(held)) != list(_seen(told)):
        return False
    return {result.call_id for result in results} <= set(open_calls(held))


def open_calls(held: Sequence[Message]) -> dict[str, str]:
    """Tools by the ids of calls that have no result yet: of the last words of the model."""
    answered: set[str] = set()
    for message in reversed(held):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return {c.call_id: c.tool for c in message.calls if c.call_id not in answered}
        else:
            break
    return {}


def _seen(messages: Sequence[Message]) -> Iterator[tuple[bool, str]]:
    """Words of people, and of the model as one text between them, however many turns it took."""
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
