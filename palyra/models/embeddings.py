"""Embeddings over OpenAI's `POST /embeddings`, which most servers implement.

Source: https://platform.openai.com/docs/api-reference/embeddings.  Many texts are split into
several requests, sent one after another.  Vectors are ordered by their index.
"""

import math
from collections.abc import Iterator, Sequence

import httpx
import msgspec

from palyra.core.journal.records import Usage
from palyra.core.model.embeddings import Embeddings, Vector, check_texts, too_many
from palyra.core.model.messages import ModelFailure
from palyra.core.ports import NowMs, RunBlocking
from palyra.core.text.tokens import estimate_tokens
from palyra.models.dialect import NO_JSON, Body, path_of
from palyra.models.failures import stream_failure
from palyra.models.http_exchange import FindKey, ProviderEndpoint, ProviderRequest, TakeNext

JSON = "application/json"
BATCH_TEXTS = 64
BATCH_CHARS = 200_000  # servers also limit the tokens of a request
MAX_ANSWER_BYTES = 16_777_216  # 64 vectors of 8192 numbers with all digits are 12 MB


class _Item(msgspec.Struct):
    index: int
    embedding: Vector


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[msgspec.Raw] = []  # one per vector
    usage: _Usage | None = None
    error: msgspec.Raw = NO_JSON


_ANSWER = msgspec.json.Decoder(_Answer)
_ITEM = msgspec.json.Decoder(_Item)


class HttpEmbeddings:
    """`core.ports.EmbeddingModel` over an HTTP endpoint."""

    def __init__(
        self,
        name: str,
        endpoint: ProviderEndpoint,
        client: httpx.AsyncClient,
        find_key: FindKey,
        *,
        now_ms: NowMs,
        run_blocking: RunBlocking,
    ) -> None:
        self.name = name
        self._run_blocking = run_blocking
        self.provider = endpoint.provider
        self._model = endpoint.model
        self._path = path_of(endpoint.dialect.embeddings, endpoint.model)
        self._exchange = ProviderRequest(endpoint, client, find_key, now_ms)

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Return one vector per text, in order.

        Raises InvalidParams, ModelFailure.  Cancellation: the connection is closed.
        """
        check_texts(texts, dimensions)
        parts: list[Embeddings] = []
        for batch in batches(texts):
            try:
                parts.append(await self._ask(batch, dimensions))
                _check_size(len(texts), parts[-1])
            except ModelFailure as failure:
                if parts:
                    failure.usage = _sum([part.usage for part in parts])
                    failure.was_asked = True
                raise
        vectors = tuple(vector for part in parts for vector in part.vectors)
        if len({len(vector) for vector in vectors}) > 1:
            raise ModelFailure("malformed", "the vectors differ in length")
        return Embeddings(vectors=vectors, usage=_sum([part.usage for part in parts]))

    async def _ask(self, texts: Sequence[str], dimensions: int | None) -> Embeddings:
        body: Body = {"model": self._model, "input": texts, "encoding_format": "float"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        async with self._exchange.post(self._path, body, JSON) as take_next:
            data = await read_answer(take_next)
            usage, vectors = await self._run_blocking(_decode, data, len(texts))
        if dimensions is not None and any(len(vector) != dimensions for vector in vectors):
            found = len(vectors[0])
            raise ModelFailure("invalid_request", f"{dimensions} dimensions asked, {found} given")
        return Embeddings(vectors=vectors, usage=_usage(usage, texts))


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split the texts into requests of a size that servers accept; a single text may be longer."""
    start = chars = 0
    for at, text in enumerate(texts):
        if at > start and (at - start == BATCH_TEXTS or chars + len(text) > BATCH_CHARS):
            yield texts[start:at]
            start, chars = at, 0
        chars += len(text)
    yield texts[start:]


def _check_size(texts: int, part: Embeddings) -> None:
    """Raise ModelFailure if this many texts would give more numbers than one answer may hold."""
    if why := too_many(texts, len(part.vectors[0])):
        raise ModelFailure("invalid_request", why)


async def read_answer(take_next: TakeNext) -> bytes:
    """Read the whole answer.  Raises ModelFailure.  Cancellation: the rest is not read."""
    pieces: list[bytes] = []
    size = 0
    while (piece := await take_next()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise ModelFailure("malformed", f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return b"".join(pieces)


def _decode(data: bytes, count: int) -> tuple[_Usage | None, tuple[Vector, ...]]:
    """Decode usage and `count` vectors.  Blocks; yields the interpreter between two vectors."""
    try:
        answer = _ANSWER.decode(data)
        items = [_ITEM.decode(each) for each in answer.data]
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ModelFailure("malformed", f"the vectors cannot be read: {error}") from None
    if bytes(answer.error) != b"null":
        raise stream_failure(bytes(answer.error))
    return answer.usage, _in_order(items, count)


def _in_order(items: list[_Item], count: int) -> tuple[Vector, ...]:
    """Sort the vectors by index.  Raises ModelFailure (malformed) unless each text has one."""
    by_index = {item.index: item.embedding for item in items}
    if len(items) != count or by_index.keys() != set(range(count)):
        raise ModelFailure("malformed", f"{len(items)} vectors for {count} texts, or not in a row")
    vectors = tuple(by_index[at] for at in range(count))
    for vector in vectors:
        if not vector or not all(map(math.isfinite, vector)):
            raise ModelFailure("malformed", "a vector is empty, or holds what is no number")
    return vectors


def _usage(usage: _Usage | None, texts: Sequence[str]) -> Usage:
    if usage is None or usage.prompt_tokens is None:
        return Usage(input_tokens=sum(map(estimate_tokens, texts)))
    return Usage(input_tokens=usage.prompt_tokens, source="provider")


def _sum(parts: list[Usage]) -> Usage:
    is_told = all(part.source == "provider" for part in parts)
    return Usage(
        input_tokens=sum(part.input_tokens for part in parts),
        source="provider" if is_told else "estimate",
    )
