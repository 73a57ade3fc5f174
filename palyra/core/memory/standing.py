"""Standing items: what a principal's prompts hold whatever the message says.

A preference applies to requests that share no word with it: "answer in metric units" and "how far is
it from Ulm to Munich?".  So preferences and pinned items are not recalled by similarity; every prompt
of their principal shows them, as many as a budget of tokens holds.

Who is first decides what fits: pinned items, then those that recalls found for a question most often,
then the newest.  The prompt shows them in the order of their creation, so a new one is added at the
end and the cached prefix before it stays as it is.  A text that others may have written is never one of them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from palyra.core.journal.changes import MemoryPlace
from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.packing import render_line
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.labels import is_from_outside

STANDING_TOKENS = 800  # of a prompt: some forty preferences of one sentence
STANDING_KIND = "preference"


class StandingItem(NamedTuple):
    """A standing item with its size in a prompt."""

    item: MemoryRecord
    tokens: int


class Standing(NamedTuple):
    """Standing items of one prompt, oldest first."""

    shown: tuple[MemoryRecord, ...] = ()
    left_out: int = 0  # items that did not fit


def may_stand(item: MemoryRecord) -> bool:
    """True if an item belongs into every prompt of its principal."""
    if item.pinned:
        return not is_from_outside(item.trust)
    return item.kind == STANDING_KIND and item.trust == "trusted_local"


def rank_standing(
    items: Iterable[MemoryRecord], uses: Mapping[str, int]
) -> tuple[StandingItem, ...]:
    """Return the items that may stand, those with the first claim to a place first; `uses` counts finds by recalls."""

    def key(item: MemoryRecord) -> tuple[bool, int, int, str]:
        return item.pinned, uses.get(item.memory_id, 0), item.at_ms, item.memory_id

    ranked = sorted(filter(may_stand, items), key=key, reverse=True)
    return tuple(StandingItem(item, estimate_tokens(f"{render_line(item)}\n")) for item in ranked)


def choose_standing(
    ranked: Iterable[StandingItem], place: MemoryPlace, budget_tokens: int = STANDING_TOKENS
) -> Standing:
    """Return the items for a prompt of that place; one that is too long for the rest is passed over."""
    shown: list[MemoryRecord] = []
    left_out = 0
    for item, tokens in ranked:
        if not place.sees(item):
            continue
        if tokens <= budget_tokens:
            budget_tokens -= tokens
            shown.append(item)
        else:
            left_out += 1
    shown.sort(key=lambda item: (item.created_ms, item.memory_id))
    return Standing(tuple(shown), left_out)
