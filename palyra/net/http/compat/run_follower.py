"""One run as an HTTP request reads it: rows and deltas, without a socket's encoding.

Owns: the queue and the subscription of one request.  Talks to: hub, journal.

The subscription is the one that a socket has (`palyra.net.delivery.subscription`), so the same rows
come in the same order.  Only the sink differs: rows wait here as they are on the tape and are never
encoded as frames.  The queue is bounded like an outbox: deltas are dropped first; if that is not
enough, the client reads too slowly and its request ends.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial

import trio

from palyra.actors.hub import Hub, ProgressDelta, PublishedRow
from palyra.core.access import Caller
from palyra.core.journal.changes import TapePage
from palyra.core.journal.tape_row import TapeRow
from palyra.errors import Draining, Overloaded, PalyraError, Unauthenticated, Unavailable
from palyra.net.api.method import Backend
from palyra.net.delivery.outbox import ENTRY_BYTES, ROOM_BYTES, SEND_BYTES, FrameSuffix
from palyra.net.delivery.subscription import (
    NOTHING_YET,
    PAGE_BYTES,
    PAGE_ROWS,
    ClientContext,
    LiveSubscription,
    Spawn,
    SubscriptionFilter,
)
from palyra.net.http.compat.answer import KINDS, STREAMED_KINDS, Committed, Item, Streamed
from palyra.net.protocol import close_codes
from palyra.net.protocol.notifications import Notification, TapeReset


class RunFollower:
    """Queue of the items of one run, from its first row on; a `RowSink`."""

    def __init__(self, backend: Backend, caller: Caller, spawn: Spawn) -> None:
        self._client = ClientContext(
            caller=caller,
            hub=backend.hub,
            sink=self,
            read_page=partial(_read_page, backend),
            new_id=backend.new_id,
            spawn=spawn,
            bulk=trio.Lock(),
        )
        self._hub: Hub = backend.hub
        self._limit_bytes = backend.limits.outbox_bytes
        self._subscription: LiveSubscription | None = None
        self._failure: PalyraError | None = None
        self._committed = NOTHING_YET  # as the reader knows
        self._work = trio.Event()
        self._room = trio.Event()
        self._clear()

    def await_run(self, run_id: str) -> None:
        """Follow a run before it starts, so that its first delta is not missed."""
        self._hub.get_feed(run_id).note_head(NOTHING_YET)
        self.follow(run_id)

    def follow(self, run_id: str) -> None:
        """Follow a run from its first row on, instead of any other."""
        self.close()
        self._clear()
        self._subscription = LiveSubscription(self._client, SubscriptionFilter(kinds=KINDS))
        self._feed = self._hub.get_feed(run_id)
        self._subscription.open_cursor(self._feed, 0)
        self._subscription.start()

    def close(self) -> None:
        """Receive nothing more."""
        if self._subscription is not None:
            self._subscription.close()

    async def next_items(self, within_s: float) -> list[Item]:
        """Return what was queued, in order; nothing if nothing came in time.

        Raises Overloaded, Unavailable.
        """
        with trio.move_on_after(within_s):
            await self._work.wait()
        if self._failure is not None:
            raise self._failure
        items: list[Item] = []
        size_bytes = 0
        while self._queue and size_bytes < SEND_BYTES:
            item = self._queue.popleft()
            if isinstance(item, Streamed):
                del self._streamed[item.item, item.kind]
                self._streamed_bytes -= len(item.text)
                size_bytes += len(item.text)
            else:
                self._queued_bytes -= len(item.data) + ENTRY_BYTES
                size_bytes += len(item.data)
            items.append(item)
        if not self._queue:
            self._work = trio.Event()
        if self._queued_bytes <= ROOM_BYTES:
            self._room.set()
        if self._feed.committed > self._committed:
            self._committed = self._feed.committed
            items.append(Committed(self._committed))
        return items

    def _clear(self) -> None:
        self._queue: deque[TapeRow | Streamed] = deque()
        self._queued_bytes = 0
        self._streamed: dict[tuple[str, str], Streamed] = {}  # waiting, by item and kind
        self._streamed_bytes = 0

    def _fail(self, error: PalyraError) -> None:
        self._clear()
        self._failure = error
        self._work.set()
        self._room.set()

    # --- the sink ---

    def put_rows(self, rows: Iterable[PublishedRow], suffix: FrameSuffix) -> None:
        """Queue rows, in place of deltas if there is no room for both."""
        del suffix
        if self._failure is not None:
            return
        for each in rows:
            self._queue.append(each.row)
            self._queued_bytes += len(each.row.data) + ENTRY_BYTES
        if self._queued_bytes + self._streamed_bytes > self._limit_bytes:
            self._queue = deque(item for item in self._queue if isinstance(item, TapeRow))
            self._streamed.clear()
            self._streamed_bytes = 0
        if self._queued_bytes > self._limit_bytes:
            self._fail(Overloaded("this client does not read fast enough; the run continues"))
        if self._queue:
            self._work.set()

    def put_progress(self, progress: ProgressDelta) -> None:
        """Queue a delta of the model's text or reasoning, or merge it into one that waits."""
        item, kind = progress.item, progress.kind
        is_full = 2 * (self._queued_bytes + self._streamed_bytes) > self._limit_bytes
        if is_full or self._failure is not None or kind not in STREAMED_KINDS:
            return
        if (item, kind) not in self._streamed:
            self._streamed[item, kind] = Streamed(item, kind)
            self._queue.append(self._streamed[item, kind])
        text = progress.delta.encode(errors="replace")  # half a surrogate pair becomes `?`
        self._streamed[item, kind].text += text
        self._streamed_bytes += len(text)
        self._work.set()

    def put_committed(self, suffix: FrameSuffix) -> None:
        """Wake the reader, which looks at the feed."""
        del suffix
        self._work.set()

    def put_notice(self, method: str, params: Notification) -> None:
        """End the request on a reset: a part of the answer that was sent cannot be taken back."""
        del method
        if isinstance(params, TapeReset):
            self._fail(Unavailable("the run's tape was rewound; fetch the run by its id"))

    def withdraw(self, suffix: FrameSuffix, seq: int) -> None:
        """Do nothing: the reset that follows ends the request."""

    async def wait_room(self) -> None:
        """Return once little is queued."""
        while self._queued_bytes > ROOM_BYTES:
            if self._room.is_set():
                self._room = trio.Event()
            await self._room.wait()


