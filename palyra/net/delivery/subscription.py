"""Subscriptions: the runs that one client watches, brought up to date and then kept so.

Owns: the subscriptions of one client.  Talks to: hub, journal, the client's sink.

Two rules of order make the stream whole.  A cursor is on its feed before the journal is read, so
a row is either in a page that will be read or in the feed's tail.  And a cursor goes live in one
step without an await, when the tail reaches back to it (`palyra.net.delivery.feed_cursor`).  No row
is buffered per reader, so a reader that is behind costs no memory.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from palyra.actors.hub import Hub, RunFeed
from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import TapePage
from palyra.errors import NotFound, Overloaded
from palyra.net.delivery.feed_cursor import FeedCursor, RowSink
from palyra.net.protocol.notifications import TapeCaughtUp

PAGE_ROWS = 512  # encoding a page takes the loop for about a millisecond
PAGE_BYTES = 262_144
NOTHING_YET = -1  # head of a tape that is about to begin
_NO_SEQ = -1  # a stream of many runs has no single one

Spawn = Callable[[Callable[[], Awaitable[None]]], None]
ReadPage = Callable[[str, int], Awaitable[TapePage]]  # run id, after_seq


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Services that the requests and subscriptions of one client use."""

    caller: Caller
    hub: Hub
    sink: RowSink
    read_page: ReadPage
    new_id: NewId
    spawn: Spawn  # the task ends with the client
    bulk: trio.Lock  # one large read at a time, so that the bytes waiting to be written are bounded


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """The part of a run that a subscriber receives."""

    kinds: frozenset[str] | None = None  # None: all
    progress: bool = True


class LiveSubscription:
    """One run from a seq on; or, as a wide subscriber of the hub, many runs from seq 0."""

    def __init__(
        self,
        client: ClientContext,
        wanted: SubscriptionFilter,
        *,
        is_wide: bool = False,
        session_id: str | None = None,
    ) -> None:
        self.subscription_id = client.new_id("sub")
        self.sink = client.sink
        self.kinds = wanted.kinds
        self.wants_progress = wanted.progress
        self._client = client
        self._is_wide = is_wide
        self._session_id = session_id
        self._cursors: dict[str, FeedCursor] = {}
        self._awaited: set[FeedCursor] = set()  # cursors that must join before `tape.caught_up`
        self._behind: deque[FeedCursor] = deque()
        self._is_reading = False
        self._is_started = False
        self._is_closed = False

    def open_cursor(self, feed: RunFeed, next_seq: int) -> FeedCursor:
        """Follow that run; nothing is sent before `start`."""
        cursor = self._cursors[feed.run_id] = FeedCursor(self, feed, next_seq)
        if not self._is_started:
            cursor.hold()
            self._awaited.add(cursor)
        elif not cursor.join():
            self.fall_behind(cursor)
        return cursor

    def start(self) -> None:
        """Begin to send; the reply that names the subscription must be in the sink."""
        if self._is_closed:
            return
        self._is_started = True
        if not self._awaited:
            self._send_caught_up(_NO_SEQ)
        for cursor in list(self._cursors.values()):
            if not cursor.join():
                self.fall_behind(cursor)

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._client.hub.remove_spectator(self)
        for cursor in self._cursors.values():
            self._client.hub.leave(cursor.feed, cursor)
        self._cursors.clear()

    # --- called by the hub, when this follows more than one run ---

    def wants(self, feed: RunFeed) -> bool:
        """True if the run is in scope and visible to the caller."""
        is_inside = self._session_id in {None, feed.session_id}
        return is_inside and self._client.caller.sees(feed.principal)

    def follow(self, feed: RunFeed) -> None:
        """Follow that run from seq 0, unless it is followed already."""
        if feed.run_id not in self._cursors:
            self.open_cursor(feed, 0)

    # --- called by the cursors ---

    def joined(self, cursor: FeedCursor) -> None:
        """Send `tape.caught_up`, once, when the last cursor has passed on its committed rows."""
        if cursor not in self._awaited:
            return
        self._awaited.remove(cursor)
        if not self._awaited:
            self._send_caught_up(_NO_SEQ if self._is_wide else cursor.next_seq - 1)

    def _send_caught_up(self, through: int) -> None:
        notice = TapeCaughtUp(subscription=self.subscription_id, through=through)
        self.sink.put_notice("tape.caught_up", notice)

    def end_run(self, cursor: FeedCursor) -> None:
        """Forget a run that has ended, unless its first rows are still to be sent."""
        if cursor not in self._awaited:
            self._cursors.pop(cursor.feed.run_id, None)

    def fall_behind(self, cursor: FeedCursor) -> None:
        """Read the tape for that cursor, after those that wait already."""
        self._behind.append(cursor)
        if not self._is_reading:
            self._is_reading = True
            self._client.spawn(self._catch_up)

    async def _catch_up(self) -> None:
        """Read page after page for each cursor until it joins."""
        while self._behind:
            cursor = self._behind.popleft()
            while not self._is_closed and not cursor.join():
                await self._replay_page(cursor)
        self._is_reading = False

    async def _replay_page(self, cursor: FeedCursor) -> None:
        """Pass on one page, once the sink has room: a replay can wait, unlike the live stream."""
        async with self._client.bulk:
            await self.sink.wait_room()
            page = await self._client.read_page(cursor.feed.run_id, cursor.next_seq - 1)
            if not self._is_closed:
                self._client.hub.note_head(cursor.feed, page.head_seq)
                cursor.replay(page)


class Closable(Protocol):
    """A subscription or a watch of one connection."""

    @property
    def subscription_id(self) -> str: ...
    def close(self) -> None:
        """Send nothing more."""


S = TypeVar("S", bound=Closable)


class Subscriptions:
    """All subscriptions and watches of one connection."""

    def __init__(self, client: ClientContext, limit: int) -> None:
        self._client = client
        self._limit = limit
        self._open: dict[str, Closable] = {}

    def open_run(
        self, run_id: str, next_seq: int, wanted: SubscriptionFilter
    ) -> tuple[LiveSubscription, FeedCursor]:
        """Open a subscription to one run, to be started.  Raises Overloaded."""
        subscription = self._add(LiveSubscription(self._client, wanted))
        cursor = subscription.open_cursor(self._client.hub.get_feed(run_id), next_seq)
        return subscription, cursor

    def open_many(self, session_id: str | None, wanted: SubscriptionFilter) -> LiveSubscription:
        """Open a subscription, to be started, to all runs the caller sees, or one session's.

        Raises Overloaded.
        """
        subscription = self._add(
            LiveSubscription(self._client, wanted, is_wide=True, session_id=session_id)
        )
        self._client.hub.add_spectator(subscription)
        return subscription

    def open(self, make: Callable[[ClientContext], S]) -> S:
        """Open another kind of stream, to be started.  Raises Overloaded."""
        return self._add(make(self._client))

    def _add(self, subscription: S) -> S:
        if len(self._open) >= self._limit:
            raise Overloaded(f"this connection has {self._limit} subscriptions, the limit")
        self._open[subscription.subscription_id] = subscription
        return subscription

    def close(self, subscription_id: str) -> None:
        """Close one.  Raises NotFound."""
        subscription = self._open.pop(subscription_id, None)
        if subscription is None:
            raise NotFound(
                f"no subscription {subscription_id!r} on this connection", field="subscription"
            )
        subscription.close()

    def close_all(self) -> None:
        """Close all of them: the connection ends."""
        for subscription in self._open.values():
            subscription.close()
        self._open.clear()
