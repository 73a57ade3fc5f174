"""Front matter: what is read, what is skipped, and what costs nothing."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.front_matter import MAX_LINES, read_front_matter


def fields_of(*lines: str) -> dict[str, str]:
    """The fields of front matter without a problem."""
    found = read_front_matter("\n".join(["---", *lines, "---", "body"]))
    assert ("", "body", len(lines) + 3) == (found.problem, found.body, found.body_line)
    return dict(found.fields)


def test_values_of_each_form() -> None:
    """Plain, quoted, over several lines, as blocks, with comments, and with lists that nobody needs."""
    assert {"name": "x", "description": "a: b # no comment", "license": "it's"} == fields_of(
        "name: x  # a comment", 'description: "a: b # no comment"  # one', "license: 'it''s'"
    )
    assert {"description": "one two three"} == fields_of("description: one", "  two", "  three")
    assert {"description": "one two # three"} == fields_of(
        "description: >-", "  one", "", "  two # three"
    )
    assert {"a": "one two"} == fields_of("a: |", "    one", "    two")
    assert {"allowed-tools": "- Read - Bash(git *)", "name": "x"} == fields_of(
        "allowed-tools:", "- Read", "- Bash(git *)", "name: x"
    )
    assert {"metadata": "author: me", "name": "x"} == fields_of(
        "metadata:", "  author: me", "Name: x"
    )
    assert {"a": 'say "hi" \\ now'} == fields_of(r'a: "say \"hi\" \\ now"')
    assert {"a": "https://example.org/x"} == fields_of("a: https://example.org/x")
    assert {"a": "'open"} == fields_of("a: 'open")
    assert {"a": ""} == fields_of("# a comment", "a:", "")


def test_files_of_other_systems() -> None:
    """A byte order mark and carriage returns count for nothing."""
    found = read_front_matter("\ufeff---\r\nname: x\r\n---\r\nbody\r\n")
    assert ({"name": "x"}, "body\r\n", 4) == found[:3]


def test_a_file_without_front_matter_is_its_body() -> None:
    """Also one whose dashes come later."""
    for text in ("", "body\n---\na: b\n---\n", "----\na: b\n---\n", " ---\na: b\n---\n"):
        assert ({}, text, 1, "") == read_front_matter(text)


def test_mistakes_are_named_by_line() -> None:
    """Text that is no field, a key given twice, and an end that never comes."""
    assert "line 3" in read_front_matter("---\na: b\njust text\n---\n").problem
    assert "line 2" in read_front_matter("---\n  indented: first\n---\n").problem
    assert "a second time" in read_front_matter("---\na: b\nA: c\n---\n").problem
    assert "no line ---" in read_front_matter("---\na: b\n").problem
    assert (
        "no line ---" in read_front_matter("---\n" + "a: b\n" * (MAX_LINES + 5) + "---\n").problem
    )


@given(st.text("-:#|>'\"\\ \n\tab", max_size=200))
def test_any_text_is_read(text: str) -> None:
    """No text raises, values are single lines, and the body is a part of the text."""
    found = read_front_matter(f"---\n{text}")
    assert f"---\n{text}".endswith(found.body)
    assert not any("\n" in value for value in found.fields.values())
