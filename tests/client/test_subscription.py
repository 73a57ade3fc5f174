"""The client's buffers: what a consumer that is slow, late or cut off gets, without a connection."""

from typing import Any

import pytest
import trio.testing

from palyra.client import subscription as module
from palyra.client.dial import TRIO
from palyra.client.feed import CaughtUp, FeedReader, Item, TapeEvent
from palyra.client.subscription import Inbox, Notice, RunWatching, Subscription
from palyra.core.session.commands import RunView
from palyra.errors import Forbidden, Unreachable
from palyra.net.protocol.notifications import ProgressItem, RunsUpdated
from palyra.net.protocol.results import Subscribed
from tests.client.test_feed import RUN, make_done, make_frame
from tests.net.api.fake_store import run_record

Clock = trio.testing.MockClock


class Consumer:
    """A subscription that was opened, and how often it asked to begin again."""

    def __init__(self, *, through: int = -1) -> None:
        self.restarts = 0
        self.subscription = Subscription(
            FeedReader(RUN, -1), progress=True, restart=self.restart, waits=TRIO
        )
        self.open(through)

    def restart(self, _subscription: Subscription) -> None:
        self.restarts += 1

    def open(self, through: int = -1) -> None:
        self.subscription.open(
            Subscribed(from_=0, floor=0, subscription="sub_1", through=through), "one"
        )

    def delta(self) -> ProgressItem:
        return ProgressItem(run_id=RUN, item="t1", order=0, kind="text", delta="x")

    def lag(self) -> None:
        """Let one event too many come; it is not kept."""
        kept = self.subscription._items
        self.subscription._items = type(kept)([self.delta()] * module.MAX_ITEMS)
        self.subscription.take_event(make_frame(self.subscription.feed.delivered + 1))
        self.subscription._items = kept

    async def take_all(self) -> list[Item]:
        """Take all waiting items."""
        return [await anext(self.subscription) for _ in range(len(self.subscription._items))]


async def test_an_item_that_waits_is_taken_at_a_checkpoint(autojump_clock: Clock) -> None:
    """A consumer that never waits lets others live, and can be cancelled."""
    consumer = Consumer()
    consumer.subscription.take_event(make_frame(0))
    with trio.testing.assert_checkpoints():
        await consumer.subscription.wait_item()


