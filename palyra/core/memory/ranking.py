"""Ranking: one score for each candidate, explained part by part.

    score = lexical + vector + author + date + form + session + context

    lexical  0.5 · bm25 / Σ idf of the question's words.  The division keeps the scale independent
             of the length of the question and the size of the memory.
    vector   weight of the embedder · max(0, cosine)
    author   if the question names exactly one known author: what that author's items gain
    date     0.4 if the item was stated on, or names, a day that the question names
    form     -0.25 · share of the item that is a question: a question rarely states a fact
    session  0.1 · mean of the three best scores of the item's session: the neighbourhood of several
             good hits is a better place than that of a single one
    context  0.15 · the better score of the items two turns away in the conversation.  The item itself
             has its direct neighbours in its word score and its vector (`store.vectors`): in a chat of
             short messages, subject, question and answer are three of them.
             Behind the ten best, and without a model of meaning, in addition: 0.3 · the mean that
             `session` uses, 0.2 for an item of the author that the question names, 0.4 · the score
             of a neighbour among the five best, half of it two places away

The ten best are a list of single answers.  Those behind them fill a prompt, where an answer in
several places and the turns round it are worth more than one more turn with a word of the question:
this context puts 3 to 4 % more of the evidence into 1 500 tokens.  It never lifts a hit above the
tenth.  A model of meaning finds such turns by itself: its packs gain nothing from it.

Weights were measured on conversations with labelled evidence (`bench/recall.py`): talk of two people,
a chat of short messages, agent work.  A weight is one that pays on all of them.  The parts are
flat around them: none of them moves recall@10 by a point if it is changed by a third.

Nothing is dropped for its score, with one exception: if not even the best candidate reaches the
floor in words or in meaning, the question is about a foreign subject or none, and nothing is
returned.  Names and dates alone are no relation.  Within one subject no floor separates answers
from their neighbours, so the caller shows scores and lets the model decline.  For a prompt, which
asked for nothing, `relate` is stricter, and `packing` has a floor for each item.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from statistics import fmean, linear_regression
from typing import NamedTuple

import msgspec

from palyra.core.memory.query import SearchQuestion

LEXICAL, DATE, FORM, SESSION = 0.5, 0.4, 0.25, 0.1
AUTHOR_LEXICAL = 1.5  # in addition: the lexical score counts 2.5 times
AUTHOR_COSINE = 0.12
OF_AUTHOR = LEXICAL + 0.1  # to each item of the author, if the question asks for nothing else
SESSION_BEST = 3
TWO_AWAY = 0.15
HEAD = 10  # hits in front of which no context comes
CONTEXT_SESSION, CONTEXT_AUTHOR, CONTEXT_NEAR = 0.3, 0.2, 0.4
NEAR_BEST = 5  # hits whose neighbours gain
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True, slots=True)
class VectorWeight:
    """Weight of the cosine, and the best cosines below which a question is foreign.

    `floor` is that of a search, `prompt_floor` that of a prompt, whose best cosine must stand out, too.
    """

    weight: float
    floor: float
    prompt_floor: float
    is_semantic: bool


# Of 12 questions on foreign subjects and 5 of gibberish, to conversations and to agent tapes, the
# best cosine is 0.35 by MiniLM and 0.25 by parts of words, where a misspelled word alone has as much.
SEMANTIC = VectorWeight(1.5, 0.38, 0.28, is_semantic=True)
PARTS_OF_WORDS = VectorWeight(0.1, 0.3, 0.3, is_semantic=False)
LEXICAL_FLOOR = 0.22  # share of the question's idf mass; 1 % of labelled questions are below
PROMPT_LEXICAL_FLOOR = 0.25  # the same of all its words, with those that occur nowhere
FEW_TERMS = (
    6  # a longer question is measured like one of so many: two words of it relate to an item
)
STANDING_OUT = 0.2  # distance of the best cosine from the background
NOISE_SHARE = 0.75  # of the background, in the noise of a score
_BACKGROUND = slice(4, 14)  # cosines, best first: a question has a few answers, the rest is noise


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """An item that may answer, with the facts that ranking needs."""

    row: int
    text: str
    author: str | None
    session: str | None
    at_ms: int
    lexical: float  # bm25 / Σ idf of the question's words
    cosine: float | None = None  # None: the item or the question has no vector
    has_date: bool = False  # stated on, or naming, a day of the question
    previous: int | None = None  # rows of its neighbours in the conversation
    next: int | None = None


class ScoreParts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Summands of a score."""

    lexical: float = 0.0
    vector: float = 0.0
    author: float = 0.0
    date: float = 0.0
    form: float = 0.0
    session: float = 0.0
    context: float = 0.0

    @property
    def sum(self) -> float:
        return (
            self.lexical
            + self.vector
            + self.author
            + self.date
            + self.form
            + self.session
            + self.context
        )


