"""The feed of one subscription: the consumer's items against a model of the tape."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.client.feed import (
    CaughtUp,
    EventsDiscarded,
    FeedReader,
    Item,
    Reset,
    TapeEvent,
)
from palyra.core.tape.events import MessageCompleted, RunDone, encode_event
from palyra.errors import ProtocolError
from palyra.net.protocol.notifications import TapeEventNotice
from palyra.net.protocol.results import Subscribed
from tests.rows import every_row

RUN = "run_1"


class Daemon:
    """A tape, what of it is durable, and the feed's view as a consumer would keep it."""

    def __init__(self) -> None:
        self.tape: list[TapeEventNotice] = []
        self.committed = -1
        self.stamp = 0
        self.is_same = True
        self.is_connected = False
        self.feed = FeedReader(RUN, -1)
        self.view: list[TapeEvent] = []
        self.caught_up = 0

    def take(self, items: list[Item]) -> None:
        """Update the view from the items; an event out of order is an error."""
        for item in items:
            match item:
                case TapeEvent():
                    assert len(self.view) == item.seq
                    self.view.append(item)
                case EventsDiscarded():
                    assert item.after_seq + 1 < len(self.view)
                    del self.view[item.after_seq + 1 :]
                case CaughtUp():
                    self.caught_up += 1
                case _:
                    raise AssertionError(item)

    def append(self, count: int, *, is_seen: bool) -> None:
        """More events; seen live unless the connection is down or breaks with the first."""
        self.is_connected = self.is_connected and is_seen
        for _ in range(count):
            self.stamp += 1
            self.tape.append(make_frame(len(self.tape), at_ms=self.stamp))
            if self.is_connected:
                self.send(self.tape[-1])

    def send(self, frame: TapeEventNotice) -> None:
        self.take(self.feed.event(msgspec.structs.replace(frame, committed=self.committed)))

    def commit(self, *, is_heard: bool) -> None:
        self.committed = len(self.tape) - 1
        if is_heard and self.is_connected:
            self.feed.commit(self.committed)

    def crash(self, replacements: int) -> None:
        """Lose the events that are not durable; others take their numbers."""
        del self.tape[self.committed + 1 :]
        self.is_same = self.is_connected = False
        self.append(replacements, is_seen=False)

    def reconnect(self, rows: int) -> None:
        """Subscribe from the cursor; the connection survives that many rows of the replay."""
        start, through = self.feed.cursor + 1, self.committed
        reply = Subscribed(from_=0, floor=0, subscription="sub_1", through=through)
        self.take(self.feed.opened(reply, is_same_instance=self.is_same))
        self.is_same = self.is_connected = True
        for frame in self.tape[start : min(through + 1, start + rows)]:
            self.send(frame)
        self.is_connected = start + rows >= len(self.tape)
        if start + rows <= through:
            return
        self.take(self.feed.caught_up(through))
        for frame in self.tape[through + 1 : start + rows]:
            self.send(frame)


def make_frame(seq: int, *, at_ms: int = 0, text: str = "", committed: int = -1) -> TapeEventNotice:
    return TapeEventNotice(
        run_id=RUN,
        subscription="sub_1",
        session_id="ses_1",
        seq=seq,
        at_ms=at_ms or seq,
        kind="message.completed",
        data=msgspec.Raw(encode_event(MessageCompleted(text=text))),
        committed=committed,
    )


