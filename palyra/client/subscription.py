"""What a consumer iterates over: the items of one run, or notifications of any kind.

Both buffers are bounded.  A consumer that does not keep up with a run loses nothing: its
subscription is given up and begun again from its cursor once the buffer is empty, so the tape
does the buffering.  Notifications are news; the oldest go first.

Waiting for whichever comes first.
"""

import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

import msgspec
import trio

from palyra.client.feed import (
    EventsDiscarded,
    FeedReader,
    Item,
    TapeEvent,
)
from palyra.errors import PalyraError, ProtocolError
from palyra.net.protocol.notifications import ProgressItem, TapeEventNotice
from palyra.net.protocol.results import Subscribed

MAX_ITEMS = 2_048
MAX_BUFFER_BYTES = 8_388_608
PROGRESS_ITEMS = MAX_ITEMS // 2  # progress gets no more than this much of the room
MAX_NOTICES = 1_024


class Subscription:
    """One run's items in order: no gap, no repeat, whatever happens to connection and daemon.

    Iteration ends by itself after the run's terminal event, once that is durable.
    """

    def __init__(
        self, feed: FeedReader, *, progress: bool, restart: Callable[["Subscription"], None]
    ) -> None:
        self.feed = feed
        self.wants_progress = progress
        self.is_opening = False  # a `tape.subscribe` is under way
        self.was_opened = False
        self.route: str | None = None  # the daemon's name of it, on the present link
        self.instance_id: str | None = None  # of the daemon that served it last
        self._restart = restart
        self._is_lagging = False
        self._items: deque[Item] = deque()
        self._size_bytes = 0
        self._failure: PalyraError | None = None
        self._news = trio.Event()

    @property
    def cursor(self) -> int:
        """The `after_seq` from which another client would continue.

        What is buffered here and not taken yet is not lost by leaving: it comes again, and what
        a buffered `Dropped` takes back comes as what took its place.
        """
        return min([self.feed.cursor, *map(_taken_before, self._items)])

    @property
    def has_item(self) -> bool:
        """Whether an item is waiting to be taken."""
        return bool(self._items)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """The next item.  Raises what ended the subscription.  Cancellation: no item is lost."""
        await self.wait_item()
        if self._items:
            item = self._items.popleft()
            self._size_bytes -= _size_bytes(item)
            return item
        raise self._failure or StopAsyncIteration

    async def wait_item(self) -> None:
        """Return once there is an item to take, or an end to be told of; takes nothing."""
        await trio.lowlevel.checkpoint()
        while not (self._items or self._failure or self.feed.is_finished):
            await self._wait_news()

    async def wait_opened(self) -> None:
        """Return when the daemon has accepted it.  Raises what it was refused with."""
        while not self.was_opened:
            if self._failure is not None:
                raise self._failure
            await self._wait_news()

    def make_params(self) -> dict[str, Any]:
        """Params of the `tape.subscribe` that begins or resumes it."""
        return {
            "run_id": self.feed.run_id,
            "after_seq": self.feed.cursor,
            "progress": self.wants_progress,
        }

    def open(self, reply: Subscribed, instance_id: str) -> None:
        """The daemon accepted it under the name `reply.subscription`."""
        is_same = self.instance_id in {None, instance_id}
        self.instance_id = instance_id
        self.route = reply.subscription
        self.is_opening = False
        self.was_opened = True
        self._is_lagging = False
        self._push(self.feed.opened(reply, is_same_instance=is_same))

    def detach(self) -> None:
        """The link is down; the next one will open it again."""
        self.is_opening = False
        self.route = None

    def take_event(self, frame: TapeEventNotice) -> None:
        if self._is_full:
            self._is_lagging = True
        if not self._is_lagging and not self.is_opening:
            self._guard(lambda: self.feed.event(frame))

    def take_progress(self, progress: ProgressItem) -> None:
        if self.wants_progress and not self._is_lagging and len(self._items) < PROGRESS_ITEMS:
            self._push([progress])

    def take_committed(self, seq: int) -> None:
        if not self._is_lagging and not self.is_opening:
            self.feed.commit(seq)
            self._wake()

    def take_caught_up(self, through: int) -> None:
        if not self._is_lagging and not self.is_opening:
            self._guard(lambda: self.feed.caught_up(through))

    def take_reset(self, reason: str, floor: int) -> None:
        self._guard(lambda: self.feed.reset(reason, floor))

    def fail(self, error: PalyraError) -> None:
        """End it with that error, after what is already buffered."""
        self.is_opening = False
        self._failure = self._failure or error
        self._wake()

    @property
    def _is_full(self) -> bool:
        return len(self._items) >= MAX_ITEMS or self._size_bytes >= MAX_BUFFER_BYTES

    async def _wait_news(self) -> None:
        if self._is_lagging:
            self._is_lagging = False
            self._restart(self)
        self._news = trio.Event()
        await self._news.wait()

    def _guard(self, advance: Callable[[], list[Item]]) -> None:
        """Push what `advance` yields; a broken stream ends this subscription and no other."""
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
        self._news.set()


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification outside any subscription: an approval, an incident, a drain."""

    method: str
    params: dict[str, Any]


class Inbox:
    """Notifications as they come; those from before it was opened are not in it."""

    def __init__(self) -> None:
        self._notices: deque[Notice] = deque(maxlen=MAX_NOTICES)
        self._failure: PalyraError | None = None
        self._news = trio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice:
        """The next one.  Raises what ended the connection for good."""
        await trio.lowlevel.checkpoint()
        while not self._notices:
            if self._failure is not None:
                raise self._failure
            self._news = trio.Event()
            await self._news.wait()
        return self._notices.popleft()

    def take(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._news.set()

    def fail(self, error: PalyraError) -> None:
        self._failure = self._failure or error
        self._news.set()


def _taken_before(item: Item) -> int:
    """The highest seq that still stands before that item is taken."""
    match item:
        case TapeEvent():
            return item.seq - 1
        case EventsDiscarded():
            return item.after_seq
        case _:
            return sys.maxsize


def _size_bytes(item: Item) -> int:
    return len(item.data) if isinstance(item, TapeEvent) else 64


async def wait_any(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first returns; the others are cancelled, so none may take anything."""
    async with trio.open_nursery() as nursery:

        async def end_with(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel("another wait is over")

        for wait in waits:
            nursery.start_soon(end_with, wait)
