"""Re-ranking of a provider: the request, the scores by index, every malformed answer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.messages import ModelFailure
from palyra.models.reranking import HttpReranker
from tests.models.memory_provider import MemoryBackend
from tests.models.model_kit import KEY, endpoint, find_key, memory_client
from tests.models.provider import Provider, refusal


@asynccontextmanager
async def asked(answer: bytes) -> AsyncGenerator[tuple[Provider, HttpReranker]]:
    """A provider that answers so, and a re-ranker in front of it."""
    served = Provider(url="http://provider.test/v1", answers=[[answer]])
    async with memory_client(MemoryBackend(served)) as client:
        yield served, HttpReranker("p/r", endpoint(served.url), client, find_key, lambda: 0)


def results(*scores: tuple[int, Any]) -> dict[str, Any]:
    return {"results": [{"index": at, "relevance_score": score} for at, score in scores]}


async def test_scores_come_in_the_order_of_the_texts() -> None:
    """By their index, however they are sent; usage is the provider's, or an estimate."""
    told = {**results((1, 0.9), (0, 0.1)), "usage": {"total_tokens": 40}, "id": "x"}
    async with asked(refusal(200, told)) as (served, model):
        found = await model.rerank("who?", ["one", "two"])
    assert ((0.1, 0.9), Usage(input_tokens=40, source="provider")) == (found.scores, found.usage)
    assert {"model": "big", "query": "who?", "documents": ["one", "two"], "top_n": 2} == (
        served.bodies[0]
    )
    assert served.heads[0].startswith("post /v1/rerank ")
    assert f"authorization: bearer {KEY}" in served.heads[0]
    async with asked(refusal(200, results((0, 1)))) as (_, model):
        found = await model.rerank("who?", ["one"])
    assert ("estimate", True) == (found.usage.source, found.usage.input_tokens > 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (results((0, 0.5)), "1 scores for 2 texts"),
        (results((0, 0.5), (0, 0.6)), "not in a row"),
        (results((0, 0.5), (2, 0.6)), "not in a row"),
        (results((0, 0.5), (0, 0.6), (1, 0.7)), "3 scores for 2 texts"),
        (results((0, "high"), (1, 0.6)), "cannot be read"),
        (results((0, 1e999), (1, 0.6)), "cannot be read"),
        ([1, 2], "cannot be read"),
        ({}, "0 scores"),
        ({"error": {"message": "no such model"}}, "no such model"),
    ],
)
async def test_a_malformed_answer_is_a_failure(answer: Any, said: str) -> None:
    """No score is guessed."""
    async with asked(refusal(200, answer)) as (_, model):
        with pytest.raises(ModelFailure, match=said):
            await model.rerank("who?", ["one", "two"])
