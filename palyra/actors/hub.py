"""The hub: fan-out of events, progress and notices to every connection.

Owns: the feed of each open run and the set of connections.
Talks to: subscriptions and connections, through the Protocols below.  Never: waits, reads the
journal, or knows about sockets.
Restart: permanent; feeds and connections start empty, because publishers and connections are started
after the hub and therefore restarted with it.

Publishing is a plain call, not a message: the row is in every outbox before the publisher continues,
as the order "wire, then tape" requires (docs/decisions/0003-hub.md).  All calls come from the one
trio thread and none of them awaits, so each is atomic.  Only one thing needs a task: `hub` reports
the committed seq to streams that have no event to carry it, at most every `COMMITTED_DELAY_S`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.core.access import Caller
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import Notifier
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.run.state import Run
from palyra.core.tape.events import TERMINAL_KINDS, ProgressKind
from palyra.errors import InvariantBroken

REVOKED = (4403, "token revoked")
COMMITTED_DELAY_S = 0.01  # until idle streams get the committed seq; 50 ms are promised
# Of payloads kept per open run, so that most new listeners need not read the journal.
KEEP_BYTES = 65_536

# --- the feed of one run --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class PublishedRow:
    """One row for all readers.

    The first reader that needs the encoded event stores it here, so that an event is encoded once
    however many read it, and not at all if no reader needs bytes.
    """

    row: TapeRow
    encoded: bytes | None = None


@dataclass(slots=True, eq=False)
class ProgressDelta:
    """One volatile delta of a run for all readers; `encoded` as in `PublishedRow`."""

    run_id: str
    item: str  # turn or call id
    kind: ProgressKind
    order: int
    delta: str
    offset: int = 0  # characters of this kind in the item before the delta
    encoded: tuple[bytes, bytes] | None = None


class FeedListener(Protocol):
    """The cursor of one subscription on one run."""

    def deliver(self, rows: Sequence[PublishedRow]) -> None:
        """Deliver newly published rows, in order."""

    def rewind(self, seq: int) -> None:
        """Withdraw the rows from `seq` on: they were not committed, others replace them."""

    def offer_progress(self, delta: ProgressDelta) -> None:
        """Deliver a delta if the listener has room."""

    def notify_committed(self) -> None:
        """Deliver the committed seq of the feed, which has advanced."""

    def end(self) -> None:
        """End the cursor: the terminal event is committed."""


class RunFeed:
    """Watermarks, newest rows (the tail) and listeners of one run; written by the hub only.

        published   last seq delivered to listeners; ahead of the tape while a commit is pending
        committed   last seq that is durable; never ahead of `published`
        last_seq    seq of the terminal event once it is published; the run is over when it is
                    committed

    A failed commit takes rows back: the run continues from the committed head, the tail is cut and
    the listeners rewind.  A listener whose cursor is older than the tail reads the journal itself.
    """

    __slots__ = (
        "_tail",
        "_tail_bytes",
        "committed",
        "is_known",
        "is_open",
        "last_seq",
        "listeners",
        "principal",
        "published",
        "run_id",
        "session_id",
    )

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.session_id = ""  # this and the next come from the first row
        self.principal = ""
        self.published = -1
        self.committed = -1
        self.last_seq: int | None = None  # of the terminal event, once published
        self.is_open = False  # a publisher exists and the run is not over
        self.is_known = False  # `published` and `committed` are valid
        self.listeners: dict[FeedListener, None] = {}  # in the order of subscription
        self._tail: deque[TapeRow] = deque()
        self._tail_bytes = 0

    def open(self, first: TapeRow) -> None:
        """Open the feed with the first row of a publisher; earlier rows are committed."""
        self.session_id = first.session_id
        self.principal = first.principal
        self.published = self.committed = first.seq - 1
        self.is_open = self.is_known = True

    def note_head(self, head_seq: int) -> None:
        """Record the committed head that a reader found, for a run without a publisher."""
        self.committed = max(self.committed, head_seq)
        self.published = max(self.published, head_seq)
        self.is_known = True

    def append(self, rows: Sequence[TapeRow]) -> None:
        """Add published rows; they follow `published`."""
        self._tail.extend(rows)
        for row in rows:
            self._tail_bytes += len(row.data)
        self.published = rows[-1].seq
        if rows[-1].kind in TERMINAL_KINDS:
            self.last_seq = rows[-1].seq

    def cut(self, seq: int) -> None:
        """Remove the rows from `seq` on, which were published and not committed."""
        while self._tail and self._tail[-1].seq >= seq:
            self._tail_bytes -= len(self._tail.pop().data)
        self.published = seq - 1
        self.last_seq = None

    def commit(self, seq: int) -> None:
        """Record the committed seq and shorten the tail to `KEEP_BYTES`."""
        self.committed = seq
        tail = self._tail
        while self._tail_bytes > KEEP_BYTES and tail and tail[0].seq <= seq:
            self._tail_bytes -= len(tail.popleft().data)

    @property
    def is_over(self) -> bool:
        """True if the terminal event is committed."""
        return self.last_seq is not None and self.committed >= self.last_seq

    def find_rows(self, from_seq: int) -> list[TapeRow] | None:
        """Return the published rows from `from_seq` on, None if the journal must be read first."""
        if not self.is_known:
            return None
        if from_seq > self.published:
            return []
        if not self._tail or from_seq < self._tail[0].seq:
            return None
        return [row for row in self._tail if row.seq >= from_seq]


# --- the hub --------------------------------------------------------------------------------------


class WideSubscriber(Protocol):
    """A subscription to every run of a session, or to all runs."""

    def wants(self, feed: RunFeed) -> bool: ...
    def follow(self, feed: RunFeed) -> None:
        """Listen to the feed from seq 0, unless it does already."""


class RunWatcher(Protocol):
    """A watch of the state of runs."""

    def note_committed(self, heads: Sequence[tuple[str, int]]) -> None:
        """Note that these runs have new committed events."""


class NotificationSink(Protocol):
    """One connection."""

    @property
    def caller(self) -> Caller: ...
    def notify(self, message: bytes) -> None: ...
    def hang_up(self, code: int, reason: str) -> None: ...


class Hub:
    """The feeds and the connections; implements `core.ports.Notifier`."""

    def __init__(self, encode_notice: Callable[[str, object], bytes]) -> None:
        """`encode_notice` makes a frame of method and params; rows are encoded by their readers."""
        self._encode_notice = encode_notice
        self.reset()

    def reset(self) -> None:
        """Drop all feeds and connections."""
        self._feeds: dict[str, RunFeed] = {}
        self._spectators: dict[WideSubscriber, None] = {}
        self._watchers: dict[NotificationSink, None] = {}
        self.run_watchers: dict[RunWatcher, None] = {}  # notified of each commit
        self._revoked: set[str] = set()  # tokens; a connection with one may still be opening
        self._dirty: dict[RunFeed, None] = {}
        self._wake = trio.Event()

    # --- publishers ---

    def publish(self, rows: Sequence[TapeRow]) -> None:
        first = rows[0]
        feed = self.get_feed(first.run_id)
        if not feed.is_open:
            feed.open(first)
            for spectator in self._spectators:
                if spectator.wants(feed):
                    spectator.follow(feed)
        elif first.seq != feed.published + 1:
            self._rewind(feed, first.seq)
        feed.append(rows)
        if feed.listeners:  # most runs of a load test have none
            published = [PublishedRow(row) for row in rows]
            for listener in feed.listeners:
                listener.deliver(published)

    @staticmethod
    def _rewind(feed: RunFeed, seq: int) -> None:
        """Withdraw rows after a failed commit; the run continues from the committed head."""
        if not feed.committed < seq <= feed.published:
            raise InvariantBroken(
                f"{feed.run_id} published seq {seq} after {feed.published}, "
                f"committed {feed.committed}"
            )
        feed.cut(seq)
        for listener in feed.listeners:
            listener.rewind(seq)

    def committed(self, heads: Sequence[tuple[str, int]]) -> None:
        for watcher in self.run_watchers:
            watcher.note_committed(heads)
        for run_id, seq in heads:
            feed = self._feeds.get(run_id)
            if feed is None or seq <= feed.committed:
                continue
            feed.commit(seq)
            if feed.is_over:
                del self._feeds[run_id]
                self._dirty.pop(feed, None)
                for listener in feed.listeners:
                    listener.notify_committed()
                    listener.end()
            elif feed.listeners:
                self._dirty[feed] = None
        if self._dirty:
            self._wake.set()

    def note_head(self, feed: RunFeed, head_seq: int) -> None:
        """Record the committed head that a reader found in the journal.

        For a run with a publisher this may precede the journal's own report, so the listeners are
        notified now.
        """
        if feed.is_open:
            self.committed([(feed.run_id, head_seq)])
        else:
            feed.note_head(head_seq)

    def progress(
        self,
        *,
        run_id: str,
        item: str,
        order: int,
        kind: ProgressKind,
        delta: str,
        offset: int = 0,
    ) -> None:
        feed = self._feeds.get(run_id)
        if feed is None or not feed.listeners:
            return
        progress = ProgressDelta(run_id, item, kind, order, delta, offset)
        for listener in feed.listeners:
            listener.offer_progress(progress)

    def notify(
        self, method: str, params: msgspec.Struct | dict[str, Any], *, principal: str, scope: str
    ) -> None:
        message = self._encode_notice(method, params)
        for watcher in self._watchers:
            if watcher.caller.may(scope) and watcher.caller.sees(principal):
                watcher.notify(message)

    def broadcast(self, method: str, params: msgspec.Struct | dict[str, Any]) -> None:
        """Send a notice to every connection."""
        message = self._encode_notice(method, params)
        for watcher in self._watchers:
            watcher.notify(message)

    # --- readers ---

    def attach(self, watcher: NotificationSink) -> None:
        """Add a connection, which receives notices from now on."""
        self._watchers[watcher] = None
        if watcher.caller.token_id in self._revoked:
            watcher.hang_up(*REVOKED)

    def detach(self, watcher: NotificationSink) -> None:
        """Remove a connection; unknown ones are ignored."""
        self._watchers.pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        """Number of open connections."""
        return len(self._watchers)

    def revoke(self, token_id: str) -> None:
        """Close the connections of this token, and those that open with it later."""
        self._revoked.add(token_id)
        for watcher in list(self._watchers):
            if watcher.caller.token_id == token_id:
                watcher.hang_up(*REVOKED)

    def hang_up(self, code: int, reason: str) -> None:
        """Close all connections."""
        for watcher in list(self._watchers):
            watcher.hang_up(code, reason)

    def get_feed(self, run_id: str) -> RunFeed:
        """Return the feed of the run, creating it if absent."""
        feed = self._feeds.get(run_id)
        if feed is None:
            feed = self._feeds[run_id] = RunFeed(run_id)
        return feed

    def leave(self, feed: RunFeed, listener: FeedListener) -> None:
        """Remove a listener, and with the last one a feed without a publisher."""
        feed.listeners.pop(listener, None)
        if not feed.listeners and not feed.is_open and self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]

    def add_spectator(self, spectator: WideSubscriber) -> None:
        """Subscribe to the open runs and to those that open later."""
        self._spectators[spectator] = None
        for feed in list(self._feeds.values()):
            if feed.is_open and spectator.wants(feed):
                spectator.follow(feed)

    def remove_spectator(self, spectator: WideSubscriber) -> None:
        """End the subscription to later runs; unknown ones are ignored."""
        self._spectators.pop(spectator, None)

    # --- idle streams ---

    async def wait_dirty(self) -> None:
        """Wait until a stream lacks the committed seq of its run."""
        await self._wake.wait()

    def notify_committed(self) -> None:
        """Deliver the committed seq to all such streams."""
        dirty, self._dirty = self._dirty, {}
        self._wake = trio.Event()
        for feed in dirty:
            for listener in feed.listeners:
                listener.notify_committed()


async def hub(
    registry: Hub, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Deliver committed seqs to idle streams, coalesced."""
    registry.reset()
    task_status.started()
    while True:
        await registry.wait_dirty()
        await trio.sleep(COMMITTED_DELAY_S)
        registry.notify_committed()


