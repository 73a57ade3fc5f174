"""A real daemon between a real provider and a client: what streams, what fails, what is forced."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.client import TapeEvent
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.tapes import read_whole
from tests.models.model_kit import chunk
from tests.models.provider import STREAM, Piece, Provider, provider, refusal, sse
from tests.net.server.peers import RawPeer

pytestmark = pytest.mark.real

CONFIG = '[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{url}" }}]\n'
END = {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
FINE = [STREAM, sse(chunk(content="fine"), END, "[DONE]")]


@asynccontextmanager
async def serving(
    tmp_path: Path, *answers: Sequence[Piece]
) -> AsyncGenerator[tuple[Provider, DaemonProcess]]:
    """A daemon with one provider, which gives these answers."""
    async with provider(*answers) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        with running(tmp_path) as daemon:
            yield served, daemon


@asynccontextmanager
async def asking(
    daemon: DaemonProcess, path: str = "/v1/chat/completions", **more: Any
) -> AsyncGenerator[RawPeer]:
    """A pending request, whose answer is not read yet."""
    asked = {"model": "default", "messages": [{"role": "user", "content": "go on"}], **more}
    body = json.dumps(asked).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n"
        f"Authorization: Bearer {daemon.token}\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", daemon.port) as stream:
        peer = RawPeer(stream)
        await peer.send(head.encode() + body)
        yield peer


async def ask(
    daemon: DaemonProcess, path: str = "/v1/chat/completions", **more: Any
) -> tuple[int, Any]:
    """Status and JSON of a whole answer."""
    async with asking(daemon, path, **more) as peer:
        head, _, text = (await peer.read_to_end()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


async def read_tape(daemon: DaemonProcess, run_id: str) -> list[TapeEvent]:
    async with daemon.connect() as client:
        return await read_whole(client, run_id)


async def test_a_delta_is_passed_on_before_the_provider_has_finished(tmp_path: Path) -> None:
    """The provider continues only after the client has read its delta; all deltas are the text."""
    seen = trio.Event()
    words = ["one two ", "three", "\u2028", " four"]
    first, *rest = (sse(chunk(content=word)) for word in words)
    answer: list[Piece] = [STREAM, first, seen.wait, *rest, sse(END, "[DONE]")]
    async with serving(tmp_path, answer) as (_, daemon), asking(daemon, stream=True) as peer:
        with trio.fail_after(120):
            head = await peer.read_until(b'"content":"one')
            seen.set()
            stream = head + await peer.read_until(b"data: [DONE]\n\n")
        lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
        chunks = [json.loads(line) for line in lines]
        tape = await read_tape(daemon, chunks[0]["palyra"]["run_id"])
    said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
    turns = [each.event.text for each in tape if isinstance(each.event, ev.TurnCompleted)]
    assert ["".join(words)] == turns == [said]


# What the provider answers, the status of ours, our code, and how often it is asked.
FAILURES = [
    (refusal(401, {"error": {"message": "bad key"}}), 502, "auth"),
    (refusal(402, {}), 429, "quota"),
    (refusal(403, b""), 502, "auth"),
    (refusal(400, {"error": {"code": "context_length_exceeded"}}), 400, "context_overflow"),
    (refusal(400, {"error": {"code": "content_filter"}}), 400, "content_policy"),
    (refusal(400, {"error": {"message": "what?"}}), 400, "invalid_request"),
]
HALF = STREAM + sse(chunk(content="fi"))


async def test_failures_without_a_retry(tmp_path: Path) -> None:
    """Each has its class, in the order of the table."""
    answers = [[answer] for answer, _, _ in FAILURES]
    async with serving(tmp_path, *answers, FINE) as (served, daemon):
        told = [await ask(daemon) for _ in FAILURES]
        assert 200 == (await ask(daemon))[0]
    assert [(status, code) for _, status, code in FAILURES] == [
        (status, answer["error"]["palyra"]["code"]) for status, answer in told
    ]
    assert len(FAILURES) + 1 == len(served.bodies)


async def test_a_malformed_answer_is_tried_once_more(tmp_path: Path) -> None:
    """A second one ends the run with its class."""
    broken = [STREAM + sse("{")]
    async with serving(tmp_path, broken, broken, broken, FINE) as (served, daemon):
        status, answer = await ask(daemon)
        assert (502, "malformed") == (status, answer["error"]["palyra"]["code"])
        assert 200 == (await ask(daemon))[0]
    assert 4 == len(served.bodies)


async def test_transient_failures_are_retried(tmp_path: Path) -> None:
    """429 with a date, 503, a connection that ends before or after the first delta: then the answer."""
    busy = refusal(429, {"error": {"message": "slow down"}}, "retry-after-ms: 5")
    answers = ([busy], [refusal(503, b"")], FINE, [b""], [HALF], FINE)
    async with serving(tmp_path, *answers) as (served, daemon):
        made = [await ask(daemon) for _ in range(2)]
    assert [(200, "fine")] * 2 == [
        (status, answer["choices"][0]["message"]["content"]) for status, answer in made
    ]
    assert 6 == len(served.bodies)


async def test_a_provider_without_the_required_call(tmp_path: Path) -> None:
    """It gets the guidance; its text does not pass as a call."""
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    called = chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "look"}}])
    calls = [STREAM, sse(called, END, "[DONE]")]
    forced: Any = {"tools": [look], "tool_choice": {**look, "function": {"name": "look"}}}
    async with serving(tmp_path, FINE, FINE, FINE, calls) as (served, daemon):
        (_, never), (_, late) = [await ask(daemon, **forced) for _ in range(2)]
    assert {"look"} == {
        tool["function"]["name"] for body in served.bodies for tool in body["tools"]
    }
    assert {"required"} == {body["tool_choice"] for body in served.bodies}
    (choice,), wanted = never["choices"], "the model did not call what it was to call: look"
    assert ("not_called", "stop", None, wanted) == (
        never["palyra"]["partial"], choice["finish_reason"],
        choice["message"]["content"], choice["message"]["refusal"],
    )  # fmt: skip
    assert "tool_calls" == late["choices"][0]["finish_reason"]
    assert "look" in served.bodies[1]["messages"][-1]["content"]


USED = {
    "prompt_tokens": 100,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 15},
    "completion_tokens_details": {"reasoning_tokens": 20},
}


async def test_tokens_are_counted_as_each_api_defines_them(tmp_path: Path) -> None:
    """Input with or without the cache; two turns of one run are summed."""
    answer: list[Piece] = [STREAM, sse(chunk(content="fine"), {**END, "usage": USED}, "[DONE]")]
    looks = chunk(tool_calls=[{"index": 0, "function": {"name": "list_dir"}}])
    first: list[Piece] = [STREAM, sse(looks, {**END, "usage": USED}, "[DONE]")]
    asked = [{"role": "user", "content": "go on"}]
    paths: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {}),
        ("/v1/responses", {"messages": None, "input": "go on"}),
        ("/v1/messages", {"messages": asked, "max_tokens": 99}),
    ]
    async with serving(tmp_path, first, answer, answer, answer) as (_, daemon):
        chat, responses, messages = [
            (await ask(daemon, path, **more))[1]["usage"] for path, more in paths
        ]
    assert chat == {
        "prompt_tokens": 200,
        "completion_tokens": 60,
        "total_tokens": 260,
        "prompt_tokens_details": {"cached_tokens": 120, "cache_write_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    assert responses == {
        "input_tokens": 100,
        "output_tokens": 30,
        "total_tokens": 130,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 15},
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    assert messages == {
        "input_tokens": 25,
        "cache_creation_input_tokens": 15,
        "cache_read_input_tokens": 60,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 20},
    }
