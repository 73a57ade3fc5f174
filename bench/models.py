"""Cost of a streamed answer between a provider's socket and a client's.

Three processes on loopback: a provider that puts the time of sending into every delta, a daemon
with its edge (this process), and clients over WebSockets.  Prints one JSON line with:

- the delay of a delta at a client, and at a direct reader of the provider with httpx and httpx-sse
- the delay of the first delta of a run
- deltas per second through one daemon
- 200 concurrent streams, several rounds, with the daemon's memory before, during and after
- the adapters alone: events per second from the same bytes, against httpx-sse
"""

import argparse
import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import structlog
import trio
from _machine import calibrate
from httpx_sse import EventSource, aconnect_sse
from stream import ask, open_socket

from palyra.config.load import load
from palyra.core.model.messages import ModelRequest
from palyra.daemon import Daemon
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT
from palyra.models.dialect import Dialect
from palyra.models.responses import RESPONSES
from palyra.models.sse import SseParser
from palyra.models.turn_builder import TurnBuilder
from palyra.net.api.tokens import new_token
from palyra.store.files.data_directory import DataDirectory
from palyra.store.journal.keys import KeyRing

DRIP = "drip 200 5"  # number of deltas, and the pause before each in ms
FIRSTS = 40  # runs that measure the first delta
FLOOD = 20_000  # deltas; a longer answer would exceed the size of one event
STREAMS = 200
STREAM = "drip 50 20"
STREAM_ROUNDS = 5
PARSED_EVENTS = 20_000
PARSED_CHUNK = 4_096  # bytes per read, as from a busy socket
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TAIL = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
# Pause of the provider before its first delta.  A run asks the model while its first commit is
# pending, and the subscription made with the run starts after that commit.
THINKING_S = 0.15
MARK = 1_000_000_000  # added to stamps, which are microseconds below it


def stamp_us() -> int:
    """Return the time on a clock shared by all processes of the machine."""
    return time.monotonic_ns() // 1_000 % MARK


# --- the provider ---


def event(text: str) -> bytes:
    """Return one delta as a server sends it."""
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}  # fmt: skip
    return b"data: %b\n\n" % json.dumps(body).encode()


def chunk(data: bytes) -> bytes:
    """Return an HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answer(stream: trio.SocketStream) -> None:
    """Answer the requests of one connection, one after the other."""
    received = b""
    while True:
        while (at := received.find(b"\r\n\r\n")) < 0:
            more = await stream.receive_some()
            if not more:
                return
            received += more
        head, received = received[:at], received[at + 4 :]
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(received) < length:
            received += await stream.receive_some()
        body, received = received[:length], received[length:]
        await play(stream, json.loads(body)["messages"][-1]["content"])


async def play(stream: trio.SocketStream, what: str) -> None:
    """Stream the deltas that the message asks for."""
    kind, count, *pause = what.split()
    await stream.send_all(HEAD)
    await trio.sleep(THINKING_S)
    if kind == "drip":
        for _ in range(int(count)):
            await trio.sleep(int(pause[0]) / 1_000)
            await stream.send_all(chunk(event(f"{stamp_us()} ")))
    else:
        for _ in range(int(count) // 100):
            await stream.send_all(b"".join(chunk(event(f"{stamp_us()} ")) for _ in range(100)))
    await stream.send_all(chunk(TAIL) + b"0\r\n\r\n")


async def provide() -> None:
    """Print the port of the provider and serve requests."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await answer(stream)
        except trio.BrokenResourceError:
            return

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(serve, listeners)


# --- the clients ---


def ages(text: str) -> list[float]:
    """Return the ages of the deltas in a piece of text, in ms."""
    now_us = stamp_us()
    return [(now_us - int(stamp)) % MARK / 1e3 for stamp in text.split()]


async def one_run(url: str, token: str, text: str) -> list[float]:
    """Start a run and receive its deltas until it ends; return their ages."""
    found: list[float] = []
    async with open_socket(url) as socket:
        await ask(socket, "connect", {"token": token, "want": ["batch"]})
        await ask(socket, "run.start", {"text": text, "model": "bench/m", "subscribe": True})
        has_ended = False
        while not has_ended:
            said = json.loads(await socket.get_message())
            notices = said if isinstance(said, list) else [said]
            has_ended = True in [take(notice, found) for notice in notices]
    return found


def take(notice: dict[str, Any], found: list[float]) -> bool:
    """Record the ages of deltas; return True if the run has ended."""
    params = notice["params"]
    if notice["method"] == "progress":
        found += ages(params["delta"])
    kind = params.get("kind")
    assert kind not in {"run.failed", "turn.failed"}, notice
    return bool(kind == "run.done")