def make_done() -> TapeEventNotice:
    """The end, at seq 0."""
    return TapeEventNotice(
        run_id=RUN,
        subscription="sub_1",
        session_id="ses_1",
        seq=0,
        at_ms=1,
        committed=-1,
        kind=RunDone.KIND,
        data=msgspec.Raw(encode_event(RunDone(reason="answered"))),
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("miss"), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.booleans()),
        st.tuples(st.just("crash"), st.integers(0, 4)),
        st.tuples(st.just("reconnect"), st.integers(0, 6)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(STEPS)
def test_view_is_the_tape(steps: list[tuple[str, int]]) -> None:
    """After any appends, commits, losses and cuts, the consumer ends with exactly the tape."""
    daemon = Daemon()
    for step, argument in steps:
        match step:
            case "append" | "miss":
                daemon.append(argument, is_seen=step == "append")
            case "commit":
                daemon.commit(is_heard=bool(argument))
            case "crash":
                daemon.crash(argument)
            case _:
                daemon.reconnect(argument)
    daemon.reconnect(rows=1_000)
    assert [frame.at_ms for frame in daemon.tape] == [event.at_ms for event in daemon.view]
    assert 1 == daemon.caught_up
    assert daemon.committed == daemon.feed.cursor


@every_row("rows", [0, 1, 2])
def test_replaced_tail_is_found_after_any_number_of_cuts(rows: int) -> None:
    """A tail that other events replaced before the client came back is dropped and refilled."""
    daemon = Daemon()
    daemon.reconnect(rows=9)
    daemon.append(1, is_seen=True)
    daemon.commit(is_heard=True)
    daemon.append(2, is_seen=True)
    daemon.crash(3)
    daemon.commit(is_heard=False)
    daemon.reconnect(rows)
    daemon.reconnect(rows=9)
    assert [1, 4, 5, 6] == [event.at_ms for event in daemon.view]


def test_cursor_is_the_committed_number() -> None:
    """A delivered event that is not durable is requested again."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    feed.event(make_frame(0, committed=0))
    feed.event(make_frame(1, committed=0))
    assert (0, 1) == (feed.cursor, feed.delivered)


def test_cursor_ahead_of_the_tape_is_taken_back() -> None:
    """A consumer whose cursor is beyond the head is given the number after which to drop events."""
    feed = FeedReader(RUN, 9)
    items = feed.opened(
        Subscribed(from_=0, floor=0, subscription="s", through=4), is_same_instance=True
    )
    assert [EventsDiscarded(run_id=RUN, after_seq=4)] == items
    assert 4 == feed.cursor


def test_reset_below_the_floor_names_the_gap() -> None:
    """If rows are no longer stored, the consumer gets the first number after the gap."""
    feed = FeedReader(RUN, 3)
    assert [Reset(reason="below_floor", floor=8)] == feed.reset("below_floor", 8)
    assert [8] == [item.seq for item in feed.event(make_frame(8)) if isinstance(item, TapeEvent)]


def test_reset_of_shown_rows_drops_them() -> None:
    """Shown rows that never became durable are dropped, and other events take their numbers."""
    feed = FeedReader(RUN, -1)
    feed.event(make_frame(0, committed=0))
    feed.event(make_frame(1, committed=0))
    assert [EventsDiscarded(run_id=RUN, after_seq=0)] == feed.reset("truncated", 1)
    assert 1 == len(feed.event(make_frame(1, text="other")))


def test_reset_at_the_next_row_gives_no_item() -> None:
    """A reset that changes nothing for the consumer is not passed on."""
    feed = FeedReader(RUN, 3)
    assert [] == feed.reset("truncated", 4)


def test_stream_that_keeps_skipping_is_refused() -> None:
    """A daemon that skips the same row again after a new subscription breaks the protocol."""
    feed = FeedReader(RUN, -1)
    feed.event(make_frame(1))
    assert feed.has_gap
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    with pytest.raises(ProtocolError, match="seq 0"):
        feed.event(make_frame(1))


def test_end_needs_a_durable_terminal_event() -> None:
    """The stream is finished when the terminal event is delivered, caught up and durable."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    feed.event(make_done())
    feed.commit(0)
    assert not feed.is_finished
    feed.caught_up(0)
    assert feed.is_finished


def test_end_in_doubt_is_no_end() -> None:
    """A terminal event that a restarted daemon may have lost does not finish the stream."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    feed.caught_up(-1)
    feed.event(make_done())
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=3), is_same_instance=False)
    assert (False, -1) == (feed.is_finished, feed.cursor)


def test_a_cursor_at_the_end_has_nothing_to_wait_for() -> None:
    """A stream is finished once it has caught up with a run that has ended."""
    feed = FeedReader(RUN, 4)
    feed.opened(
        Subscribed(from_=0, floor=0, subscription="s", through=4, ended=True), is_same_instance=True
    )
    assert not feed.is_finished
    feed.caught_up(4)
    assert feed.is_finished


def test_an_end_that_is_known_is_still_delivered() -> None:
    """A stream that is opened again waits for the rows that it missed."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    feed.caught_up(-1)
    feed.opened(
        Subscribed(from_=0, floor=0, subscription="t", through=0, ended=True), is_same_instance=True
    )
    assert not feed.is_finished
    feed.event(make_done())
    feed.commit(0)
    assert feed.is_finished


def test_an_end_that_is_shown_and_not_durable_is_no_end() -> None:
    """Others may take its place; then they decide."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    feed.caught_up(-1)
    feed.event(make_done())
    assert not feed.is_finished
    feed.reset("truncated", 0)
    feed.event(make_frame(0))
    feed.commit(0)
    assert not feed.is_finished


def test_the_same_daemon_sends_the_tail_again() -> None:
    """After a reconnection to the same daemon the consumer keeps the events not yet durable."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=-1), is_same_instance=True)
    tail = make_frame(1)
    for frame in (make_frame(0, committed=0), tail):
        feed.event(frame)
    assert [] == feed.opened(
        Subscribed(from_=0, floor=0, subscription="t", through=0), is_same_instance=True
    )
    assert ([], 1) == (feed.event(tail), feed.delivered)


def test_to_be_caught_up_without_the_rows_is_a_gap() -> None:
    """A catch-up notice without its rows is a gap: it is hidden, and the stream restarts."""
    feed = FeedReader(RUN, -1)
    feed.opened(Subscribed(from_=0, floor=0, subscription="s", through=3), is_same_instance=True)
    assert ([], True) == (feed.caught_up(3), feed.has_gap)


def test_an_event_of_another_shape_is_passed_on_as_it_is() -> None:
    """A newer daemon's idea of a kind this client knows."""
    newer = msgspec.structs.replace(make_frame(0), data=msgspec.Raw(b'{"text":5}'))
    (event,) = FeedReader(RUN, -1).event(newer)
    assert isinstance(event, TapeEvent)
    assert (None, b'{"text":5}') == (event.event, event.data)
