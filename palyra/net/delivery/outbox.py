"""The outbox: what waits to be written to one connection, bounded in bytes.

Owns: the queue of one connection.  Filled by the hub and by request tasks, which never wait;
emptied by the connection's writer, which packs everything that waits into few messages.  Over the
limit the volatile frames go first; if that is not enough, the connection is too slow and is told
so through `on_overflow`.  Never writes to a socket.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import trio

from palyra.actors.hub.feed import HubFrame

ENTRY_BYTES = 100  # what an entry costs besides its body: the ending of an event, and the queue
ARRAY_BYTES = 65_536  # a JSON array of notifications is closed when it reaches this
SEND_BYTES = 262_144  # handed to the transport at once; the send deadline is for this much
ROOM_BYTES = 262_144  # who can wait (replays, replies) waits until less than this is queued


class FrameSuffix(Protocol):
    """Completes a message when it is written, with what is only known then."""

    @property
    def run_id(self) -> str: ...
    def finish(self, body: bytes) -> bytes:
        """The whole message; empty when there is nothing to say any more."""


class _Whole:
    run_id = ""

    @staticmethod
    def finish(body: bytes) -> bytes:
        return body


_NO_SEQ = -1
_EMPTY = HubFrame(_NO_SEQ, "", b"")

REPLY: FrameSuffix = _Whole()  # written as a message of its own, never inside an array
NOTICE: FrameSuffix = _Whole()


class ProgressFrame(NamedTuple):
    """One progress delta, encoded once for all who watch."""

    key: tuple[str, str, str]  # run, item, kind: what may be merged
    head: bytes  # the notification up to `"order":`
    order: int
    text: bytes  # the delta as JSON, without its quotes


class _Progress:
    """Deltas of one item waiting to be written as one."""

    run_id = ""

    def __init__(self, outbox: "Outbox", piece: ProgressFrame) -> None:
        self._outbox = outbox
        self.key, self._head, self.order, text = piece
        self.texts = [text]

    def finish(self, body: bytes) -> bytes:
        if not self.texts:
            return body  # shed meanwhile: nothing to say
        self._outbox.forget(self)
        return b'%b%d,"delta":"%b"}}' % (self._head, self.order, b"".join(self.texts))


class Outbox:
    """Messages for one connection, in the order they were put."""

    def __init__(self, limit_bytes: int, on_overflow: Callable[[], None]) -> None:
        self._limit_bytes = limit_bytes
        self._on_overflow = on_overflow
        self.last_event: tuple[str, int] | None = None  # run and seq, as packed
        self._queue: deque[tuple[HubFrame, FrameSuffix]] = deque()
        self._queued_bytes = 0
        self._volatile: dict[tuple[str, str, str], _Progress] = {}
        self._volatile_bytes = 0
        self._last_piece: ProgressFrame | None = None
        self._is_finished = False
        self._work = trio.Event()
        self._room = trio.Event()
        self._urgent = trio.Event()  # a reply waits, or nothing more will come

    @property
    def waiting_bytes(self) -> int:
        """What is queued, volatile frames included."""
        return self._queued_bytes + self._volatile_bytes

    def put(self, body: bytes, ending: FrameSuffix = NOTICE) -> None:
        """Queue one message."""
        self.put_frames((HubFrame(_NO_SEQ, "", body),), ending)
        if ending is REPLY:
            self._urgent.set()

    def put_frames(self, frames: Iterable[HubFrame], ending: FrameSuffix) -> None:
        """Queue events of one lane."""
        if self._is_finished:
            return
        for frame in frames:
            self._queue.append((frame, ending))
            self._queued_bytes += len(frame.body) + ENTRY_BYTES
        if self.waiting_bytes > self._limit_bytes:
            self._shed()
        self._work.set()

    def withdraw(self, ending: FrameSuffix, seq: int) -> None:
        """Forget the events of that lane from `seq` on that wait: they never came to be."""
        kept = [(frame, of) for frame, of in self._queue if of is not ending or frame.seq < seq]
        if len(kept) < len(self._queue):
            self._queue = deque(kept)
            self._queued_bytes = sum(len(frame.body) + ENTRY_BYTES for frame, _ in kept)

    def put_progress(self, piece: ProgressFrame) -> None:
        """Queue a delta or merge it into one that waits; dropped when half the limit is used."""
        is_repeated = piece is self._last_piece  # two subscriptions of one connection saw it
        if is_repeated or self._is_finished or 2 * self.waiting_bytes > self._limit_bytes:
            return
        self._last_piece = piece
        self._volatile_bytes += len(piece.text)
        waiting = self._volatile.get(piece.key)
        if waiting:
            waiting.texts.append(piece.text)
            waiting.order = piece.order
            return
        self._volatile[piece.key] = progress = _Progress(self, piece)
        self._queue.append((_EMPTY, progress))
        self._queued_bytes += ENTRY_BYTES
        self._work.set()

    def forget(self, progress: _Progress) -> None:
        """These deltas are being written; what comes next starts a new frame."""
        del self._volatile[progress.key]
        self._volatile_bytes -= sum(map(len, progress.texts))

    def _shed(self) -> None:
        """Drop what may be dropped; if that is not enough, give up on this reader."""
        for progress in self._volatile.values():
            progress.texts = []
        self._volatile.clear()
        self._volatile_bytes = 0
        if self._queued_bytes > self._limit_bytes:
            self.discard()
            self._on_overflow()

    def finish(self) -> None:
        """Nothing more will be put; what waits may still be written."""
        self._is_finished = True
        self._work.set()
        self._urgent.set()
        self._room.set()

    def discard(self) -> None:
        """Nothing more will be put or written."""
        self._queue.clear()
        self._volatile.clear()
        self._queued_bytes = self._volatile_bytes = 0
        self.finish()

    async def wait(self) -> bool:
        """True when something waits, False when nothing ever will again."""
        while True:
            if not self._queue and not self._is_finished:
                self._work = trio.Event()  # one waiter: the writer
            await self._work.wait()
            if self._queue or self._is_finished:  # else: all filtered out, or withdrawn
                return bool(self._queue)

    async def wait_urgent(self) -> None:
        """Return once something waits that somebody waits for."""
        await self._urgent.wait()

    async def wait_room(self) -> None:
        """Return once little is queued.  For those who can wait; the live stream cannot."""
        while self._queued_bytes > ROOM_BYTES and not self._is_finished:
            if self._room.is_set():
                self._room = trio.Event()
            await self._room.wait()

    def pack(self, *, is_batched: bool) -> list[bytes]:
        """Take what waits, up to SEND_BYTES, as messages ready for the transport.

        With `is_batched` neighbouring notifications share a JSON array; replies stand alone.
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
            (seq, _, body), ending = queue.popleft()
            self._queued_bytes -= len(body) + ENTRY_BYTES
            message = ending.finish(body)
            if not message:
                continue
            size_bytes += len(message)
            taken.append((message, ending))
            if seq != _NO_SEQ:
                self.last_event = (ending.run_id, seq)
        return taken


def _group(taken: list[tuple[bytes, FrameSuffix]]) -> list[bytes]:
    messages: list[bytes] = []
    group: list[bytes] = []
    size_bytes = 0
    for message, ending in taken:
        if group and (ending is REPLY or size_bytes + len(message) > ARRAY_BYTES):
            messages.append(_join(group))
            group, size_bytes = [], 0
        if ending is REPLY:
            messages.append(message)
        else:
            group.append(message)
            size_bytes += len(message)
    if group:
        messages.append(_join(group))
    return messages


def _join(group: list[bytes]) -> bytes:
    return group[0] if len(group) == 1 else b"[%b]" % b",".join(group)
