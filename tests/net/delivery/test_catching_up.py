"""Lanes and subscriptions that catch up: with a hub, and with pages of the test's own."""

from collections.abc import Awaitable, Callable

import pytest
import trio.testing

from palyra.actors.hub import Hub, ProgressDelta, PublishedRow, RunFeed
from palyra.core.access import Caller
from palyra.core.journal.changes import TapePage
from palyra.errors import InvariantBroken
from palyra.net.delivery import feed_cursor as lane_module
from palyra.net.delivery.feed_cursor import FeedCursor
from palyra.net.delivery.outbox import ROOM_BYTES, Outbox
from palyra.net.delivery.subscription import ClientContext, LiveSubscription, SubscriptionFilter
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.wiring.host import new_id
from tests.net.api.fake_services import RUN, row
from tests.rows import every_row

Clock = trio.testing.MockClock
OTHER = "run_other"
HEAD = 1  # of every tape here


class Client:
    """A connection without a socket: what it was sent, read and spawned."""

    def __init__(self) -> None:
        self.hub = Hub(encode_notification)
        self.outbox = Outbox(10_000_000, lambda: None)
        self.tasks = list[Callable[[], Awaitable[None]]]()
        self.reads: list[tuple[str, int]] = []
        self.on_read: Callable[[], None] = lambda: None
        self.viewer = ClientContext(
            caller=Caller(principal="ann", role="operator", token_id="tok_1"),
            hub=self.hub,
            sink=self.outbox,
            read_page=self.read_page,
            new_id=new_id,
            spawn=self.tasks.append,
            bulk=trio.Lock(),
        )

    async def read_page(self, run_id: str, after_seq: int) -> TapePage:
        await trio.lowlevel.checkpoint()
        self.reads.append((run_id, after_seq))
        self.on_read()
        return page_of(after_seq, run_id)

    def subscribe(self, *runs: str) -> tuple[LiveSubscription, list[FeedCursor]]:
        """A subscription in progress on runs without a publisher."""
        subscription = LiveSubscription(self.viewer, SubscriptionFilter())
        lanes = [subscription.open_cursor(self.hub.get_feed(run), 0) for run in runs]
        subscription.start()
        return subscription, lanes

    def sent(self) -> list[bytes]:
        return self.outbox.pack(is_batched=False)


def page_of(after_seq: int, run_id: str = RUN) -> TapePage:
    rows = [row(seq, run_id) for seq in range(after_seq + 1, HEAD + 1)]
    return TapePage(rows=rows, head_seq=HEAD, floor_seq=0, next_after_seq=None, size_bytes=0)


class Follower:
    """A subscription of one lane that only counts."""

    subscription_id = "sub_1"
    wants_progress = True

    def __init__(self, kinds: frozenset[str] | None = None) -> None:
        self.kinds = kinds
        self.sink = Outbox(1_000_000, lambda: None)
        self.behind = 0

    def joined(self, lane: FeedCursor) -> None:
        """Not of interest here."""

    def fall_behind(self, _lane: FeedCursor) -> None:
        self.behind += 1

    def end_run(self, lane: FeedCursor) -> None:
        """Not of interest here."""


def follow(hub: Hub) -> tuple[FeedCursor, Follower]:
    """A lane that is live from the next row on."""
    hub.publish([row(0), row(1)])
    follower = Follower()
    lane = FeedCursor(follower, hub.get_feed(RUN), 2)
    assert lane.join()
    return lane, follower


# --- a subscription reads -----------------------------------------------------------------------


async def test_one_task_reads_for_all_lanes_each_time_some_are_behind(
    autojump_clock: Clock,
) -> None:
    """It ends when none is, and the next one that falls behind begins another."""
    client = Client()
    _, (lane, _) = client.subscribe(RUN, OTHER)
    (first,) = client.tasks
    await first()
    assert [(RUN, -1), (OTHER, -1)] == client.reads
    lane.deliver([PublishedRow(row(HEAD + 8))])
    _, second = client.tasks
    await second()
    client.sent()
    lane.deliver([PublishedRow(row(HEAD + 1))])
    assert 1 == len(client.sent())


@pytest.mark.parametrize("by", ["what waits to be written", "another large read"])
async def test_reading_is_bounded_by_the_outbox(autojump_clock: Clock, by: str) -> None:
    """Rows that were read wait in memory, so reading stops while the outbox is full."""
    client = Client()
    client.subscribe(RUN)
    if by == "another large read":
        await client.viewer.bulk.acquire()
    else:
        client.outbox.put(b"x" * ROOM_BYTES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.tasks[0])
        await trio.testing.wait_all_tasks_blocked()
        assert [] == client.reads
        if by == "another large read":
            client.viewer.bulk.release()
        else:
            client.sent()
    assert [(RUN, -1)] == client.reads


async def test_rows_of_an_ended_subscription_are_not_sent(autojump_clock: Clock) -> None:
    """The subscription ended while its rows were read."""
    client = Client()
    subscription, _ = client.subscribe(RUN)
    client.on_read = subscription.close
    await client.tasks[0]()
    assert ([(RUN, -1)], []) == (client.reads, client.sent())


# --- a lane --------------------------------------------------------------------------------------


@every_row("seq", [0, 1, 3])
def test_a_row_that_is_not_the_next_one_is_not_sent(seq: int) -> None:
    """Neither an old one nor one behind a gap: the lane goes back to the tape, once."""
    lane, follower = follow(Hub(encode_notification))
    for _ in range(2):
        lane.deliver([PublishedRow(row(seq))])
    assert ([], 1) == (follower.sink.pack(is_batched=False), follower.behind)


def test_filtered_rows_advance_the_cursor() -> None:
    """Otherwise their page would be read again for ever."""
    lane = FeedCursor(Follower(frozenset({"run.done"})), RunFeed(RUN), 0)
    lane.replay(page_of(-1))
    assert HEAD + 1 == lane.next_seq


@pytest.mark.parametrize("missing", [0, 1])
def test_a_page_that_lacks_what_it_claims_is_a_bug(missing: int) -> None:
    """Also where the head alone is missing."""
    lane = FeedCursor(Follower(), RunFeed(RUN), missing)
    page = TapePage(rows=[], head_seq=HEAD, floor_seq=0, next_after_seq=None, size_bytes=0)
    with pytest.raises(InvariantBroken, match=f"lacks seq {missing}"):
        lane.replay(page)


def test_a_commit_known_from_an_event_sends_no_notice() -> None:
    """The commit came between the event's publishing and its writing."""
    hub = Hub(encode_notification)
    _, follower = follow(hub)
    hub.publish([row(2)])
    hub.committed([(RUN, 2)])
    hub.notify_committed()
    (event,) = follower.sink.pack(is_batched=False)
    assert b'"committed":2' in event


def test_deltas_are_held_until_the_first_try_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be, and each is sent once, however often the lane falls behind later."""
    monkeypatch.setattr(lane_module, "MOST_HELD", 2)
    hub = Hub(encode_notification)
    hub.publish([row(0)])
    follower = Follower()
    lane = FeedCursor(follower, hub.get_feed(RUN), 1)
    lane.hold()
    for item in ("t1", "t2"):
        lane.offer_progress(ProgressDelta(RUN, item, "text", 0, item))
    assert lane.join()
    assert 2 == len(follower.sink.pack(is_batched=False))
    lane.deliver([PublishedRow(row(9))])
    assert lane.join()
    assert [] == follower.sink.pack(is_batched=False)
