"""The outbox: frames that wait to be written to one connection, bounded in bytes.

Owns: the queue of one connection.  Filled by the hub and by request tasks, which never wait;
emptied by the connection's writer, which packs all that waits into few messages.
Never: writes to a socket.

A queued frame is a body, which may be shared with other connections, and a suffix, which completes
the body when it is written (`FrameSuffix`); so every event reports the committed seq of the moment
in which it leaves.

Progress is volatile.  Deltas of one item are merged into one frame while they wait, at the place
of the first.  New ones are dropped while more than half of the limit is in use; if the limit is
reached, those that wait are dropped first.  If that is not enough, the client is too slow: the
outbox drops everything and calls `on_overflow`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from palyra.actors.hub import ProgressDelta, PublishedRow
from palyra.net.delivery.encoding import encode_event, encode_progress
from palyra.net.protocol.jsonrpc import encode_notification

ENTRY_BYTES = 100  # of an entry besides its body: the suffix of an event, and the queue
ARRAY_BYTES = 65_536  # a JSON array of notifications is closed when it reaches this
SEND_BYTES = 262_144  # handed to the transport at once; the send deadline is for this much
ROOM_BYTES = 262_144  # replays and bulk replies wait until less than this is queued


class FrameSuffix(Protocol):
    """The end of a frame, known only when the frame is written."""

    @property
    def run_id(self) -> str: ...
    def finish(self, body: bytes) -> bytes:
        """Return the whole message; empty if there is nothing to send any more."""


class _NoSuffix:
    run_id = ""

    @staticmethod
    def finish(body: bytes) -> bytes:
        return body


_NO_SEQ = -1

REPLY: FrameSuffix = _NoSuffix()  # written as a message of its own, never inside an array
NOTICE: FrameSuffix = _NoSuffix()


class _MergedProgress:
    """Deltas of one item that wait to be written as one frame."""

    run_id = ""

    def __init__(self, outbox: "Outbox", key: tuple[str, str, str], head: bytes) -> None:
        self._outbox = outbox
        self._head = head  # the notification up to `"order":`
        self.key = key
        self.order = 0  # of the newest delta
        self.end = 0  # offset of the delta that continues the text
        self.texts: list[bytes] = []

    def finish(self, body: bytes) -> bytes:
        if not self.texts:
            return body  # dropped meanwhile
        self._outbox.close_progress(self)
        return b'%b%d,"delta":"%b"}}' % (self._head, self.order, b"".join(self.texts))


class Outbox:
    """Frames for one connection, in the order in which they were put; a `RowSink`."""

    def __init__(self, limit_bytes: int, on_overflow: Callable[[], None]) -> None:
        self._limit_bytes = limit_bytes
        self._on_overflow = on_overflow
        self.last_event: tuple[str, int] | None = None  # run and seq, as packed
        self._queue: deque[tuple[int, bytes, FrameSuffix]] = deque()
        self._queued_bytes = 0
        self._volatile: dict[tuple[str, str, str], _MergedProgress] = {}  # by run, item and kind
        self._volatile_bytes = 0
        self._last_delta: ProgressDelta | None = None
        self._is_finished = False
        self._work = trio.Event()
        self._room = trio.Event()
        self._urgent = trio.Event()  # a reply waits, or nothing more will come

    @property
    def waiting_bytes(self) -> int:
        """Bytes queued, volatile ones included."""
        return self._queued_bytes + self._volatile_bytes

    def put(self, body: bytes, suffix: FrameSuffix = NOTICE) -> None:
        """Queue one message."""
        if self._is_finished:
            return
        self._queue.append((_NO_SEQ, body, suffix))
        self._queued_bytes += len(body) + ENTRY_BYTES
        self._note_put()
        if suffix is REPLY:
            self._urgent.set()

    def put_rows(self, rows: Iterable[PublishedRow], suffix: FrameSuffix) -> None:
        """Queue events of one cursor; a row that no other connection has encoded is encoded."""
        if self._is_finished:
            return
        for each in rows:
            body = each.encoded or encode_event(each)
            self._queue.append((each.row.seq, body, suffix))
            self._queued_bytes += len(body) + ENTRY_BYTES
        self._note_put()

    def put_notice(self, method: str, params: object) -> None:
        """Queue a notification."""
        self.put(encode_notification(method, params))

    def put_committed(self, suffix: FrameSuffix) -> None:
        """Queue a frame that consists of its suffix."""
        self.put(b"", suffix)

    def withdraw(self, suffix: FrameSuffix, seq: int) -> None:
        """Remove the waiting events of that cursor from `seq` on."""
        kept = [each for each in self._queue if each[2] is not suffix or each[0] < seq]
        if len(kept) < len(self._queue):
            self._queue = deque(kept)
            self._queued_bytes = sum(len(body) + ENTRY_BYTES for _, body, _ in kept)

    def put_progress(self, progress: ProgressDelta) -> None:
        """Queue a delta or merge it into a waiting frame; drop it when half the limit is used."""
        is_repeated = progress is self._last_delta  # two subscriptions of one connection
        if is_repeated or self._is_finished or 2 * self.waiting_bytes > self._limit_bytes:
            return
        self._last_delta = progress
        head, text = progress.encoded or encode_progress(progress)
        key = (progress.run_id, progress.item, progress.kind)
        merged = self._volatile.get(key)
        if merged is None:
            self._volatile[key] = merged = _MergedProgress(self, key, head)
            self._queue.append((_NO_SEQ, b"", merged))
            self._queued_bytes += ENTRY_BYTES
            self._work.set()
        elif progress.offset > merged.end:
            return  # deltas between were dropped: a frame has no gap
        merged.texts.append(text)
        merged.order = progress.order
        merged.end = progress.offset + len(progress.delta)
        self._volatile_bytes += len(text)

    def close_progress(self, merged: _MergedProgress) -> None:
        """Start a new frame with the next delta: this one is being written."""
        del self._volatile[merged.key]
        self._volatile_bytes -= sum(map(len, merged.texts))

    def _note_put(self) -> None:
        """Enforce the limit and wake the writer."""
        if self.waiting_bytes > self._limit_bytes:
            for merged in self._volatile.values():
                merged.texts = []
            self._volatile.clear()
            self._volatile_bytes = 0
            if self._queued_bytes > self._limit_bytes:
                self.discard()
                self._on_overflow()
        self._work.set()

    def finish(self) -> None:
        """Accept nothing more; the queued frames may still be written."""
        self._is_finished = True
        self._work.set()
        self._urgent.set()
        self._room.set()

    def discard(self) -> None:
        """Accept nothing more and drop the queued frames."""
        self._queue.clear()
        self._volatile.clear()
        self._queued_bytes = self._volatile_bytes = 0
        self.finish()

    async def wait(self) -> bool:
        """Return True once a frame waits, False once none ever will again."""
        while True:
            if not self._queue and not self._is_finished:
                self._work = trio.Event()  # one waiter: the writer
            await self._work.wait()
            if self._queue or self._is_finished:  # else all were filtered out, or withdrawn
                return bool(self._queue)

    async def wait_urgent(self) -> None:
        """Return once a reply waits, or nothing more will come."""
        await self._urgent.wait()

    async def wait_room(self) -> None:
        """Return once little is queued.  For replays and bulk replies; live rows cannot wait."""
        while self._queued_bytes > ROOM_BYTES and not self._is_finished:
            if self._room.is_set():
                self._room = trio.Event()
            await self._room.wait()

    def pack(self, *, is_batched: bool) -> list[bytes]:
        """Take waiting frames, up to SEND_BYTES, as messages ready for the transport.

        With `is_batched` neighbouring notifications share a JSON array; replies stay separate.
        """
        if self._urgent.is_set() and not self._is_finished:
            self._urgent = trio.Event()
        taken = self._take()
        if self._queued_bytes <= ROOM_BYTES:
            self._room.set()
        if is_batched:
            return _group(taken)
        return [message for message, _ in taken]

    def _take(self) -> list[tuple[bytes, FrameSuffix]]:
        taken: list[tuple[bytes, FrameSuffix]] = []
        queue = self._queue
        size_bytes = 0
        while queue and size_bytes < SEND_BYTES:
            seq, body, suffix = queue.popleft()
            self._queued_bytes -= len(body) + ENTRY_BYTES
            message = suffix.finish(body)
            if not message:
                continue
            size_bytes += len(message)
            taken.append((message, suffix))
            if seq != _NO_SEQ:
                self.last_event = (suffix.run_id, seq)
        return taken


def _group(taken: list[tuple[bytes, FrameSuffix]]) -> list[bytes]:
    messages: list[bytes] = []
    group: list[bytes] = []
    size_bytes = 0
    for message, suffix in taken:
        if group and (suffix is REPLY or size_bytes + len(message) > ARRAY_BYTES):
            messages.append(_join(group))
            group, size_bytes = [], 0
        if suffix is REPLY:
            messages.append(message)
        else:
            group.append(message)
            size_bytes += len(message)
    if group:
        messages.append(_join(group))
    return messages


def _join(group: list[bytes]) -> bytes:
    return group[0] if len(group) == 1 else b"[%b]" % b",".join(group)
