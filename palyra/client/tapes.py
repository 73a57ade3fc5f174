"""Typed methods about tapes: pages, live events, verification, export."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from palyra.client.feed import TapeEvent, to_event
from palyra.client.requests import RequestMethods
from palyra.client.subscription import Inbox, Subscription
from palyra.core.journal.changes import VerifyReport
from palyra.net.protocol.results import ExportPage, TapeItems


class TapePage(msgspec.Struct, frozen=True, kw_only=True):
    """Committed events after a cursor; `next_after_seq` is None when the head was reached."""

    events: list[TapeEvent]
    head_seq: int
    floor_seq: int
    next_after_seq: int | None


class TapeMethods(RequestMethods):
    """Read, follow, verify and export tapes."""

    async def read_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> TapePage:
        """A page of committed events with seq > after_seq."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        page = await self._ask("tape.read", params, TapeItems)
        return TapePage(
            events=[to_event(item) for item in page.events],
            head_seq=page.head_seq,
            floor_seq=page.floor_seq,
            next_after_seq=page.next_after_seq,
        )

    @asynccontextmanager
    async def events(
        self, run_id: str, after_seq: int = -1, *, progress: bool = True
    ) -> AsyncGenerator[Subscription]:
        """All events after `after_seq`, then live ones, as an async iterator.

        The iterator ends after the run's terminal event.  It survives lost connections and
        restarts of the daemon without gap or repeat; events that a crash undid are announced by
        `Dropped`.  Raises NotFound for an unknown run.
        """
        subscription = self._line.subscribe(run_id, after_seq, progress=progress)
        try:
            await subscription.wait_opened()
            yield subscription
        finally:
            self._line.unsubscribe(subscription)

    @asynccontextmanager
    async def notices(self) -> AsyncGenerator[Inbox]:
        """Notifications outside subscriptions (approvals, draining) from now on.

        They are news: after a lost connection, list again what matters.
        """
        inbox = self._line.open_inbox()
        try:
            yield inbox
        finally:
            self._line.close_inbox(inbox)

    async def verify_tape(self, run_id: str | None = None) -> VerifyReport:
        """The daemon's own check of chain and signed roots, of one run or everything."""
        return await self._ask("tape.verify", {"run_id": run_id}, VerifyReport)

    async def export_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> ExportPage:
        """A page of a tape's proof; go on until `next_after_seq` is None."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        return await self._ask("tape.export", params, ExportPage)
