"""Sentences that bind by their form, and sentences that only tell."""

from collections.abc import Sequence

import pytest

from palyra.core.context.entries import PROTECTED
from palyra.core.context.forms import find_form
from palyra.core.context.statements import read_user
from tests.core.context.phrasings import HELD_OUT, HELD_OUT_TALK, KEPT, TALK, UNSEEN, UNSEEN_TALK
from tests.rows import every_row


def kept(sentences: Sequence[str]) -> float:
    """The share of sentences with an entry that survives every compaction."""
    found = [any(each.kind in PROTECTED for each in read_user(text)) for text in sentences]
    return sum(found) / len(found)


@pytest.mark.parametrize("name", KEPT)
def test_every_class_is_recognized(name: str) -> None:
    """Imperatives, prohibitions, conditions, preferences, deadlines, obligations in two languages."""
    assert 1 == kept(KEPT[name])


def test_most_of_other_words_are_recognized() -> None:
    """Sentences that no form was made for: at least every second one."""
    assert kept([text for texts in HELD_OUT.values() for text in texts]) > 0.8
    assert kept(UNSEEN) > 0.55


def test_talk_is_hardly_ever_taken_for_a_rule() -> None:
    """Reports, descriptions and thanks: at most one of ten is protected."""
    assert kept([*TALK, *HELD_OUT_TALK, *UNSEEN_TALK]) <= 0.1


@every_row(
    ("text", "form"),
    [
        ("Log errors to stderr.", "ask"),
        ("Log each error.", "constraint"),
        ("Log files were rotated.", None),
        ("Mirror the bucket.", "ask"),
        ("While the bucket fills, wait.", "constraint"),
        ("All tests passed.", None),
        ("All dates are stored in UTC.", "constraint"),
        ("Every handler returned an error yesterday.", None),
        ("When I came back, it had crashed.", None),
        ("Go on.", None),
        ("Run the tests?", None),
        ("Die Methode in der Klasse ist falsch.", None),
        ("Alle Tests liefen gestern durch.", None),
    ],
)
def test_a_form_is_told_from_its_neighbours(text: str, form: str | None) -> None:
    """An imperative from a noun, a universal from a report, a condition from a story."""
    assert form == find_form(text)


@every_row(
    "text",
    [
        "a " * 300,
        "put a, " * 85,
        "ist " * 150,
        "alle " * 120,
        "in 1 " * 120,
        "zu " * 200,
        "x-" * 300,
    ],
)
def test_a_hostile_sentence_is_read(text: str) -> None:
    """A form that backtracks without bound would never return."""
    assert find_form(text[:600]) in {None, "ask", "constraint"}
