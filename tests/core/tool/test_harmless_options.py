"""Options of programs that a wider answer covers: an allow list, read word by word."""

from palyra.core.tool.harmless_options import FORMS, find_form, is_listed, is_option
from tests.rows import every_row


@every_row(
    ("program", "word", "is_covered"),
    [
        ("git log", "--oneline", True),
        ("git log", "-5", True),
        ("git log", "-", False),
        ("git log", "--onelin", False),  # git would complete it
        ("git log", "--output=x", False),
        ("git log", "--pretty=short", True),
        ("git log", "--format=%G?", False),  # runs gpg.program
        ("git log", "--pretty=format:%GS", False),
        ("git grep", "-n", True),
        ("git grep", "-O", False),
        ("git grep", "-nO", False),  # behind a listed one in the same word
        ("git grep", "-O/bin/sh", False),
        ("git grep", "--open-files-in-pager=sh", False),
        ("head", "-n", True),  # the number is the next word
        ("head", "-n5", True),
        ("head", "-5", True),
        ("head", "-5x", False),
        ("wc", "-l", True),
        ("wc", "-5", False),  # no program of the list but those that count has such an option
        ("wc", "--files0-from=x", False),
        ("make", "-j4", True),
        ("make", "-j", False),  # the number would be one more word of a form that fixes the words
        ("make", "-f", False),
        ("make", "--eval=x", False),
    ],
)
def test_only_listed_options_are_covered(program: str, word: str, is_covered: bool) -> None:  # noqa: FBT001 - of a row
    """Neither an abbreviation nor an option that shares its word with a listed one is covered."""
    name, _, subcommand = program.partition(" ")
    found = find_form(name, subcommand)
    assert found is not None
    assert is_covered == is_listed(found[0], word)


@every_row(
    ("word", "is_one"),
    [("-x", True), ("--", True), ("+x", True), ("@file", True), ("-", False), ("x-y", False)],
)
def test_options_are_known_by_their_first_character(word: str, is_one: bool) -> None:  # noqa: FBT001 - of a row
    """Files of options count as options; the word for standard input does not."""
    assert is_one == is_option(word)


def test_every_form_names_its_source() -> None:
    """A page of a manual or documentation; and a form that fixes all words lists no options."""
    for name, form in FORMS.items():
        assert form.source, name
        if form.words == "exact":
            assert ("", "", (), False) == (form.flags, form.numbers, form.options, form.counts), (
                name
            )


def test_an_unlisted_program_has_no_form() -> None:
    """A subcommand that is not listed has the form of its program, if there is one."""
    assert find_form("no-such-program", "") is None
    assert find_form("git", "push") == (None if "git" not in FORMS else (FORMS["git"], 1))
