"""Word scores: BM25F over an item and its neighbours in the conversation.

Source of the semantics: Okapi BM25 (Robertson and Zaragoza, 2009) on weighted counts: a word of the
item counts once, of the item before it 0.5, of the item after it 0.3.  An answer rarely repeats the
words of its question, so the turn before it names the subject.  A word counts at most once an item:
repetition says little in texts of a few sentences.

Frequencies are counted among the items that the search may see, so a score says nothing about
items of others.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from palyra.store.vectors.rows import NO_SLOT, Mask, RowTable, Slots

PREVIOUS, NEXT = 0.5, 0.3
SATURATION, LENGTH = 1.2, 0.75  # k1 and b of BM25

Scores = NDArray[np.float32]


def word_scores(table: RowTable, postings: Iterable[Slots], visible: Mask) -> Scores:
    """Return for each slot its BM25F score divided by the sum of the words' idf: 0 to about 2.

    A posting holds the slots of the items with one word of the question.
    """
    scores = np.zeros(table.count, np.float32)
    seen = int(np.count_nonzero(visible))
    if not seen:
        return scores
    lengths = table.lengths()
    mean = max(float(lengths[visible].mean()), 1.0)
    norms = (SATURATION * (1 - LENGTH + LENGTH * lengths / mean)).astype(np.float32)
    mass = 0.0
    for posting in postings:
        slots = posting[visible[posting]]
        weights = _weights(table, slots)
        touched = np.flatnonzero(weights)
        idf = math.log(1 + (seen - touched.size + 0.5) / (touched.size + 0.5))
        mass += idf
        counts = weights[touched]
        scores[touched] += idf * counts * (SATURATION + 1) / (counts + norms[touched])
    if mass:
        scores /= np.float32(mass)
    scores[~visible] = 0
    return scores


def _weights(table: RowTable, slots: Slots) -> Scores:
    """Return the weighted count of a word for each slot; `slots` have it."""
    weights = np.zeros(table.count, np.float32)
    weights[slots] = 1
    for column, weight in (("next", PREVIOUS), ("previous", NEXT)):
        neighbours = table.column(column)[slots]  # each slot is the neighbour of one other
        weights[neighbours[neighbours != NO_SLOT]] += np.float32(weight)
    return weights
