"""Buffers that a consumer iterates over: the items of one run, or notifications.

Both buffers are bounded.  A consumer that is slower than a run loses nothing: when the buffer is
full, further events are dropped, and once it is empty the subscription is opened again from its
cursor, so the tape is the buffer.  Of notifications the oldest are dropped.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

import msgspec

from palyra.client.connection import decode
from palyra.client.feed import (
    EventsDiscarded,
    FeedReader,
    Item,
    TapeEvent,
)
from palyra.client.waits import Waits
from palyra.core.session.commands import RunView
from palyra.errors import PalyraError, ProtocolError
from palyra.net.protocol.notifications import ProgressItem, RunsUpdated, TapeEventNotice
from palyra.net.protocol.results import RunsWatched, Subscribed

MAX_ITEMS = 2_048
MAX_BUFFER_BYTES = 8_388_608
PROGRESS_ITEMS = MAX_ITEMS // 2  # the share of the buffer that progress may use
MAX_NOTICES = 1_024


class Stream(Protocol):
    """A stream of the daemon that is opened again on each connection."""

    open_method: str
    close_method: str
    is_opening: bool  # a request that opens it is in progress
    was_opened: bool
    route: str | None  # the daemon's id of it, on the current connection

    def make_params(self) -> dict[str, Any]:
        """Make the params of the request that opens or resumes it."""

    def accept(self, result: msgspec.Raw, instance_id: str) -> None:
        """Note that the daemon has opened it."""

    def detach(self) -> None:
        """Note that the connection is lost; the next one opens it again."""

    def fail(self, error: PalyraError) -> None:
        """End with that error, after what is buffered."""


class Subscription:
    """Items of one run in order, without gap or duplicate across connections and restarts.

    Iteration ends after the run's terminal event, once that is durable.
    """

    open_method = "tape.subscribe"
    close_method = "tape.unsubscribe"

    def __init__(
        self,
        feed: FeedReader,
        *,
        progress: bool,
        restart: Callable[["Subscription"], None],
        waits: Waits,
    ) -> None:
        self.feed = feed
        self._waits = waits
        self.wants_progress = progress
        self.is_opening = False  # a `tape.subscribe` is in progress
        self.was_opened = False
        self.route: str | None = None  # the daemon's id of it, on the current connection
        self.instance_id: str | None = None  # of the daemon that opened it last
        self._restart = restart
        self._is_lagging = False
        self._items: deque[Item] = deque()
        self._size_bytes = 0
        self._failure: PalyraError | None = None
        self._changed = self._waits.make_event()

    @property
    def cursor(self) -> int:
        """The `after_seq` from which another client can continue.

        It excludes buffered items, and events that a buffered `EventsDiscarded` makes void.
        """
        return min([self.feed.cursor, *map(_valid_before, self._items)])

    @property
    def has_item(self) -> bool:
        """True if an item is buffered."""
        return bool(self._items)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """Return the next item.  Raises the error of the subscription.  Cancellation: no item is lost."""
        await self.wait_item()
        if self._items:
            item = self._items.popleft()
            self._size_bytes -= _size_bytes(item)
            return item
        raise self._failure or StopAsyncIteration

    async def wait_item(self) -> None:
        """Wait for an item, the end or an error, without consuming it."""
        await self._waits.checkpoint()
        while not (self._items or self._failure or self.feed.is_finished):
            await self._wait_change()

    async def wait_opened(self) -> None:
        """Wait until the daemon has accepted the subscription.  Raises its error."""
        while not self.was_opened:
            if self._failure is not None:
                raise self._failure
            await self._wait_change()

    def make_params(self) -> dict[str, Any]:
        """Make the params of the `tape.subscribe` that opens or resumes the subscription."""
        return {
            "run_id": self.feed.run_id,
            "after_seq": self.feed.cursor,
            "progress": self.wants_progress,
        }

    def accept(self, result: msgspec.Raw, instance_id: str) -> None:
        """Note that the daemon has accepted the subscription with that reply."""
        self.open(decode(result, Subscribed), instance_id)

    def open(self, reply: Subscribed, instance_id: str) -> None:
        """Note that the daemon has accepted the subscription."""
        is_same = self.instance_id in {None, instance_id}
        self.instance_id = instance_id
        self.route = reply.subscription
        self.is_opening = False
        self.was_opened = True
        self._is_lagging = False
        self._push(self.feed.opened(reply, is_same_instance=is_same))

    def detach(self) -> None:
        """Note that the connection is lost; the next one opens the subscription again."""
        self.is_opening = False
        self.route = None

    def take_event(self, frame: TapeEventNotice) -> None:
        """Take an event from the connection, or drop it while the buffer is full."""
        if self._is_full:
            self._is_lagging = True
        if not self._is_lagging and not self.is_opening:
            self._guard(lambda: self.feed.event(frame))

    def take_progress(self, progress: ProgressItem) -> None:
        """Take progress from the connection, if it is wanted and leaves room for events."""
        if self.wants_progress and not self._is_lagging and len(self._items) < PROGRESS_ITEMS:
            self._push([progress])

    def take_committed(self, seq: int) -> None:
        """Note that everything up to `seq` is durable."""
        if not self._is_lagging and not self.is_opening:
            self.feed.commit(seq)
            self._wake()

    def take_caught_up(self, through: int) -> None:
        """Note that everything up to `through` has been sent."""
        if not self._is_lagging and not self.is_opening:
            self._guard(lambda: self.feed.caught_up(through))

    def take_reset(self, reason: str, floor: int) -> None:
        """Continue at `floor`, where the tape now begins."""
        self._guard(lambda: self.feed.reset(reason, floor))

    def fail(self, error: PalyraError) -> None:
        """End with that error, after the items that are buffered."""
        self.is_opening = False
        self._failure = self._failure or error
        self._wake()

    @property
    def _is_full(self) -> bool:
        return len(self._items) >= MAX_ITEMS or self._size_bytes >= MAX_BUFFER_BYTES

    async def _wait_change(self) -> None:
        if self._is_lagging:
            self._is_lagging = False
            self._restart(self)
        self._changed = self._waits.make_event()
        await self._changed.wait()

    def _guard(self, advance: Callable[[], list[Item]]) -> None:
        """Push the items of `advance`; a protocol error ends this subscription only."""
        try:
            self._push(advance())
        except ProtocolError as error:
            self.fail(error)
            return
        if self.feed.has_gap and not self.is_opening:
            self._restart(self)

    def _push(self, items: list[Item]) -> None:
        self._items.extend(items)
        self._size_bytes += sum(_size_bytes(item) for item in items)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()


class RunWatching:
    """The open runs of a watch, and the changes of each, across connections and restarts.

    The first item has the open runs.  Changes that a slow consumer has not taken are merged: it gets
    the newest state of each run.
    """

    open_method = "run.watch"
    close_method = "run.unwatch"

    def __init__(self, wanted: dict[str, Any], waits: Waits) -> None:
        self.runs: dict[str, RunView] = {}  # the open ones, by id
        self.is_opening = False
        self.was_opened = False
        self.route: str | None = None
        self._wanted = wanted
        self._waits = waits
        self._snapshot: dict[str, RunView] = {}  # as far as it has come
        self._news: dict[str, RunView] = {}
        self._gone: set[str] = set()
        self._has_news = False
        self._failure: PalyraError | None = None
        self._changed = waits.make_event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunsUpdated:
        """Return what has changed.  Raises the error of the watch.  Cancellation: nothing is lost."""
        await self._waits.checkpoint()
        while not self._has_news:
            if self._failure is not None:
                raise self._failure
            self._changed = self._waits.make_event()
            await self._changed.wait()
        news = RunsUpdated(
            subscription=self.route or "", runs=[*self._news.values()], gone=sorted(self._gone)
        )
        self._news, self._gone, self._has_news = {}, set(), False
        return news

    async def wait_opened(self) -> None:
        """Wait until the daemon has accepted the watch.  Raises its error."""
        while not self.was_opened:
            if self._failure is not None:
                raise self._failure
            self._changed = self._waits.make_event()
            await self._changed.wait()

    def make_params(self) -> dict[str, Any]:
        """Make the params of the `run.watch` that opens the watch again."""
        return self._wanted

    def accept(self, result: msgspec.Raw, instance_id: str) -> None:
        """Note that the daemon has opened the watch; its snapshot follows."""
        del instance_id
        self.route = decode(result, RunsWatched).subscription
        self._snapshot = {}
        self.is_opening = False
        self.was_opened = True
        self._changed.set()

    def detach(self) -> None:
        """Note that the connection is lost; the next one opens the watch again."""
        self.is_opening = False
        self.route = None

    def fail(self, error: PalyraError) -> None:
        """End with that error, after the news that wait."""
        self.is_opening = False
        self._failure = self._failure or error
        self._changed.set()

    def take(self, news: RunsUpdated) -> None:
        """Take a notification from the connection."""
        if not news.snapshot:
            self._note(news.runs, news.gone)
            return
        self._snapshot.update((view.run_id, view) for view in news.runs)
        if news.complete:
            whole, self._snapshot = self._snapshot, {}
            self._note(whole.values(), self.runs.keys() - whole.keys())

    def _note(self, runs: Iterable[RunView], gone: Iterable[str]) -> None:
        for run_id in list(gone):
            self.runs.pop(run_id, None)
            self._news.pop(run_id, None)
            self._gone.add(run_id)
        for view in runs:
            self._gone.discard(view.run_id)
            self._news.pop(view.run_id, None)
            self._news[view.run_id] = self.runs[view.run_id] = view
            if view.is_terminal:
                del self.runs[view.run_id]
        while len(self._news) > len(self.runs) + MAX_ITEMS:  # the oldest that has ended
            del self._news[next(run_id for run_id in self._news if run_id not in self.runs)]
        self._has_news = True
        self._changed.set()


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification outside any subscription: an approval, an incident, a drain."""

    method: str
    params: dict[str, Any]


class Inbox:
    """Notifications received since the inbox was opened."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._notices: deque[Notice] = deque(maxlen=MAX_NOTICES)
        self._failure: PalyraError | None = None
        self._changed = self._waits.make_event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice:
        """Return the next notification.  Raises the error that ended reconnecting."""
        await self._waits.checkpoint()
        while not self._notices:
            if self._failure is not None:
                raise self._failure
            self._changed = self._waits.make_event()
            await self._changed.wait()
        return self._notices.popleft()

    def take(self, notice: Notice) -> None:
        """Take a notification from the connection; the oldest is dropped when the inbox is full."""
        self._notices.append(notice)
        self._changed.set()

    def fail(self, error: PalyraError) -> None:
        """End with that error, after the notifications that are buffered."""
        self._failure = self._failure or error
        self._changed.set()


def _valid_before(item: Item) -> int:
    """Return the highest seq that is valid before that item is consumed."""
    match item:
        case TapeEvent():
            return item.seq - 1
        case EventsDiscarded():
            return item.after_seq
        case _:
            return sys.maxsize


def _size_bytes(item: Item) -> int:
    return len(item.data) if isinstance(item, TapeEvent) else 64
