"""Order, gaps, duplicates and discarded events of one subscription to one run.

Pure: frames in, items out; no sockets, tasks or clock.

Events are sent before they are durable (`docs/semantics.md`), so after a crash of the daemon its
tape may lack events that the consumer has.  Three sets of events follow from this:

    seq <= committed     durable; never change
    tail                 delivered by the current subscription, not known to be durable
    doubted              the tail of an earlier subscription, until the daemon sends it again

A resume starts at the cursor: the highest seq that is delivered, durable and not doubted.  The rows
after the cursor are sent again, and each is compared with the event that was delivered at its seq.
An equal event is a duplicate and is suppressed.  A different one means that the delivered tail is
void: the consumer gets `EventsDiscarded` and then the events that replace the tail.
"""

import msgspec

from palyra.core.tape import events
from palyra.core.tape.events import TERMINAL_KINDS, Event
from palyra.errors import ProtocolError, Unreadable
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
        """True if the run has ended with this event."""
        return self.kind in TERMINAL_KINDS


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """All events committed when the subscription began have been delivered; sent once."""

    through: int


class EventsDiscarded(msgspec.Struct, frozen=True, kw_only=True):
    """Events after `after_seq` were delivered but never became durable: discard them."""

    run_id: str
    after_seq: int


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """Events before `floor` are no longer stored: the tape continues there."""

    reason: str
    floor: int


Item = TapeEvent | ProgressItem | CaughtUp | EventsDiscarded | Reset


Content = tuple[int, str, bytes]  # at_ms, kind, payload: equal for two frames of one event


class FeedReader:
    """State of one subscription across any number of connections."""

    def __init__(self, run_id: str, after_seq: int) -> None:
        self.run_id = run_id
        self.delivered = after_seq  # highest seq the consumer has
        self.committed = after_seq  # highest seq known to be durable
        self.has_gap = False  # rows are missing: subscribe again from the cursor
        self._tail: dict[int, Content] = {}  # delivered by this subscription, not durable yet
        self._doubted: dict[int, Content] = {}  # the tail of an earlier one, until it is sent again
        self._is_caught_up = False
        self._terminal_seq: int | None = None
        self._gap_at: int | None = None

    @property
    def cursor(self) -> int:
        """The `after_seq` of a resume: the highest seq that is delivered, durable and not doubted."""
        certain = min(self._doubted, default=self.delivered + 1) - 1
        return min(self.delivered, self.committed, certain)

    @property
    def is_finished(self) -> bool:
        """True if the terminal event is delivered and durable, so that nothing can follow."""
        if self._terminal_seq is None or not self._is_caught_up or self._doubted:
            return False
        return min(self.committed, self.delivered) >= self._terminal_seq

    def opened(self, reply: Subscribed, *, is_same_instance: bool) -> list[Item]:
        """Begin a new subscription at `cursor`.

        A restarted daemon has lost an uncommitted tail beyond its head, which is discarded here.
        The same daemon sends the tail again, and duplicates are suppressed.
        """
        cursor = self.cursor
        self.has_gap = False
        self._doubted |= self._tail
        self._tail = {}
        is_lost = reply.through < (cursor if is_same_instance else self.delivered)
        self.committed = min(cursor, reply.through) if is_lost else self.committed
        self.commit(reply.through)
        items = self._rewind(reply.through) if is_lost else []
        if reply.ended:  # also for a cursor at the end, after which nothing is sent
            self._terminal_seq = reply.through
        return items

    def event(self, frame: TapeEventNotice) -> list[Item]:
        """Return the items for this frame: none for a duplicate or beyond a gap."""
        items: list[Item] = []
        content: Content = (frame.at_ms, frame.kind, bytes(frame.data))
        known = self._doubted.pop(frame.seq, self._tail.get(frame.seq, content))
        if known != content:
            items += self._rewind(frame.seq - 1)
        if frame.seq == self.delivered + 1:
            items.append(self._deliver(frame))
        elif frame.seq > self.delivered:
            self._note_gap()
        if self.committed < frame.seq <= self.delivered:
            self._tail[frame.seq] = content
        self.commit(frame.committed)
        return items

    def commit(self, seq: int) -> None:
        """Note that everything up to `seq` is durable; doubted events stay doubted until sent again."""
        if seq > self.committed:
            self.committed = seq
            self._tail = {at: content for at, content in self._tail.items() if at > seq}

    def caught_up(self, through: int) -> list[Item]:
        """Note that the committed rows have been sent; only the first time gives an item."""
        self.commit(through)
        if self.delivered < through:
            self._note_gap()
        if self.has_gap or self._is_caught_up:
            return []
        self._is_caught_up = True
        return [CaughtUp(through=through)]

    def reset(self, reason: str, floor: int) -> list[Item]:
        """Continue at `floor`: delivered events from there on are void, earlier ones no longer stored."""
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
        self._tail = {at: content for at, content in self._tail.items() if at <= after_seq}
        self._doubted = {at: content for at, content in self._doubted.items() if at <= after_seq}
        self.delivered = min(self.delivered, after_seq)
        if self._terminal_seq is not None and self._terminal_seq > after_seq:
            self._terminal_seq = None
        return [EventsDiscarded(run_id=self.run_id, after_seq=after_seq)]

    def _note_gap(self) -> None:
        """Request a new subscription, once per position: a second gap there is an error of the daemon."""
        if self.has_gap:
            return
        if self._gap_at == self.delivered:
            raise ProtocolError(f"{self.run_id}: the daemon does not send seq {self.delivered + 1}")
        self.has_gap = True
        self._gap_at = self.delivered


def to_event(frame: TapeItem) -> TapeEvent:
    """Decode the payload of an item."""
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
    except Unreadable:
        return None  # purged, or changed by a newer daemon; `data` has the payload
