"""Cost of the actor kernel over trio: messages, questions, starts, memory of idle actors.

Each figure is paired with the same work in bare trio, in the same process and in alternating
rounds, so that the ratio is stable on a noisy machine.  Prints one line of JSON; rates are medians.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import BATCH, Mailbox
from palyra.actors.kernel.reply import Reply

REPEATS = 7
MESSAGES = 20_000
QUESTIONS = 3_000
CHILDREN = 3_000
IDLE_ROUNDS = 3
CAPACITY = 1_024
BURST = 256  # messages that a writer offers between two checkpoints
TIMEOUT_S = 30.0

Round = Callable[[], Awaitable[float]]  # does its work and returns its figure
Reading = Callable[[], Awaitable[None]]


# ---- messages: one writer, one reader


async def rate_of(write: Reading, read: Reading, count: int) -> float:
    """Return the messages per second from the first write to the end of the reader."""
    begun_s = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await write()
    return count / (time.perf_counter() - begun_s)


def drain_mailbox(inbox: Mailbox[int]) -> Reading:
    async def read() -> None:
        left = MESSAGES
        with inbox.receiver() as messages:
            while left:
                left -= len(await messages.drain())

    return read


def iterate_mailbox(inbox: Mailbox[int]) -> Reading:
    async def read() -> None:
        left = MESSAGES
        with inbox.receiver() as messages:
            async for _ in messages:
                left -= 1
                if not left:
                    return

    return read


def drain_channel(channel: trio.MemoryReceiveChannel[int]) -> Reading:
    async def read() -> None:
        left = MESSAGES
        while left:
            batch = [await channel.receive()]
            try:
                while True:
                    batch.append(channel.receive_nowait())
            except trio.WouldBlock:
                left -= len(batch)

    return read


def write_waiting(put: Callable[[int], Awaitable[None]]) -> Reading:
    async def write() -> None:
        for number in range(MESSAGES):
            await put(number)

    return write


def write_in_bursts(put: Callable[[int], None], burst: int = BURST) -> Reading:
    async def write() -> None:
        for number in range(MESSAGES):
            put(number)
            if number % burst == burst - 1:
                await trio.lowlevel.checkpoint()

    return write


async def tell_and_drain() -> float:
    inbox = Mailbox[int]("bench", CAPACITY)
    return await rate_of(write_waiting(inbox.tell), drain_mailbox(inbox), MESSAGES)


async def offer_and_drain() -> float:
    inbox = Mailbox[int]("bench", CAPACITY)
    return await rate_of(write_in_bursts(inbox.offer), drain_mailbox(inbox), MESSAGES)


async def offer_and_iterate() -> float:
    """Offer messages in bursts that iteration receives between two checkpoints."""
    inbox = Mailbox[int]("bench", CAPACITY)
    return await rate_of(write_in_bursts(inbox.offer, BATCH), iterate_mailbox(inbox), MESSAGES)


async def raw_send_and_drain() -> float:
    send, receive = trio.open_memory_channel[int](CAPACITY)
    return await rate_of(write_waiting(send.send), drain_channel(receive), MESSAGES)


async def raw_nowait_and_drain(burst: int = BURST) -> float:
    send, receive = trio.open_memory_channel[int](CAPACITY)
    return await rate_of(write_in_bursts(send.send_nowait, burst), drain_channel(receive), MESSAGES)


# ---- questions: one asker, one answerer


async def ask() -> float:
    inbox = Mailbox[Reply[int]]("bench", CAPACITY)

    async def answer() -> None:
        with inbox.receiver() as questions:
            async for reply in questions:
                reply.put(1)

    return await rate_of(asking(inbox), stopped_after(inbox, answer), QUESTIONS)


def asking(inbox: Mailbox[Reply[int]]) -> Reading:
    async def write() -> None:
        for _ in range(QUESTIONS):
            await inbox.ask(lambda reply: reply, timeout_s=TIMEOUT_S)
        await inbox.stop("measured")

    return write


def stopped_after(inbox: Mailbox[Reply[int]], answer: Reading) -> Reading:
    async def read() -> None:
        await answer()
        inbox.close()

    return read


async def raw_ask() -> float:
    """Ask with bare trio: a new channel of capacity 1 in every question, under a deadline."""
    questions, inbox = trio.open_memory_channel[trio.MemorySendChannel[int]](CAPACITY)

    async def write() -> None:
        for _ in range(QUESTIONS):
            reply, answer = trio.open_memory_channel[int](1)
            with trio.fail_after(TIMEOUT_S):
                await questions.send(reply)
                await answer.receive()
        questions.close()

    async def read() -> None:
        async for reply in inbox:
            reply.send_nowait(1)

    return await rate_of(write, read, QUESTIONS)


# ---- starts: microseconds a child


async def serve(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.lowlevel.checkpoint()


async def serve_unwatched() -> None:
    await trio.lowlevel.checkpoint()


def to_us(begun_s: float) -> float:
    return (time.perf_counter() - begun_s) / CHILDREN * 1e6


async def measure_children(*, is_start: bool, to_the_end: bool = False) -> float:
    """Return the time until the calls returned, or until the last child ended."""
    supervisor = DynamicSupervisor("bench", max_children=CHILDREN)
    specs = [ChildSpec(str(number), serve, "temporary") for number in range(CHILDREN)]
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        begun_s = time.perf_counter()
        for spec in specs:
            if is_start:
                await supervisor.start_child(spec)
            else:
                supervisor.spawn_child(spec)
        while to_the_end and len(supervisor):
            await trio.lowlevel.checkpoint()
        result = to_us(begun_s)
        supervisor.stop("measured")
    return result


async def raw_spawn_call() -> float:
    async with trio.open_nursery() as nursery:
        begun_s = time.perf_counter()
        for number in range(CHILDREN):
            nursery.start_soon(serve_unwatched, name=str(number))
        return to_us(begun_s)


async def raw_spawn_life() -> float:
    begun_s = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(CHILDREN):
            nursery.start_soon(serve_unwatched, name=str(number))
    return to_us(begun_s)


async def raw_start() -> float:
    async with trio.open_nursery() as nursery:
        begun_s = time.perf_counter()
        for number in range(CHILDREN):
            await nursery.start(serve, name=str(number))
        return to_us(begun_s)


# ---- ten thousand idle actors


def measure_idle(kind: str) -> dict[str, float]:
    """Return the bytes per actor and the messages per second, measured in a new process."""
    command = [sys.executable, str(Path(__file__).with_name("_idle.py")), kind]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(ended.stdout)
    return result


# ---- all of it

PAIRS: dict[str, tuple[Round, Round]] = {
    "tell_drain_per_s": (tell_and_drain, raw_send_and_drain),
    "offer_drain_per_s": (offer_and_drain, raw_nowait_and_drain),
    "offer_iterate_per_s": (offer_and_iterate, partial(raw_nowait_and_drain, BATCH)),
    "ask_per_s": (ask, raw_ask),
    "spawn_child_call_us": (partial(measure_children, is_start=False), raw_spawn_call),
    "spawn_child_life_us": (
        partial(measure_children, is_start=False, to_the_end=True),
        raw_spawn_life,
    ),
    "start_child_us": (partial(measure_children, is_start=True), raw_start),
}


def compare(palyra: list[float], raw: list[float]) -> dict[str, float]:
    ours, bare = statistics.median(palyra), statistics.median(raw)
    return {"palyra": round(ours, 1), "raw_trio": round(bare, 1), "ratio": round(ours / bare, 3)}


def measure_pair(palyra: Round, raw: Round) -> dict[str, float]:
    taken = [(trio.run(palyra), trio.run(raw)) for _ in range(REPEATS + 1)]
    warm = taken[1:]
    return compare([ours for ours, _ in warm], [bare for _, bare in warm])


def main() -> None:
    results = {name: measure_pair(*pair) for name, pair in PAIRS.items()}
    idle = [(measure_idle("actors"), measure_idle("tasks")) for _ in range(IDLE_ROUNDS)]
    for key, name in (("bytes", "idle_actor_bytes"), ("per_s", "idle_actors_messages_per_s")):
        results[name] = compare([ours[key] for ours, _ in idle], [bare[key] for _, bare in idle])
    print(
        json.dumps(
            {
                "bench": "mailbox",
                "python": platform.python_version(),
                "trio": trio.__version__,
                "cpus": os.cpu_count(),
                "repeats": REPEATS,
                "results": results,
            }
        )
    )


if __name__ == "__main__":
    main()
