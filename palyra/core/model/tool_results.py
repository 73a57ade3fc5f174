"""Pair every tool call of a conversation with exactly one result directly after it.

Providers refuse any other form.  The result of a call executed by the client arrives in a later
message or never.  No result is invented: a missing one is replaced by a note that says so, and a
result whose call is no longer shown becomes a guidance message.
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
    """Pair the conversation, results in the order of their calls; a paired one is unchanged."""
    return tuple(messages) if is_paired(messages) else tuple(_paired(messages))


def is_paired(messages: Sequence[Message]) -> bool:
    """True if each call has its result in place.  This is the usual case and needs no copy."""
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
    """Yield the leading tool results, up to the first duplicate."""
    seen: set[str] = set()
    for message in messages:
        if not isinstance(message, ToolMessage) or message.call_id in seen:
            return
        seen.add(message.call_id)
        yield message


def _missing(call: ProposedCall) -> ToolMessage:
    return ToolMessage(call.call_id, call.tool, "unknown", NO_RESULT, "trusted_local")


def _told(result: ToolMessage) -> GuidanceMessage:
    """Turn a result without its call into guidance; its output is fenced already."""
    return GuidanceMessage(
        f"This is what {result.tool} returned ({result.status}) to a call that is not shown any "
        f"more:\n{result.output}"
    )
