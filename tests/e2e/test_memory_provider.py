"""A real daemon whose memory is embedded by a provider over HTTP."""

from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.client import Client
from tests.e2e.daemon_process import running
from tests.models.provider import Piece, provider, refusal

pytestmark = pytest.mark.real

CONFIG = """
[models]
providers = [{{ name = "p", base_url = "{url}" }}]
[memory]
embedder = "p/e"
"""


def answer(*vectors: list[float]) -> list[Piece]:
    data = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return [refusal(200, {"object": "list", "data": data, "usage": {"prompt_tokens": 5}})]


async def wait_embedded(client: Client) -> None:
    with trio.fail_after(120):
        while "hybrid" != (await client.get_memory_status()).mode:
            await trio.lowlevel.checkpoint()


async def test_a_provider_embeds_the_memory(tmp_path: Path) -> None:
    """Items and questions are sent to it, paid for, and found by their vectors; when it fails, by words."""
    answers: list[Any] = [
        answer([1.0, 0.0, 0.0, 0.0]),
        answer([0.9, 0.1, 0.0, 0.0]),
        [refusal(500, {"error": {"message": "out of order"}})],
    ]
    async with provider(*answers) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        with running(tmp_path) as daemon:
            async with daemon.connect() as client:
                await client.add_memory("Ann owns a boat", kind="fact")
                await client.search_memories("boat")
                await wait_embedded(client)
                found = await client.search_memories("a ship")
                assert ("hybrid", ["Ann owns a boat"]) == (
                    found.mode,
                    [hit.text for hit in found.hits],
                )
                assert found.hits[0].parts.vector > 1
                spent = await client.sum_usage(by="model")
                assert [("p/e", 2, 10)] == [
                    (each.key, each.calls, each.input_tokens) for each in spent.groups
                ]
                down = await client.search_memories("whose boat?")
                assert ("lexical", ["Ann owns a boat"]) == (
                    down.mode,
                    [hit.text for hit in down.hits],
                )
                assert "out of order" in (down.degraded or "")
    assert [["Ann owns a boat"], ["a ship"], ["whose boat?"]] == [
        body["input"] for body in served.bodies
    ]


async def test_a_provider_re_ranks_the_hits(tmp_path: Path) -> None:
    """The model's order is that of the search and is paid for; when it fails, the own order stays."""
    scores = [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]
    answers: list[Any] = [
        [refusal(200, {"results": scores, "usage": {"total_tokens": 30}})],
        [refusal(500, {"error": {"message": "out of order"}})],
    ]
    async with provider(*answers) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        config = CONFIG.format(url=served.url).replace('embedder = "p/e"', 'reranker = "p/r"')
        (home / "palyra.toml").write_text(config, encoding="utf-8")
        with running(tmp_path) as daemon:
            async with daemon.connect() as client:
                await client.add_memory("the boat of Ann is called Heron", kind="fact")
                await client.add_memory("the harbour closes at ten for every boat", kind="fact")
                own = await client.search_memories("what is the boat of Ann called?")
                moved = await client.search_memories("what is Ann's boat called?", limit=1)
                spent = await client.sum_usage(by="model")
    assert ["the boat of Ann is called Heron"] == [hit.text for hit in moved.hits]
    assert "out of order" in (moved.degraded or "")
    assert "the harbour closes at ten for every boat" == own.hits[0].text
    assert own.hits[0].parts.rerank > 0 > own.hits[1].parts.rerank
    assert [("p/r", 30)] == [(each.key, each.input_tokens) for each in spent.groups if each.calls]
    body = served.bodies[0]
    assert ("r", "what is the boat of Ann called?") == (body["model"], body["query"])
    assert next(text.partition(" ")[2] for text in body["documents"]).startswith("the boat of Ann")
