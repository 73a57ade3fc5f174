"""Sentences to stored vectors: tokens, forward pass, 8 bits a component."""

from collections.abc import Sequence

import numpy as np

from palyra.core.memory.vectors import StoredVector
from palyra.models.minilm.encoder import MAX_TOKENS, Encoder
from palyra.models.minilm.wordpiece import WordPiece

_LARGEST = 127


class SentenceEncoder:
    """Safe to use from several threads."""

    def __init__(self, weights: bytes, vocabulary: bytes) -> None:
        """Take the contents of `model.safetensors` and `vocab.txt`."""
        words = vocabulary.decode().split("\n")
        self._pieces = WordPiece({word: at for at, word in enumerate(words) if word})
        self._encoder = Encoder(weights)

    def embed(self, texts: Sequence[str]) -> list[StoredVector]:
        """Return one vector per text, in order."""
        if not texts:
            return []
        floats = self._encoder.encode([self._pieces.tokens(text, MAX_TOKENS) for text in texts])
        scales = np.abs(floats).max(axis=1) / _LARGEST
        values = np.rint(floats / scales[:, None]).astype(np.int8)
        return [
            StoredVector(scale, row.tobytes())
            for scale, row in zip(scales.tolist(), values, strict=True)
        ]
