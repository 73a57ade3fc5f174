"""Recall for prompts: standing items and memories about a message, as sources of its context.

Owns: nothing.  Talks to: `services.memory.search`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from palyra.core.journal.records import MemoryRecord, MemoryWay
from palyra.core.memory.items import RecallUse
from palyra.core.model.sources import ContextSource, MemorySources, RecallScope
from palyra.errors import Unavailable
from palyra.services.memory.search import MemorySearch

EARLIER = ", earlier: a newer memory says otherwise"


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
        pack = await self._search.recall(
            question, place, limit=scope.limit, is_asked=scope.is_explicit
        )
        if pack.is_failed:
            raise Unavailable(f"the memory failed: {pack.degraded}")
        if not pack.hits:
            return ()
        if scope.run_id:
            way: MemoryWay = "reference" if scope.is_explicit else "auto"
            self._search.note_use(_use(scope, way, question), pack.hits)
        standing = () if scope.is_explicit else (await self._search.find_standing(place)).shown
        known = {item.memory_id for item in standing}
        return tuple(
            _as_source(hit.item, is_earlier=hit.later is not None)
            for hit in pack.hits
            if hit.item.memory_id not in known
        )

    async def find_standing(self, scope: RecallScope) -> MemorySources:
        """See `core.ports.PromptRecall`; a run's items are listed by `memory.used`."""
        place = scope.audience.place
        if place is None:
            return MemorySources()
        found = await self._search.find_standing(place)
        if scope.run_id:
            self._search.note_standing(_use(scope, "standing", ""), found.shown)
        return MemorySources(tuple(map(_as_source, found.shown)), found.left_out)


def _use(scope: RecallScope, way: MemoryWay, question: str) -> RecallUse:
    return RecallUse(
        run_id=scope.run_id,
        session_id=scope.audience.session_id,
        principal=scope.audience.principal,
        way=way,
        question=question,
    )


def _as_source(item: MemoryRecord, *, is_earlier: bool = False) -> ContextSource:
    day = datetime.fromtimestamp(item.at_ms / 1000, UTC)
    author = f"{item.author}, " if item.author else ""
    return ContextSource(
        name=item.memory_id,
        kind=item.kind,
        text=item.text,
        note=f"{author}{day:%Y-%m-%d}{EARLIER if is_earlier else ''}",
        trust=item.trust,
    )
