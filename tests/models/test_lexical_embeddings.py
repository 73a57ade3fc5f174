"""Embeddings without a provider: alike where words are, the same everywhere, bounded."""

import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.actors.kernel.threads import run_sync
from palyra.core.model.embeddings import (
    MAX_ALL_CHARS,
    MAX_DIMENSIONS,
    MAX_NUMBERS,
    MAX_TEXT_CHARS,
    MAX_TEXTS,
    check_texts,
)
from palyra.errors import InvalidParams
from palyra.models.lexical_embeddings import DIMENSIONS, EmbeddedEmbeddings, lexical_vector

TEXTS = (
    "How do I connect to the server?",
    "connections of a server",
    "Bake the apples for an hour.",
    "Verbindung zum Server",
    "今日は天気がいい",
    "天気がいいですね",
)


def likeness(one: str, other: str) -> float:
    """Cosine of two texts."""
    return sum(a * b for a, b in zip(lexical_vector(one), lexical_vector(other), strict=True))


def test_texts_that_share_words_or_parts_of_them_are_alike() -> None:
    """And others are not; in scripts without blanks, too."""
    server, connections, apples, german, weather, fine = TEXTS
    assert likeness(server, connections) > 0.2 > abs(likeness(server, apples))
    assert likeness(server, german) > 0.1
    assert likeness(weather, fine) > 0.3
    assert abs(likeness(weather, apples)) < 0.1
    assert likeness("red red red apple", "red apple") > 0.9
    assert likeness("dog bites man", "man bites dog") < 0.999


def test_the_vector_is_the_same_on_every_machine() -> None:
    """Vectors equal recorded ones, so indexes stay comparable; a change needs a new version."""
    signs = "".join("+" if value > 0 else "-" if value < 0 else "0" for text in TEXTS
                    for value in lexical_vector(text))  # fmt: skip
    assert "a858e9f7b3241a76" == hashlib.sha256(signs.encode()).hexdigest()[:16]


@given(st.text(), st.integers(1, 40))
def test_every_text_has_a_vector_of_length_one(text: str, dimensions: int) -> None:
    """Every text has a vector of length one, in any number of dimensions."""
    vector = lexical_vector(text, dimensions)
    assert len(vector) == dimensions
    assert math.isclose(math.hypot(*vector), 1)


async def test_texts_come_back_in_order_with_an_estimate() -> None:
    """As many dimensions as are asked for, or its own."""
    model = EmbeddedEmbeddings(run_sync)
    found = await model.embed(TEXTS)
    assert found.vectors == tuple(map(lexical_vector, TEXTS))
    assert {DIMENSIONS} == {len(vector) for vector in found.vectors}
    assert ("estimate", True) == (found.usage.source, found.usage.input_tokens > 20)
    short = await model.embed(TEXTS[:1], dimensions=64)
    assert [64] == [len(vector) for vector in short.vectors]


@pytest.mark.parametrize(
    ("texts", "dimensions", "named"),
    [
        ([], None, "0 texts"),
        (["a"] * (MAX_TEXTS + 1), None, f"1 to {MAX_TEXTS}"),
        (["a", " \n"], None, "text 1 is empty"),
        (["x" * (MAX_TEXT_CHARS + 1)], None, "text 0 has"),
        (["x" * MAX_TEXT_CHARS] * (MAX_ALL_CHARS // MAX_TEXT_CHARS + 1), None, "in all"),
        (["a"] * 2_000, 1_573, "2000 texts of 1573 dimensions .* at most 1999 texts"),
        (["a"], 0, "0 dimensions"),
        (["a"], MAX_DIMENSIONS + 1, "dimensions"),
    ],
)
async def test_what_cannot_be_embedded_is_refused(
    texts: list[str], dimensions: int | None, named: str
) -> None:
    """With the bound; what is just inside passes."""
    with pytest.raises(InvalidParams, match=named):
        await EmbeddedEmbeddings(run_sync).embed(texts, dimensions=dimensions)
    check_texts(["a"] * MAX_TEXTS, MAX_NUMBERS // MAX_TEXTS)
    check_texts(["a"], MAX_DIMENSIONS)
    check_texts(["x" * MAX_TEXT_CHARS] * (MAX_ALL_CHARS // MAX_TEXT_CHARS), 1)
