"""Agents as data: versions, what they may call, and what is refused."""

import pytest

from palyra.core.agent import (
    DEFAULT_AGENT,
    AgentChange,
    allowed_tools,
    check_agent,
    next_version,
    placeholder_agent,
    tools_of,
)
from palyra.core.journal.records import AgentRecord
from palyra.core.tool.spec import build_catalogue
from palyra.errors import InvalidParams
from tests.core.policy.tool_samples import a_spec
from tests.rows import every_row

CATALOGUE = build_catalogue([a_spec("read"), a_spec("write")])
SCOUT = AgentRecord(
    name="scout", version=3, instructions="Look.", model="scripted", tools=("read",), labels=("a",)
)


def test_an_update_keeps_unnamed_fields() -> None:
    """The next version differs in the named fields only, and None is a value."""
    changed = next_version(SCOUT, AgentChange(tools=None, model=None), now_ms=7)
    expected = AgentRecord(
        name="scout", version=4, instructions="Look.", labels=("a",), updated_ms=7
    )
    assert expected == changed


def test_an_agents_catalogue_is_its_list() -> None:
    """Tools outside the list are not in it, and the hash is that of the part."""
    part = allowed_tools(SCOUT, CATALOGUE)
    assert ["read"] == list(part.tools)
    assert build_catalogue([a_spec("read")]).hash == part.hash
    assert CATALOGUE is allowed_tools(DEFAULT_AGENT, CATALOGUE)


def test_a_principal_has_its_own_tools_and_those_of_all() -> None:
    """Tools of another principal are not in the catalogue, which is unchanged if all are shared."""
    owned = build_catalogue([a_spec("read"), a_spec("anns", principal="ann")])
    assert ["anns", "read"] == sorted(tools_of("ann", "default", owned).tools)
    assert ["read"] == list(tools_of("bob", "default", owned).tools)
    assert CATALOGUE is tools_of("bob", "default", CATALOGUE)


def test_an_agent_without_tools_may_call_none() -> None:
    """An empty list is not the same as no list."""
    assert {} == allowed_tools(next_version(SCOUT, AgentChange(tools=()), 0), CATALOGUE).tools
    assert {} == allowed_tools(placeholder_agent("scout", 9), CATALOGUE).tools


@every_row(
    ("change", "field", "text"),
    [
        (AgentChange(model="gpt"), "model", "no model 'gpt'; known: scripted"),
        (AgentChange(tools=("raed",)), "tools", "did you mean 'read'"),
        (AgentChange(tools=("zzzz",)), "tools", "known: read, write"),
    ],
)
def test_an_unknown_model_or_tool_is_refused(change: AgentChange, field: str, text: str) -> None:
    """The error lists the known ones."""
    with pytest.raises(InvalidParams, match=text) as caught:
        check_agent(next_version(SCOUT, change, 0), ["scripted"], CATALOGUE.tools)
    assert field == caught.value.field
    check_agent(SCOUT, ["scripted"], CATALOGUE.tools)
