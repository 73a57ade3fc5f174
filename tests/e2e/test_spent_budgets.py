"""A budget that is spent, as the SDKs see it: their own error of a limit, at once and only once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import openai
import pytest
import trio

from palyra.client import Client
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import make_token

pytestmark = pytest.mark.real


class Apis:
    """The three ways to ask, with the SDKs' own patience: they would ask twice more."""

    def __init__(self, daemon: DaemonProcess, token: str) -> None:
        url = f"http://127.0.0.1:{daemon.port}"
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key=token)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key=token)

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()

    def ask(self, name: str, text: str, *, is_stream: bool) -> None:
        """All of one answer."""
        said: Any = [{"role": "user", "content": text}]
        create: Any = {
            "chat": lambda: self.openai.chat.completions.create(
                model="scripted", messages=said, stream=is_stream
            ),
            "responses": lambda: self.openai.responses.create(
                model="scripted", input=text, stream=is_stream
            ),
            "messages": lambda: self.anthropic.messages.create(
                model="scripted", max_tokens=99, messages=said, stream=is_stream
            ),
        }[name]
        made = create()
        if is_stream:
            for _ in made:
                pass


@asynccontextmanager
async def spender(daemon: DaemonProcess, name: str) -> AsyncGenerator[tuple[Client, Apis]]:
    """A principal whose first call is followed by a limit for one more."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", name)
        apis = Apis(daemon, token)
        try:
            await trio.to_thread.run_sync(lambda: apis.ask("chat", "/say zero", is_stream=False))
            used = (await operator.sum_usage(principal=name)).total
            hard = 5 * (used.input_tokens + used.output_tokens) // 2
            await operator.set_budget(
                name, scope="principal", subject=name, metric="tokens", window="hour", hard=hard
            )
            yield operator, apis
        finally:
            apis.close()


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
async def test_a_spent_budget_is_the_sdks_own_limit(
    daemon: DaemonProcess, name: str, *, is_stream: bool
) -> None:
    """429 with the daemon's code and the budget's name; no model is called, and no SDK retries."""
    who = f"{name}-{is_stream}".lower()
    async with spender(daemon, who) as (operator, apis):
        await trio.to_thread.run_sync(lambda: apis.ask(name, "/say one", is_stream=is_stream))
        kinds = (openai.RateLimitError, anthropic.RateLimitError)
        with pytest.raises(kinds) as refused:
            await trio.to_thread.run_sync(lambda: apis.ask(name, "/say two", is_stream=is_stream))
        runs = await operator.list_runs(principal=who)
        usage = await operator.sum_usage(principal=who)
    response = cast("Any", refused.value).response
    error = response.json()["error"]
    assert ("budget_exceeded", "rate_limit_error") == (error["code"], error["type"])
    assert f"budget {who!r}" in error["message"]
    assert "false" == response.headers["x-should-retry"]
    assert (3, 2) == (len(runs.runs), usage.total.calls)


async def test_a_budget_that_ends_in_the_middle(daemon: DaemonProcess) -> None:
    """Sent text stays; the SDK then raises, with the daemon's code."""
    text = '/say one\n/call read_file {"path": "none"}\n/then\n/say two'
    async with spender(daemon, "middle") as (_, apis):
        with pytest.raises(openai.APIError) as failed:
            await trio.to_thread.run_sync(lambda: apis.ask("chat", text, is_stream=True))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await trio.to_thread.run_sync(lambda: apis.ask("messages", text, is_stream=True))
    assert "budget_exceeded" == failed.value.code
    assert "budget_exceeded" in str(refused.value)
