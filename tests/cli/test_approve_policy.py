"""`--approve`: who answers a question."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.run.approve_policy import ApprovePolicy, ApproveType
from tests.rows import every_row

LISTED = ApprovePolicy("tools", frozenset({"write_file", "budget"}))
TABLE = [
    (ApprovePolicy(), False, True, "ask"),
    (ApprovePolicy(), False, False, "leave"),
    (ApprovePolicy("ask"), False, True, "ask"),
    (ApprovePolicy("ask"), False, False, "wait"),
    (ApprovePolicy("deny"), False, True, "deny"),
    (ApprovePolicy("deny"), True, False, "deny"),
    (LISTED, True, True, "allow"),
    (LISTED, True, False, "allow"),
    (LISTED, False, True, "ask"),
    (LISTED, False, False, "deny"),
]


@every_row(("policy", "is_permitted", "has_terminal", "expected"), TABLE)
def test_table_of_answers(
    policy: ApprovePolicy, *, is_permitted: bool, has_terminal: bool, expected: str
) -> None:
    """The treatment of a question follows from policy, tool and terminal alone."""
    found = policy.decide(is_permitted=is_permitted, has_terminal=has_terminal)
    assert expected == found


def test_list_covers_only_calls_that_may_have_a_wider_answer() -> None:
    """A listed tool is covered where more than `once` is offered; a budget never is."""
    assert LISTED.names("write_file", ("once", "session"))
    assert not LISTED.names("write_file", ("once",))
    assert not LISTED.names("shell", ("once", "session"))
    assert not LISTED.names("budget", ("once", "session"))


@given(tool=st.text(), scopes=st.lists(st.text(), max_size=3).map(tuple))
def test_nothing_is_allowed_that_is_not_listed(tool: str, scopes: tuple[str, ...]) -> None:
    """Without a list no tool is covered."""
    assert not ApprovePolicy().names(tool, scopes)
    assert tool == "write_file" or not LISTED.names(tool, scopes)


@every_row("tool", ["shell", "mcp:git-hub.list_issues", "wasm:a.b", "procedure:x"])
def test_every_tool_of_the_catalogue_can_be_listed(tool: str) -> None:
    """Tools of servers, skills and procedures have a prefix in their name."""
    assert ApprovePolicy("tools", frozenset({tool})) == ApproveType().convert(tool, None, None)


@every_row(
    "text", ["", "a b", "a,,b", "mcp/x", "a,ask", "budget", "Deny", "allow", "ALL", "read_file,yes"]
)
def test_what_is_no_list_of_tools_is_refused(text: str) -> None:
    """The mistake is found before anything is sent."""
    with pytest.raises(click.BadParameter):
        ApproveType().convert(text, None, None)


def test_a_denial_names_its_cause() -> None:
    """The list, the reason for an answer that holds once, or the mode; not the mechanism."""
    listed = ApprovePolicy("tools", frozenset({"shell"}))
    assert "only once (level B)" in listed.why_not("shell", "level B")
    assert "injected text" in listed.why_not("shell", "")
    assert "write_file is not in the list" in listed.why_not("write_file", "")
    assert ApprovePolicy("deny").why_not("shell", "").startswith("--approve deny")
