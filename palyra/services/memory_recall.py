"""Recall for prompts: memories about a message, as sources of its context.

Owns: nothing.  Talks to: `services.memory_search`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from palyra.core.memory.items import MemoryHit, RecallUse
from palyra.core.model.sources import ContextSource, RecallScope
from palyra.errors import Unavailable
from palyra.services.memory_search import MemorySearch


class MemoryRecall:
    """`core.ports.PromptRecall` of the memory."""

    def __init__(self, search: MemorySearch) -> None:
        self._search = search

    async def prepare(self, principal: str) -> None:
        """See `MemorySearch.prepare`."""
        await self._search.prepare(principal)

    def has_items(self, principal: str) -> bool:
        """See `MemorySearch.has_items`."""
        return self._search.has_items(principal)

    async def recall(self, question: str, scope: RecallScope) -> Sequence[ContextSource]:
        """See `core.ports.PromptRecall`; a run's recall is listed by `memory.used`.

        Raises Unavailable for a search that failed, which the tape then says.
        """
        place = scope.audience.place
        if place is None:
            return ()
        pack = await self._search.recall(question, place, limit=scope.limit)
        if pack.is_failed:
            raise Unavailable(f"the memory failed: {pack.degraded}")
        if not pack.hits:
            return ()
        if scope.run_id:
            use = RecallUse(
                run_id=scope.run_id,
                session_id=scope.audience.session_id,
                principal=scope.audience.principal,
                way="reference" if scope.is_explicit else "auto",
                question=question,
            )
            self._search.note_use(use, pack.hits)
        return tuple(map(_as_source, pack.hits))


def _as_source(hit: MemoryHit) -> ContextSource:
    item = hit.item
    day = datetime.fromtimestamp(item.at_ms / 1000, UTC)
    author = f"{item.author}, " if item.author else ""
    return ContextSource(
        name=item.memory_id,
        kind=item.kind,
        text=item.text,
        note=f"{author}{day:%Y-%m-%d}",
        trust=item.trust,
    )
