"""Words of a command as facts: positions, options, and words that may mean anything."""

import pytest

from palyra.core.tool.words import MAX_CHARS, MAX_WORDS, read_words
from tests.rows import every_row


@every_row(
    ("argv", "odd"),
    [
        (["pytest", "-q", "tests/a.py", "a::b", "name"], 0),
        (["pytest", "@args"], 1),
        (["git", "log", "HEAD~1", "a or b"], 2),
        (["make", "CC=x"], 1),
        (["pytest", "../x", "/x", "a/../../x"], 3),
        (["pytest", ""], 1),
        (["pytest", "tests/\u0430.py"], 1),
        (["we!rd"], 0),
    ],
)
def test_odd_words_are_neither_options_nor_plain_paths(argv: list[str], odd: int) -> None:
    """A word that a program may take for more than a name or a path inside is odd."""
    assert odd == read_words(argv).odd_words


@pytest.mark.parametrize("argv", [["x", *["a"] * MAX_WORDS], ["x", "a" * MAX_CHARS]])
def test_all_words_of_a_command_that_is_not_seen_are_odd(argv: list[str]) -> None:
    """A rule that lists options cannot take a command for one without options."""
    found = read_words(argv)
    assert ((), (), len(argv)) == (found.flags, found.argv, found.odd_words)


def test_no_command_has_no_odd_words() -> None:
    """Other tools have no words."""
    assert 0 == read_words([]).odd_words
