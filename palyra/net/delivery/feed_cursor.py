"""The feed cursor: one run as one subscription reads it, from a seq to the live stream.

Owns: `next_seq`, the seq of the next row to pass on.  Fed by: the hub with live rows, and by its
subscription with pages of the journal.  Never: awaits, or keeps a row.

A cursor is in one of two states.

- Behind: its subscription reads pages of the tape and hands them to `replay`, until `join` finds
  that the feed's tail (the newest published rows, in memory) reaches back to `next_seq`.
- Live: `deliver` passes on every published row.  A row that is not `next_seq` (a gap, or an old
  row) is not passed on; the cursor goes back to behind and reads the tape.

`join` is one step without an await, so no row can be published between its last look at the tail
and the cursor being live.  Rows are therefore passed on in order, without gap or duplicate, and a
cursor that is behind costs no memory: rows that are not due stay in the tail or on the tape.

One exception goes backwards.  If a commit fails, the run continues from its committed head, and
rows that were published already are void: `rewind` withdraws those that still wait in the sink
(they would be reported as committed once other rows have their numbers) and sends a `tape.reset`.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from palyra.actors.hub import ProgressDelta, PublishedRow, RunFeed
from palyra.core.journal.changes import TapePage
from palyra.core.tape.events import TurnCompleted
from palyra.errors import InvariantBroken
from palyra.net.delivery.encoding import end_event
from palyra.net.delivery.outbox import FrameSuffix
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.net.protocol.notifications import Notification, TapeCommitted, TapeReset

MOST_HELD = 4_096  # deltas between the start of a run and the reply that names the subscription


class RowSink(Protocol):
    """Queue of one reader: a socket's outbox, or the rows of an HTTP request.

    Nothing here waits except `wait_room`; a sink that is full gives up on its reader.
    """

    def put_rows(self, rows: Iterable[PublishedRow], suffix: FrameSuffix) -> None: ...
    def put_progress(self, progress: ProgressDelta) -> None: ...
    def put_notice(self, method: str, params: Notification) -> None: ...

    def put_committed(self, suffix: FrameSuffix) -> None:
        """Queue the news that the feed's committed seq has advanced."""

    def withdraw(self, suffix: FrameSuffix, seq: int) -> None:
        """Remove the waiting rows of that cursor from `seq` on."""

    async def wait_room(self) -> None:
        """Return once little is queued."""


class Follower(Protocol):
    """The subscription of a cursor."""

    @property
    def subscription_id(self) -> str: ...
    @property
    def sink(self) -> RowSink: ...
    @property
    def kinds(self) -> frozenset[str] | None: ...
    @property
    def wants_progress(self) -> bool: ...
    def joined(self, cursor: "FeedCursor") -> None:
        """All committed rows were passed on; those that follow are live."""

    def fall_behind(self, cursor: "FeedCursor") -> None:
        """Read the tape for this cursor until it can join."""

    def end_run(self, cursor: "FeedCursor") -> None:
        """The run has ended: no row follows."""


