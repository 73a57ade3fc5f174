"""A real daemon with two real providers on loopback: the first is down, the second answers."""

from pathlib import Path

import pytest

from palyra.core.tape import events as ev
from tests.cli.command import palyra
from tests.e2e.daemon_process import running
from tests.e2e.tapes import read_whole
from tests.e2e.test_providers import ask
from tests.models.provider import STREAM, provider, refusal, sse

pytestmark = pytest.mark.real

CONFIG = """
[models]
default = "first/m"
failover = ["second/m"]
providers = [
  {{ name = "first", base_url = "{first}" }},
  {{ name = "second", base_url = "{second}" }},
]
"""
ANSWER = (
    {"id": "c1", "choices": [{"index": 0, "delta": {"content": "served by the second"}}]},
    {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    "[DONE]",
)


async def test_the_second_provider_serves(tmp_path: Path) -> None:
    """After three answers of 503 the turn is the other one's, and the list shows the breaker.

    A request over HTTP gets the same, and is told which model spoke.
    """
    down, answer = refusal(503, {"error": {"message": "down"}}), [STREAM, sse(*ANSWER)]
    async with provider(*[[down]] * 3) as first, provider(answer, answer) as second:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        config = CONFIG.format(first=first.url, second=second.url)
        (home / "palyra.toml").write_text(config, encoding="utf-8")
        with running(tmp_path) as daemon:
            async with daemon.connect() as client:
                started = await client.start_run("hello")
                await client.wait_run(started.run_id)
                run = await client.get_run(started.run_id)
                events = await read_whole(client, started.run_id)
                models = await client.list_models()
            status, made = await ask(daemon)
    assert ("done", "second/m") == (run.state, run.model)
    assert (3, 2) == (len(first.bodies), len(second.bodies))
    assert (200, "default", "second/m", "served by the second") == (
        status, made["model"], made["palyra"]["model"], made["choices"][0]["message"]["content"],
    )  # fmt: skip
    assert first.bodies[0]["messages"] == second.bodies[0]["messages"]
    asked = [each.event.model for each in events if isinstance(each.event, ev.TurnStarted)]
    assert [*["first/m"] * 3, "second/m"] == asked
    (changed,) = (each.event for each in events if isinstance(each.event, ev.RouteChanged))
    assert ("first/m", "second/m") == (changed.from_model, changed.model)
    assert "unavailable" == changed.reason
    breakers = {each.provider: each.breaker for each in models.models}
    assert {"first": "open", "second": "closed", "scripted": "closed"} == breakers


@pytest.mark.parametrize("style", [(), ("--json",)])
async def test_a_person_may_fail_fast(tmp_path: Path, style: tuple[str, ...]) -> None:
    """The run is cancelled at the first failure that would be waited for; the command says why."""
    busy = refusal(429, {"error": {"message": "slow down"}}, "retry-after: 100")
    async with provider([busy]) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        config = f'[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{served.url}" }}]\n'
        (home / "palyra.toml").write_text(config, encoding="utf-8")
        with running(tmp_path) as daemon:
            done = await palyra("run", "hello", "--fail-fast", *style, home=home)
            async with daemon.connect() as client:
                (run,) = (await client.list_runs()).runs
    assert (1, 1) == (done.code, len(served.bodies)), done.err
    assert "the model failed: rate_limited: HTTP 429: slow down" in done.err
    assert ("cancelled", "--fail-fast: rate_limited") == (run.state, run.reason)
