"""From a request to a command."""

import pytest

from palyra.net.compat.asking import Ask, Extension, make_command, session_key
from palyra.net.compat.conversation import Told
from palyra.net.compat.names import Target


@pytest.mark.parametrize(
    ("target", "named", "agent"),
    [
        (Target(None, "scripted"), None, None),
        (Target("helper", None), None, "helper"),
        (Target(None, "scripted"), "helper", "helper"),
        (Target("helper", None), "clerk", "clerk"),
    ],
)
def test_a_user_has_a_session_with_each_agent(
    target: Target, named: str | None, agent: str | None
) -> None:
    """Of the agent that answers, however the request names it."""
    ask = Ask(told=Told(text="x"), target=target, user="ann", extension=Extension(agent=named))
    assert agent == make_command(ask).agent
    assert f"compat:{agent or ''}:ann" == session_key(ask)
