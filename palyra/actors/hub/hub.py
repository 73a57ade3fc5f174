"""The hub: who watches what; fan-out of events, progress and notices to every connection.

Owns: the feed of each open run (its watermarks and its newest rows) and the list of watchers.
Talks to: subscriptions and connections, through the Protocols below.  Never: waits for anybody,
touches the journal, or knows what a socket is.
Restart: permanent; feeds and watchers begin empty, because publishers and connections are started
after the hub and therefore restarted with it.

Publishing is a plain call, not a message: the row is in every outbox before the publisher goes
on, which is what "wire, then tape" asks for (docs/decisions/0003-hub.md).  All calls come from
the one trio thread and none of them awaits, so each is atomic.  The actor proper is the part that
needs time: it tells idle streams how far the tape is committed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import trio

from palyra.actors.hub.feed import FeedListener, ProgressDelta, PublishedRow, RunFeed
from palyra.actors.kernel.child import ChildSpec
from palyra.core.access import Caller
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import ProgressKind
from palyra.errors import InvariantBroken

REVOKED = (4403, "token revoked")
COMMITTED_DELAY_S = 0.01  # idle streams hear of a commit after this; 50 ms are promised


class Wire(Protocol):
    """Encoding of notices for the wire; a module of `net`.

    Rows and deltas are not encoded here: the readers that need bytes encode them, once for all.
    """

    def encode_notice(self, method: str, params: object) -> bytes: ...


class WideSubscriber(Protocol):
    """A subscription that follows every run of a session, or every run there is."""

    def wants(self, feed: RunFeed) -> bool: ...
    def follow(self, feed: RunFeed) -> None:
        """Open a lane on the feed from seq 0, unless there is one."""


class NotificationSink(Protocol):
    """One connection."""

    @property
    def caller(self) -> Caller: ...
    def notify(self, message: bytes) -> None: ...
    def hang_up(self, code: int, reason: str) -> None: ...


class Hub:
    """The registry behind HubHandle."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.reset()

    def reset(self) -> None:
        """Begin empty."""
        self._feeds: dict[str, RunFeed] = {}
        self._spectators: dict[WideSubscriber, None] = {}
        self._watchers: dict[NotificationSink, None] = {}
        self._revoked: set[str] = set()  # tokens: a connection may be opening with one right now
        self._dirty: dict[RunFeed, None] = {}
        self._wake = trio.Event()

    # --- publishers ---

    def publish(self, rows: Sequence[TapeRow]) -> None:
        first = rows[0]
        feed = self.get_feed(first.run_id)
        if not feed.is_open:
            self._open(feed, first)
        elif first.seq != feed.published + 1:
            self._rewind(feed, first.seq)
        feed.append(rows)
        if feed.lanes:  # most runs of a harness are watched by nobody
            published = [PublishedRow(row) for row in rows]
            for lane in feed.lanes:
                lane.deliver(published)

    def _open(self, feed: RunFeed, first: TapeRow) -> None:
        feed.learn(first)
        for spectator in self._spectators:
            if spectator.wants(feed):
                spectator.follow(feed)

    @staticmethod
    def _rewind(feed: RunFeed, seq: int) -> None:
        """A failed commit: the run goes on from the committed head, over rows already shown."""
        if not feed.committed < seq <= feed.published:
            raise InvariantBroken(
                f"{feed.run_id} published seq {seq} after {feed.published}, "
                f"committed {feed.committed}"
            )
        feed.cut(seq)
        for lane in feed.lanes:
            lane.rewind(seq)

    def committed(self, heads: Sequence[tuple[str, int]]) -> None:
        for run_id, seq in heads:
            feed = self._feeds.get(run_id)
            if feed is None or seq <= feed.committed:
                continue
            feed.commit(seq)
            if feed.is_over:
                self._retire(feed)
            elif feed.lanes:
                self._dirty[feed] = None
        if self._dirty:
            self._wake.set()

    def note_head(self, feed: RunFeed, head_seq: int) -> None:
        """A reader saw the committed head.

        Of a run that publishes, that may be before the journal's own word, which then is no news:
        so whoever waits for it is told now.
        """
        if feed.is_open:
            self.committed([(feed.run_id, head_seq)])
        else:
            feed.note_head(head_seq)

    def _retire(self, feed: RunFeed) -> None:
        del self._feeds[feed.run_id]
        self._dirty.pop(feed, None)
        for lane in feed.lanes:
            lane.tell_committed()
            lane.end()

    def progress(
        self, *, run_id: str, item: str, order: int, kind: ProgressKind, delta: str
    ) -> None:
        feed = self._feeds.get(run_id)
        if feed is None or not feed.lanes:
            return
        progress = ProgressDelta(run_id, item, kind, order, delta)
        for lane in feed.lanes:
            lane.offer_progress(progress)

    def notify(
        self, method: str, params: msgspec.Struct | dict[str, Any], *, principal: str, scope: str
    ) -> None:
        message = self._wire.encode_notice(method, params)
        for watcher in self._watchers:
            if watcher.caller.may(scope) and watcher.caller.sees(principal):
                watcher.notify(message)

    def broadcast(self, method: str, params: msgspec.Struct | dict[str, Any]) -> None:
        """Tell every connection."""
        message = self._wire.encode_notice(method, params)
        for watcher in self._watchers:
            watcher.notify(message)

    # --- readers ---

    def attach(self, watcher: NotificationSink) -> None:
        """The connection gets notices from now on."""
        self._watchers[watcher] = None
        if watcher.caller.token_id in self._revoked:
            watcher.hang_up(*REVOKED)

    def detach(self, watcher: NotificationSink) -> None:
        """The connection is gone; unknown ones are ignored."""
        self._watchers.pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        """How many connections are open."""
        return len(self._watchers)

    def revoke(self, token_id: str) -> None:
        """Close the connections that use this token, and any that come with it later."""
        self._revoked.add(token_id)
        for watcher in list(self._watchers):
            if watcher.caller.token_id == token_id:
                watcher.hang_up(*REVOKED)

    def hang_up(self, code: int, reason: str) -> None:
        """Close all connections."""
        for watcher in list(self._watchers):
            watcher.hang_up(code, reason)

    def get_feed(self, run_id: str) -> RunFeed:
        """The feed of that run, made if nobody published or watched it yet."""
        feed = self._feeds.get(run_id)
        if feed is None:
            feed = self._feeds[run_id] = RunFeed(run_id)
        return feed

    def leave(self, feed: RunFeed, lane: FeedListener) -> None:
        """Take the lane off the feed; a feed that only readers knew goes with its last one."""
        feed.lanes.pop(lane, None)
        if not feed.lanes and not feed.is_open and self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]

    def add_spectator(self, spectator: WideSubscriber) -> None:
        """The spectator follows what is open and whatever will be."""
        self._spectators[spectator] = None
        for feed in list(self._feeds.values()):
            if feed.is_open and spectator.wants(feed):
                spectator.follow(feed)

    def remove_spectator(self, spectator: WideSubscriber) -> None:
        """The spectator follows nothing new; unknown ones are ignored."""
        self._spectators.pop(spectator, None)

    # --- idle streams ---

    async def wait_dirty(self) -> None:
        """Return once some stream has not heard how far its tape is committed."""
        await self._wake.wait()

    def tell_committed(self) -> None:
        """Let every such stream hear it, unless an event told it meanwhile."""
        dirty, self._dirty = self._dirty, {}
        self._wake = trio.Event()
        for feed in dirty:
            for lane in feed.lanes:
                lane.tell_committed()


async def hub(
    registry: Hub, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The actor: coalesces commits into one word per idle stream."""
    registry.reset()
    task_status.started()
    while True:
        await registry.wait_dirty()
        await trio.sleep(COMMITTED_DELAY_S)
        registry.tell_committed()


def child_spec(registry: Hub) -> ChildSpec:
    """Permanent; has no mailbox, for publishing is a call."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        await hub(registry, task_status=task_status)

    return ChildSpec("hub", start)
