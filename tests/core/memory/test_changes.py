"""Whether a later statement takes the place of an earlier one."""

from itertools import starmap
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.memory.changes import MAX_CHARS, Change, compare, key_words
from tests.core.memory.change_pairs import BOTH_TRUE, CHANGES
from tests.rows import every_row

DEV = Path(__file__).parents[3] / "bench" / "dev" / "corrections.json"


def change(old: str, new: str) -> Change:
    return compare(new, old)


def test_changes_in_a_persons_own_words_are_seen() -> None:
    """Four in five of the pairs that the rules were written from."""
    found = [*starmap(change, CHANGES)]
    assert found.count("replaces") >= 0.8 * len(CHANGES)


@every_row(("old", "new"), BOTH_TRUE)
def test_what_is_true_beside_it_replaces_nothing(old: str, new: str) -> None:
    """Another person, scope or day, an addition, a question or a change of one part."""
    assert "replaces" != compare(new, old)


def test_sentences_of_somebody_else_are_told_apart() -> None:
    """Of the development set, half of it unseen, half of the changes are found and no statement is lost."""
    cases = msgspec.json.decode(DEV.read_bytes())
    wrong = [each for each in cases if not each["supersedes"]]
    right = [each for each in cases if each["supersedes"]]
    assert [] == [each for each in wrong if compare(each["new"], each["old"]) == "replaces"]
    seen = [compare(each["new"], each["old"]) for each in right].count("replaces")
    assert seen >= 0.5 * len(right)


@every_row(
    ("old", "new"),
    [
        ("Backups run at 2 and are stored on S3", "backups now run at 4"),
        ("The user wants tea in the morning, coffee at noon", "no coffee at noon any more"),
        ("Our standup is at 9:15", "today the standup is at 10"),
    ],
)
def test_a_change_of_a_part_or_for_a_day_touches(old: str, new: str) -> None:
    """Both are kept: what the later one says nothing about stays true."""
    assert "touches" == compare(new, old)


def test_long_and_equal_texts_are_unrelated() -> None:
    """A text beyond the limit is no statement, and a repetition changes nothing."""
    old = "Our standup is at 9:15"
    assert "unrelated" == compare(old, old)
    assert "unrelated" == compare(f"standup moved to 9:45 {'x' * MAX_CHARS}", old)


def test_a_statement_is_found_by_terms_for_all_forms_of_its_words() -> None:
    """Things first, the longest of them, which is usually the rarest; then days and verbs."""
    found = key_words("ich wohne samstags jetzt in Göttingen, Bahnhof")
    assert found == key_words("Der Nutzer wohnt am Samstag in Göttingen am Bahnhof")
    assert ["goetting", "bahnhof", "sat"] == [each for each in found if each[0] != "="]
    assert ["ich", "jetzt"] == key_words("ich jetzt")


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)


@given(words, words)
def test_comparing_never_fails(one: str, other: str) -> None:
    """Any two texts have a relation."""
    assert compare(one, other) in {"replaces", "touches", "unrelated"}


def test_a_question_changes_nothing_and_a_reason_is_no_part_of_a_change() -> None:
    """The same words end with a question mark, or go on with why."""
    old = "Our standup is at 9:15."
    assert "unrelated" == compare("Our standup moved to 9:45?", old)
    assert "replaces" == compare("Our standup moved to 9:45.", old)
    reasons = ("the 9:15 slot clashes", "Tom takes the kids to school")
    for reason in reasons:
        assert "replaces" == compare(f"Our standup moved to 9:45 because {reason}.", old)
