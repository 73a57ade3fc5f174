"""What one subscriber has seen of one run: order, gaps, repeats, and a tail that a crash undid.

Pure: frames in, items out; no sockets, tasks or clock.  The rules (`docs/semantics.md`):
events arrive on the wire before they are durable, so after a crash the tape may lack what was
already shown.  The cursor of a resume is therefore the committed number, the rows after it come
again, and each is compared with what was shown: the same event is suppressed, another one at the
same seq means the shown tail is void, which the consumer is told by `Dropped` before it gets the
events that took its place.
"""

import msgspec

from palyra.core.tape import events
from palyra.core.tape.events import TERMINAL_KINDS, Event
from palyra.errors import ProtocolError
from palyra.net.protocol.notifications import ProgressItem, TapeEventNotice, TapeItem
from palyra.net.protocol.results import Subscribed


class TapeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the run.  `event` is None for a kind this client does not know."""

    run_id: str
    session_id: str
    seq: int
    at_ms: int
    kind: str
    event: Event | None
    data: bytes  # the payload's JSON, as the tape has it

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended with this event."""
        return self.kind in TERMINAL_KINDS


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """All that was committed when the subscription began has been delivered; once."""

    through: int


class EventsDiscarded(msgspec.Struct, frozen=True, kw_only=True):
    """Events after `after_seq` were shown but never became durable: forget them."""

    run_id: str
    after_seq: int


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """Events before `floor` are no longer kept: the tape goes on from there."""

    reason: str
    floor: int


Item = TapeEvent | ProgressItem | CaughtUp | EventsDiscarded | Reset


Shown = tuple[int, str, bytes]  # at_ms, kind, payload: what makes two events the same


class FeedReader:
    """The client's side of one subscription; survives any number of connections."""

    def __init__(self, run_id: str, after_seq: int) -> None:
        self.run_id = run_id
        self.delivered = after_seq  # highest seq the consumer has
        self.committed = after_seq  # highest seq known to be durable
        self.has_gap = False  # rows are missing: subscribe again from the cursor
        self._tail: dict[int, Shown] = {}  # delivered by this subscription, not durable yet
        self._doubted: dict[int, Shown] = {}  # the tail of an earlier one, until it is repeated
        self._is_caught_up = False
        self._terminal_seq: int | None = None
        self._gap_at: int | None = None

    @property
    def cursor(self) -> int:
        """Where to resume: the highest seq that is delivered, durable and beyond doubt."""
        certain = min(self._doubted, default=self.delivered + 1) - 1
        return min(self.delivered, self.committed, certain)

    @property
    def is_finished(self) -> bool:
        """Whether nothing can follow: the end was delivered and is durable."""
        if self._terminal_seq is None or not self._is_caught_up or self._doubted:
            return False
        return min(self.committed, self.delivered) >= self._terminal_seq

    def opened(self, reply: Subscribed, *, is_same_instance: bool) -> list[Item]:
        """Take note of a new subscription at `cursor`.

        A daemon that was restarted knows nothing of an uncommitted tail beyond its head.  One
        that was not will send the tail again, and every repeat is recognised.
        """
        cursor = self.cursor
        self.has_gap = False
        self._doubted |= self._tail
        self._tail = {}
        is_lost = reply.through < (cursor if is_same_instance else self.delivered)
        self.committed = min(cursor, reply.through) if is_lost else self.committed
        self.commit(reply.through)
        items = self._rewind(reply.through) if is_lost else []
        if reply.ended:  # also for a cursor behind which nothing is left to be sent
            self._terminal_seq = reply.through
        return items

    def event(self, frame: TapeEventNotice) -> list[Item]:
        """What the consumer gets for this frame: nothing for a repeat or beyond a gap."""
        items: list[Item] = []
        shown: Shown = (frame.at_ms, frame.kind, bytes(frame.data))
        known = self._doubted.pop(frame.seq, self._tail.get(frame.seq, shown))
        if known != shown:
            items += self._rewind(frame.seq - 1)
        if frame.seq == self.delivered + 1:
            items.append(self._deliver(frame))
        elif frame.seq > self.delivered:
            self._note_gap()
        if self.committed < frame.seq <= self.delivered:
            self._tail[frame.seq] = shown
        self.commit(frame.committed)
        return items

    def commit(self, seq: int) -> None:
        """Everything up to `seq` is durable; what is in doubt stays so until it is repeated."""
        if seq > self.committed:
            self.committed = seq
            self._tail = {at: shown for at, shown in self._tail.items() if at > seq}

    def caught_up(self, through: int) -> list[Item]:
        """The committed rows are through; news to the consumer only the first time."""
        self.commit(through)
        if self.delivered < through:
            self._note_gap()
        if self.has_gap or self._is_caught_up:
            return []
        self._is_caught_up = True
        return [CaughtUp(through=through)]

    def reset(self, reason: str, floor: int) -> list[Item]:
        """The stream goes on at `floor`: later rows that were shown are void, earlier ones gone."""
        if floor <= self.delivered:
            return self._rewind(floor - 1)
        if floor == self.delivered + 1:
            return []
        self.delivered = self.committed = floor - 1
        self._tail = {}
        self._doubted = {}
        return [Reset(reason=reason, floor=floor)]

    def _deliver(self, frame: TapeEventNotice) -> TapeEvent:
        self.delivered = frame.seq
        if frame.kind in TERMINAL_KINDS:
            self._terminal_seq = frame.seq
        return to_event(frame)

    def _rewind(self, after_seq: int) -> list[Item]:
        self._tail = {at: shown for at, shown in self._tail.items() if at <= after_seq}
        self._doubted = {at: shown for at, shown in self._doubted.items() if at <= after_seq}
        self.delivered = min(self.delivered, after_seq)
        if self._terminal_seq is not None and self._terminal_seq > after_seq:
            self._terminal_seq = None
        return [EventsDiscarded(run_id=self.run_id, after_seq=after_seq)]

    def _note_gap(self) -> None:
        """Ask for a new subscription, but only once at the same place: a loop helps nobody."""
        if self.has_gap:
            return
        if self._gap_at == self.delivered:
            raise ProtocolError(f"{self.run_id}: the daemon does not send seq {self.delivered + 1}")
        self.has_gap = True
        self._gap_at = self.delivered


def to_event(frame: TapeItem) -> TapeEvent:
    """The frame with its payload decoded."""
    data = bytes(frame.data)
    return TapeEvent(
        run_id=frame.run_id,
        session_id=frame.session_id,
        seq=frame.seq,
        at_ms=frame.at_ms,
        kind=frame.kind,
        event=_decode(frame.kind, data),
        data=data,
    )


def _decode(kind: str, data: bytes) -> Event | None:
    if kind not in events.KINDS:
        return None
    try:
        return events.decode_event(kind, data)
    except msgspec.ValidationError:
        return None  # a newer daemon's idea of this kind; `data` still has it
