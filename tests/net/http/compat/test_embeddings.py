"""The answer of `/v1/embeddings`: made away from the event loop, and as OpenAI's SDK reads it."""

import base64
import json
import struct
import threading
from collections.abc import Sequence

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.embeddings import Embeddings
from palyra.net.http.compat import embeddings
from palyra.net.http.compat.embeddings import Embedding, EmbeddingList, EmbeddingsRequest, embed
from palyra.net.http.compat.errors import ModelNotFound
from palyra.net.http.compat.sources import CompatSources
from tests.net.api.fake_services import open_daemon
from tests.net.http.compat.test_run_request import ANN


class Embedder:
    """Two numbers a text."""

    name = "p/e"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        self.asked.append(principal)
        vectors = tuple((float(at), -0.5) for at in range(len(texts)))
        return Embeddings(vectors=vectors, usage=Usage(input_tokens=dimensions or 7))


async def ask(**fields: object) -> tuple[Embedder, bytes]:
    async with open_daemon() as daemon:
        model = Embedder()
        sources = CompatSources(
            backend=daemon.backend, models={}, embeddings=model, embedding_aliases=("small",)
        )
        request = msgspec.convert({"model": "p/e", **fields}, EmbeddingsRequest)
        return model, await embed(sources, ANN, request)


async def test_the_answer_is_a_list_of_vectors_by_index() -> None:
    """The caller's account is charged; base64 has the same vectors."""
    model, plain = await ask(input=["a", "b"])
    found = msgspec.json.decode(plain, type=EmbeddingList)
    assert [Embedding(embedding=[float(at), -0.5], index=at) for at in (0, 1)] == found.data
    assert ("p/e", 7, "list") == (found.model, found.usage.total_tokens, found.object)
    assert [ANN.principal] == model.asked
    _, packed = await ask(input="a", encoding_format="base64")
    (card,) = json.loads(packed)["data"]
    assert (0.0, -0.5) == struct.unpack("<2f", base64.b64decode(card["embedding"]))


async def test_it_is_encoded_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of numbers are not written on the event loop."""
    threads: list[int] = []
    encode = embeddings._encode

    def noted(made: Embeddings, request: EmbeddingsRequest) -> bytes:
        threads.append(threading.get_ident())
        return encode(made, request)

    monkeypatch.setattr(embeddings, "_encode", noted)
    await ask(input="a")
    assert threads
    assert threading.get_ident() not in threads


async def test_an_alias_is_the_same_model() -> None:
    """A program with a fixed name gets the vectors, under its name; another name lists them all."""
    _, made = await ask(model="small", input="a")
    assert "small" == json.loads(made)["model"]
    refused = pytest.RaisesExc(ModelNotFound, match="available: p/e, small")
    with pytest.RaisesGroup(refused, flatten_subgroups=True):
        await ask(model="large", input="a")
