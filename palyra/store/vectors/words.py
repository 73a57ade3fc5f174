"""Word scores: BM25F over an item and its neighbours in the conversation.

Source of the semantics: Okapi BM25 (Robertson and Zaragoza, 2009) on weighted counts: a word of the
item counts once, of the item before it 0.5, of the item after it 0.3.  An answer rarely repeats the
words of its question, so the turn before it names the subject.  A word counts at most once an item:
repetition says little in texts of a few sentences.

Frequencies are counted among the items that the search may see, so a score says nothing about
items of others.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from palyra.store.vectors.rows import NO_SLOT, Mask, RowTable, Slots

PREVIOUS, NEXT = 0.5, 0.3
SATURATION, LENGTH = 1.2, 0.75  # k1 and b of BM25

Scores = NDArray[np.float32]


def word_scores(table: RowTable, postings: Sequence[Slots], visible: Mask) -> tuple[Scores, float]:
    """Return the score of each slot and the share of words that a visible item has.

    A score is BM25F divided by the sum of the words' idf: 0 to about 2.

    A posting holds the slots of the items with one word of the question.  A word that no visible item
    has says nothing about any of them and counts for nothing.
    """
    scores = np.zeros(table.count, np.float32)
    seen = int(np.count_nonzero(visible))
    if not seen:
        return scores, 0.0
    lengths = table.lengths()
    mean = max(float(lengths[visible].mean()), 1.0)
    norms = (SATURATION * (1 - LENGTH + LENGTH * lengths / mean)).astype(np.float32)
    mass, known = 0.0, 0
    for posting in postings:
        slots = posting[visible[posting]]
        if not slots.size:
            continue
        known += 1
        weights = _weights(table, slots)
        touched = np.flatnonzero(weights)
        idf = math.log(1 + (seen - touched.size + 0.5) / (touched.size + 0.5))
        mass += idf
        counts = weights[touched]
        scores[touched] += idf * counts * (SATURATION + 1) / (counts + norms[touched])
    if mass:
        scores /= np.float32(mass)
    scores[~visible] = 0
    return scores, known / len(postings) if postings else 0.0


def _weights(table: RowTable, slots: Slots) -> Scores:
    """Return the weighted count of a word for each slot; `slots` have it."""
    weights = np.zeros(table.count, np.float32)
    weights[slots] = 1
    for column, weight in (("next", PREVIOUS), ("previous", NEXT)):
        neighbours = table.column(column)[slots]  # each slot is the neighbour of one other
        weights[neighbours[neighbours != NO_SLOT]] += np.float32(weight)
    return weights
