"""Throughput and delay of events to clients over real WebSockets on loopback.

This process is the daemon (its hub, journal and edge, without runs); the clients are another
process.  Measured, each in several rounds:

- events per second to one subscriber
- frames per second to 200 subscribers
- rows per second of a replay from the journal
- the time from publishing an event to its arrival at a client
- for comparison, trio-websocket alone with the same bytes, packed beforehand into messages of 64 KiB

Every client checks that no event is missing.  Prints one JSON line.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
import trio
import trio_websocket

from palyra.actors.hub import PublishedRow
from palyra.config.load import load
from palyra.core.journal.changes import Change
from palyra.core.journal.records import RunRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.daemon import Daemon
from palyra.net.api.tokens import new_token
from palyra.net.delivery import encoding
from palyra.store.files.data_directory import DataDirectory
from palyra.store.journal.keys import KeyRing

RUN = "run_018f0000-0000-7000-8000-000000000001"
SESSION = "ses_018f0000-0000-7000-8000-000000000001"
PAYLOAD = b'{"text":"%b"}' % (b"x" * 200)
STEP_ROWS = 4  # rows that an actor publishes between two checkpoints
EVENTS = 100_000
FANOUT_CLIENTS = 200
FANOUT_EVENTS = 2_000
LATENCY_EVENTS = 300
LATENCY_PAUSE_S = 0.005
ARRAY_BYTES = 65_536

Work = Callable[[Daemon], Awaitable[None]]


def row(seq: int, kind: str = "turn.started") -> TapeRow:
    """Return a row that contains its time of creation."""
    return TapeRow(RUN, SESSION, seq, time.monotonic_ns(), kind, "bench", False, PAYLOAD)  # noqa: FBT003


# --- the daemon's side ---


@asynccontextmanager
async def daemon(folder: Path) -> AsyncGenerator[tuple[Daemon, str, str]]:
    """Run a daemon with its edge; yield it, its WebSocket address and the operator's token."""
    overrides: dict[str, Any] = {
        "tools.workspace": str(folder / "workspace"),
        "server.port": 0,
        "server.outbox_bytes": 1 << 30,  # a benchmark publishes faster than any client reads
    }
    config = load(home=folder / "home", overrides=overrides, environ={})
    (folder / "workspace").mkdir()
    token = new_token()
    with DataDirectory(config.paths.data_dir) as data:
        served = Daemon(config, keys=KeyRing.open(data.keys), operator_token=token)
        edge = served.build_edge()
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run, [edge.child_spec()])
            await served.wait_ready()
            record = RunRecord(
                run_id=RUN,
                session_id=SESSION,
                state="in_progress",
                principal="bench",
                agent="default",
                model="scripted",
                created_ms=0,
                head_seq=-1,
            )
            await served.journal.commit(Change(records=(record,)))
            try:
                yield served, edge.binding.url.replace("http", "ws") + "/v1/ws", token
            finally:
                served.stop("measured")


async def publish(served: Daemon, first: int, count: int, *, is_durable: bool) -> None:
    """Publish events step by step; durable ones are also appended to the journal."""
    for start in range(first, first + count, STEP_ROWS):
        rows = tuple(row(seq) for seq in range(start, start + STEP_ROWS))
        served.hub.publish(rows)
        if is_durable:
            served.journal.append(Change(rows=rows))
        else:
            served.hub.committed([(RUN, rows[-1].seq)])
        await trio.lowlevel.checkpoint()


async def live(served: Daemon, *, is_durable: bool) -> None:
    """Publish all events without pauses between steps."""
    await publish(served, 0, EVENTS, is_durable=is_durable)


async def fan_out(served: Daemon) -> None:
    """Publish events to many subscribers."""
    await publish(served, 0, FANOUT_EVENTS, is_durable=False)


async def drip(served: Daemon) -> None:
    """Publish one step at intervals, as for an interactive client."""
    for start in range(0, LATENCY_EVENTS, STEP_ROWS):
        await publish(served, start, STEP_ROWS, is_durable=False)
        await trio.sleep(LATENCY_PAUSE_S)


