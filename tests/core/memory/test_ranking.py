"""Scores of candidates and the parts they are made of."""

from typing import Any

import msgspec
import pytest

from palyra.core.memory.query import SearchQuestion
from palyra.core.memory.ranking import (
    CONTEXT_AUTHOR,
    CONTEXT_NEAR,
    CONTEXT_SESSION,
    DATE,
    FORM,
    HEAD,
    PARTS_OF_WORDS,
    SEMANTIC,
    SESSION,
    TWO_AWAY,
    Candidate,
    Hit,
    ScoreParts,
    question_share,
    rank,
)
from tests.rows import every_row

QUESTION = SearchQuestion("q", ("q",))
ABOUT_ANN = SearchQuestion("q", ("q",), authors=("Ann",))


def candidate(row: int, **fields: Any) -> Candidate:
    return Candidate(
        **{
            "row": row,
            "text": "A statement.",
            "author": None,
            "session": None,
            "at_ms": 0,
            "lexical": 0.5,
            **fields,
        }
    )


def parts(question: SearchQuestion, **fields: Any) -> dict[str, float]:
    [hit] = rank(question, [candidate(1, **fields)])
    return {name: round(value, 4) for name, value in msgspec.structs.asdict(hit.parts).items()}


def test_the_parts_add_up_to_the_score() -> None:
    """The score of a hit is the sum of its parts, so each part explains its share."""
    hits = rank(
        ABOUT_ANN,
        [
            candidate(1, author="Ann", session="s", cosine=0.4, has_date=True, text="Why? Yes."),
            candidate(2, author="Bob", session="s", cosine=-0.2),
            candidate(3, lexical=0.0, cosine=0.9),
        ],
    )
    assert [hit.score for hit in hits] == pytest.approx(
        [sum(msgspec.structs.asdict(hit.parts).values()) for hit in hits]
    )


def test_words_and_vectors_weigh_what_the_module_says() -> None:
    """Half of the lexical score, 1.5 times the positive cosine, nothing for the rest."""
    nothing = {"author": 0.0, "date": 0.0, "form": 0.0, "session": 0.0, "context": 0.0}
    assert {"lexical": 0.25, "vector": 0.6, **nothing} == parts(QUESTION, cosine=0.4)
    assert {"lexical": 0.25, "vector": 0.0, **nothing} == parts(QUESTION, cosine=-0.4)
    assert {"lexical": 0.25, "vector": 0.0, **nothing} == parts(QUESTION)


def test_the_named_author_gains_and_others_stay() -> None:
    """A named author's items count 2.5 times by words and 0.12 of a cosine more."""
    assert parts(ABOUT_ANN, author="Ann", cosine=0.4)["author"] == pytest.approx(0.375 + 0.18)
    assert parts(ABOUT_ANN, author="Ann")["author"] == pytest.approx(0.375)
    assert not parts(ABOUT_ANN, author="Bob", cosine=0.4)["author"]


def test_two_named_authors_give_no_prior() -> None:
    """A question about two people prefers neither."""
    both = SearchQuestion("q", ("q",), authors=("Ann", "Bob"))
    assert not parts(both, author="Ann")["author"]


def test_dates_and_questions_change_the_score() -> None:
    """A matching date adds, the share of a question subtracts."""
    assert DATE == parts(QUESTION, has_date=True)["date"]
    assert -FORM == parts(QUESTION, text="Why is that so?")["form"]


def test_a_session_counts_by_its_three_best() -> None:
    """Each item of a session gains a tenth of the mean of the three best in it."""
    scores = (1.0, 0.8, 0.6, 0.1)
    hits = rank(
        QUESTION,
        [candidate(row, lexical=score, session="s") for row, score in enumerate(scores)],
    )
    assert [SESSION * 0.4] * 4 == pytest.approx([hit.parts.session for hit in hits])


def test_a_foreign_question_finds_nothing() -> None:
    """If not even the best candidate is related by words or meaning, there is no hit."""
    assert [] == rank(QUESTION, [])
    assert [] == rank(QUESTION, [candidate(1, lexical=0.1, cosine=0.2, has_date=True)])
    assert [] == rank(ABOUT_ANN, [candidate(1, lexical=0.1, author="Ann")])
    assert [1] == [hit.row for hit in rank(QUESTION, [candidate(1, lexical=0.0, cosine=0.4)])]
    weak = candidate(1, lexical=0.0, cosine=0.29)
    assert [] == rank(QUESTION, [weak], PARTS_OF_WORDS)


def test_weak_candidates_follow_a_related_one() -> None:
    """The floor is for the whole question: no candidate is dropped beside a related one."""
    hits = rank(QUESTION, [candidate(1, lexical=0.01), candidate(2)])
    assert [2, 1] == [hit.row for hit in hits]


def behind(*items: Candidate, question: SearchQuestion = QUESTION) -> dict[int, Hit]:
    """Hits behind the `HEAD` best, whose scores fall from 0.5 to 0.41; their rows are 100 to 109."""
    best = [candidate(100 + at, lexical=1 - at / 50) for at in range(HEAD)]
    hits = rank(question, [*best, *items])
    assert [100 + at for at in range(HEAD)] == [hit.row for hit in hits[:HEAD]]
    assert not any(hit.parts.context for hit in hits[:HEAD])
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return {hit.row: hit for hit in hits[HEAD:]}


def cosines(*items: Candidate) -> dict[int, float]:
    """The part of the vector of each hit, as a cosine."""
    hits = rank(QUESTION, items)
    return {hit.row: round(hit.parts.vector / SEMANTIC.weight, 3) for hit in hits}


