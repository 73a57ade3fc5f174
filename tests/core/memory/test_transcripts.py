"""Search in what was said."""

from palyra.core.journal.changes import SaidText
from palyra.core.memory.transcripts import EXCERPT_CHARS, rank_texts


def said(text: str, at_ms: int = 0) -> SaidText:
    return SaidText("run", "ses", 0, at_ms, True, text)  # noqa: FBT003 - of a user


def test_rare_words_and_newer_texts_come_first() -> None:
    """A word of few texts counts more; of equal ones the newer is first; others are left out."""
    texts = [said("common walrus"), said("common", 1), said("common", 2), said("nothing")]
    found = rank_texts(texts, "The common walrus?", 9)
    assert [("common walrus", 0), ("common", 2), ("common", 1)] == [
        (each.text, each.at_ms) for each in found
    ]
    assert 1 == len(rank_texts(texts, "common", 1))
    assert [] == rank_texts(texts, "xyzzy", 9)
    assert [] == rank_texts([], "common", 9)


def test_long_texts_are_cut_around_the_word() -> None:
    """An excerpt holds the first word of the query, and what stands before it."""
    (found,) = rank_texts([said("x " * 1_000 + "walrus" + " y" * 1_000)], "Walrus", 1)
    assert EXCERPT_CHARS == len(found.text)
    assert "walrus" in found.text
    (found,) = rank_texts(
        [said("I like it " + "x " * 1_000)], "prefer", 1
    )  # a word of the same class
    assert EXCERPT_CHARS == len(found.text)
