"""The tool `update_todos`: the model's to-do list, which people see and compactions keep."""

from typing import get_args

import msgspec

from palyra.core.run.todos import MAX_TODOS, TODO_CHARS, UPDATE_TODOS, count_todos
from palyra.core.tape.events import Todo, TodoState
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.tools.toolbox import InlineTool, Tool

SPEC = ToolSpec(
    name=UPDATE_TODOS,
    version="1",
    description=(
        "Replace your to-do list, which the person sees. For work of several steps; one item in progress."
    ),
    parameters={
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "maxItems": MAX_TODOS,
                "description": "The whole list, in order.",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "minLength": 1, "maxLength": TODO_CHARS},
                        "state": {"type": "string", "enum": list(get_args(TodoState))},
                    },
                    "required": ["text", "state"],
                },
            },
        },
        "required": ["todos"],
    },
    tool_class="read_only_safe",
    risk="low",
    never_coerced=("todos",),
)


def update_todos(call: ToolCall) -> ToolOutput:
    """Return what the list comes to; the event of the change follows from the call."""
    todos = msgspec.convert(call.arguments["todos"], tuple[Todo, ...])
    return ToolOutput(text=count_todos(todos), trust="trusted_local")


def todo_tools() -> list[Tool]:
    """Return the tool."""
    return [InlineTool(SPEC, update_todos)]