def test_a_missing_cosine_is_what_the_words_let_expect() -> None:
    """It is on the line of the cosines over the words, and never beyond the known ones."""
    known = [candidate(1, lexical=0.2, cosine=0.3), candidate(2, lexical=0.6, cosine=0.5)]
    found = [cosines(*known, candidate(3, lexical=each))[3] for each in (0.4, 2.0, 0.0)]
    assert [0.4, 0.5, 0.3] == found


def test_an_item_without_a_vector_does_not_lose_to_any_that_has_one() -> None:
    """With the most words of the question it is first, as by words alone."""
    others = [candidate(row, lexical=0.3, cosine=0.4) for row in range(2, 6)]
    assert 1 == rank(QUESTION, [candidate(1, lexical=0.8), *others])[0].row


def test_an_item_gains_from_two_turns_away() -> None:
    """From the better of both sides, whatever stands between; from no direct neighbour."""
    chat = [
        candidate(row, lexical=words, previous=row - 1, next=row + 1)
        for row, words in enumerate((0.8, 0.0, 0.2, 0.1, 0.6))
    ]
    for found in (rank(QUESTION, chat), rank(QUESTION, chat, PARTS_OF_WORDS)):
        gains = {hit.row: hit.parts.context for hit in found}
        assert {0: TWO_AWAY * 0.1, 2: TWO_AWAY * 0.4, 3: 0.0, 4: TWO_AWAY * 0.1} == (
            pytest.approx({row: gains[row] for row in (0, 2, 3, 4)})
        )


def test_the_context_orders_what_follows_the_best() -> None:
    """Neighbours of the five best gain from them, half of it two places away, whichever side."""
    found = behind(
        candidate(1, lexical=0.0, next=100),
        candidate(2, lexical=0.0, previous=101, next=3),
        candidate(3, lexical=0.0, previous=2),
        candidate(4, lexical=0.1, next=106),
        question=QUESTION,
    )
    assert [4] == list(found)  # the best name their neighbours, not the other way round
    best = [
        candidate(100 + at, lexical=1 - at / 50, next={0: 1, 1: 2, 6: 4}.get(at))
        for at in range(HEAD)
    ]
    hits = rank(
        QUESTION,
        [
            *best,
            candidate(1, lexical=0.0, previous=100),
            candidate(2, lexical=0.0, previous=101, next=3),
            candidate(3, lexical=0.0, previous=2),
            candidate(4, lexical=0.1, previous=106),
        ],
    )
    gains = {hit.row: hit.parts.context for hit in hits[HEAD:]}
    beyond = CONTEXT_NEAR * 0.245 + TWO_AWAY * 0.49
    assert {1: CONTEXT_NEAR * 0.5, 2: CONTEXT_NEAR * 0.49, 3: beyond, 4: 0.0} == (
        pytest.approx(gains)
    )
    assert [1, 2, 3, 4] == [hit.row for hit in hits[HEAD:]]


def test_the_context_is_the_author_s_and_the_session_s_too() -> None:
    """More of the named author and of the session of good hits, never above the tenth hit."""
    found = behind(
        candidate(1, lexical=0.01),
        candidate(2, lexical=0.01, author="Ann"),
        candidate(3, lexical=0.3, session="s"),
        candidate(4, lexical=0.25, author="Ann"),
        question=ABOUT_ANN,
    )
    assert CONTEXT_AUTHOR == pytest.approx(found[2].parts.context)
    assert CONTEXT_SESSION * 0.15 == pytest.approx(found[3].parts.context)
    assert pytest.approx(0.41) == found[4].score  # that of the tenth
    assert not found[1].parts.context
    for hit in found.values():
        assert pytest.approx(hit.score) == hit.parts.sum


def test_a_model_of_meaning_needs_no_context() -> None:
    """Its order is that of the scores; words alone have the context although there is a model."""
    best = [candidate(100 + at, lexical=1 - at / 50, next=1) for at in range(HEAD)]
    items = [candidate(1, lexical=0.1, previous=100), candidate(2, lexical=0.2)]
    by_words = [hit.row for hit in rank(QUESTION, [*best, *items])[HEAD:]]
    meant = [msgspec.structs.replace(each, cosine=0.0) for each in (*best, *items)]
    by_meaning = [hit.row for hit in rank(QUESTION, meant)[HEAD:]]
    by_parts = [hit.row for hit in rank(QUESTION, meant, PARTS_OF_WORDS)[HEAD:]]
    assert ([1, 2], [2, 1], [1, 2]) == (by_words, by_meaning, by_parts)


def test_a_neighbour_without_a_common_word_needs_the_context() -> None:
    """With few hits, or no good one beside it, it is none."""
    items = [candidate(1, next=2), candidate(2, lexical=0.0, previous=1)]
    assert [1] == [hit.row for hit in rank(QUESTION, items)]
    assert {} == behind(candidate(1, lexical=0.0))


def test_equal_scores_are_newest_first() -> None:
    """The order of hits does not depend on the order of candidates."""
    items = [candidate(1, at_ms=5), candidate(2, at_ms=9), candidate(3, at_ms=5)]
    assert [2, 3, 1] == [hit.row for hit in rank(QUESTION, items)]
    assert rank(QUESTION, items) == rank(QUESTION, items[::-1])


@every_row(
    ("text", "share"),
    [("No.", 0.0), ("Why?", 1.0), ("I ran. Did you run too?", 0.667), ("?", 1.0), ("? ?", 1.0)],
)
def test_the_share_of_a_question_counts_words(text: str, share: float) -> None:
    """The share is by words of sentences that end with a question mark."""
    assert share == round(question_share(text), 3)


def test_an_empty_score_is_zero() -> None:
    """Parts default to nothing."""
    assert not ScoreParts().sum
