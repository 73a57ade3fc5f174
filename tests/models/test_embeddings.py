"""Embeddings of a provider: batches, order by index, every malformed answer, guards."""

import json
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.records import Usage
from palyra.core.model.embeddings import MAX_NUMBERS, MAX_TEXTS, Embeddings, Vector
from palyra.core.model.messages import ModelFailure
from palyra.errors import InvalidParams
from palyra.models import embeddings
from palyra.models.embeddings import BATCH_CHARS, BATCH_TEXTS, HttpEmbeddings, batches
from palyra.models.guarded import CallSlots, GuardedEmbeddings, ProviderLimits
from tests.models.memory_provider import MemoryBackend
from tests.models.model_kit import KEY, endpoint, find_key, memory_client
from tests.models.provider import Provider, refusal
from tests.rows import every_row


def answer(*vectors: Any, **more: Any) -> bytes:
    """Vectors as a provider sends them, in order."""
    data = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return refusal(200, {"object": "list", "data": data, **more})


@asynccontextmanager
async def asked(*answers: bytes) -> AsyncGenerator[tuple[Provider, HttpEmbeddings]]:
    """A provider that answers so, one after the other, and a model in front of it."""
    served = Provider(url="http://provider.test/v1", answers=[[each] for each in answers])
    async with memory_client(MemoryBackend(served)) as client:
        made = HttpEmbeddings(
            "p/e", endpoint(served.url), client, find_key, now_ms=lambda: 0, run_blocking=run_sync
        )
        yield served, made


async def test_vectors_come_in_the_order_of_the_texts() -> None:
    """By their index, however they are sent; usage is the provider's."""
    data = [{"index": 1, "embedding": [3, 4.5]}, {"index": 0, "embedding": [1.0, -2]}]
    async with asked(refusal(200, {"data": data, "usage": {"prompt_tokens": 9}})) as (
        served,
        model,
    ):
        found = await model.embed(["one", "two"], dimensions=2)
    assert ((1.0, -2.0), (3.0, 4.5)) == found.vectors
    assert Usage(input_tokens=9, source="provider") == found.usage
    assert {"model": "big", "input": ["one", "two"], "encoding_format": "float",
            "dimensions": 2} == served.bodies[0]  # fmt: skip
    assert served.heads[0].startswith("post /v1/embeddings ")
    assert f"authorization: bearer {KEY}" in served.heads[0]


async def test_many_texts_are_several_requests() -> None:
    """Batches keep the order; if one has no usage, the sum is marked as an estimate."""
    texts = [f"text {number}" for number in range(BATCH_TEXTS + 1)]
    first = answer(*([number] for number in range(BATCH_TEXTS)), usage={"prompt_tokens": 64})
    async with asked(first, answer([64])) as (served, model):
        found = await model.embed(texts)
    assert tuple((float(number),) for number in range(BATCH_TEXTS + 1)) == found.vectors
    assert ("estimate", True) == (found.usage.source, found.usage.input_tokens > 64)
    assert [texts[:BATCH_TEXTS], texts[BATCH_TEXTS:]] == [body["input"] for body in served.bodies]
    assert "dimensions" not in served.bodies[0]


async def test_a_failure_reports_the_usage_of_earlier_batches() -> None:
    """A failed batch raises with the usage of the batches that were delivered before it."""
    texts = [f"text {number}" for number in range(BATCH_TEXTS + 1)]
    first = answer(*([1] for _ in range(BATCH_TEXTS)), usage={"prompt_tokens": 64})
    for answers, told in (([first, refusal(503, b"")], 64), ([refusal(503, b"")], 0)):
        async with asked(*answers) as (_, model):
            with pytest.raises(ModelFailure) as caught:
                await model.embed(texts)
        assert told == caught.value.usage.input_tokens


async def test_a_key_that_is_lost_on_the_way_leaves_a_call() -> None:
    """The first request was made; without one there was none."""
    texts = [f"text {number}" for number in range(BATCH_TEXTS + 1)]
    first = answer(*([1] for _ in range(BATCH_TEXTS)), usage={"prompt_tokens": 64})
    for keys, was_asked in (([KEY], True), ([], False)):
        async with asked(first) as (_, model):

            async def find_key(keys: list[str] = keys) -> str:
                await trio.lowlevel.checkpoint()
                return keys.pop() if keys else "no\nkey"

            model._exchange._find_key = find_key
            with pytest.raises(ModelFailure) as caught:
                await model.embed(texts)
        assert was_asked == caught.value.was_asked


