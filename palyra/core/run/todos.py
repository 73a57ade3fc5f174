"""The to-do list of a run: the tool's name, its event, and its text for the model.

The list is the argument of the last `update_todos` call that succeeded.  The next run of the session
begins with it.  A prompt whose older messages were condensed or left out ends with it, because the call
may be among them; other prompts have the call itself.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.run.call import Call
from palyra.core.tape.events import Todo, TodosChanged
from palyra.core.text.visible import visible

UPDATE_TODOS = "update_todos"  # name of the tool
MAX_TODOS, TODO_CHARS = 50, 200
NOTE_CHARS = 2_000  # of the text for the model: some 500 tokens
MARKS = {"pending": "○", "in_progress": "▸", "done": "✓"}


def todos_changed(call: Call) -> TodosChanged:
    """Return the event of a call that succeeded."""
    return TodosChanged(todos=msgspec.convert(call.arguments["todos"], tuple[Todo, ...]))


def list_todos(todos: Sequence[Todo]) -> list[str]:
    """Return a line for each item, safe to show."""
    return [f"{MARKS[todo.state]} {visible(todo.text)}" for todo in todos]


def count_todos(todos: Sequence[Todo]) -> str:
    """Return how many items are done."""
    done = sum(todo.state == "done" for todo in todos)
    return f"{done} of {len(todos)} done"


def describe_todos(todos: Sequence[Todo]) -> str:
    """Return the list for the model, open items first, with the number of those that do not fit."""
    lines = list_todos(sorted(todos, key=lambda todo: todo.state == "done"))
    kept, left_chars = 0, NOTE_CHARS
    for line in lines:
        left_chars -= len(line) + 1
        if left_chars < 0:
            break
        kept += 1
    omitted = [f"… and {len(lines) - kept} more"] if kept < len(lines) else []
    head = f"Your to-do list, as you wrote it with {UPDATE_TODOS} ({count_todos(todos)}):"
    return "\n".join([head, *lines[:kept], *omitted])
