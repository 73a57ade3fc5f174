"""Pairing: every call of a conversation with exactly one result, right behind it.

Providers refuse anything else.  A call that was handed over to the client has its result in a
later message, or in none at all.  Nothing is invented: where there is no result, the model is
told just that; a result whose call is not shown any more is told in words.
"""

from collections.abc import Iterator, Sequence

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
)

NO_RESULT = "the client that was to run this call has given no result"


def pair_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same conversation, results in the order of their calls; a paired one stays as it is."""
    return tuple(messages) if _is_paired(messages) else tuple(_paired(messages))


def _is_paired(messages: Sequence[Message]) -> bool:
    """Whether each call has its result in place: the usual case, looked at without a copy."""
    due: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not due or due.pop() != message.call_id:
                return False
        elif due:
            return False
        elif isinstance(message, AssistantMessage):
            due = [call.call_id for call in reversed(message.calls)]
    return not due


def _paired(messages: Sequence[Message]) -> Iterator[Message]:
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if isinstance(message, ToolMessage):
            yield _told(message)
            continue
        yield message
        if not isinstance(message, AssistantMessage):
            continue
        results = {result.call_id: result for result in _results(messages[place:])}
        place += len(results)
        for call in message.calls:
            yield results.pop(call.call_id, _missing(call))
        yield from map(_told, results.values())


def _results(messages: Sequence[Message]) -> Iterator[ToolMessage]:
    """Those that the conversation goes on with, up to one that is there twice."""
    seen: set[str] = set()
    for message in messages:
        if not isinstance(message, ToolMessage) or message.call_id in seen:
            return
        seen.add(message.call_id)
        yield message


def _missing(call: ProposedCall) -> ToolMessage:
    return ToolMessage(call.call_id, call.tool, "unknown", NO_RESULT, "trusted_local")


def _told(result: ToolMessage) -> GuidanceMessage:
    """A result without its call; its output stands between fences already."""
    return GuidanceMessage(
        f"This is what {result.tool} returned ({result.status}) to a call that is not shown any "
        f"more:\n{result.output}"
    )
