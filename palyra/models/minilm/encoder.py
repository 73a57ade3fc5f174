"""Forward pass of all-MiniLM-L6-v2 in numpy.

Source of the semantics: BERT (Devlin et al., 2018) with six layers, twelve heads and the exact
GELU; the vector of a text is the mean of its last hidden states, of length 1 (Sentence-BERT,
Reimers and Gurevych, 2019).  Texts of similar length are computed together, padded to the longest.
Matrix products and element-wise functions of numpy release the interpreter lock.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

DIMENSIONS = 384
LAYERS = 6
HEADS = 12
MAX_TOKENS = 256  # what the model was trained on; more is cut off
BATCH_TOKENS = 2_048  # bounds the memory of a batch to some 40 MB
_EPSILON = np.float32(1e-12)  # of the layer norms
_MASKED = np.float32(-1e9)
_HEADER_BYTES = 8  # length of the header of a safetensors file, little-endian


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Floats  # (inputs, outputs)
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        y = x @ self.weight
        y += self.bias
        return y


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        x = np.subtract(x, x.mean(axis=-1, keepdims=True))
        variance = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[-1])
        x /= np.sqrt(variance + _EPSILON)
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class _Layer:
    attend: _Linear  # queries, keys and values in one product
    project: _Linear
    norm: _Norm
    widen: _Linear
    narrow: _Linear
    last_norm: _Norm


class Encoder:
    """The loaded weights, about 90 MB.  Calls may run in several threads at once."""

    def __init__(self, weights: bytes) -> None:
        """Read the content of `model.safetensors`.  Raises ValueError or KeyError for another."""
        tensors = _read_tensors(weights)
        self._words = tensors["embeddings.word_embeddings.weight"]
        types = tensors["embeddings.token_type_embeddings.weight"]
        self._positions = tensors["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _norm(tensors, "embeddings.LayerNorm")
        self._layers = [_layer(tensors, f"encoder.layer.{at}") for at in range(LAYERS)]

    def encode(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return one vector of length 1 for each list of token ids: (n, 384) float32."""
        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        for batch in _batches([len(ids) for ids in texts]):
            vectors[batch] = self._encode_batch([texts[at] for at in batch])
        return vectors

    def _encode_batch(self, texts: Sequence[Sequence[int]]) -> Floats:
        lengths = np.array([len(ids) for ids in texts])
        longest = int(lengths.max())
        ids = np.zeros((len(texts), longest), np.int64)
        for at, text in enumerate(texts):
            ids[at, : len(text)] = text
        is_token = np.arange(longest) < lengths[:, None]
        bias = np.where(is_token, np.float32(0), _MASKED)[:, None, None, :]
        x = (self._words[ids] + self._positions[:longest]).reshape(-1, DIMENSIONS)
        x = self._norm(x)
        for layer in self._layers:
            x = layer.norm(x + layer.project(_attention(layer.attend(x), len(texts), bias)))
            x = layer.last_norm(x + layer.narrow(_gelu(layer.widen(x))))
        hidden = x.reshape(len(texts), longest, DIMENSIONS)
        means = np.einsum("btd,bt->bd", hidden, is_token.astype(np.float32))
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return np.asarray(means, np.float32)


def _attention(mixed: Floats, texts: int, bias: Floats) -> Floats:
    """Attend within each text; `mixed` holds queries, keys and values side by side."""
    size = DIMENSIONS // HEADS
    parts = mixed.reshape(texts, -1, 3, HEADS, size).transpose(2, 0, 3, 1, 4)
    queries, keys, values = parts[0], parts[1], parts[2]
    scores = queries @ keys.swapaxes(-1, -2)
    scores *= np.float32(1 / math.sqrt(size))
    scores += bias
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.asarray(scores @ values).transpose(0, 2, 1, 3).reshape(-1, DIMENSIONS)


def _gelu(x: Floats) -> Floats:
    """Return x · Φ(x), with the error function of Abramowitz and Stegun 7.1.26 (error 1.5e-7)."""
    z = np.abs(x) * np.float32(1 / math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    series = np.full_like(t, terms[0])
    for term in terms[1:]:
        series *= t
        series += np.float32(term)
    series *= t
    np.multiply(z, -z, out=z)
    np.exp(z, out=z)
    series *= z  # 1 - erf(|x| / √2)
    tail = series * np.float32(0.5) * np.abs(x)
    return np.asarray(np.maximum(x, 0) - tail, np.float32)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group indices of texts of similar length into batches of at most BATCH_TOKENS."""
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[at] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def _read_tensors(content: bytes) -> dict[str, Floats]:
    """Map the names of a safetensors file to views of its 32-bit floats."""
    header_end = _HEADER_BYTES + int.from_bytes(content[:_HEADER_BYTES], "little")
    header: dict[str, Any] = json.loads(content[_HEADER_BYTES:header_end])
    found: dict[str, Floats] = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        start, end = entry["data_offsets"]
        flat = np.frombuffer(content, "<f4", (end - start) // 4, header_end + start)
        found[name] = flat.reshape(entry["shape"])
    return found


def _linear(tensors: dict[str, Floats], *names: str) -> _Linear:
    weight = np.concatenate([tensors[f"{name}.weight"] for name in names]).T
    return _Linear(
        np.ascontiguousarray(weight), np.concatenate([tensors[f"{name}.bias"] for name in names])
    )


def _norm(tensors: dict[str, Floats], name: str) -> _Norm:
    return _Norm(tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def _layer(tensors: dict[str, Floats], at: str) -> _Layer:
    attention = f"{at}.attention.self"
    return _Layer(
        attend=_linear(tensors, *(f"{attention}.{part}" for part in ("query", "key", "value"))),
        project=_linear(tensors, f"{at}.attention.output.dense"),
        norm=_norm(tensors, f"{at}.attention.output.LayerNorm"),
        widen=_linear(tensors, f"{at}.intermediate.dense"),
        narrow=_linear(tensors, f"{at}.output.dense"),
        last_norm=_norm(tensors, f"{at}.output.LayerNorm"),
    )
