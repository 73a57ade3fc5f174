"""Cost of a turn of the scripted model, including the event loop's share.

Prints one JSON line.
"""

import json
import time
import timeit
from functools import partial

import trio

from palyra.core.model.messages import Delta, ModelRequest, UserMessage
from palyra.models.scripted.model import Scripted

TURNS = 500
TEXTS = {
    "plain_us": "hello",
    "call_us": '/call read_file {"path": "README.md"}',
    "say_and_call_us": '/say a\n/call read_file {"path": "README.md"}\n/then\n/say b',
}


def drop(_delta: Delta) -> None:
    """Discard a delta."""


async def measure_turn_us(text: str) -> float:
    """Return the microseconds per turn, the best of nine rounds."""
    model = Scripted(lambda prefix: f"{prefix}_1")
    request = ModelRequest(
        run_id="run_1",
        turn=1,
        attempt=1,
        model="scripted",
        instructions="You are a careful assistant.",
        messages=(UserMessage(text),),
    )
    rounds = []
    for _ in range(9):
        start_s = time.process_time()
        for _ in range(TURNS):
            await model.stream(request, drop)
        rounds.append((time.process_time() - start_s) / TURNS)
    return round(min(rounds) * 1e6, 1)


def main() -> None:
    result = {name: trio.run(partial(measure_turn_us, text)) for name, text in TEXTS.items()}
    result["100000_words_ms"] = round(
        timeit.timeit(lambda: trio.run(words_once), number=1) * 1000, 1
    )
    print(json.dumps({"bench": "scripted", **result}))


async def words_once() -> None:
    request = ModelRequest(
        run_id="run_1",
        turn=1,
        attempt=1,
        model="scripted",
        instructions="",
        messages=(UserMessage("/tokens 100000"),),
    )
    await Scripted(lambda prefix: f"{prefix}_1").stream(request, drop)


if __name__ == "__main__":
    main()
