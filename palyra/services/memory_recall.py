"""Recall for prompts: memories about a message, as sources of its context.

Owns: the principals that are known to have no items, so that their runs do not wait for a search.
Talks to: `services.memory_search`, the journal.  A restart loses nothing.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from palyra.core.journal.changes import MemoryPlace
from palyra.core.memory.items import MemoryHit, RecallUse
from palyra.core.model.sources import ContextSource, RecallScope
from palyra.core.ports import Journal, NowMs
from palyra.errors import Unavailable
from palyra.services.memory_search import MemorySearch


class MemoryRecall:
    """`core.ports.PromptRecall` of the memory."""

    def __init__(self, search: MemorySearch, journal: Journal, now_ms: NowMs) -> None:
        self._search = search
        self._journal = journal
        self._now_ms = now_ms
        self._empty: dict[str, int] = {}  # generation of the items at the time, by principal
        self._counted: set[str] = set()

    async def prepare(self, principal: str) -> None:
        """Find out if the principal has items, once; a journal that fails leaves it open.

        Cancellation: nothing happened.
        """
        if principal in self._counted:
            return
        generation = self._search.generation(principal)
        try:
            await self._note_if_empty(principal, generation)
        except Unavailable:
            return
        self._counted.add(principal)

    async def _note_if_empty(self, principal: str, generation: int) -> None:
        counts = await self._journal.read(
            lambda store: store.count_memories(principal, now_ms=self._now_ms())
        )
        if counts.total == 0:
            self._empty[principal] = generation

    def has_items(self, principal: str) -> bool:
        """True unless the principal is known to have no items.  Never waits."""
        empty = self._empty.get(principal)
        return empty is None or empty != self._search.generation(principal)

    async def recall(self, question: str, scope: RecallScope) -> Sequence[ContextSource]:
        """See `core.ports.PromptRecall`; a run's recall is listed by `memory.used`."""
        if scope.memory_scope == "none":
            return ()
        generation = self._search.generation(scope.principal)
        place = MemoryPlace(
            principal=scope.principal,
            channel=scope.channel,
            session_id=scope.session_id or None,
            only_session=scope.memory_scope == "session",
        )
        pack = await self._search.recall(question, place, limit=scope.limit)
        if not pack.hits:
            await self._note_if_empty(scope.principal, generation)
            return ()
        if scope.run_id:
            use = RecallUse(
                run_id=scope.run_id,
                session_id=scope.session_id,
                principal=scope.principal,
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