class Hit(msgspec.Struct, frozen=True, gc=False):
    """An item with its score and the summands of that."""

    row: int
    score: float
    parts: ScoreParts


class Relation(NamedTuple):
    """Relation of the candidates to a prompt."""

    is_related: bool  # at least one of them says something about it
    noise: float  # part of each score that says nothing


_Ranked = tuple[Candidate, Hit]


def relate(
    question: SearchQuestion,
    candidates: Iterable[Candidate],
    known: float,
    vectors: VectorWeight = SEMANTIC,
) -> Relation:
    """Judge candidates for a prompt that did not ask for any; `known`: share of its words that occur.

    A search has asked, and shows the best it has.  A prompt is mostly about something else.  Words
    that occur nowhere count against a relation.  Cosines are compared with each other: to a model
    of one language all texts in another one are alike.
    """
    found = list(candidates)
    if question.is_of_days:
        return Relation(any(each.has_date for each in found), 0.0)
    if question.is_of_author:
        return Relation(any(_is_of_author(question, each) for each in found), 0.0)
    lexical = _length(question) * max((each.lexical for each in found), default=0.0)
    best, background = _best_cosine(found)
    is_related = lexical * known >= PROMPT_LEXICAL_FLOOR or _stands_out(best, background, vectors)
    return Relation(is_related, vectors.weight * max(0.0, background) * NOISE_SHARE)


def _best_cosine(candidates: Iterable[Candidate]) -> tuple[float, float]:
    """Return the best cosine, and the mean of those behind the few that may be answers."""
    cosines = sorted((each.cosine for each in candidates if each.cosine is not None), reverse=True)
    return max(cosines, default=0.0), fmean(cosines[_BACKGROUND] or [0.0])


def _stands_out(best: float, background: float, vectors: VectorWeight) -> bool:
    return best >= vectors.prompt_floor and best - background >= STANDING_OUT


def rank(
    question: SearchQuestion, candidates: Iterable[Candidate], vectors: VectorWeight = SEMANTIC
) -> list[Hit]:
    """Return the candidates, best first, equal scores newest first; none of a foreign question."""
    author = question.authors[0] if len(question.authors) == 1 else None
    related = _with_estimates(list(candidates))
    if question.is_of_days:
        related = [each for each in related if each.has_date]
    elif question.is_of_author:
        related = [each for each in related if _is_of_author(question, each)]
    elif not _is_related(question, related, vectors):
        return []
    scored = [_score(each, author, vectors) for each in related]
    if question.is_of_author:
        scored = [
            msgspec.structs.replace(parts, author=parts.author + OF_AUTHOR)
            if each.author == author
            else parts
            for each, parts in zip(related, scored, strict=True)
        ]
    priors = _session_priors(related, scored)
    around = _two_turns_away(related, scored)
    hits = []
    for each, base in zip(related, scored, strict=True):
        session, context = priors.get(each.session, 0.0), around.get(each.row, 0.0)
        parts = msgspec.structs.replace(base, session=session, context=context)
        hits.append((each, Hit(each.row, parts.sum, parts)))
    hits.sort(key=lambda found: (found[1].score, found[0].at_ms, found[0].row), reverse=True)
    if question.is_of_author:
        return [hit for _, hit in hits]
    if vectors.is_semantic and any(each.cosine is not None for each in related):
        return [hit for each, hit in hits if _has_common(each)]
    head = [found for found in hits[:HEAD] if _has_common(found[0])]
    return [hit for _, hit in (*head, *_in_context(hits, author))]


