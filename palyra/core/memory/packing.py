"""The recall pack: as many of the best hits as a budget of tokens holds, in an order to be read.

Statements that stand alone (facts, preferences, procedures, decisions, and notes of no conversation)
come first, at most eight, if they score at least a third as much as the best hit: of sixty facts
and a question about one of them, the others are noise in the prompt.  The share is that of the score
above the noise that every text has with every other by a model of meaning.  Turns of a conversation share
its words, and the answer may be spread over it, so they have a lower floor and no limit but the
budget: about 30 in 1 500 tokens.  Fewer turns, or turns with their neighbours, find less
(`bench/recall.py`).  A text that is too long for the rest of the budget is passed over, not cut.
"""

from collections.abc import Sequence

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.dates import day_of
from palyra.core.memory.items import MemoryHit, MemoryHits, RecallPack
from palyra.core.text.tokens import estimate_tokens

PACK_TOKENS = 1_500
MAX_STATEMENTS = 8
# Of the best score, for a place in the pack.  Of the evidence in packs of turns, 0.2 loses one
# percent without a model of meaning and none with one; a third loses three.
STATEMENT_SHARE, TURN_SHARE = 1 / 3, 0.2
LASTING_KINDS = frozenset({"fact", "preference", "procedure", "decision"})


def pack_hits(found: MemoryHits, budget_tokens: int = PACK_TOKENS) -> RecallPack:
    """Choose from hits, best first: statements by rank, turns by conversation and time."""
    related = [hit for hit in found.hits if hit.score > 0] if found.is_related else []
    best = max((hit.score for hit in related), default=0.0)
    least = found.noise + STATEMENT_SHARE * (best - found.noise)
    strong = [hit for hit in related if stands_alone(hit.item) and hit.score >= least]
    turns = [
        hit for hit in related if not stands_alone(hit.item) and hit.score >= TURN_SHARE * best
    ]
    left_tokens, first = _fill(strong[:MAX_STATEMENTS], budget_tokens)
    left_tokens, rest = _fill(turns, left_tokens)
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


def stands_alone(item: MemoryRecord) -> bool:
    """True of a statement, which is understood without its conversation; False of a turn of one."""
    return item.kind in LASTING_KINDS or item.session_id is None


def _fill(hits: Sequence[MemoryHit], left_tokens: int) -> tuple[int, list[MemoryHit]]:
    chosen = []
    for hit in hits:
        cost = estimate_tokens(render_line(hit.item) + "\n")
        if cost <= left_tokens:
            left_tokens -= cost
            chosen.append(hit)
    return left_tokens, chosen


def _by_conversation(hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """Sort by time; turns of one conversation stay together, at the time of their first."""
    first: dict[str | None, int] = {}
    for hit in hits:
        key = hit.item.session_id
        first[key] = min(hit.item.at_ms, first.get(key, hit.item.at_ms))

    def position(hit: MemoryHit) -> tuple[int, str, int, str]:
        item = hit.item
        return first[item.session_id], item.session_id or "", item.at_ms, item.memory_id

    return sorted(hits, key=position)
