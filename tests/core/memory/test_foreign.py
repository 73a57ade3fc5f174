"""Memories of other programs as drafts."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.memory.foreign import parse_mem0, parse_openclaw
from palyra.core.memory.items import MAX_TAG_CHARS, check_draft
from palyra.errors import InvalidParams
from tests.rows import every_row

NOTES = """---
name: memory
---
intro line
over two lines

# About *Zoltan*  #
* lives in Budapest
  since 2019
+ plays the bassoon
## Coding style
1) tabs
   - nested point
- [ ] types everywhere
# Decisions

- use trio

## How-to: release
```sh
# not a heading
- not an entry
```
# Misc
---
"""


def test_markdown_becomes_items() -> None:
    """Each entry, paragraph and code block is an item; headings are its tags and name its kind."""
    found = [(draft.text, draft.kind, draft.tags) for draft in parse_openclaw(NOTES)]
    assert [
        ("intro line\nover two lines", "note", ()),
        ("lives in Budapest\nsince 2019", "fact", ("About *Zoltan*",)),
        ("plays the bassoon", "fact", ("About *Zoltan*",)),
        ("tabs\n- nested point", "preference", ("About *Zoltan*", "Coding style")),
        ("types everywhere", "preference", ("About *Zoltan*", "Coding style")),
        ("use trio", "decision", ("Decisions",)),
        (
            "```sh\n# not a heading\n- not an entry\n```",
            "procedure",
            ("Decisions", "How-to: release"),
        ),
        ("---", "note", ("Misc",)),
    ] == found


def test_a_long_heading_is_a_tag_that_may_be_stored() -> None:
    """A tag has the most characters that the memory takes, and not one more."""
    [draft] = parse_openclaw(f"# {'x' * (MAX_TAG_CHARS + 1)}\n\nentry\n")
    assert ("x" * MAX_TAG_CHARS,) == draft.tags
    check_draft(draft)


def test_front_matter_needs_its_end() -> None:
    """A line of dashes without a second one is text."""
    assert ["---\nname: x"] == [draft.text for draft in parse_openclaw("---\nname: x")]
    assert [] == parse_openclaw("")


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """Whatever the file holds, drafts come out that are checked like any other."""
    for draft in parse_openclaw(text):
        assert draft.text.strip()
        assert ("import", "workspace") == (draft.source, draft.trust)
        plain = msgspec.structs.replace(draft, text="x")  # the text is the file's own
        check_draft(plain)


@every_row("wrap", [None, "results", "memories"])
def test_mem0_exports_are_read(wrap: str | None) -> None:
    """The array is taken by itself or in an object; time, session and categories are kept."""
    entries = [
        {"memory": "a", "updated_at": "1970-01-01T00:00:01Z", "run_id": "r", "actor_id": "Bob",
         "categories": ["x", 5, "x"]},
        {"text": "b", "created_at": "1970-01-01T00:00:02", "updated_at": 7, "run_id": " "},
        {"memory": "c", "created_at": "soon", "categories": None},
    ]  # fmt: skip
    text = msgspec.json.encode(entries if wrap is None else {wrap: entries})
    found = parse_mem0(text)
    assert [
        ("a", 1_000, "r", "Bob", ("x",)),
        ("b", 2_000, None, None, ()),
        ("c", None, None, None, ()),
    ] == [(draft.text, draft.at_ms, draft.session_id, draft.author, draft.tags) for draft in found]


@every_row("text", ["", "{}", "5", "[5]", '[{"id": 1}]', '{"results": {}}', "[{]"])
def test_other_json_is_refused(text: str) -> None:
    """The error says that it is no export, or which memory has no text."""
    with pytest.raises(InvalidParams):
        parse_mem0(text)