def _with_estimates(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates with an estimate for a cosine that only some of them lack.

    As 0 it would be the worst of all: an item without a vector would lose to any that has one.  The
    estimate is the line through the cosines of the others over their lexical scores, within their range.
    """
    known = [each for each in candidates if each.cosine is not None]
    if not known or len(known) == len(candidates):
        return candidates
    cosines = [each.cosine for each in known if each.cosine is not None]
    words = [each.lexical for each in known]
    slope, at_0 = 0.0, fmean(cosines)
    if len({*words}) > 1:
        slope, at_0 = linear_regression(words, cosines)
    least, most = min(cosines), max(cosines)
    return [
        each
        if each.cosine is not None
        else msgspec.structs.replace(
            each, cosine=min(max(at_0 + slope * each.lexical, least), most)
        )
        for each in candidates
    ]


def _in_context(hits: Sequence[_Ranked], author: str | None) -> list[_Ranked]:
    """Return the hits behind the `HEAD` best in their order, with the context in their scores."""
    if len(hits) <= HEAD:
        return []
    near = _near_best(hits)
    most = hits[HEAD - 1][1].score
    found = []
    for each, hit in hits[HEAD:]:
        gain = CONTEXT_SESSION / SESSION * max(0.0, hit.parts.session) + near.get(each.row, 0.0)
        if author is not None and each.author == author:
            gain += CONTEXT_AUTHOR
        if not gain and not _has_common(each):
            continue
        context = min(gain, most - hit.score)
        parts = msgspec.structs.replace(hit.parts, context=hit.parts.context + context)
        position = hit.score + context, hit.score + gain, each.at_ms, each.row
        found.append((position, (each, Hit(each.row, hit.score + context, parts))))
    found.sort(key=itemgetter(0), reverse=True)
    return [ranked for _, ranked in found]


def _two_turns_away(
    candidates: Sequence[Candidate], scored: Sequence[ScoreParts]
) -> dict[int, float]:
    """Return what the rows two turns away from each candidate gain from it, each from the better one."""
    by_row = {each.row: each for each in candidates}
    gains: dict[int, float] = {}
    for each, parts in zip(candidates, scored, strict=True):
        gain = TWO_AWAY * parts.sum
        for beside in (each.previous, each.next):
            neighbour = None if beside is None else by_row.get(beside)
            beyond = None if neighbour is None else _other_side(neighbour, each.row)
            if beyond is not None and gain > gains.get(beyond, 0.0):
                gains[beyond] = gain
    return gains


def _near_best(hits: Sequence[_Ranked]) -> dict[int, float]:
    """Return what the rows next to the best hits gain from them."""
    linked = {each.row: each for each, _ in hits}
    gains: dict[int, float] = {}
    for each, hit in hits[:NEAR_BEST]:
        for beside in (each.previous, each.next):
            if beside is None:
                continue
            gain = CONTEXT_NEAR * max(0.0, hit.score)
            gains[beside] = max(gain, gains.get(beside, 0.0))
            neighbour = linked.get(beside)
            beyond = None if neighbour is None else _other_side(neighbour, each.row)
            if beyond is not None:
                gains[beyond] = max(gain / 2, gains.get(beyond, 0.0))
    return gains


def _has_common(each: Candidate) -> bool:
    """True if the item shares words or some meaning with the question, or a day."""
    return each.lexical > 0 or (each.cosine or 0.0) > 0 or each.has_date


def _other_side(neighbour: Candidate, row: int) -> int | None:
    return neighbour.next if neighbour.previous == row else neighbour.previous


def question_share(text: str) -> float:
    """Return the share of the words of a text that are in sentences with a question mark."""
    if "?" not in text:
        return 0.0
    counts = [(len(part.split()), part.rstrip().endswith("?")) for part in _SENTENCE.findall(text)]
    total = sum(words for words, _ in counts)
    return sum(words for words, is_asked in counts if is_asked) / total if total else 1.0


def _is_of_author(question: SearchQuestion, each: Candidate) -> bool:
    """True for an item by the person that a question is about alone, and for one with the name."""
    return each.author in question.authors or each.lexical > 0


def _is_related(
    question: SearchQuestion, candidates: Sequence[Candidate], vectors: VectorWeight
) -> bool:
    lexical = _length(question) * max((each.lexical for each in candidates), default=0.0)
    best, background = _best_cosine(candidates)
    is_near = best >= vectors.floor or _stands_out(best, background, vectors)
    return lexical >= LEXICAL_FLOOR or is_near


def _length(question: SearchQuestion) -> float:
    return max(1.0, len(question.terms) / FEW_TERMS)


def _score(each: Candidate, author: str | None, vectors: VectorWeight) -> ScoreParts:
    lexical = LEXICAL * each.lexical
    cosine = each.cosine if each.cosine is not None else 0.0
    gain = 0.0
    vector = vectors.weight * max(0.0, cosine)
    if author is not None and each.author == author:
        gain = AUTHOR_LEXICAL * lexical
        if each.cosine is not None:
            gain += vectors.weight * max(0.0, cosine + AUTHOR_COSINE) - vector
    return ScoreParts(
        lexical=lexical,
        vector=vector,
        author=gain,
        date=DATE if each.has_date else 0.0,
        form=-FORM * question_share(each.text),
    )


def _session_priors(
    candidates: Sequence[Candidate], scored: Sequence[ScoreParts]
) -> dict[str | None, float]:
    by_session: dict[str | None, list[float]] = defaultdict(list)
    for each, parts in zip(candidates, scored, strict=True):
        if each.session is not None:
            by_session[each.session].append(parts.sum)
    return {
        session: SESSION * fmean(nlargest(SESSION_BEST, scores))
        for session, scores in by_session.items()
    }
