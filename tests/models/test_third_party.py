"""The three dialects against a third-party server (`mock-ai-api` from PyPI)."""

import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import trio

from palyra.core.model.messages import Delta, ModelFailure, ModelTurn
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT
from palyra.models.dialect import Dialect
from palyra.models.http_exchange import ProviderEndpoint, open_client
from palyra.models.http_model import HttpModel
from palyra.models.responses import RESPONSES
from tests.models.model_kit import REQUEST
from tests.optional import needs

MOCK = Path(sys.prefix, "mock")
MOCK_PYTHON = str(MOCK / "bin" / "python")
pytestmark = [
    pytest.mark.real,
    needs("mock-ai-api", is_found=(MOCK / "bin" / "mock-ai-api").exists()),
]
Urls = dict[str, str]
DIALECTS: dict[str, tuple[Dialect, str, str]] = {
    "chat": (CHAT, "openai", "gpt-4.1"),
    "responses": (RESPONSES, "openai", "gpt-4.1"),
    "anthropic": (ANTHROPIC, "anthropic", "claude-sonnet-4"),
}


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    """One server of each provider's API."""
    with serving("openai") as openai, serving("anthropic") as anthropic:
        yield {"openai": openai, "anthropic": anthropic}


@contextmanager
def serving(provider: str) -> Generator[str]:
    """Start the server and yield its address; the server is killed at the end of the block.

    The package's own launcher starts its servers in sessions of their own and leaves them behind,
    so each is started directly, with a socket that listens already: no port is guessed.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        number = listener.fileno()
        process = subprocess.Popen(
            [MOCK_PYTHON, "-m", "uvicorn", f"app.{provider}_app:app", "--fd", str(number)],
            pass_fds=[number],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield url
    finally:
        process.kill()
        process.wait()


async def ask(urls: Urls, name: str, scenario: str) -> tuple[ModelTurn, list[Delta]]:
    """Return the turn that the server plays for the scenario."""
    dialect, provider, model = DIALECTS[name]
    numbers, deltas = count(), list[Delta]()

    async def find_key() -> str:
        await trio.lowlevel.checkpoint()
        return "sk-anything"

    async with open_client() as client:
        endpoint = ProviderEndpoint(
            provider=provider,
            base_url=urls[provider],
            dialect=dialect,
            model=f"{model}:{scenario}" if scenario else model,
        )
        asked = HttpModel(
            name, endpoint, client, find_key,
            new_id=lambda prefix: f"{prefix}_{next(numbers)}", now_ms=lambda: 0,
        )  # fmt: skip
        return await asked.stream(REQUEST, deltas.append), deltas


@pytest.mark.parametrize("name", DIALECTS)
async def test_it_takes_our_requests_and_we_read_its_answers(urls: Urls, name: str) -> None:
    """Text that streams, an end, and usage as the server counted it."""
    turn, deltas = await ask(urls, name, "")
    assert turn.text
    assert turn.text == "".join(delta.text for delta in deltas)
    assert ("stop", "provider", True) == (
        turn.finish_reason, turn.usage.source, turn.usage.output_tokens > 0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["chat", "anthropic"])
async def test_a_tool_call_streams_in_fragments(urls: Urls, name: str) -> None:
    """And is put together."""
    turn, _ = await ask(urls, name, "mock-tool-stream")
    (call,) = turn.calls
    assert ("tool_calls", "Write", ["contents", "path"]) == (
        turn.finish_reason, call.tool, sorted(call.arguments),
    )  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    ("scenario", "failure_class"),
    [
        ("mock-400", "invalid_request"),
        ("mock-401", "auth"),
        ("mock-429", "rate_limited"),
        ("mock-500", "transient"),
        ("mock-503", "unavailable"),
    ],
)
async def test_its_refusals_have_their_class(
    urls: Urls, name: str, scenario: str, failure_class: str
) -> None:
    """As it words them."""
    with pytest.raises(ModelFailure) as caught:
        await ask(urls, name, scenario)
    assert caught.value.failure_class == failure_class


async def test_an_error_inside_a_stream(urls: Urls) -> None:
    """Comes out as a failure, not as an answer."""
    with pytest.raises(ModelFailure):
        await ask(urls, "anthropic", "mock-stream-error")