async def fill(served: Daemon) -> None:
    """Commit a long tape before any client reads it."""
    for start in range(0, EVENTS, 1_000):
        rows = tuple(row(seq) for seq in range(start, start + 1_000))
        await served.journal.commit(Change(rows=rows))


# --- the clients' side ---


def open_socket(url: str) -> AbstractAsyncContextManager[trio_websocket.WebSocketConnection]:
    """Open a client's connection that reads in large portions."""
    return trio_websocket.open_websocket_url(
        url, max_message_size=1 << 24, receive_buffer_size=1 << 18
    )


class Seen(msgspec.Struct, frozen=True):
    """Fields of a notification that a client checks."""

    seq: int = -1
    at_ms: int = 0


class Notice(msgspec.Struct, frozen=True):
    method: str = ""
    params: Seen = Seen()


DECODER = msgspec.json.Decoder(Notice | list[Notice])


async def client(url: str, token: str, ready: Callable[[], None], count: int) -> list[float]:
    """Subscribe and receive `count` events in order; return their ages in ms."""
    ages_ms: list[float] = []
    async with open_socket(url) as socket:
        await ask(socket, "connect", {"token": token, "want": ["batch"]})
        await ask(socket, "tape.subscribe", {"run_id": RUN})
        ready()
        while len(ages_ms) < count:
            take(DECODER.decode(await socket.get_message()), ages_ms)
    return ages_ms


def take(message: Notice | list[Notice], ages_ms: list[float]) -> None:
    """Record the age of each event, and check that none is missing."""
    now_ns = time.monotonic_ns()
    for notice in message if isinstance(message, list) else [message]:
        if notice.method == "tape.event":
            assert len(ages_ms) == notice.params.seq, "an event is missing"
            ages_ms.append((now_ns - notice.params.at_ms) / 1e6)


async def ask(socket: trio_websocket.WebSocketConnection, method: str, params: Any) -> None:  # noqa: ANN401 - plain JSON
    """Send a request and wait for its result."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    await socket.send_message(json.dumps(body))
    while "id" not in (reply := json.loads(await socket.get_message())):
        pass
    assert "result" in reply, reply


async def clients(url: str, token: str, amount: int, count: int) -> None:
    """Print `ready` once all clients are subscribed; at the end print times and ages of events."""
    waiting = amount
    ages_ms: list[float] = []
    began_ns = time.monotonic_ns()

    def ready() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            print("ready", flush=True)

    async def one() -> None:
        ages_ms.extend(await client(url, token, ready, count))

    async with trio.open_nursery() as nursery:
        for _ in range(amount):
            nursery.start_soon(one)
    report(began_ns, ages_ms)


def report(began_ns: int, ages_ms: list[float]) -> None:
    """Print the figures for the other process."""
    ages_ms.sort()
    ages = {
        "p50_ms": ages_ms[len(ages_ms) // 2] if ages_ms else 0,
        "p99_ms": ages_ms[len(ages_ms) * 99 // 100] if ages_ms else 0,
    }
    print(json.dumps({"began_ns": began_ns, "ended_ns": time.monotonic_ns(), **ages}))


async def raw_client(url: str, count: int) -> None:
    """Make the same checks on the same bytes without a daemon, for comparison."""
    async with open_socket(url) as socket:
        print("ready", flush=True)
        ages_ms: list[float] = []
        while len(ages_ms) < count:
            take(DECODER.decode(await socket.get_message()), ages_ms)
    report(0, [])


# --- one round ---


class Round(NamedTuple):
    """Times of one round."""

    elapsed_s: float  # from publishing the first event to the last arrival of the last one
    replay_s: float  # from the first connect, for rounds where nothing is published
    p50_ms: float  # age of an event on arrival
    p99_ms: float


async def run_clients(arguments: list[str], work: Callable[[], Awaitable[None]]) -> Round:
    """Start the clients, do the work once they are subscribed, and wait for all arrivals."""
    process = await trio.lowlevel.open_process(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    received = b""
    while b"ready\n" not in received:
        received += await process.stdout.receive_some()
    began_ns = time.monotonic_ns()
    await work()
    async for chunk in process.stdout:
        received += chunk
    assert await process.wait() == 0
    said = json.loads(received.split(b"ready\n")[1])
    elapsed_s, replay_s = ((said["ended_ns"] - ns) / 1e9 for ns in (began_ns, said["began_ns"]))
    return Round(elapsed_s, replay_s, said["p50_ms"], said["p99_ms"])


async def measure(
    work: Work, *, amount: int = 1, count: int = EVENTS, before: Work | None = None
) -> Round:
    """Measure one round with a new daemon."""
    with tempfile.TemporaryDirectory() as folder:
        async with daemon(Path(folder)) as (served, url, token):
            if before is not None:
                await before(served)
            arguments = ["--client", url, token, str(amount), str(count)]
            return await run_clients(arguments, partial(work, served))


async def measure_raw() -> Round:
    """Measure trio-websocket's own server with messages packed beforehand."""
    ending = "sub_" + "0" * 36
    bodies = [
        encoding.encode_event(PublishedRow(row(seq))) + encoding.end_event(ending, seq)
        for seq in range(EVENTS)
    ]
    size = ARRAY_BYTES // len(bodies[0])
    texts = [f"[{b','.join(bodies[at : at + size]).decode()}]" for at in range(0, EVENTS, size)]
    begin, ended = trio.Event(), trio.Event()

    async def accept(request: trio_websocket.WebSocketRequest) -> None:
        socket = await request.accept()
        await begin.wait()
        for text in texts:
            await socket.send_message(text)
        await ended.wait()

    async def send() -> None:
        begin.set()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        server = await nursery.start(trio_websocket.serve_websocket, accept, "127.0.0.1", 0, None)
        arguments = ["--raw", f"ws://127.0.0.1:{server.port}", str(EVENTS)]
        taken = await run_clients(arguments, send)
        ended.set()
        nursery.cancel_scope.cancel("measured")
    return taken


