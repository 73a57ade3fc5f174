"""Reasoning behind calls that a client answers in its next request goes back to the provider."""

import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.daemon_process import DaemonProcess, running
from tests.models.provider import STREAM, provider, sse

pytestmark = pytest.mark.real

CONFIG = '[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{url}" }}]\n'
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_numbers = itertools.count(1)


def turn(delta: dict[str, Any], end: str) -> list[bytes]:
    """An answer of the provider."""
    head = {"id": f"c{next(_numbers)}"}
    chunks = ({"delta": delta}, {"delta": {}, "finish_reason": end})
    return [STREAM, sse(*({**head, "choices": [{"index": 0, **one}]} for one in chunks), "[DONE]")]


def call(thought: str) -> list[bytes]:
    """A turn that thinks, then calls the client's tool."""
    called = {"index": 0, "id": "call_x", "function": {"name": "look", "arguments": "{}"}}
    return turn({"reasoning_content": thought, "tool_calls": [called]}, "tool_calls")


async def ask(daemon: DaemonProcess, messages: list[Any]) -> dict[str, Any]:
    """Send the whole conversation, as clients do; the answer's message, as they keep it."""
    url, head = f"http://127.0.0.1:{daemon.port}", {"authorization": f"Bearer {daemon.token}"}
    body = {"model": "default", "messages": messages, "tools": [TOOL]}
    async with httpx.AsyncClient(base_url=url, headers=head, trust_env=False) as client:
        answer = await client.post("/v1/chat/completions", json=body, timeout=60)
    assert 200 == answer.status_code, answer.text
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return {key: message.get(key) for key in ("role", "content", "tool_calls")}


def result(message: dict[str, Any]) -> dict[str, Any]:
    """The client's answer to the only call of a message."""
    (made,) = message["tool_calls"]
    return {"role": "tool", "tool_call_id": made["id"], "content": "seen"}


async def test_reasoning_goes_back_with_the_results(tmp_path: Path) -> None:
    """Over three requests, of which each sends all, and over a killed daemon between two of them."""
    answers = (call("first thought"), call("second thought"), turn({"content": "done"}, "stop"))
    async with provider(*answers) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        with running(tmp_path) as daemon:
            messages: list[Any] = [{"role": "user", "content": "look twice"}]
            for _ in range(2):
                message = await ask(daemon, messages)
                messages += [message, result(message)]
                await daemon.restart()
            assert "done" == (await ask(daemon, messages))["content"]
    thoughts = [
        [each.get("reasoning_content") for each in body["messages"] if each["role"] == "assistant"]
        for body in served.bodies
    ]
    assert [[], ["first thought"], ["first thought", "second thought"]] == thoughts
