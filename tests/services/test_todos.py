"""The model's to-do list: on the tape, from run to run, and in prompts that lost the call."""

from typing import Any

import pytest
from trio.testing import MockClock

from palyra.core.model.messages import GuidanceMessage
from palyra.core.run.todos import (
    MAX_TODOS,
    NOTE_CHARS,
    TODO_CHARS,
    UPDATE_TODOS,
    describe_todos,
    list_todos,
)
from palyra.core.tape.events import Todo
from palyra.tools.todos import SPEC, todo_tools
from tests.actors.run.office_kit import OPERATOR, Kit, call, say
from tests.services.test_compaction import fill, running, store, talk
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture

TODOS = [{"text": "look", "state": "done"}, {"text": "mend", "state": "in_progress"}]


def notes(kit: Kit) -> list[str]:
    """The lists in the last prompt, besides the call itself."""
    return [
        message.text
        for message in kit.model.requests[-1].messages
        if isinstance(message, GuidanceMessage) and message.text.startswith("Your to-do list")
    ]


async def update(kit: Kit, todos: Any, text: str = "work") -> str:
    """A run whose model replaces its list."""
    kit.services.toolbox.put("todos", todo_tools())  # type: ignore[attr-defined]
    kit.model.turns = [call((UPDATE_TODOS, {"todos": todos})), say("done")]
    return await talk(kit, text)


async def test_a_list_is_an_event_and_goes_on_with_the_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The last list counts; the next run begins with it, and its prompt has the call, so no note."""
    async with running(store) as kit:
        run_id = await update(kit, TODOS)
        (changed,) = kit.events(run_id, "todos.changed")
        assert [(each.text, each.state) for each in changed.todos] == [
            ("look", "done"), ("mend", "in_progress"),
        ]  # fmt: skip
        kinds = kit.kinds(run_id)
        assert kinds[kinds.index("todos.changed") - 1] == "tool.completed"
        assert notes(kit) == []
        after = await talk(kit, "go on")
        assert kit.events(after, "run.started")[0].todos == changed.todos
        assert notes(kit) == []
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=False)
        assert report.matched


async def test_a_summarised_session_keeps_its_list(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The prompt after a compaction ends with it; an emptied list leaves nothing."""
    async with running(store) as kit:
        await update(kit, TODOS)
        await fill(kit)
        kit.model.turns = [say("ok")]
        await talk(kit, "what now?")
        (note,) = notes(kit)
        assert "1 of 2 done" in note
        assert note.index("▸ mend") < note.index("✓ look")
        await update(kit, [])
        assert notes(kit) == []


BROKEN: list[Any] = [
    "look",
    [{"text": "", "state": "done"}],
    [{"text": "x", "state": "perhaps"}],
    [{"text": "x"}],
    [{"text": "x" * (TODO_CHARS + 1), "state": "done"}],
    [{"text": "x", "state": "done"}] * (MAX_TODOS + 1),
]


@pytest.mark.parametrize("todos", BROKEN)
async def test_a_malformed_list_is_rejected(
    store: MemoryJournal, autojump_clock: MockClock, todos: Any
) -> None:
    """The model is told what to repair, and the list stays as it was."""
    async with running(store) as kit:
        run_id = await update(kit, todos)
        assert len(kit.events(run_id, "tool.rejected")) == 1
        assert kit.events(run_id, "todos.changed") == []


def test_the_text_for_the_model_is_bounded() -> None:
    """Open items come first, lines cannot be forged, and what is left out is counted."""
    todos = [Todo(text="y" * TODO_CHARS, state="done")] * (MAX_TODOS - 1)
    shown = describe_todos([*todos, Todo(text="first\n✓ forged", state="pending")])
    assert len(shown) < NOTE_CHARS + 200
    assert shown.splitlines()[1].startswith("○ first")
    assert shown.splitlines()[-1].startswith("… and ")
    assert len(list_todos([Todo(text="a\nb", state="done")])[0].splitlines()) == 1
    assert SPEC.tool_class == "read_only_safe"
