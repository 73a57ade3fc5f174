"""The recall pack: as many of the best hits as a budget of tokens holds, in an order to be read.

Facts and preferences come first, at most eight.  Then follow single items in the order of their
rank: about 35 turns of a conversation in 1 500 tokens.  Fewer turns, or turns with their
neighbours, find less (`bench/recall.py`): the answer to a question about several events is in
several places.  A text that is too long for the rest of the budget is passed over, not cut.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.memory.dates import day_of
from palyra.core.text.tokens import estimate_tokens

PACK_TOKENS = 1_500
MOST_FACTS = 8
FACT_KINDS = frozenset({"fact", "preference"})


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """A hit with what is shown of it."""

    memory_id: str
    kind: str
    text: str
    author: str | None = None
    session_id: str | None = None
    at_ms: int


def pack(ranked: Sequence[Recalled], tokens: int = PACK_TOKENS) -> list[Recalled]:
    """Choose from hits, best first; facts by rank, then the others by conversation and time."""
    facts = [each for each in ranked if each.kind in FACT_KINDS][:MOST_FACTS]
    others = [each for each in ranked if each.kind not in FACT_KINDS]
    left, chosen_facts = _fill(facts, tokens)
    _, chosen = _fill(others, left)
    return chosen_facts + _by_conversation(chosen)


def render_line(item: Recalled) -> str:
    """Return the item as one entry of the pack: absolute date, author, text."""
    text = "\n  ".join(item.text.strip().splitlines())
    source = f"{item.author}: " if item.author else ""
    return f"- {day_of(item.at_ms).isoformat()} {source}{text}"


def _fill(items: Sequence[Recalled], tokens: int) -> tuple[int, list[Recalled]]:
    chosen = []
    for item in items:
        cost = estimate_tokens(render_line(item) + "\n")
        if cost <= tokens:
            tokens -= cost
            chosen.append(item)
    return tokens, chosen


def _by_conversation(items: Sequence[Recalled]) -> list[Recalled]:
    """Sort by time; items of one conversation stay together, at the time of their first."""
    first: dict[str, int] = {}
    for item in items:
        key = item.session_id or item.memory_id
        first[key] = min(item.at_ms, first.get(key, item.at_ms))
    return sorted(
        items,
        key=lambda item: (
            first[item.session_id or item.memory_id],
            item.session_id or item.memory_id,
            item.at_ms,
            item.memory_id,
        ),
    )
