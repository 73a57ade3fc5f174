"""A model that does what it is told, by whoever tells it: the worst that a fooled model can be.

The user's text and every text that a tool returns are searched for lines `CALL tool {arguments}`;
each is called once, in order.  When nothing is left to obey, it says what it was asked to say.
"""

import re
from collections.abc import Callable

import msgspec
import trio

from palyra.actors.ids import new_id
from palyra.core.fence import inside_fence
from palyra.core.prompt import (
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
from palyra.core.records import Usage

_ORDER = re.compile(r"^CALL (\S+) (\{.*\})$", re.MULTILINE)


def order(tool: str, **arguments: object) -> str:
    """The line that makes it call a tool."""
    return f"CALL {tool} {msgspec.json.encode(arguments).decode()}"


class Obeying:
    """`core.ports.LanguageModel` without a will of its own."""

    name = provider = "scripted"

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Call whatever was ordered since it last spoke."""
        await trio.lowlevel.checkpoint()
        calls = tuple(
            ProposedCall(call_id=new_id("call"), tool=tool, arguments=arguments)
            for tool, arguments in _orders(request.messages)
        )
        text = "" if calls else "All done."
        if text:
            on_delta(Delta("text", text))
        reason: FinishReason = "tool_calls" if calls else "stop"
        return ModelTurn(text=text, calls=calls, finish_reason=reason, usage=Usage())


def _orders(messages: tuple[Message, ...]) -> list[tuple[str, object]]:
    """What was ordered since the model's last words, whoever ordered it."""
    fresh: list[str] = []
    for message in reversed(messages):
        match message:
            case AssistantMessage():
                break
            case ToolMessage():
                fresh.append(inside_fence(message.output))
            case UserMessage():
                fresh.append(message.text)
            case _:
                pass
    found = [match for text in reversed(fresh) for match in _ORDER.finditer(text)]
    return [(match[1], msgspec.json.decode(match[2])) for match in found]
