"""Turns of conversations as a search returns them.

A turn is a user's message, a text of the model or an output of a tool, in the form of an item of memory
with the kind `turn` and one event as its lineage (`store.sqlite.turns`).  Its channel is the key of
its conversation: what was said in one place is recalled in that place only.
"""

import re
from collections.abc import Sequence

import msgspec

from palyra.core.journal.changes import SaidText
from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.query import content_words

EXCERPT_CHARS = 600
_AROUND_CHARS = 200  # before the first word of the query


def conversation_key(channel: str | None, conversation_id: str | None) -> str:
    """Return the place of a session: a conversation of a channel; "" for one without a channel."""
    return "" if channel is None else msgspec.json.encode((channel, conversation_id)).decode()


def as_said(turn: MemoryRecord, query: str) -> SaidText:
    """Return the turn as said, cut to an excerpt around the first word of the query."""
    (event,) = turn.lineage
    return SaidText(
        event.run_id,
        turn.session_id or "",
        event.first_seq,
        turn.at_ms,
        turn.author == "user",
        _excerpt(turn.text, content_words(query)),
        turn.author == "tool",
        turn.trust,
    )


def _excerpt(text: str, words: Sequence[str]) -> str:
    if len(text) <= EXCERPT_CHARS:
        return text
    first = re.search("|".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
    start = max(0, (first.start() if first else 0) - _AROUND_CHARS)
    return text[start : start + EXCERPT_CHARS]
