"""Modes in `palyra chat`: names, the circle of the key, and the session they belong to."""

from typing import Any, cast

import pytest

from palyra.cli.chat.commands import PERFORM
from palyra.cli.chat.session import Conversation
from palyra.cli.chat.slash import COMMANDS
from palyra.cli.command.errors import CommandFailed
from palyra.cli.run.modes import find_mode
from palyra.core.journal.records import SessionMode, SessionRecord


class ModeClient:
    """A daemon with one session."""

    def __init__(self) -> None:
        self.mode: SessionMode = "ask"

    async def set_session_mode(self, session_id: str, mode: SessionMode) -> SessionRecord:
        self.mode = mode
        return await self.get_session(session_id)

    async def get_session(self, session_id: str) -> SessionRecord:
        return SessionRecord(
            session_id=session_id,
            principal="ann",
            key=None,
            created_ms=0,
            updated_ms=0,
            mode=self.mode,
        )


async def test_the_mode_goes_round_and_belongs_to_the_session() -> None:
    """A new session gets it with its message; `/session new` begins with ask again."""
    assert set(COMMANDS) >= {"mode"}
    client = ModeClient()
    chat = Conversation(cast("Any", client), cast("Any", None))
    seen = []
    for _ in range(3):
        await PERFORM["mode"](chat, "")
        seen.append(chat.mode)
    assert seen == ["accept_edits", "plan", "ask"]
    (line,) = await PERFORM["mode"](chat, "accept-edits")
    assert line.startswith("mode accept-edits:")
    assert chat._options()["mode"] == "accept_edits"
    chat.session_id = "ses_1"
    await PERFORM["mode"](chat, "plan")
    assert (client.mode, "mode" in chat._options()) == ("plan", False)
    client.mode = "ask"
    await chat.read_mode()
    assert chat.mode == "ask"
    await PERFORM["mode"](chat, "plan")
    chat.begin()
    assert chat.mode == "ask"


async def test_a_mode_without_a_session_or_a_meaning_is_refused() -> None:
    """A branch has no session before its message; an unknown name lists the known ones."""
    chat = Conversation(cast("Any", ModeClient()), cast("Any", None), is_branching=True)
    with pytest.raises(CommandFailed):
        await PERFORM["mode"](chat, "plan")
    with pytest.raises(CommandFailed) as refused:
        await PERFORM["mode"](chat, "yolo")
    assert "accept-edits" in str(refused.value.remedy)
    assert (find_mode("accept-edits"), find_mode("accept_edits")) == ("accept_edits",) * 2
