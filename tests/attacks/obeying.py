"""A model that obeys every order in its context: the worst that a fooled model can do.

The user's text and every text that a tool returns are searched for lines `CALL tool {arguments}`;
each is called once, in order.  When no order is left, it gives the answer that the user requested.
"""

import re
from collections.abc import Callable

import msgspec
import trio

from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    FinishReason,
    Message,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.trust.fences import inside_fence
from palyra.wiring.host import new_id

_ORDER = re.compile(r"^CALL (\S+) (\{.*\})$", re.MULTILINE)


def order(tool: str, **arguments: object) -> str:
    """The line that makes it call a tool."""
    return f"CALL {tool} {msgspec.json.encode(arguments).decode()}"


class Obeying:
    """A `core.ports.LanguageModel` that obeys all orders.

    With `reads_descriptions` it also obeys the descriptions of tools when a run begins; with
    `keeps_to_fences` it ignores all text between fences.
    """

    name = provider = "scripted"

    def __init__(self, *, reads_descriptions: bool = False, keeps_to_fences: bool = False) -> None:
        self._reads_descriptions = reads_descriptions
        self._keeps_to_fences = keeps_to_fences

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Call everything ordered since the model's last answer."""
        await trio.lowlevel.checkpoint()
        calls = tuple(
            ProposedCall(call_id=new_id("call"), tool=tool, arguments=arguments)
            for tool, arguments in self._orders(request)
        )
        text = "" if calls else "All done."
        if text:
            on_delta(Delta("text", text))
        reason: FinishReason = "tool_calls" if calls else "stop"
        return ModelTurn(text=text, calls=calls, finish_reason=reason, usage=Usage())

    def _orders(self, request: ModelRequest) -> list[tuple[str, object]]:
        """Return the orders since the model's last answer, from any source."""
        fresh = _unanswered(request.messages)
        if self._reads_descriptions and isinstance(request.messages[-1], UserMessage):
            fresh = [*(str(tool["description"]) for tool in request.tools), *fresh]
        heard = [self._hear(text) for text in fresh]
        found = [match for text in heard for match in _ORDER.finditer(text)]
        return [(match[1], msgspec.json.decode(match[2])) for match in found]

    def _hear(self, text: str) -> str:
        inside = inside_fence(text)
        return "" if self._keeps_to_fences and inside != text else inside


def _unanswered(messages: tuple[Message, ...]) -> list[str]:
    """Return the messages since the model's last answer."""
    fresh: list[str] = []
    for message in reversed(messages):
        match message:
            case AssistantMessage():
                break
            case ToolMessage():
                fresh.append(message.output)
            case UserMessage():
                fresh.append(message.text)
            case _:
                pass
    return fresh[::-1]
