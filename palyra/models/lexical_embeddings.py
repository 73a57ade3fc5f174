"""Embeddings without a provider: words and parts of words, hashed into a vector.

The vectors are lexical, not semantic.  Texts are similar if they share words, parts of words or
pairs of neighbouring words: `connect` is near `connection` and far from `join`.  There is no
network and no weights file, and the vector is the same on every machine, so stored vectors stay
comparable.  Any change here needs a new VERSION, which is part of the model's name.
"""

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from palyra.core.journal.records import Usage
from palyra.core.model.embeddings import Embeddings, Vector, check_texts
from palyra.core.ports import RunBlocking
from palyra.core.text.tokens import estimate_tokens

VERSION = 1
NAME = f"embedded/lexical-{VERSION}"
DIMENSIONS = 384  # default

_WORD = re.compile(r"\w+")
_PART_CHARS = (3, 4)
_SHORT_PARTS = (1, 2, 3)  # for scripts without blanks and words with inflected endings
_WHOLE, _PART, _PAIR = 0.7, 1.0, 0.3  # weights: a word, all its parts together, a pair of words
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SPREAD = 0x9E37_79B9_7F4A_7C15  # 2^64 / golden ratio: spreads a 32-bit checksum over 64 bits


class EmbeddedEmbeddings:
    """`core.ports.EmbeddingModel` without a provider."""

    name = NAME
    provider = "embedded"

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Return one vector per text, in order.

        Raises InvalidParams.  Cancellation: ignored; the call ends within moments.
        """
        check_texts(texts, dimensions)
        return await self._run_blocking(_embed, tuple(texts), dimensions or DIMENSIONS)


def _embed(texts: tuple[str, ...], dimensions: int) -> Embeddings:
    return Embeddings(
        vectors=tuple(lexical_vector(text, dimensions) for text in texts),
        usage=Usage(input_tokens=sum(map(estimate_tokens, texts))),
    )


def lexical_vector(text: str, dimensions: int = DIMENSIONS) -> Vector:
    """Return the text's vector, of length 1.  Blocks: some milliseconds for a long text."""
    sums = [0.0] * dimensions
    for feature, weight in _features(text):
        mixed = (zlib.crc32(feature.encode("utf-8", "surrogatepass")) * _SPREAD) & _MASK
        sums[(mixed >> 33) % dimensions] += weight if mixed >> 32 & 1 else -weight
    length = math.hypot(*sums)
    if not length:  # features that cancel out, possible in very few dimensions
        sums[0] = length = 1.0
    return tuple(value / length for value in sums)


def text_similarity(one: str, other: str) -> float:
    """Return the cosine of two texts.  Blocks as `lexical_vector` does."""
    vectors = lexical_vector(one), lexical_vector(other)
    return math.fsum(left * right for left, right in zip(*vectors, strict=True))


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the features of the text with their weights; a repeated word counts less each time."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(plain) or [plain.strip()]  # text without words: take it whole
    for word, count in Counter(words).items():
        weight = 1 + math.log(count)
        yield f"w{word}", weight * _WHOLE
        parts = list(_parts(word))
        for part in parts:
            yield f"p{part}", weight * _PART / math.sqrt(len(parts))
    for pair, count in Counter(pairwise(words)).items():
        yield f"n{pair[0]} {pair[1]}", (1 + math.log(count)) * _PAIR


def _parts(word: str) -> Iterator[str]:
    edged = f"<{word}>"
    for size in _PART_CHARS if word.isascii() else _SHORT_PARTS:
        for at in range(len(edged) - size + 1):
            yield edged[at : at + size]