class FeedCursor:
    """Position of one subscription in one run; also the end of each of its frames."""

    __slots__ = (
        "_ending", "_follower", "_held", "_is_live", "_reported", "_sink", "feed", "next_seq",
    )  # fmt: skip

    def __init__(self, follower: Follower, feed: RunFeed, next_seq: int) -> None:
        self.feed = feed
        self.next_seq = next_seq
        self._follower = follower
        self._sink = follower.sink
        self._is_live = False
        self._held: list[ProgressDelta] | None = None  # before the first `join`
        self._reported = -1  # the committed seq in the last frame written
        self._ending = end_event(follower.subscription_id, self._reported)
        feed.listeners[self] = None

    # --- called by the hub ---

    def deliver(self, rows: Sequence[PublishedRow]) -> None:
        """Pass on live rows; if they are not the next ones, read the tape."""
        if not self._is_live:
            return
        if rows[0].row.seq == self.next_seq:
            self._put(rows)
            return
        self._is_live = False
        self._follower.fall_behind(self)

    def rewind(self, seq: int) -> None:
        """Withdraw the rows from `seq` on, which are void, and reset a reader that has seen them."""
        if self._is_live and self.next_seq > seq:
            self._sink.withdraw(self, seq)
            self._reset("truncated", seq)

    def offer_progress(self, delta: ProgressDelta) -> None:
        """Pass on a delta if the cursor is live, or hold it for the first `join`."""
        if not self._follower.wants_progress:
            return
        if self._is_live:
            self._sink.put_progress(delta)
        elif self._held is not None:
            self._held.append(delta)
            if len(self._held) > MOST_HELD:
                self._held = None  # all or nothing: what is streamed has no gap

    def notify_committed(self) -> None:
        """Report a commit to an idle reader, unless a frame reports it first."""
        if self._is_live and self._reported < self.feed.committed:
            self._sink.put_committed(_Committed(self))

    def end(self) -> None:
        """The run's terminal event is committed."""
        self._follower.end_run(self)

    # --- catching up ---

    def hold(self) -> None:
        """Keep deltas until the first `join`, while the reply that names the subscription waits."""
        self._held = []

    def join(self) -> bool:
        """Go live if the feed's tail reaches back to `next_seq`; False if the tape must be read."""
        rows = self.feed.find_rows(self.next_seq)
        held, self._held = self._held, None
        if rows is None:
            return False
        committed = self.feed.committed
        self._put([PublishedRow(row) for row in rows if row.seq <= committed])
        self._follower.joined(self)
        self._put([PublishedRow(row) for row in rows if row.seq > committed])
        self._is_live = True
        if held and not any(row.kind == TurnCompleted.KIND for row in rows):  # which has it all
            for delta in held:
                self._sink.put_progress(delta)
        return True

    def replay(self, page: TapePage) -> None:
        """Pass on a page read from `next_seq` on.  Raises InvariantBroken if it lacks that row."""
        if self.next_seq < page.floor_seq:
            self._reset("below_floor", page.floor_seq)
        if not page.rows and self.next_seq <= page.head_seq:
            raise InvariantBroken(f"the tape of {self.feed.run_id} lacks seq {self.next_seq}")
        self._put([PublishedRow(row) for row in page.rows])

    def _put(self, rows: Sequence[PublishedRow]) -> None:
        if not rows:
            return
        self.next_seq = rows[-1].row.seq + 1
        kinds = self._follower.kinds
        if kinds is not None:
            rows = [each for each in rows if each.row.kind in kinds]
        self._sink.put_rows(rows, self)

    def _reset(self, reason: Literal["below_floor", "truncated"], floor: int) -> None:
        self.next_seq = floor
        notice = TapeReset(
            subscription=self._follower.subscription_id,
            run_id=self.feed.run_id,
            reason=reason,
            floor=floor,
        )
        self._sink.put_notice("tape.reset", notice)

    # --- the reader's own part of a frame, appended when a socket writes it ---

    @property
    def run_id(self) -> str:
        return self.feed.run_id

    def finish(self, body: bytes) -> bytes:
        """Complete an event with the committed seq of this moment."""
        committed = self.feed.committed
        if self._reported != committed:
            self._reported = committed
            self._ending = end_event(self._follower.subscription_id, committed)
        return body + self._ending

    def render_committed(self) -> bytes:
        """A bare `tape.committed`; empty if a frame has reported that seq meanwhile."""
        committed = self.feed.committed
        if self._reported >= committed:
            return b""
        self._reported = committed
        self._ending = end_event(self._follower.subscription_id, committed)
        notice = TapeCommitted(run_id=self.feed.run_id, committed=committed)
        return encode_notification("tape.committed", notice)


class _Committed:
    """Suffix of an empty frame: decides when it is written whether the commit is still news."""

    __slots__ = ("_cursor",)
    run_id = ""

    def __init__(self, cursor: FeedCursor) -> None:
        self._cursor = cursor

    def finish(self, body: bytes) -> bytes:
        return body + self._cursor.render_committed()
