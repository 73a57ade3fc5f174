"""The users' requests: texts with directives, drawn from the seed."""

from collections.abc import Sequence
from random import Random

from palyra.core.model.messages import FAILURE_CLASSES
from palyra.core.policy.questions import ASK_USER
from tests.simulate.models import SECRET

TOOLS = ("peek", "peek", "mark", "mark", "again", "press", "approve_mark", "approve_again")
ASKED_TOOLS = ("peek", "approve_mark", "approve_mark", "approve_mark")  # of a cautious user
QUESTION_TOOLS = (
    ASK_USER,
    ASK_USER,
    "peek",
    "mark",
    "again",
    "approve_mark",
)  # of an indecisive one
RARE_TOOLS = ("never", "echo", "sleep", "unknown_tool", "list_dir")


def draw_text(rng: Random, name: str, tools: Sequence[str] = TOOLS) -> str:
    """Return a message whose first line is its name; the rest has the model's directives."""
    lengths = (2, 3, 4) if tools is ASKED_TOOLS else (0, 1, 1, 2, 3)  # a grant is for what follows
    turns = ["\n".join(_draw_turn(rng, name, tools)) for _ in range(rng.choice(lengths))]
    return "\n".join([name, "\n/then\n".join(turns)]).rstrip()


def _draw_turn(rng: Random, name: str, tools: Sequence[str]) -> list[str]:
    lines = []
    if rng.random() < 0.3:
        lines.append(f"/delay {rng.choice((1, 20, 300, 4_000))}")
    if rng.random() < 0.3:
        lines.append(f"/say working on {name}")
    if rng.random() < 0.2:
        lines.append(f"/tokens {rng.choice((1, 5, 40))}")
    if rng.random() < 0.12:
        times = rng.choice(("", "", " 1", " 2"))
        lines.append(f"/fail {rng.choice(FAILURE_CLASSES)}{times}")
    calls = rng.choice((0, 1, 1, 1, 2, 3, 6))
    return [*lines, *(_draw_call(rng, f"{name}.{index}", tools) for index in range(calls))]


def _draw_call(rng: Random, name: str, tools: Sequence[str]) -> str:
    tool = rng.choice(RARE_TOOLS) if rng.random() < 0.1 else rng.choice(tools)
    text = SECRET if rng.random() < 0.05 else name
    if rng.random() < 0.2:
        text = "the same"
    seconds = rng.choice(("0", "0", "0.01", "0.7", "4", "20"))
    if tool == ASK_USER:
        return f'/call {tool} {{"question": "{text}"}}'
    if tool == "sleep":
        return f'/call sleep {{"seconds": {seconds}}}'
    if rng.random() < 0.05:
        return f'/call {tool} {{"txet": 1}}'
    return f'/call {tool} {{"text": "{text}", "seconds": {seconds}}}'
