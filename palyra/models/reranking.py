"""Re-ranking over `POST /rerank` as Cohere and Jina define it and most servers of models offer it.

Sources: https://docs.cohere.com/reference/rerank, https://jina.ai/reranker (both 2026).  The answer has
`results` with `index` and `relevance_score`, best first or not; the usage is in `usage` or absent.
"""

from collections.abc import Sequence

import httpx
import msgspec

from palyra.core.journal.records import Usage
from palyra.core.model.messages import ModelFailure
from palyra.core.model.reranking import Reranking
from palyra.core.ports import NowMs
from palyra.core.text.tokens import estimate_tokens
from palyra.models.dialect import NO_JSON, Body, path_of
from palyra.models.embeddings import JSON, read_answer
from palyra.models.failures import stream_failure
from palyra.models.http_exchange import FindKey, ProviderEndpoint, ProviderRequest


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] = []
    usage: _Usage | None = None
    error: msgspec.Raw = NO_JSON


_ANSWER = msgspec.json.Decoder(_Answer)


class HttpReranker:
    """`core.ports.RerankModel` over an HTTP endpoint."""

    def __init__(
        self,
        name: str,
        endpoint: ProviderEndpoint,
        client: httpx.AsyncClient,
        find_key: FindKey,
        now_ms: NowMs,
    ) -> None:
        self.name = name
        self.provider = endpoint.provider
        self._model = endpoint.model
        self._path = path_of(endpoint.dialect.rerank, endpoint.model)
        self._exchange = ProviderRequest(endpoint, client, find_key, now_ms)

    async def rerank(self, question: str, texts: Sequence[str]) -> Reranking:
        """Return one score per text, in order.

        Raises ModelFailure.  Cancellation: the connection is closed.
        """
        body: Body = {
            "model": self._model, "query": question, "documents": texts, "top_n": len(texts),
        }  # fmt: skip
        async with self._exchange.post(self._path, body, JSON) as take_next:
            data = await read_answer(take_next)
        try:
            answer = _ANSWER.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ModelFailure("malformed", f"the scores cannot be read: {error}") from None
        if bytes(answer.error) != b"null":
            raise stream_failure(bytes(answer.error))
        told = None if answer.usage is None else answer.usage.total_tokens
        usage = Usage(input_tokens=tokens_of(question, texts))
        if told is not None:
            usage = Usage(input_tokens=told, source="provider")
        return Reranking(scores=_in_order(answer.results, len(texts)), usage=usage)


def tokens_of(question: str, texts: Sequence[str]) -> int:
    """Estimate the tokens that the model reads: the question with each of the texts."""
    return len(texts) * estimate_tokens(question) + sum(map(estimate_tokens, texts))


def _in_order(results: Sequence[_Result], count: int) -> tuple[float, ...]:
    """Sort the scores by index.  Raises ModelFailure (malformed) unless each text has one."""
    by_index = {each.index: each.relevance_score for each in results}
    if len(results) != count or by_index.keys() != set(range(count)):
        raise ModelFailure("malformed", f"{len(results)} scores for {count} texts, or not in a row")
    return tuple(by_index[at] for at in range(count))
