"""The tools `echo` and `sleep`, without effects, for tests and demonstrations."""

import trio

from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.tools.toolbox import AsyncTool, InlineTool, OnOutput, Tool

MAX_SLEEP_S = 60

ECHO = ToolSpec(
    name="echo",
    version="1",
    description="Give the text back unchanged.",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string", "maxLength": 16_384, "description": "What to give back."}
        },
        "required": ["text"],
    },
    tool_class="read_only_safe",
    risk="low",
    excerpt_bytes=16_384,
)
SLEEP = ToolSpec(
    name="sleep",
    version="1",
    description="Do nothing for a while.",
    parameters={
        "type": "object",
        "properties": {
            "seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_SLEEP_S,
                "description": "How long.",
            }
        },
        "required": ["seconds"],
    },
    tool_class="read_only_safe",
    risk="low",
    deadline_s=MAX_SLEEP_S + 5,
)


def echo(call: ToolCall) -> ToolOutput:
    """The text."""
    return ToolOutput(text=call.arguments["text"])


async def sleep(call: ToolCall, _on_output: OnOutput) -> ToolOutput:
    """A word, after the pause.  Cancellation: ends at once."""
    seconds = call.arguments["seconds"]
    await trio.sleep(seconds)
    return ToolOutput(text=f"slept {seconds} s")


def basic_tools() -> list[Tool]:
    """Both."""
    return [InlineTool(ECHO, echo), AsyncTool(SLEEP, sleep)]
