"""Previews of approvals whose question is on its way to the disk."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from palyra.core.journal.changes import Change
from palyra.core.ports import JournalStore
from palyra.errors import NotFound
from palyra.services.previews import Previews
from tests.actors.run.office_kit import OPERATOR, inline_blocking
from tests.store.kit import approval
from tests.store.memory.journal import MemoryJournal

T = TypeVar("T")

ASKED = approval("apr_a", call_id="")


class LateJournal:
    """A journal with changes that are committed when the next one is."""

    def __init__(self, *waiting: Change) -> None:
        self.store = MemoryJournal()
        self.store.open()
        self.waiting = list(waiting)
        self.commits = 0

    @property
    def backlog(self) -> int:
        return len(self.waiting)

    async def commit(self, change: Change) -> None:
        self.commits += 1
        assert [None] * (len(self.waiting) + 1) == self.store.commit([*self.waiting, change])
        self.waiting.clear()

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        return query(cast("JournalStore", self.store))


def previews(journal: LateJournal) -> Previews:
    none: Any = None
    return Previews(cast("Any", journal), none, none, lambda text: (text, False), inline_blocking)


async def test_question_on_its_way_to_the_disk_has_a_preview() -> None:
    """Clients get an event before it is committed, so its record may be found a moment later."""
    journal = LateJournal(Change(records=(ASKED,)))
    assert "apr_a" == (await previews(journal).preview(OPERATOR, "apr_a")).approval_id


@pytest.mark.parametrize(("waiting", "commits"), [((), 0), ((Change(),), 1)])
async def test_approval_that_never_was_is_not_found(
    waiting: tuple[Change, ...], commits: int
) -> None:
    """An unknown id waits for what the journal has, at most, and writes nothing when it has nothing."""
    journal = LateJournal(*waiting)
    with pytest.raises(NotFound, match="apr_b"):
        await previews(journal).preview(OPERATOR, "apr_b")
    assert commits == journal.commits
