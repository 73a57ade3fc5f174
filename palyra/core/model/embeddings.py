"""Embeddings: vectors of texts whose angle measures similarity.

The limits of a request and the form of an answer, common to all embedding models.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.journal.records import Usage
from palyra.errors import InvalidParams

MAX_TEXTS = 2_048  # of one request
MAX_TEXT_CHARS = 65_536
MAX_ALL_CHARS = 2_097_152  # of all texts of a request
MAX_DIMENSIONS = 8_192
MAX_NUMBERS = 3_145_728  # of one answer: 2 048 vectors of 1 536; about 100 MB in memory

Vector = tuple[float, ...]


class Embeddings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One vector per text, in the order of the texts, all of one length."""

    vectors: tuple[Vector, ...]
    usage: Usage = Usage()


def check_texts(texts: Sequence[str], dimensions: int | None) -> None:
    """Raise InvalidParams for input that no model can embed, naming the text and the limit."""
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise _refused(f"{len(texts)} texts; there must be 1 to {MAX_TEXTS}")
    for at, text in enumerate(texts):
        if not text.strip():
            raise _refused(f"text {at} is empty; leave it out")
        if len(text) > MAX_TEXT_CHARS:
            raise _refused(f"text {at} has {len(text)} characters; cut it to {MAX_TEXT_CHARS}")
    total = sum(map(len, texts))
    if total > MAX_ALL_CHARS:
        raise _refused(f"{total} characters in all; send at most {MAX_ALL_CHARS} at once")
    if dimensions is not None and not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidParams(
            f"{dimensions} dimensions; there may be 1 to {MAX_DIMENSIONS}", field="dimensions"
        )
    if dimensions is not None and (why := too_many(len(texts), dimensions)):
        raise _refused(why)


def too_many(texts: int, dimensions: int) -> str:
    """Explain why an answer cannot hold so many vectors of that length; "" if it can."""
    if texts * dimensions <= MAX_NUMBERS:
        return ""
    most = MAX_NUMBERS // dimensions
    return (
        f"{texts} texts of {dimensions} dimensions are {texts * dimensions} numbers and "
        f"{MAX_NUMBERS} are the most; send at most {most} texts at once"
    )


def _refused(why: str) -> InvalidParams:
    return InvalidParams(f"these texts cannot be embedded: {why}", field="input")
