"""Names of tools on the wire: what providers take, all different, always the same."""

import re

from hypothesis import given
from hypothesis import strategies as st

from palyra.models.dialect import MAX_CHARS, wire_names

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_plain_names_stay_and_others_are_spelt() -> None:
    """A plain name keeps its spelling even if other names would be spelt the same."""
    names = ["mcp:files.read", "read_file", "mcp_files_read", "mcp.files:read", "a-b"]
    spelt = wire_names(names)
    assert ["read_file", "a-b"] == [spelt["read_file"], spelt["a-b"]]
    assert 5 == len(set(spelt.values()))
    assert all(each.startswith("mcp_files_read") for name, each in spelt.items() if "mcp" in name)
    assert {"mcp:files.read": "mcp_files_read"} == wire_names(["mcp:files.read"])


def test_a_plain_name_is_never_taken_from_its_owner() -> None:
    """Though a foreign one that would be spelt so comes before it in the alphabet."""
    assert wire_names(["a:b", "a_b"])["a_b"] == "a_b"
    assert wire_names(["a.b", "a_b", "a:b"])["a_b"] == "a_b"


def test_a_mark_that_is_a_tool_name_already_is_not_given_twice() -> None:
    """A tool named like the marked spelling of another tool does not receive its calls."""
    marked = next(wire for wire in wire_names(["a:b", "a_b"]).values() if wire != "a_b")
    spelt = wire_names(["a:b", "a_b", marked])
    assert marked == spelt[marked] != spelt["a:b"]


def test_long_names_are_cut_and_marked() -> None:
    """At exactly the bound they stay."""
    fits, long, longer = "x" * MAX_CHARS, "x" * (MAX_CHARS + 1), "x" * (MAX_CHARS + 2)
    spelt = wire_names([fits, long, longer])
    assert fits == spelt[fits]
    assert [MAX_CHARS] * 3 == [len(each) for each in spelt.values()]
    assert 3 == len(set(spelt.values()))


@given(st.lists(st.text("ab_.:é", min_size=1, max_size=90), unique=True, max_size=20))
def test_every_spelling_is_taken_and_leads_back(names: list[str]) -> None:
    """Every spelling is valid, unique, reversible and independent of the catalogue's order."""
    spelt = wire_names(names)
    assert spelt == wire_names(reversed(names))
    assert all(TAKEN.fullmatch(each) for each in spelt.values())
    assert {wire: name for name, wire in spelt.items()} == {spelt[name]: name for name in names}
    assert len(names) == len(set(spelt.values()))