async def test_more_numbers_than_one_answer_holds_are_not_asked_for() -> None:
    """Once the first answer shows how long the model's vectors are; that one is paid for."""
    texts = ["text"] * MAX_TEXTS
    long = [1] * (MAX_NUMBERS // MAX_TEXTS + 1)
    first = answer(*([long] * BATCH_TEXTS), usage={"prompt_tokens": 64})
    async with asked(first, first) as (served, model):
        with pytest.raises(ModelFailure, match="2048 texts of 1537 dimensions") as caught:
            await model.embed(texts)
    assert ("invalid_request", 64) == (
        caught.value.failure_class,
        caught.value.usage.input_tokens,
    )
    assert 1 == len(served.bodies)


async def test_answers_are_decoded_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding answers are decoded in a worker thread, not on the event loop."""
    threads: list[int] = []
    decode = embeddings._decode

    def noted(data: bytes, count: int) -> Any:
        threads.append(threading.get_ident())
        return decode(data, count)

    monkeypatch.setattr(embeddings, "_decode", noted)
    async with asked(answer([1.0])) as (_, model):
        await model.embed(["one"])
    assert threads
    assert threading.get_ident() not in threads


@every_row(
    "sizes", [[1], [BATCH_CHARS], [BATCH_CHARS + 1], [BATCH_CHARS, 1], [1] * 200, [70_000] * 7]
)
def test_batches_hold_every_text_once(sizes: list[int]) -> None:
    """In order and within both bounds, but for a text that is too long alone."""
    texts = ["x" * size for size in sizes]
    found = list(batches(texts))
    assert texts == [text for batch in found for text in batch]
    for batch in found:
        assert 0 < len(batch) <= BATCH_TEXTS
        assert len(batch) == 1 or sum(map(len, batch)) <= BATCH_CHARS
    wanted = -(-len(texts) // BATCH_TEXTS) if max(sizes) == 1 else None
    assert wanted in {None, len(found)}


@pytest.mark.parametrize(
    ("told", "failure_class"),
    [
        (answer([1.0]), "malformed"),
        (answer([1.0], [2.0], [3.0]), "malformed"),
        (answer([1.0], []), "malformed"),
        (answer([1.0], [1.0, 2.0]), "malformed"),
        (answer([1.0], ["x"]), "malformed"),
        (answer([1.0], None), "malformed"),
        (refusal(200, {"data": [{"index": 0, "embedding": [1]}] * 2}), "malformed"),
        (refusal(200, {"data": [{"index": at, "embedding": [1]} for at in (1, 2)]}), "malformed"),
        (refusal(200, b'{"data": [{"index": 0, "embedding": [1e999]}, {"index": 1, "embedding": [1]}]}'),
         "malformed"),
        (refusal(200, b"{"), "malformed"),
        (refusal(200, b"[" * 9_999), "malformed"),
        (refusal(200, {"error": {"code": 429, "message": "slow down"}}), "rate_limited"),
        (refusal(401, {"error": {"message": f"bad key {KEY}"}}), "auth"),
        (refusal(400, {"error": {"message": "input is too long"}}), "context_overflow"),
        (refusal(404, b""), "invalid_request"),
        (refusal(429, b""), "rate_limited"),
        (refusal(503, b""), "unavailable"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{", "transient"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + b" " * 16_777_217,
         "malformed"),
    ],
)  # fmt: skip
async def test_what_is_no_vector_for_each_text_is_a_failure(
    told: bytes, failure_class: str
) -> None:
    """An answer without one valid vector for each text is a model failure without the key in it."""
    async with asked(told) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await model.embed(["one", "two"])
    assert caught.value.failure_class == failure_class
    assert KEY not in caught.value.message


async def test_dimensions_that_the_provider_does_not_keep() -> None:
    """Vectors of another length than requested are a failure and never cut."""
    async with asked(answer([1.0, 2.0, 3.0])) as (_, model):
        with pytest.raises(ModelFailure, match="2 dimensions asked, 3 given") as caught:
            await model.embed(["one"], dimensions=2)
    assert "invalid_request" == caught.value.failure_class


async def test_texts_are_checked_before_the_request() -> None:
    """Invalid texts are refused before a request and do not count against the provider."""
    async with asked() as (served, model):
        guard = ProviderLimits("p", "", CallSlots(), lambda: 0)
        with pytest.raises(InvalidParams, match="text 1 is empty"):
            await GuardedEmbeddings(model, guard).embed(["a", ""])
    assert ([], 0) == (served.heads, guard.breaker(model.name).failures)


class Slow:
    """A model that embeds for a second."""

    name, provider = "p/e", "p"

    def __init__(self) -> None:
        self.failures = 0

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        await trio.sleep_until(trio.current_time() + 1)
        if self.failures:
            self.failures -= 1
            raise ModelFailure("transient", "as planned")
        vectors: tuple[Vector, ...] = tuple((1.0,) * (dimensions or 2) for _ in texts)
        return Embeddings(vectors=vectors)


async def test_embeddings_share_the_limits_of_turns(autojump_clock: MockClock) -> None:
    """Embeddings obey the slots of their key and the breaker, and pass their arguments on."""
    inner = Slow()
    guard = ProviderLimits(
        "p", "env:KEY", CallSlots(4, 2), lambda: round(trio.current_time() * 1000)
    )
    model = GuardedEmbeddings(inner, guard)
    assert ("p/e", "p") == (model.name, model.provider)
    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(model.embed, ["a"])
    assert trio.current_time() - begun_s == pytest.approx(2)
    assert ((1.0,) * 5,) == (await model.embed(["a"], dimensions=5)).vectors
    inner.failures = 3
    for _ in range(3):
        with pytest.raises(ModelFailure, match="as planned"):
            await model.embed(["a"])
    with pytest.raises(ModelFailure, match="left alone"):
        await model.embed(["a"])
    assert 0 == guard.leases.held == guard.leases.waiting


def test_the_answer_of_these_tests_is_json() -> None:
    """A control: what is refused above is not refused for the helper's sake."""
    body = answer([1.0], [2.0]).partition(b"\r\n\r\n")[2]
    assert [[1.0], [2.0]] == [item["embedding"] for item in json.loads(body)["data"]]


async def test_turns_go_first(autojump_clock: MockClock) -> None:
    """A waiting turn gets a slot before an embedding that was queued earlier."""
    guard = ProviderLimits("p", "env:KEY", CallSlots(1, 1), lambda: 0)
    order: list[str] = []

    async def embed() -> None:
        await GuardedEmbeddings(Slow(), guard).embed(["a"])
        order.append("embedding")

    async def ask_model(name: str) -> None:
        async with guard.call("p/m", is_background=False):
            await trio.sleep_until(trio.current_time() + 1)
        order.append(name)

    async with trio.open_nursery() as nursery:
        for task in (lambda: ask_model("first"), embed, lambda: ask_model("second")):
            nursery.start_soon(task)
            await wait_all_tasks_blocked()
    assert ["first", "second", "embedding"] == order