async def read_provider(url: str, text: str) -> list[float]:
    """Receive the same deltas without a daemon, through httpx and httpx-sse."""
    found: list[float] = []
    body = {"messages": [{"role": "user", "content": text}]}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as client,
        aconnect_sse(client, "POST", f"{url}/chat/completions", json=body) as source,
    ):
        async for said in source.aiter_sse():
            if said.data != "[DONE]":
                found += ages(json.loads(said.data)["choices"][0]["delta"].get("content", ""))
    return found


async def clients(arguments: list[str]) -> None:
    """Run a client process and print its figures."""
    what, url, token, text, count = arguments
    rounds: list[list[float]] = []

    async def one() -> None:
        taken = one_run(url, token, text) if what == "daemon" else read_provider(url, text)
        rounds.append(await taken)

    await one()  # connections, imports, caches
    rounds.clear()
    began = time.perf_counter()
    if what == "direct" or text.startswith("drip 1 "):
        for _ in range(int(count)):
            await one()
    else:
        async with trio.open_nursery() as nursery:
            for _ in range(int(count)):
                nursery.start_soon(one)
    took_s = time.perf_counter() - began
    everything = sorted(age for each in rounds for age in each)
    print(json.dumps({"took_s": took_s, "deltas": len(everything),
                      "p50_ms": everything[len(everything) // 2],
                      "p99_ms": everything[len(everything) * 99 // 100]}))  # fmt: skip


# --- the daemon ---


@asynccontextmanager
async def daemon(folder: Path, provider_url: str) -> AsyncGenerator[tuple[Daemon, str, str]]:
    """Run a daemon with that provider; yield it, its WebSocket address and the operator's token."""
    provider = {"name": "bench", "base_url": provider_url, "parallel": 1_000,
                "parallel_per_key": 1_000}  # fmt: skip
    overrides: dict[str, Any] = {
        "tools.workspace": str(folder / "workspace"), "server.port": 0, "models.providers": [provider],
        "runs.max_open": 10_000,
    }  # fmt: skip
    config = load(home=folder / "home", overrides=overrides, environ={})
    (folder / "workspace").mkdir()
    token = new_token()
    with DataDirectory(config.paths.data_dir) as data:
        served = Daemon(config, keys=KeyRing.open(data.keys), operator_token=token)
        edge = served.build_edge()
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run, [edge.child_spec()])
            await served.wait_ready()
            try:
                yield served, edge.binding.url.replace("http", "ws") + "/v1/ws", token
            finally:
                served.stop("measured")


async def ask_clients(*arguments: str) -> dict[str, float]:
    """Run a process of clients; return its figures."""
    done = await trio.run_process(
        [sys.executable, __file__, "--client", *arguments], capture_stdout=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rss_mb() -> float:
    """Return the resident memory of this process, which is the daemon's."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


async def streams(url: str, token: str) -> dict[str, Any]:
    """Measure several rounds of concurrent streams, with memory before, during and after."""
    before, during, after = rss_mb(), 0.0, []
    found: dict[str, float] = {}
    for _ in range(STREAM_ROUNDS):
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal during
                while True:
                    await trio.sleep(0.2)
                    during = max(during, rss_mb())

            nursery.start_soon(watch)
            found = await ask_clients("daemon", url, token, STREAM, str(STREAMS))
            nursery.cancel_scope.cancel("measured")
        after.append(rss_mb())
    assert found["deltas"] == STREAMS * int(STREAM.split()[1])
    return {
        "deltas_per_s": round(found["deltas"] / found["took_s"]),
        "p50_ms": round(found["p50_ms"], 2), "p99_ms": round(found["p99_ms"], 2),
        "rss_mb": {"before": before, "most": during, "after_each_round": after},
    }  # fmt: skip


async def through_a_daemon(rounds: int) -> dict[str, Any]:
    """Measure everything that needs three processes."""
    command = [sys.executable, __file__, "--provide"]
    with tempfile.TemporaryDirectory() as folder:
        provider = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert provider.stdout is not None
        try:
            port = int(await provider.stdout.receive_some())
            provider_url = f"http://127.0.0.1:{port}/v1"
            async with daemon(Path(folder), provider_url) as (_, url, token):
                return await measure(rounds, provider_url, url, token)
        finally:
            provider.kill()
            await provider.wait()


async def measure(rounds: int, provider_url: str, url: str, token: str) -> dict[str, Any]:
    """Return the figures of alternating rounds."""
    direct, shown, firsts, floods = [], [], [], []
    for _ in range(rounds):
        direct.append(await ask_clients("direct", provider_url, "", DRIP, "1"))
        shown.append(await ask_clients("daemon", url, token, DRIP, "1"))
        firsts.append(await ask_clients("daemon", url, token, "drip 1 5", str(FIRSTS)))
        floods.append(await ask_clients("daemon", url, token, f"flood {FLOOD}", "1"))
        assert floods[-1]["deltas"] == FLOOD

    def median(found: list[dict[str, float]], key: str) -> float:
        return statistics.median(each[key] for each in found)

    return {
        "delta_p50_ms": {
            "direct": round(median(direct, "p50_ms"), 3),
            "through_daemon": round(median(shown, "p50_ms"), 3),
            "overhead": round(median(shown, "p50_ms") - median(direct, "p50_ms"), 3),
        },
        "first_delta_p50_ms": round(median(firsts, "p50_ms"), 3),
        "deltas_per_s": round(FLOOD / (median(floods, "took_s") - THINKING_S)),
        "streams_200": await streams(url, token),
    }


# --- the adapters alone ---


def chat_events() -> Iterator[dict[str, Any]]:
    """Yield deltas of a chat in the shape of `event`."""
    for number in range(PARSED_EVENTS):
        yield {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
               "choices": [{"index": 0, "delta": {"content": f"word {number} "}}]}  # fmt: skip
    yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def anthropic_events() -> Iterator[dict[str, Any]]:
    """Yield the same deltas in the shape of Anthropic's API."""
    for number in range(PARSED_EVENTS):
        yield {"type": "content_block_delta", "index": 0,
               "delta": {"type": "text_delta", "text": f"word {number} "}}  # fmt: skip
    yield {"type": "message_stop"}


def responses_events() -> Iterator[dict[str, Any]]:
    """Yield the same deltas in the shape of OpenAI's Responses API."""
    for number in range(PARSED_EVENTS):
        yield {"type": "response.output_text.delta", "item_id": "m", "output_index": 0,
               "content_index": 0, "delta": f"word {number} "}  # fmt: skip
    yield {"type": "response.completed", "response": {}}


PARSED: dict[str, tuple[Dialect, Callable[[], Iterator[dict[str, Any]]]]] = {
    "chat": (CHAT, chat_events),
    "anthropic": (ANTHROPIC, anthropic_events),
    "responses": (RESPONSES, responses_events),
}


def parse_ours(dialect: Dialect, pieces: list[bytes]) -> float:
    """Return the seconds from bytes to a turn."""
    request = ModelRequest(run_id="r", turn=1, attempt=1, model="m", instructions="", messages=())
    began = time.perf_counter()
    builder, parser, heard = TurnBuilder(lambda _: None), SseParser(), 0
    reader = dialect.reader(builder)
    for piece in pieces:
        for data in parser.feed(piece):
            heard += 1
            reader.take(data)
    turn = builder.build(request, {}, lambda _: "c")
    took_s = time.perf_counter() - began
    assert heard == PARSED_EVENTS + 1
    assert turn.text.startswith("word 0 word 1 ")
    return took_s


def parse_raw(pieces: list[bytes], load_data: Callable[[str], Any]) -> float:
    """Return the seconds of httpx-sse for the same events, with or without JSON decoding."""
    headers = {"content-type": "text/event-stream"}
    response = httpx.Response(200, headers=headers, content=iter(pieces))
    began, heard = time.perf_counter(), 0
    for said in EventSource(response).iter_sse():
        load_data(said.data)
        heard += 1
    took_s = time.perf_counter() - began
    assert heard == PARSED_EVENTS + 1
    return took_s


def adapters(rounds: int) -> dict[str, Any]:
    """Return the events per second of each, and the ratio to the raw ones of the same round."""
    found: dict[str, Any] = {}
    for name, (dialect, events) in PARSED.items():
        data = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events())
        pieces = [data[at : at + PARSED_CHUNK] for at in range(0, len(data), PARSED_CHUNK)]
        taken = [
            (parse_ours(dialect, pieces), parse_raw(pieces, len), parse_raw(pieces, json.loads))
            for _ in range(rounds)
        ]
        ours, raw, raw_json = (statistics.median(each) for each in zip(*taken, strict=True))
        found[name] = {
            "events_per_s": round(PARSED_EVENTS / ours),
            "to_httpx_sse": round(raw / ours, 2),
            "to_httpx_sse_and_json": round(raw_json / ours, 2),
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provide", action="store_true")
    parser.add_argument("--client", nargs=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if options.provide:
        trio.run(provide)
    elif options.client:
        trio.run(clients, options.client)
    else:
        found = {
            "bench": "models", "calibration_ms": calibrate(), "adapters": adapters(options.rounds),
            **trio.run(through_a_daemon, options.rounds),
        }  # fmt: skip
        print(json.dumps(found))


if __name__ == "__main__":
    main()