async def nothing(_served: Daemon) -> None:
    """Publish nothing: a replay needs no publisher."""
    await trio.lowlevel.checkpoint()


SCENARIOS: dict[str, Callable[[], Awaitable[Round]]] = {
    "live": partial(measure, partial(live, is_durable=False)),
    "live_durable": partial(measure, partial(live, is_durable=True)),
    "fan_out": partial(measure, fan_out, amount=FANOUT_CLIENTS, count=FANOUT_EVENTS),
    "latency": partial(measure, drip, count=LATENCY_EVENTS),
    "latency_of_200": partial(measure, drip, amount=FANOUT_CLIENTS, count=LATENCY_EVENTS),
    "replay": partial(measure, nothing, before=fill),
    "raw": measure_raw,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", nargs=4)
    parser.add_argument("--raw", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=SCENARIOS, nargs="*", default=list(SCENARIOS))
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if options.client:
        url, token, amount, count = options.client
        trio.run(clients, url, token, int(amount), int(count))
    elif options.raw:
        trio.run(raw_client, options.raw[0], int(options.raw[1]))
    else:
        rounds = {
            name: [trio.run(SCENARIOS[name]) for _ in range(options.rounds)]
            for name in options.only
        }
        print(json.dumps({"bench": "stream", **summarise(rounds)}))


def summarise(rounds: dict[str, list[Round]]) -> dict[str, Any]:
    """Return the medians of all rounds."""
    result: dict[str, Any] = {}
    for name, taken in rounds.items():
        elapsed_s, replay_s, p50_ms, p99_ms = map(statistics.median, zip(*taken, strict=True))
        match name:
            case "latency" | "latency_of_200":
                result[name] = {"p50_ms": round(p50_ms, 2), "p99_ms": round(p99_ms, 2)}
            case "replay":
                result["replay_rows_per_s"] = round(EVENTS / replay_s)
            case "fan_out":
                result["fan_out_frames_per_s"] = round(FANOUT_CLIENTS * FANOUT_EVENTS / elapsed_s)
            case _:
                result[f"{name}_events_per_s"] = round(EVENTS / elapsed_s)
    if "live" in rounds and "raw" in rounds:
        ratio = result["live_events_per_s"] / result["raw_events_per_s"]
        result["live_to_raw"] = round(ratio, 2)
    return result


if __name__ == "__main__":
    main()
