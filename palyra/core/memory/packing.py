"""The recall pack: as many of the best hits as a budget of tokens holds, in an order to be read.

Statements that were made to last (facts, preferences, procedures, decisions) come first, at most
eight, if they score at least half as much as the best hit.  A hit without any score has nothing to
do with the question and is left out.  Then follow single items in the order of their rank: about 35
turns of a conversation in 1 500 tokens.  Fewer turns, or turns with their neighbours, find less
(`bench/recall.py`): the answer to a question about several events is in several places.  A text
that is too long for the rest of the budget is passed over, not cut.
"""

from collections.abc import Sequence

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.dates import day_of
from palyra.core.memory.items import MemoryHit, MemoryHits, RecallPack
from palyra.core.text.tokens import estimate_tokens

PACK_TOKENS = 1_500
MAX_LASTING = 8
LASTING_SHARE = 0.5  # of the best score, for a place among the first
LASTING_KINDS = frozenset({"fact", "preference", "procedure", "decision"})


def pack_hits(found: MemoryHits, budget_tokens: int = PACK_TOKENS) -> RecallPack:
    """Choose from hits, best first: lasting ones by rank, others by conversation and time."""
    scored = [hit for hit in found.hits if hit.score > 0]
    least = LASTING_SHARE * max((hit.score for hit in scored), default=0.0)
    strong = [hit for hit in scored if hit.item.kind in LASTING_KINDS and hit.score >= least]
    lasting = strong[:MAX_LASTING]
    left_out = {hit.item.memory_id for hit in strong}
    others = [hit for hit in scored if hit.item.memory_id not in left_out]
    left_tokens, first = _fill(lasting, budget_tokens)
    left_tokens, rest = _fill(others, left_tokens)
    return RecallPack(
        hits=(*first, *_by_conversation(rest)),
        tokens=budget_tokens - left_tokens,
        mode=found.mode,
        degraded=found.degraded,
    )


def render_line(item: MemoryRecord) -> str:
    """Return the item as one entry of the pack: absolute date, author, text."""
    text = "\n  ".join(item.text.strip().splitlines())
    source = f"{item.author}: " if item.author else ""
    return f"- {day_of(item.at_ms).isoformat()} {source}{text}"


def _fill(hits: Sequence[MemoryHit], left_tokens: int) -> tuple[int, list[MemoryHit]]:
    chosen = []
    for hit in hits:
        cost = estimate_tokens(render_line(hit.item) + "\n")
        if cost <= left_tokens:
            left_tokens -= cost
            chosen.append(hit)
    return left_tokens, chosen


def _by_conversation(hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """Sort by time; items of one conversation stay together, at the time of their first."""
    first: dict[str, int] = {}
    for hit in hits:
        key = _conversation(hit.item)
        first[key] = min(hit.item.at_ms, first.get(key, hit.item.at_ms))

    def position(hit: MemoryHit) -> tuple[int, str, int, str]:
        key = _conversation(hit.item)
        return first[key], key, hit.item.at_ms, hit.item.memory_id

    return sorted(hits, key=position)


def _conversation(item: MemoryRecord) -> str:
    return item.session_id or item.memory_id
