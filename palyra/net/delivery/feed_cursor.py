"""The lane: one run as one subscription follows it, from a cursor to the live stream.

Owns: the cursor (`next_seq`).  Fed by: the hub with live rows, its subscription with pages of the
journal.  Never: awaits, or keeps a row; what is not yet due stays in the feed's tail or on the
tape.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from palyra.actors.hub.feed import HubFrame, RunFeed
from palyra.core.journal.changes import TapePage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape.events import TurnCompleted
from palyra.errors import InvariantBroken
from palyra.net.delivery.encoding import encode_event, encode_notice, end_event
from palyra.net.delivery.outbox import Outbox, ProgressFrame
from palyra.net.protocol.notifications import TapeCommitted, TapeReset

MOST_HELD = 4_096  # deltas that come between a run's beginning and the reply that names it


class Follower(Protocol):
    """The subscription a lane belongs to."""

    @property
    def subscription_id(self) -> str: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def kinds(self) -> frozenset[str] | None: ...
    @property
    def wants_progress(self) -> bool: ...
    def joined(self, lane: "FeedCursor") -> None:
        """The committed rows are through; what follows is live."""

    def fall_behind(self, lane: "FeedCursor") -> None:
        """Read the tape for this lane until it can join."""

    def end_lane(self, lane: "FeedCursor") -> None:
        """Nothing will follow."""


class FeedCursor:
    """What one subscription has had of one run."""

    __slots__ = (
        "_ending", "_follower", "_held", "_is_live", "_outbox", "_told", "feed", "next_seq",
    )  # fmt: skip

    def __init__(self, follower: Follower, feed: RunFeed, next_seq: int) -> None:
        self.feed = feed
        self.next_seq = next_seq
        self._follower = follower
        self._outbox = follower.outbox
        self._is_live = False
        self._held: list[ProgressFrame] | None = (
            None  # deltas for a reader that may not be sent to yet
        )
        self._told = -1  # the committed seq in the last frame written
        self._ending = end_event(follower.subscription_id, self._told)
        feed.listeners[self] = None

    # --- the hub's side ---

    def deliver(self, frames: Sequence[HubFrame]) -> None:
        """Pass on live rows; if they are not the next ones, go back to the tape."""
        if not self._is_live:
            return
        if frames[0].seq == self.next_seq:
            self._put(frames)
            return
        self._is_live = False
        self._follower.fall_behind(self)

    def rewind(self, seq: int) -> None:
        """Tell a reader that saw rows from `seq` on that they are void.

        Those that still wait would be told as committed once others have their numbers.
        """
        if self._is_live and self.next_seq > seq:
            self._outbox.withdraw(self, seq)
            self._reset("truncated", seq)

    def offer_progress(self, piece: ProgressFrame) -> None:
        """Pass on a delta, once the reader is up to date."""
        if not self._follower.wants_progress:
            return
        if self._is_live:
            self._outbox.put_progress(piece)
        elif self._held is not None:
            self._held.append(piece)
            if len(self._held) > MOST_HELD:
                self._held = None  # all or nothing: what is streamed has no gap

    def notify_committed(self) -> None:
        """Let an idle reader know; says nothing if a frame does it first."""
        if self._is_live and self._told < self.feed.committed:
            self._outbox.put(b"", _Committed(self))

    def end(self) -> None:
        """The run is over."""
        self._follower.end_lane(self)

    # --- catching up ---

    def hold(self) -> None:
        """Keep deltas until the first try to join: the reply that lets it begin is on its way."""
        self._held = []

    def join(self) -> bool:
        """Go live if the feed's tail reaches back to the cursor; False: read the tape first."""
        rows = self.feed.find_rows(self.next_seq)
        held, self._held = self._held, None
        if rows is None:
            return False
        committed = self.feed.committed
        self._put(_encode(row for row in rows if row.seq <= committed))
        self._follower.joined(self)
        self._put(_encode(row for row in rows if row.seq > committed))
        self._is_live = True
        if held and not any(row.kind == TurnCompleted.KIND for row in rows):  # which has it all
            for piece in held:
                self._outbox.put_progress(piece)
        return True

    def replay(self, page: TapePage) -> None:
        """Pass on a page read after the cursor."""
        if self.next_seq < page.floor_seq:
            self._reset("below_floor", page.floor_seq)
        if not page.rows and self.next_seq <= page.head_seq:
            raise InvariantBroken(f"the tape of {self.feed.run_id} lacks seq {self.next_seq}")
        self._put(_encode(page.rows))

    def _put(self, frames: Sequence[HubFrame]) -> None:
        if not frames:
            return
        self.next_seq = frames[-1].seq + 1
        kinds = self._follower.kinds
        if kinds is not None:
            frames = [frame for frame in frames if frame.kind in kinds]
        self._outbox.put_frames(frames, self)

    def _reset(self, reason: Literal["below_floor", "truncated"], floor: int) -> None:
        self.next_seq = floor
        notice = TapeReset(
            subscription=self._follower.subscription_id,
            run_id=self.feed.run_id,
            reason=reason,
            floor=floor,
        )
        self._outbox.put(encode_notice("tape.reset", notice))

    # --- when a frame is written ---

    @property
    def run_id(self) -> str:
        """Whose events these are."""
        return self.feed.run_id

    def finish(self, body: bytes) -> bytes:
        """Complete an event with how far the tape is committed now."""
        committed = self.feed.committed
        if self._told != committed:
            self._told = committed
            self._ending = end_event(self._follower.subscription_id, committed)
        return body + self._ending

    def render_committed(self) -> bytes:
        """A bare `tape.committed`; empty when a frame has told it meanwhile."""
        committed = self.feed.committed
        if self._told >= committed:
            return b""
        self._told = committed
        self._ending = end_event(self._follower.subscription_id, committed)
        notice = TapeCommitted(run_id=self.feed.run_id, committed=committed)
        return encode_notice("tape.committed", notice)


class _Committed:
    """Decides at the time of writing whether there still is something to say."""

    __slots__ = ("_lane",)
    run_id = ""

    def __init__(self, lane: FeedCursor) -> None:
        self._lane = lane

    def finish(self, body: bytes) -> bytes:
        return body + self._lane.render_committed()


def _encode(rows: Iterable[TapeRow]) -> list[HubFrame]:
    return [HubFrame(row.seq, row.kind, encode_event(row)) for row in rows]
