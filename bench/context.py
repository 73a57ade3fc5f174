"""Context assembly: time, prefix stability and the token estimate, as one JSON line.

Run: `python bench/context.py [--rounds N]`.  One thread, no journal.

- `first_ms`: the first prompt of a run whose session has that many messages, nothing rendered before;
  `later_ms`: one more turn of the same run, with the cache of the turn before.  `loop_ms` is the
  longest time that the event loop is held by either: the first one is rendered in a thread.
- `summary`: CPU time of the deterministic compaction of that many new messages (in a thread), and the
  first prompt with its summary: rendered by the assembly, and before it in a thread (`loop_ms`).
- `prefix`: share of the bytes of each prompt that the next turn repeats, over the turns of a long
  run in a small window, and the number of turns that changed anything before the end.
- `tokens`: estimate against the count of a provider whose vocabulary needs `ratio` times as many, by
  turn, before and after correction.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import msgspec
from _machine import calibrate

from palyra.core.context.assembly import assemble, stable_prefix
from palyra.core.context.entries import Placed
from palyra.core.context.history import NO_HISTORY, History, PastRun
from palyra.core.context.layers import ContextLimits
from palyra.core.context.rendering import PromptCache
from palyra.core.context.session_compaction import (
    coverable,
    find_defects,
    plan_summary,
    read_messages,
)
from palyra.core.journal.records import AgentRecord
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ProposedCall,
    ToolMessage,
    UserMessage,
    message_tokens,
)
from palyra.core.run.state import AskedModel, PromptCuts, Run, begin
from palyra.core.tape.events import RunAccepted
from palyra.core.text.tokens import FACTOR, learn_factor
from palyra.core.tool.spec import Catalogue

KEY = bytes(32)
PREFIX = stable_prefix(
    AgentRecord(name="default", version=0, instructions="Be useful. " * 40),
    Catalogue(tools={}, hash="h"),
)
PROSE = "The quick brown fox jumps over the lazy dog, and nothing else happens today. "
CODE = 'def answer(question: str) -> int:\n    return {"all": 42}[question]\n'
SIZES = 200, 2_000  # messages


def exchange(number: int, text: str) -> list[Message]:
    """A question, a call with its output, an answer."""
    call = ProposedCall(
        call_id=f"c{number}", tool="read_file", arguments={"path": f"src/{number}.py"}
    )
    output = f"# {number}\n{CODE * (1 + number % 12)}"
    return [
        UserMessage(f"{text} {number}: {PROSE}"),
        AssistantMessage("I shall look at it.", (call,)),
        ToolMessage(call.call_id, call.tool, "succeeded", output),
        AssistantMessage(f"It says {number}. {PROSE * (1 + number % 5)}"),
    ]


def session(messages: int) -> History:
    """Earlier runs of a session, four messages each."""
    runs = []
    for number in range(messages // 4):
        said = tuple(exchange(number, "What about"))
        runs.append(
            PastRun(
                run_id=f"run_{number}",
                messages=said,
                tokens=sum(map(message_tokens, said)),
                is_tainted=False,
                epoch=0,
            )
        )
    return History(runs=tuple(runs))


def running(turns: int, **fields: object) -> Run:
    """A run after that many turns."""
    accepted = RunAccepted(principal="ann", session_id="ses", agent="default", model="m")
    said: list[Message] = [UserMessage("Go on.")]
    for number in range(turns):
        said += exchange(10_000 + number, "")[1:3]
    run = begin("run_now", accepted, 1)
    return msgspec.structs.replace(
        run, state="in_progress", transcript=tuple(said), turn=turns, **fields
    )


def took_ms(call: Callable[[], object]) -> float:
    """Return the time of one call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def measure_times(messages: int, rounds: int) -> dict[str, float]:
    """Return the medians of the first and of a later prompt."""
    first, later, held = [], [], []
    for _ in range(rounds):
        history = session(messages)
        cache = PromptCache(running(0), history, KEY)
        rendered = took_ms(lambda: cache.prepare(running(0)))  # noqa: B023 - called here
        first_held = took_ms(lambda: _assemble(running(0), history, cache))  # noqa: B023 - called here
        _assemble(running(1), history, cache)
        run = running(2)
        later.append(took_ms(lambda: _assemble(run, history, cache)))  # noqa: B023 - likewise
        first.append(rendered + first_held)
        held.append(max(first_held, later[-1]))
    long = running(messages // 2)
    cache = PromptCache(long, NO_HISTORY, KEY)
    _assemble(long, NO_HISTORY, cache)
    last = running(messages // 2 + 1).transcript[-2:]
    longer = msgspec.structs.replace(long, transcript=(*long.transcript, *last), turn=long.turn + 1)
    own = min(took_ms(lambda: _assemble(longer, NO_HISTORY, cache)) for _ in range(rounds))
    return {
        "first_ms": round(statistics.median(first), 2),
        "later_ms": round(statistics.median(later), 3),
        "own_run_ms": round(own, 3),
        "loop_ms": round(statistics.median(held), 3),
    }


def measure_summary(messages: int, rounds: int) -> dict[str, float]:
    """Return CPU times of a compaction of that many new messages, and of the next prompt."""
    said = [message for number in range(messages // 4) for message in exchange(number, "Why is")]
    placed = [Placed("run_0", index, message) for index, message in enumerate(said)]
    end = coverable(said)
    began = time.process_time()
    read = read_messages(None, placed[:end], window=placed[end:])
    summary = plan_summary(None, placed[:end], 32_000, read=read)
    assert not find_defects(summary, None, placed[:end], read=read)
    plan_ms = (time.process_time() - began) * 1e3
    history, held, alone = History(summary=summary), [], []
    for _ in range(rounds):
        cache = PromptCache(running(0), history, KEY)
        alone.append(took_ms(lambda: _assemble(running(0), history, cache)))  # noqa: B023 - called here
        cache = PromptCache(running(0), history, KEY)
        assert cache.is_long(running(0))
        cache.prepare(running(0))
        held.append(took_ms(lambda: _assemble(running(0), history, cache)))  # noqa: B023 - likewise
    return {
        "plan_cpu_ms": round(plan_ms, 1),
        "summary_tokens": summary.after_tokens,
        "rendered_on_loop_ms": round(statistics.median(alone), 3),
        "loop_ms": round(statistics.median(held), 3),
    }


def _assemble(run: Run, history: History, cache: PromptCache, window: int = 0) -> ModelRequest:
    limits = ContextLimits(windows=(window,) if window else (), reserved=1_000)
    return assemble(run, PREFIX, run.turn + 1, 1, KEY, history=history, limits=limits, cache=cache)[
        1
    ]


def measure_prefix(turns: int, window: int) -> dict[str, float]:
    """Follow one run turn by turn; compare each prompt with the one before."""
    history = session(80)
    cache = PromptCache(running(0), history, KEY)
    limits = ContextLimits(windows=(window,), reserved=1_000, has_clock=True)
    omitted = pruned = changes = 0
    shares: list[float] = []
    before = b""
    for turn in range(turns):
        run = running(
            turn,
            last_ms=turn * 90_000,
            asked=AskedModel(input_tokens=len(before) // 4),
            cuts=PromptCuts(omitted=omitted, pruned=pruned),
        )
        event, request = assemble(
            run, PREFIX, turn + 1, 1, KEY, history=history, limits=limits, cache=cache
        )
        text = b"\n".join(msgspec.json.encode(each) for each in request.messages)
        stable = b"\n".join(
            msgspec.json.encode(each) for each in request.messages[: -request.volatile]
        )
        if before:
            same = _common(before, text)
            shares.append(same / len(before))
            changes += same < len(before)
        before = stable
        assert event.budget is not None
        assert not event.budget.is_exhausted
        omitted, pruned = event.budget.omitted, event.budget.pruned
    return {
        "turns": turns,
        "window": window,
        "repeated_share": round(statistics.mean(shares), 4),
        "turns_that_changed": changes,
    }


def _common(left: bytes, right: bytes) -> int:
    """Return the length of the common beginning."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def measure_tokens(ratio: float, turns: int) -> dict[str, float]:
    """Return the error of the estimate in the first and in the last turn."""
    factor, errors = FACTOR, []
    for turn in range(1, turns + 1):
        run = running(4 * turn, token_bps={"m": factor})
        cache = PromptCache(run, NO_HISTORY, KEY)
        event, _ = assemble(run, PREFIX, turn, 1, KEY, cache=cache)
        plain = event.input_tokens * FACTOR / factor
        reported = round(plain * ratio)
        errors.append(abs(event.input_tokens / reported - 1))
        factor = learn_factor(factor, event.input_tokens, reported)
    return {"ratio": ratio, "first_error": round(errors[0], 3), "last_error": round(errors[-1], 3)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    figures = {
        "bench": "context",
        "calibration_ms": calibrate(),
        "assembly": {str(size): measure_times(size, rounds) for size in SIZES},
        "summary": {str(size): measure_summary(size, rounds) for size in SIZES},
        "prefix": [measure_prefix(60, 1_000_000), measure_prefix(60, 12_000)],
        "tokens": [measure_tokens(1.4, 12), measure_tokens(0.7, 12)],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
