"""Subscriptions: what one connection watches, brought up to date and then kept so.

Owns: the subscriptions of one connection.  Talks to: hub, journal, the connection's outbox.
The order of things makes the stream whole: a lane is on its feed before the journal is read, so a
row is either in a page that will be read or in the feed's tail; and a lane goes live in one step
without an await, when the tail reaches back to its cursor.  No row is buffered per reader, so
being behind costs nobody memory.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from palyra.actors.hub.feed import RunFeed
from palyra.actors.hub.hub import Hub
from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import TapePage
from palyra.errors import NotFound, Overloaded
from palyra.net.delivery.encoding import encode_notice
from palyra.net.delivery.feed_cursor import FeedCursor
from palyra.net.delivery.outbox import Outbox
from palyra.net.protocol.notifications import TapeCaughtUp

PAGE_ROWS = 512  # encoding a page takes the loop for about a millisecond
PAGE_BYTES = 262_144
NOTHING_YET = -1  # head of a tape that is about to begin
_NO_SEQ = -1  # a stream of many runs has no single one

Spawn = Callable[[Callable[[], Awaitable[None]]], None]
ReadPage = Callable[[str, int], Awaitable[TapePage]]  # run id, after_seq


@dataclass(frozen=True, slots=True)
class ClientContext:
    """One connected client, as its requests and subscriptions see it."""

    caller: Caller
    hub: Hub
    outbox: Outbox
    read_page: ReadPage
    new_id: NewId
    spawn: Spawn  # the task ends with the connection
    bulk: trio.Lock  # one large read at a time, so that what waits to be written stays bounded


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """What of a run a subscriber wants to see."""

    kinds: frozenset[str] | None = None  # None: all
    progress: bool = True


class LiveSubscription:
    """One run from a cursor on; or, as a spectator of the hub, many runs from their beginnings."""

    def __init__(
        self,
        viewer: ClientContext,
        wanted: SubscriptionFilter,
        *,
        is_wide: bool = False,
        session_id: str | None = None,
    ) -> None:
        self.subscription_id = viewer.new_id("sub")
        self.outbox = viewer.outbox
        self.kinds = wanted.kinds
        self.wants_progress = wanted.progress
        self._viewer = viewer
        self._is_wide = is_wide
        self._session_id = session_id
        self._lanes: dict[str, FeedCursor] = {}
        self._awaited: set[FeedCursor] = set()  # lanes `caught_up` waits for
        self._behind: deque[FeedCursor] = deque()
        self._is_reading = False
        self._is_started = False
        self._is_closed = False

    def open_lane(self, feed: RunFeed, next_seq: int) -> FeedCursor:
        """Follow that run; nothing is sent before `start`."""
        lane = self._lanes[feed.run_id] = FeedCursor(self, feed, next_seq)
        if not self._is_started:
            lane.hold()
            self._awaited.add(lane)
        elif not lane.join():
            self.fall_behind(lane)
        return lane

    def start(self) -> None:
        """Begin to send; the reply that names the subscription must be in the outbox."""
        if self._is_closed:
            return
        self._is_started = True
        if not self._awaited:
            self._tell_caught_up(_NO_SEQ)
        for lane in list(self._lanes.values()):
            if not lane.join():
                self.fall_behind(lane)

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._viewer.hub.remove_spectator(self)
        for lane in self._lanes.values():
            self._viewer.hub.leave(lane.feed, lane)
        self._lanes.clear()

    # --- the hub's side, when this follows more than one run ---

    def wants(self, feed: RunFeed) -> bool:
        """Whether that run belongs to what this subscription watches."""
        is_inside = self._session_id in {None, feed.session_id}
        return is_inside and self._viewer.caller.sees(feed.principal)

    def follow(self, feed: RunFeed) -> None:
        """Show that run from its beginning, unless it is shown already."""
        if feed.run_id not in self._lanes:
            self.open_lane(feed, 0)

    # --- the lanes' side ---

    def joined(self, lane: FeedCursor) -> None:
        """Announce, once, that the tape is through and what follows is live."""
        if lane not in self._awaited:
            return
        self._awaited.remove(lane)
        if not self._awaited:
            self._tell_caught_up(_NO_SEQ if self._is_wide else lane.next_seq - 1)

    def _tell_caught_up(self, through: int) -> None:
        notice = TapeCaughtUp(subscription=self.subscription_id, through=through)
        self.outbox.put(encode_notice("tape.caught_up", notice))

    def end_lane(self, lane: FeedCursor) -> None:
        """Forget a run that is over, unless its beginning has not even been sent."""
        if lane not in self._awaited:
            self._lanes.pop(lane.feed.run_id, None)

    def fall_behind(self, lane: FeedCursor) -> None:
        """Read the tape for that lane, after those that wait already."""
        self._behind.append(lane)
        if not self._is_reading:
            self._is_reading = True
            self._viewer.spawn(self._catch_up)

    async def _catch_up(self) -> None:
        while self._behind:
            lane = self._behind.popleft()
            while not self._is_closed and not lane.join():
                await self._read_on(lane)
        self._is_reading = False

    async def _read_on(self, lane: FeedCursor) -> None:
        """One page: reading waits for the reader, unlike the live stream."""
        async with self._viewer.bulk:
            await self.outbox.wait_room()
            page = await self._viewer.read_page(lane.feed.run_id, lane.next_seq - 1)
            if not self._is_closed:
                self._viewer.hub.note_head(lane.feed, page.head_seq)
                lane.replay(page)


class Subscriptions:
    """All subscriptions of one connection."""

    def __init__(self, viewer: ClientContext, limit: int) -> None:
        self._viewer = viewer
        self._limit = limit
        self._open: dict[str, LiveSubscription] = {}

    def open_run(
        self, run_id: str, next_seq: int, wanted: SubscriptionFilter
    ) -> tuple[LiveSubscription, FeedCursor]:
        """A subscription to one run, to be started.  Raises Overloaded."""
        subscription = self._add(LiveSubscription(self._viewer, wanted))
        lane = subscription.open_lane(self._viewer.hub.get_feed(run_id), next_seq)
        return subscription, lane

    def open_many(self, session_id: str | None, wanted: SubscriptionFilter) -> LiveSubscription:
        """A subscription to all runs the caller sees, or those of one session, to be started."""
        subscription = self._add(
            LiveSubscription(self._viewer, wanted, is_wide=True, session_id=session_id)
        )
        self._viewer.hub.add_spectator(subscription)
        return subscription

    def _add(self, subscription: LiveSubscription) -> LiveSubscription:
        if len(self._open) >= self._limit:
            raise Overloaded(f"this connection has {self._limit} subscriptions, the limit")
        self._open[subscription.subscription_id] = subscription
        return subscription

    def close(self, subscription_id: str) -> None:
        """End one.  Raises NotFound."""
        subscription = self._open.pop(subscription_id, None)
        if subscription is None:
            raise NotFound(
                f"no subscription {subscription_id!r} on this connection", field="subscription"
            )
        subscription.close()

    def close_all(self) -> None:
        """The connection ends."""
        for subscription in self._open.values():
            subscription.close()
        self._open.clear()