@asynccontextmanager
async def open_following(backend: Backend, caller: Caller) -> AsyncGenerator[RunFollower]:
    """Make a follower whose subscription and tasks end with the block."""
    async with trio.open_nursery() as nursery:
        following = RunFollower(backend, caller, nursery.start_soon)
        try:
            yield following
        finally:
            following.close()
            nursery.cancel_scope.cancel("the request has ended")


async def _read_page(backend: Backend, run_id: str, after_seq: int) -> TapePage:
    return await backend.journal.read(
        lambda store: store.read_tape(
            run_id, after_seq=after_seq, limit=PAGE_ROWS, max_bytes=PAGE_BYTES
        )
    )


class RequestGuard:
    """An HTTP request as the hub knows it: it gets no notices, and ends when its token does."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.scope = trio.CancelScope()
        self.is_revoked = True  # unless another reason is given

    def notify(self, message: bytes) -> None:
        """Ignore the notice: notices are for sockets."""

    def hang_up(self, code: int, reason: str) -> None:
        """End the request: the token was revoked, or the daemon goes down."""
        self.is_revoked = code == close_codes.REVOKED
        self.scope.cancel(reason)


@asynccontextmanager
async def token_holds(backend: Backend, caller: Caller) -> AsyncGenerator[None]:
    """End the block with Unauthenticated when the token expires or is revoked, or with Draining."""
    guard = RequestGuard(caller)
    if caller.expires_ms is not None:
        left_s = (caller.expires_ms - backend.now_ms()) / 1000
        guard.scope.deadline = trio.current_time() + left_s
    backend.hub.attach(guard)
    try:
        with guard.scope:
            yield
    finally:
        backend.hub.detach(guard)
    if guard.scope.cancelled_caught and guard.is_revoked:
        raise Unauthenticated("the token was revoked or has expired; the run continues")
    if guard.scope.cancelled_caught:
        raise Draining("the daemon is shutting down; the run continues after a restart")
