"""The status of a conversation in words."""

from unittest.mock import AsyncMock, Mock

import pytest

from palyra.cli.chat_commands import show_model
from palyra.cli.chat_desk import describe_state, fit_status
from palyra.cli.chat_session import Conversation
from palyra.cli.errors import CommandFailed
from palyra.cli.talk import Options
from palyra.core.model.views import ModelList, ModelView


@pytest.mark.parametrize(
    ("calls", "is_asked", "quiet_s", "lost_s", "state"),
    [
        (None, False, 900.0, None, "idle"),
        ("", False, 1.0, None, "thinks"),
        ("", False, 12.4, None, "thinks, 12 s"),
        ("shell(ls)", False, 0.0, None, "runs shell(ls)"),
        ("shell(ls)", False, 61.0, None, "runs shell(ls), 61 s"),
        ("shell(ls)", True, 61.0, None, "waits for you"),
        (None, False, 900.0, 6.0, "reconnecting, 6 s"),
        ("", True, 0.0, 0.0, "reconnecting, 0 s"),
        ("", False, 0.0, 21.0, "no daemon; Ctrl-D leaves"),
    ],
)
def test_state_says_what_a_person_waits_for(
    calls: str | None,
    is_asked: bool,  # noqa: FBT001 - a row
    quiet_s: float,
    lost_s: float | None,
    state: str,
) -> None:
    """A lost connection comes first, then a question, then the silence of model or call."""
    assert state == describe_state(calls, is_asked=is_asked, quiet_s=quiet_s, lost_s=lost_s)


def test_long_call_leaves_room_for_the_seconds() -> None:
    """The status stays short, whatever a call is named."""
    state = describe_state("x" * 500, is_asked=False, quiet_s=7.0, lost_s=None)
    assert state.endswith("…, 7 s")
    assert len(state) < 60


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ours/listed", "the next message goes to ours/listed"),
        ("ours/other", "the next message goes to ours/other"),
        ("theirs/x", "it may be refused"),
    ],
)
async def test_model_takes_each_name_that_the_option_takes(name: str, said: str) -> None:
    """A list holds only some names of a provider; a name without a provider must be listed."""
    models = Mock()
    view = ModelView(name="ours/listed", provider="ours", breaker="closed")
    models.list_models = AsyncMock(
        return_value=ModelList(models=[view], routing="suggest", failover=())
    )
    conversation = Conversation(models, Options())
    assert said in (await show_model(conversation, name))[0]
    assert name == conversation.model
    with pytest.raises(CommandFailed, match="no model 'listed'"):
        await show_model(conversation, "listed")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (79, "ask · m · in home · agent default · runs shell(ls), 61 s"),
        (40, "ask · m · in home · runs shell(ls), 61 s"),
        (22, "runs shell(ls), 61 s"),
        (10, "runs shel…"),
    ],
)
def test_state_has_its_room_in_a_narrow_terminal(width: int, shown: str) -> None:
    """The least important facts are left out before the state is cut."""
    facts = ["ask", "m", "in home", "agent default"]
    assert shown == fit_status(facts, "runs shell(ls), 61 s", width)