def child_spec(registry: Hub) -> ChildSpec:
    """Return the hub's spec: permanent, without a mailbox, as publishing is a call."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        await hub(registry, task_status=task_status)

    return ChildSpec("hub", start)


# --- progress -------------------------------------------------------------------------------------


class Watched(Protocol):
    """A run whose progress the watchdog watches."""

    run: Run
    silent_since_s: float | None


class ProgressStream:
    """Deltas of one turn or call, redacted with hold-back; a later event always supersedes them."""

    __slots__ = ("_hub", "_item", "_kind", "_redactor", "_run", "_sent", "_stream", "order")

    def __init__(self, run: Watched, hub: Notifier, redactor: Redactor, item: str) -> None:
        self._run = run
        self._hub = hub
        self._redactor = redactor
        self._item = item
        self._kind: ProgressKind = "text"
        self._stream: StreamRedactor | None = None
        self._sent: dict[ProgressKind, int] = {}  # characters
        self.order = 0  # of the newest delta: one for each delta received and each rest sent

    def take(self, kind: ProgressKind, text: str) -> None:
        """Send one delta; hold back text that may be the start of a secret."""
        if self._stream is None or kind != self._kind:
            self.close()
            self._stream = StreamRedactor(self._redactor)
            self._kind = kind
        self.order += 1
        self._run.silent_since_s = None
        self._send(self._stream.feed(text))

    def close(self) -> None:
        """Send the text that was held back."""
        if self._stream is not None:
            rest, self._stream = self._stream.flush(), None
            self.order += bool(rest)
            self._send(rest)

    def _send(self, text: str) -> None:
        if text:
            offset = self._sent.get(self._kind, 0)
            self._sent[self._kind] = offset + len(text)
            self._hub.progress(
                run_id=self._run.run.run_id,
                item=self._item,
                order=self.order,
                kind=self._kind,
                delta=text,
                offset=offset,
            )
