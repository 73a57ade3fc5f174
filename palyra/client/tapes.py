"""Typed methods about tapes: pages, live events, verification, export."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TypedDict, Unpack

import msgspec

from palyra.client.feed import TapeEvent, to_event
from palyra.client.requests import RequestMethods
from palyra.client.subscription import Inbox, Subscription
from palyra.core.journal.changes import VerifyReport
from palyra.core.tape.export import ExportSeal, render_seal
from palyra.core.tape.outline import Mark, TapeOutline
from palyra.core.tape.search import TapeFound
from palyra.errors import NotFound
from palyra.net.protocol.results import ExportPage, TapeItems

EXPORT_ROWS = 500  # of one page


class TapePage(msgspec.Struct, frozen=True, kw_only=True):
    """Committed events after a cursor; `next_after_seq` is None on the last page."""

    events: list[TapeEvent]
    head_seq: int
    floor_seq: int
    next_after_seq: int | None


class TapeWanted(TypedDict, total=False):
    """Filter of `tape.find`."""

    text: str
    kinds: Sequence[str]
    call_id: str | None
    marks: Sequence[Mark]
    from_seq: int | None
    backwards: bool
    limit: int


class TapeMethods(RequestMethods):
    """Read, follow, verify and export tapes."""

    async def read_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> TapePage:
        """Read a page of committed events with seq > after_seq."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        page = await self._ask("tape.read", params, TapeItems)
        return TapePage(
            events=[to_event(item) for item in page.events],
            head_seq=page.head_seq,
            floor_seq=page.floor_seq,
            next_after_seq=page.next_after_seq,
        )

    async def find_in_tape(self, run_id: str, **wanted: Unpack[TapeWanted]) -> TapeFound:
        """Find events by text, kind, call or mark; `next_seq` of the result goes on as `from_seq`."""
        return await self._ask("tape.find", {"run_id": run_id, **wanted}, TapeFound)

    async def outline_tape(
        self, run_id: str, *, buckets: int = 400, codes: bool = False
    ) -> TapeOutline:
        """Return the tape in buckets: events by family, and the marks with their first event.

        With `codes`, the result has a code for each event too.
        """
        params = {"run_id": run_id, "buckets": buckets, "codes": codes}
        return await self._ask("tape.outline", params, TapeOutline)

    @asynccontextmanager
    async def events(
        self, run_id: str, after_seq: int = -1, *, progress: bool = True
    ) -> AsyncGenerator[Subscription]:
        """Iterate over all events after `after_seq`, then over live ones.

        The iterator ends after the run's terminal event.  It survives lost connections and
        restarts of the daemon without gap or duplicate; `EventsDiscarded` announces events that
        were lost in a crash of the daemon.  Raises NotFound for an unknown run.
        """
        subscription = self._connection.subscribe(run_id, after_seq, progress=progress)
        try:
            await subscription.wait_opened()
            yield subscription
        finally:
            self._connection.unsubscribe(subscription)

    @asynccontextmanager
    async def notices(self) -> AsyncGenerator[Inbox]:
        """Iterate over notifications outside subscriptions (approvals, draining) from now on.

        Notifications sent while the connection is down are lost: list again what matters.
        """
        inbox = self._connection.open_inbox()
        try:
            yield inbox
        finally:
            self._connection.close_inbox(inbox)

    async def verify_tape(self, run_id: str | None = None) -> VerifyReport:
        """Let the daemon verify hash chain and signed roots, of one run or of all."""
        return await self._ask("tape.verify", {"run_id": run_id}, VerifyReport)

    async def export_tape(
        self, run_id: str, after_seq: int = -1, *, limit: int | None = None
    ) -> ExportPage:
        """Read a page of a signed export; the last page has no `next_after_seq`."""
        params = {"run_id": run_id, "after_seq": after_seq, "limit": limit}
        return await self._ask("tape.export", params, ExportPage)


async def export_run(client: TapeMethods, run_id: str) -> str:
    """Return the run's tape and seal in the deterministic form that `core.tape.export` verifies.

    Raises NotFound for an unknown run and for one without events.
    """
    lines: list[str] = []
    seal: ExportSeal | None = None
    cursor: int | None = -1
    while cursor is not None:
        page = await client.export_tape(run_id, cursor, limit=EXPORT_ROWS)
        cursor = page.next_after_seq
        if page.ndjson:
            lines.append(page.ndjson)
            seal = ExportSeal(
                run_id=run_id,
                seq=sum(text.count("\n") for text in lines) - 1,
                public_key=page.public_key,
                signature=page.signature,
                former_keys=page.former_keys,
            )
    if seal is None:
        raise NotFound(f"{run_id} has no events yet")
    return "".join([*lines, render_seal(seal)])
