"""The mailbox: the bounded queue through which everything reaches an actor.

Owns: both ends of the queue, across incarnations.  Written by: handles.  Read by: one receiver
at a time, which is one incarnation.  Never: restarts, logs, or looks into a message.
Semantics: Erlang's mailbox and `gen_server:call`, except that the queue is bounded, that it
survives a restart, and that an asker learns of the answerer's end at once.

A queued message outlives the incarnation and waits for the next one.  A received message belongs to
its incarnation: if that ends before it answers, the asker gets `ActorGone`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

import trio

from palyra.actors.kernel.reply import PendingReply, Reply
from palyra.errors import ActorGone, InvariantBroken, Overloaded, TooSlow

__all__ = ["Mailbox", "Receiver", "Reply", "Stop"]

M = TypeVar("M")
T = TypeVar("T")

# Messages that iteration may return between two checkpoints: enough to spread the checkpoint (5
# microseconds) to a tenth of a microsecond a message, few enough to notice a cancel soon.
BATCH = 64


@dataclass(slots=True, eq=False)
class _Asked(Generic[M]):
    """A queued message with a waiting asker."""

    message: M
    answer: PendingReply[object]


@dataclass(slots=True, eq=False)
class Stop:
    """The drain message: finish what was queued before it, then end.

    It addresses one incarnation; if that ends first, the next one never sees it.
    """

    reason: str
    receiver: object


class _Queue(Generic[M]):
    """State shared by the two ends of a mailbox."""

    __slots__ = (
        "capacity",
        "channel",
        "is_closed",
        "last_taken_s",
        "name",
        "receiver",
        "sender",
        "taken",
    )

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.receiver: Receiver[M] | None = None
        self.taken: set[PendingReply[object]] = set()  # by the current receiver
        self.last_taken_s: float | None = None
        self.open()

    def open(self) -> None:
        self.sender: trio.MemorySendChannel[M | _Asked[M] | Stop]
        self.channel: trio.MemoryReceiveChannel[M | _Asked[M] | Stop]
        # No subscript: evaluating the type would take longer than opening the channel.
        self.sender, self.channel = trio.open_memory_channel(self.capacity)
        self.is_closed = False


class Mailbox(Generic[M]):
    """A bounded queue of messages; when `capacity` messages wait, writers wait too."""

    __slots__ = ("_queue", "capacity", "name")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._queue: _Queue[M] = _Queue(name, capacity)

    @property
    def depth(self) -> int:
        """Messages queued and not yet taken."""
        return self._queue.channel.statistics().current_buffer_used

    @property
    def peak(self) -> int:
        """The largest depth so far."""
        return self._queue.channel.statistics().peak_buffer_used

    @property
    def last_message_age_s(self) -> float | None:
        """Seconds since an incarnation last took messages, exact to one batch; None before."""
        taken_s = self._queue.last_taken_s
        return None if taken_s is None else trio.current_time() - taken_s

    def offer(self, message: M) -> None:
        """Queue the message now.  Raises Overloaded when full, ActorGone when closed."""
        try:
            self._queue.sender.send_nowait(message)
        except trio.WouldBlock:
            raise Overloaded(f"{self.name}: all {self.capacity} places are in use") from None
        except trio.ClosedResourceError:
            raise self._gone() from None

    async def tell(self, message: M) -> None:
        """Queue the message, waiting for room.  Raises ActorGone when closed.

        Cancellation: the message was not queued.
        """
        try:
            await self._queue.sender.send(message)
        except trio.ClosedResourceError:
            raise self._gone() from None

    async def ask(self, make: Callable[[Reply[T]], M], *, timeout_s: float) -> T:
        """Send the message that `make` builds around a reply, and return the answer.

        Raises the error that the answerer set with `fail`; ActorGone as soon as no answer is
        possible; TooSlow after `timeout_s`, which covers both the wait for room and the wait for
        the answer.
        Cancellation, and TooSlow: effects until then remain; from then on the reply
        `is_abandoned`, and an actor that checks it does nothing.
        """
        answer: PendingReply[T] = PendingReply(self.name)
        try:
            with trio.move_on_after(timeout_s):
                # No reference to the message may stay here: its reply must be collectable.
                await self._send_asked(make(Reply(answer)), answer)
                return await answer.wait()
        finally:
            self._queue.taken.discard(cast("PendingReply[object]", answer))
        raise TooSlow(f"{self.name} gave no answer within {timeout_s:g} s")

    def receiver(self) -> "Receiver[M]":
        """Return the reading end for one incarnation: a sync context manager, one at a time."""
        return Receiver(self._queue)

    async def stop(self, reason: str) -> bool:
        """Ask the current incarnation to drain and end; False if there is none.

        Waits for room like any message.  Cancellation: no stop was queued.
        """
        if self._queue.receiver is None:
            return False
        with suppress(trio.ClosedResourceError):  # closed: the receiver ends by itself
            await self._queue.sender.send(Stop(reason, self._queue.receiver))
        return True

    def close(self) -> None:
        """The final stop: writers and every queued asker get ActorGone, now and from now on.

        An incarnation that still receives gets the end of the channel.  A later incarnation, which is
        not expected, would open the mailbox again.
        """
        self._queue.is_closed = True
        self._queue.sender.close()
        with suppress(trio.EndOfChannel):
            while True:
                item = self._queue.channel.receive_nowait()
                if isinstance(item, _Asked):
                    item.answer.settle(None, self._gone())

    async def _send_asked(self, message: M, answer: PendingReply[T]) -> None:
        """Queue a question; no checkpoint when there is room, since its asker waits anyway."""
        asked = _Asked(message, cast("PendingReply[object]", answer))
        try:
            try:
                self._queue.sender.send_nowait(asked)
            except trio.WouldBlock:
                await self._queue.sender.send(asked)
        except trio.ClosedResourceError:
            raise self._gone() from None

    def _gone(self) -> ActorGone:
        return ActorGone(f"{self.name} has stopped")


class Receiver(Generic[M]):
    """The reading end of a mailbox for one incarnation.

    A `Stop` reads like the end of a channel: `receive` and `drain` raise `trio.EndOfChannel`,
    iteration ends, and `stop_reason` says why.  Messages queued after it stay queued.
    """

    __slots__ = ("_budget", "_queue", "stop_reason")

    def __init__(self, queue: _Queue[M]) -> None:
        self._queue = queue
        self._budget = 0  # messages until the next checkpoint
        self.stop_reason: str | None = None

    def __enter__(self) -> Self:
        if self._queue.receiver is not None:
            raise InvariantBroken(f"{self._queue.name}: a second receiver for one mailbox")
        if self._queue.is_closed:
            self._queue.open()
        self._queue.receiver = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the incarnation: the questions it received and did not answer fail now."""
        self._queue.receiver = None
        while self._queue.taken:
            self._queue.taken.pop().settle_gone()

    async def receive(self) -> M:
        """Receive the next message.  Raises trio.EndOfChannel once stopped.

        Cancellation: no message was taken.
        """
        while self.stop_reason is None:
            item = self._unwrap(await self._queue.channel.receive())
            if not isinstance(item, Stop):
                self._queue.last_taken_s = trio.current_time()
                return item
        raise trio.EndOfChannel

    async def drain(self) -> list[M]:
        """Wait for one message, then take all queued ones: the fast path, never empty.

        Raises trio.EndOfChannel once stopped.  Cancellation: no message was taken.
        """
        batch = [await self.receive()]
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while self.stop_reason is None:
                item = self._queue.channel.receive_nowait()
                if isinstance(item, (_Asked, Stop)):
                    item = self._unwrap(item)
                if not isinstance(item, Stop):
                    batch.append(item)
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        """Receive the next message, with one checkpoint per batch; the rest stays queued."""
        try:
            while self._budget > 0 and self.stop_reason is None:
                self._budget -= 1
                item = self._unwrap(self._queue.channel.receive_nowait())
                if not isinstance(item, Stop):
                    return item
        except (trio.WouldBlock, trio.EndOfChannel):
            pass  # the batch ends here: `receive` distinguishes an empty queue from a closed one
        self._budget = BATCH - 1
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def _unwrap(self, item: M | _Asked[M] | Stop) -> M | Stop:
        """Return the message and record its asker; a Stop for another receiver has no effect."""
        if isinstance(item, _Asked):
            self._queue.taken.add(item.answer)
            return item.message
        if isinstance(item, Stop) and item.receiver is self:
            self.stop_reason = item.reason
        return item