async def test_a_buffer_is_bounded_in_bytes(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken events free their bytes; over the bound the stream restarts once from its cursor."""
    monkeypatch.setattr(module, "MAX_BUFFER_BYTES", 150)
    consumer = Consumer()
    frames = [make_frame(seq, text="x" * 80) for seq in range(8)]
    for frame in frames[:4]:
        consumer.subscription.take_event(frame)
        (event,) = await consumer.take_all()
        assert isinstance(event, TapeEvent)
        assert frame.seq == event.seq
    for frame in frames[4:]:
        consumer.subscription.take_event(frame)
    assert [4, 5] == [item.seq for item in await consumer.take_all() if isinstance(item, TapeEvent)]
    for _ in range(2):
        with trio.move_on_after(1):
            await consumer.subscription.wait_item()
    assert 1 == consumer.restarts


async def test_a_lagging_subscription_ignores_notices_until_it_reopens(
    autojump_clock: Clock,
) -> None:
    """A lagging subscription ignores commits and catch-up notices, because rows are missing."""
    consumer = Consumer()
    consumer.lag()
    consumer.subscription.take_committed(0)
    consumer.subscription.take_caught_up(0)
    assert ([], -1) == (await consumer.take_all(), consumer.subscription.feed.committed)
    consumer.open()
    consumer.subscription.take_event(make_frame(0, committed=0))
    consumer.subscription.take_caught_up(0)
    event, caught_up = await consumer.take_all()
    assert isinstance(event, TapeEvent)
    assert CaughtUp(through=0) == caught_up


async def test_frames_of_an_earlier_opening_are_ignored(autojump_clock: Clock) -> None:
    """Frames that arrive while a subscription reopens are ignored; the reply repeats them."""
    consumer = Consumer()
    consumer.subscription.is_opening = True
    consumer.subscription.take_event(make_frame(0))
    consumer.subscription.take_committed(5)
    assert ([], -1) == (await consumer.take_all(), consumer.subscription.feed.committed)
    consumer.subscription.feed.has_gap = True
    consumer.subscription.take_reset("truncated", 0)
    assert 0 == consumer.restarts  # a restart is in progress


async def test_progress_leaves_room_for_events(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress over its share of the buffer is left out, so that events fit."""
    monkeypatch.setattr(module, "PROGRESS_ITEMS", 2)
    consumer = Consumer()
    for _ in range(5):
        consumer.subscription.take_progress(consumer.delta())
    consumer.subscription.take_event(make_frame(0))
    assert [ProgressItem, ProgressItem, TapeEvent] == [*map(type, await consumer.take_all())]


async def test_the_commit_of_the_end_ends_it(autojump_clock: Clock) -> None:
    """The commit of a run's last event ends the iteration of a waiting consumer."""
    consumer = Consumer()
    consumer.subscription.take_caught_up(-1)
    consumer.subscription.take_event(make_done())
    await consumer.take_all()
    seen = list[Any]()

    async def consume() -> None:
        seen.append([item async for item in consumer.subscription])

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.testing.wait_all_tasks_blocked()
            consumer.subscription.take_committed(0)
    assert [[]] == seen


async def test_the_first_failure_is_raised_after_the_buffer(autojump_clock: Clock) -> None:
    """The first of several failures is raised, after the buffered items."""
    consumer = Consumer()
    consumer.subscription.take_event(make_frame(0))
    consumer.subscription.fail(Forbidden("no"))
    consumer.subscription.fail(Unreachable("gone"))
    assert 1 == len(await consumer.take_all())
    with pytest.raises(Forbidden):
        await anext(consumer.subscription)


async def test_the_oldest_news_go_first(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of notifications that does not keep up misses some and takes no memory."""
    monkeypatch.setattr(module, "MAX_NOTICES", 2)
    inbox = Inbox(TRIO)
    for number in range(3):
        inbox.take(Notice(method="m", params={"n": number}))
    assert [1, 2] == [(await anext(inbox)).params["n"] for _ in range(2)]


# --- watches of runs ---


def news(*runs: RunView, gone: tuple[str, ...] = (), part: bool | None = None) -> RunsUpdated:
    """A frame; `part` says whether it is the last one of a snapshot."""
    return RunsUpdated(
        subscription="sub_1", runs=[*runs], gone=[*gone], snapshot=part is not None,
        complete=bool(part),
    )  # fmt: skip


def view(run_id: str, **changes: object) -> RunView:
    return RunView.of(run_record(run_id, **changes))  # type: ignore[arg-type]  # no principal


async def test_a_watch_merges_what_its_consumer_has_not_taken(autojump_clock: Clock) -> None:
    """The newest state of a run is one item, an end is reported, and `runs` has the open ones."""
    watching = RunWatching({}, TRIO)
    watching.take(news(view("run_1"), part=False))
    assert {} == watching.runs
    watching.take(news(view("run_2"), part=True))
    first = await anext(watching)
    assert ["run_1", "run_2"] == [run.run_id for run in first.runs]
    for turns in (1, 2):
        watching.take(news(view("run_1", turns=turns)))
    watching.take(news(view("run_2", state="done"), gone=("run_7",)))
    second = await anext(watching)
    assert [("run_1", 2), ("run_2", 0)] == [(run.run_id, run.turns) for run in second.runs]
    assert (["run_7"], ["run_1"]) == (second.gone, [*watching.runs])


async def test_a_watch_says_which_runs_ended_while_it_was_cut_off(autojump_clock: Clock) -> None:
    """After a new connection the snapshot replaces what was open; the rest is gone."""
    watching = RunWatching({}, TRIO)
    watching.take(news(view("run_1"), view("run_2"), part=True))
    await anext(watching)
    watching.detach()
    watching.take(news(view("run_2", turns=1), part=True))
    after = await anext(watching)
    assert (["run_1"], [("run_2", 1)]) == (after.gone, [(r.run_id, r.turns) for r in after.runs])
    watching.fail(Unreachable("over"))
    with pytest.raises(Unreachable):
        await anext(watching)


async def test_ended_runs_that_nobody_takes_are_bounded(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of runs that have ended the newest are kept for a slow consumer, and every open one."""
    monkeypatch.setattr(module, "MAX_ITEMS", 2)
    watching = RunWatching({}, TRIO)
    watching.take(news(view("run_open"), part=True))
    for number in range(9):
        watching.take(news(view(f"run_{number}", state="done")))
    taken = [run.run_id for run in (await anext(watching)).runs]
    assert ["run_open", "run_7", "run_8"] == taken
