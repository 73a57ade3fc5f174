"""Chat completions over HTTP compared with the same runs over the WebSocket, on one daemon.

Prints one JSON line: runs a second one after the other and 20 at once (HTTP: one request on a
kept-alive connection; WebSocket: `run.start`, `run.wait` on one connection), the time from a
streamed request to its first piece of text, and how fast a stream of 100 000 deltas is delivered.
The raw limit in the same run is `/healthz`, which is HTTP without a run.  Medians of several rounds.
"""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import trio
from _machine import calibrate

from palyra.client import Client, connect
from palyra.net.protocol.discovery import Discovery

RUNS, ROUNDS, AT_ONCE, FIRSTS, DELTAS = 200, 3, 20, 50, 100_000
CHAT = "/v1/chat/completions"

Call = Callable[[], Awaitable[None]]


def ask(text: str, **more: object) -> dict[str, object]:
    """Return the body of a request."""
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}


async def chat(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=ask("/say hello"))
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


async def run(client: Client) -> None:
    started = await client.start_run("/say hello")
    assert (await client.wait_run(started.run_id)).state == "done"


async def health(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200


async def rate(call: Call, at_once: int) -> float:
    """Return the calls per second with `at_once` concurrent calls."""

    async def some() -> None:
        for _ in range(RUNS // at_once):
            await call()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(some)
    return RUNS / (time.perf_counter() - began)


async def first_ms(client: httpx.AsyncClient) -> float:
    """Return the milliseconds from the request to the first text."""
    began = time.perf_counter()
    async with client.stream("POST", CHAT, json=ask("/say hello", stream=True)) as answer:
        async for line in answer.aiter_lines():
            if '"content":"hello"' in line:
                return (time.perf_counter() - began) * 1e3
    raise AssertionError("no text came")


async def deltas_per_s(client: httpx.AsyncClient) -> float:
    """Return the deltas per second of a long stream, after checking that all have arrived."""
    chars = 0
    began = time.perf_counter()
    request = ask(f"/tokens {DELTAS}", stream=True)
    async with client.stream("POST", CHAT, json=request) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line[6:])["choices"]
                chars += len(choices[0]["delta"].get("content", "")) if choices else 0
    assert chars == 2 * DELTAS - 1  # one letter each, and the blanks between them
    return DELTAS / (time.perf_counter() - began)


async def measure(daemon: Discovery, token: str) -> dict[str, float]:
    headers = {"Authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=AT_ONCE)
    rounds: list[dict[str, float]] = []
    async with (
        httpx.AsyncClient(base_url=daemon.url, headers=headers, limits=limits, timeout=60) as http,
        connect(daemon.ws_url, token=token) as socket,
    ):
        await chat(http)  # imports the web stack
        for _ in range(ROUNDS):
            found: dict[str, float] = {}
            for at_once in (1, AT_ONCE):
                found[f"http_{at_once}"] = await rate(lambda: chat(http), at_once)
                found[f"websocket_{at_once}"] = await rate(lambda: run(socket), at_once)
                found[f"healthz_{at_once}"] = await rate(lambda: health(http), at_once)
            found["first_text_ms"] = statistics.median(
                [await first_ms(http) for _ in range(FIRSTS)]
            )
            found["deltas_per_s"] = await deltas_per_s(http)
            rounds.append(found)
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as name:
        home, workspace = Path(name, "home"), Path(name, "workspace")
        workspace.mkdir()
        command = [sys.executable, "-m", "palyra", "serve", "--home", str(home), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--workspace", str(workspace)],
            env=os.environ | {"PALYRA_SERVER__REQUESTS_PER_S": "100000"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with process:
            assert process.stdout is not None
            daemon = msgspec.json.decode(process.stdout.readline(), type=Discovery)
            token = (home / "keys" / "operator.token").read_text(encoding="ascii").strip()
            figures = trio.run(measure, daemon, token)
            process.send_signal(signal.SIGTERM)
    print(
        json.dumps(
            {
                "bench": "compat",
                **{key: round(value, 1) for key, value in figures.items()},
                "calibration_ms": round(calibrate(), 1),
                "python": platform.python_version(),
            }
        )
    )


if __name__ == "__main__":
    main()
