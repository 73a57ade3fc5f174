"""Ranking: one score for each candidate, explained part by part.

    score = lexical + vector + author + date + form + session

    lexical  0.5 · bm25 / Σ idf of the question's words.  The division keeps the scale independent
             of the length of the question and the size of the memory.
    vector   weight of the embedder · max(0, cosine)
    author   if the question names exactly one known author: what that author's items gain
    date     0.4 if the item was stated on, or names, a day that the question names
    form     -0.25 · share of the item that is a question: a question rarely states a fact
    session  0.1 · mean of the three best scores of the item's session: the neighbourhood of several
             good hits is a better place than that of a single one

Weights were measured on conversations with labelled evidence (`bench/recall.py`); the parts are
flat around them: none of them moves recall@10 by a point if it is changed by a third.

Nothing is dropped for its score, with one exception: if not even the best candidate reaches the
floor in words or in meaning, the question is about a foreign subject or none, and nothing is
returned.  Names and dates alone are no relation.  Within one subject no floor separates answers
from their neighbours, so the caller shows scores and lets the model decline.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from statistics import fmean

import msgspec

from palyra.core.memory.query import Question

LEXICAL, DATE, FORM, SESSION = 0.5, 0.4, 0.25, 0.1
AUTHOR_LEXICAL = 1.5  # in addition: the lexical score counts 2.5 times
AUTHOR_COSINE = 0.12
SESSION_BEST = 3
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True, slots=True)
class VectorWeight:
    """Weight of the cosine, and the best cosine below which a question is foreign."""

    weight: float
    floor: float


# Of 12 questions on foreign subjects and 5 of gibberish, to conversations and to agent tapes, the
# best cosine is 0.35 by MiniLM and 0.25 by parts of words, where a misspelled word alone has as much.
SEMANTIC = VectorWeight(2.0, 0.38)
PARTS_OF_WORDS = VectorWeight(0.1, 0.3)
LEXICAL_FLOOR = 0.22  # share of the question's idf mass; 1 % of labelled questions are below


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that may answer, with the facts that ranking needs."""

    row: int
    text: str
    author: str | None
    session: str | None
    at_ms: int
    lexical: float  # bm25 / Σ idf of the question's words
    cosine: float | None = None  # None: the item or the question has no vector
    has_date: bool = False  # stated on, or naming, a day of the question


class ScoreParts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Summands of a score."""

    lexical: float = 0.0
    vector: float = 0.0
    author: float = 0.0
    date: float = 0.0
    form: float = 0.0
    session: float = 0.0

    @property
    def sum(self) -> float:
        return self.lexical + self.vector + self.author + self.date + self.form + self.session


@dataclass(frozen=True, slots=True)
class Hit:
    row: int
    score: float
    parts: ScoreParts


def rank(
    question: Question, candidates: Iterable[Candidate], vectors: VectorWeight = SEMANTIC
) -> list[Hit]:
    """Return the candidates, best first, equal scores newest first; none of a foreign question."""
    author = question.authors[0] if len(question.authors) == 1 else None
    related = list(candidates)
    if not any(_is_related(each, vectors) for each in related):
        return []
    scored = [_score(each, author, vectors) for each in related]
    priors = _session_priors(related, scored)
    hits = []
    for each, base in zip(related, scored, strict=True):
        prior = priors.get(each.session, 0.0)
        score = base.sum + prior
        hits.append(((score, each.at_ms, each.row), each.row, score, base, prior))
    hits.sort(key=itemgetter(0), reverse=True)
    return [
        Hit(row, score, msgspec.structs.replace(base, session=prior))
        for _, row, score, base, prior in hits
    ]


def question_share(text: str) -> float:
    """Return the share of the words of a text that are in sentences with a question mark."""
    if "?" not in text:
        return 0.0
    counts = [(len(part.split()), part.rstrip().endswith("?")) for part in _SENTENCE.findall(text)]
    total = sum(words for words, _ in counts)
    return sum(words for words, is_asked in counts if is_asked) / total if total else 1.0


def _is_related(each: Candidate, vectors: VectorWeight) -> bool:
    return each.lexical >= LEXICAL_FLOOR or (each.cosine or 0.0) >= vectors.floor


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
