"""Vectors of memories as they are stored: 8 bits a component and one scale."""

import sys
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

# Below it, `value / scale` may leave the 8 bits: subnormal numbers have too few digits for a scale.
_SMALLEST = 127 * sys.float_info.min


class VectorSpace(NamedTuple):
    """Vectors that can be compared: those of one embedder and of one size."""

    embedder: str
    dimensions: int


class StoredVector(msgspec.Struct, frozen=True, gc=False):
    """Vector of length 1: component i is `scale` times byte i, read as a signed number."""

    scale: float
    values: bytes

    @property
    def dimensions(self) -> int:
        return len(self.values)


def checksum_of(row: int, embedder: str, scale: float, values: bytes) -> int:
    """Return the checksum that is stored with the vector of a row: against damage, not intent."""
    return crc32(values, crc32(f"{row} {embedder} {scale!r}".encode()))


class EmbedderView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The embedder of the memory as an operator sees it."""

    configured: str  # memory.embedder
    in_use: str | None = (
        None  # as in the configuration, "words" for no vectors by choice; None: it fails
    )
    reason: str = ""  # why it is not the configured or the best one, with the remedy


def quantise(vector: Sequence[float]) -> StoredVector:
    """Return the nearest vector of 8-bit components; of zeros (or nearly), the scale is 0."""
    largest = max(map(abs, vector), default=0.0)
    if largest < _SMALLEST:
        return StoredVector(0.0, bytes(len(vector)))
    scale = largest / 127
    return StoredVector(scale, bytes(round(value / scale) & 0xFF for value in vector))
