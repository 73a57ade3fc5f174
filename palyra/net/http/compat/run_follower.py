"""One run as an HTTP request follows it: the same subscription a socket has, read from inside.

Owns: an outbox and a subscription for the length of a block.  Talks to: hub, journal.
A client that does not read fills its outbox and is cut off there, as on a socket.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

import msgspec
import trio

from palyra.actors.hub.hub import Hub
from palyra.core.access import Caller
from palyra.core.journal.changes import TapePage
from palyra.errors import Draining, Overloaded, Unauthenticated, Unavailable
from palyra.net.api.backend import Backend
from palyra.net.delivery.outbox import Outbox, ProgressFrame
from palyra.net.delivery.subscription import (
    PAGE_BYTES,
    PAGE_ROWS,
    ClientContext,
    SubscriptionFilter,
    Subscriptions,
)
from palyra.net.protocol import close_codes

KINDS = frozenset(
    {
        "run.accepted",
        "turn.started",
        "turn.completed",
        "tool.proposed",
        "tool.completed",
        "tool.attested",
        "approval.requested",
        "approval.resolved",
        "message.completed",
        "run.done",
        "run.failed",
        "run.cancelled",
    }
)
_NOTHING = -1  # head of a tape that does not exist yet
_SHOWN = frozenset({"text", "reasoning"})  # of what streams


class FollowedEvent(msgspec.Struct, frozen=True):
    """A durable event."""

    seq: int
    at_ms: int
    kind: str
    data: msgspec.Raw
    committed: int


class Streamed(msgspec.Struct, frozen=True):
    """A volatile piece of a turn."""

    item: str
    kind: Literal["text", "reasoning"]
    delta: str


class Committed(msgspec.Struct, frozen=True):
    """The tape is durable up to here."""

    committed: int


Frame = FollowedEvent | Streamed | Committed


class _Notice(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw


_NOTICE = msgspec.json.Decoder(_Notice)
_FRAMES: dict[str, msgspec.json.Decoder[Frame]] = {
    "tape.event": msgspec.json.Decoder(FollowedEvent),
    "progress": msgspec.json.Decoder(Streamed),
    "tape.committed": msgspec.json.Decoder(Committed),
}


class _TextOutbox(Outbox):
    """Without the output of tools, which nobody here is shown as it comes."""

    def put_progress(self, piece: ProgressFrame) -> None:
        if piece.key[2] in _SHOWN:
            super().put_progress(piece)


class RunFollower:
    """The frames of one run, from its first event on."""

    def __init__(self, outbox: Outbox, subscriptions: Subscriptions, hub: Hub) -> None:
        self._outbox = outbox
        self._subscriptions = subscriptions
        self._hub = hub
        self.is_overrun = False

    def await_run(self, run_id: str) -> None:
        """Follow a run that is about to begin: nothing that it streams is missed."""
        self._hub.get_feed(run_id).note_head(_NOTHING)
        self.follow(run_id)

    def follow(self, run_id: str) -> None:
        """Follow a run from its first event on, instead of any other."""
        self._subscriptions.close_all()
        subscription, _ = self._subscriptions.open_run(run_id, 0, SubscriptionFilter(kinds=KINDS))
        subscription.start()

    async def next_frames(self, within_s: float) -> list[Frame]:
        """What came; nothing when the time was up first, or nothing of it is for an answer.

        Raises Overloaded, Unavailable.
        """
        with trio.move_on_after(within_s):
            await self._outbox.wait()
        if self.is_overrun:
            raise Overloaded("this client does not read fast enough; the run goes on")
        return [frame for frame in map(_read, self._outbox.pack(is_batched=False)) if frame]

    def overrun(self) -> None:
        """Too much waits to be read."""
        self.is_overrun = True


def _read(message: bytes) -> Frame | None:
    notice = _NOTICE.decode(message)
    if notice.method == "tape.reset":
        raise Unavailable("the run's tape was rewound; ask for the run by its id")
    decoder = _FRAMES.get(notice.method)
    return decoder.decode(notice.params) if decoder is not None else None


@asynccontextmanager
async def open_following(backend: Backend, caller: Caller) -> AsyncGenerator[RunFollower]:
    """Room to follow one run of the caller's."""
    following: RunFollower
    outbox = _TextOutbox(backend.limits.outbox_bytes, lambda: following.overrun())  # noqa: PLW0108 - not there yet
    async with trio.open_nursery() as nursery:
        viewer = ClientContext(
            caller=caller,
            hub=backend.hub,
            outbox=outbox,
            read_page=partial(_read_page, backend),
            new_id=backend.new_id,
            spawn=nursery.start_soon,
            bulk=trio.Lock(),
        )
        subscriptions = Subscriptions(viewer, 1)
        following = RunFollower(outbox, subscriptions, backend.hub)
        try:
            yield following
        finally:
            subscriptions.close_all()
            outbox.discard()
            nursery.cancel_scope.cancel("nobody follows any more")


async def _read_page(backend: Backend, run_id: str, after_seq: int) -> TapePage:
    return await backend.journal.read(
        lambda store: store.read_tape(
            run_id, after_seq=after_seq, limit=PAGE_ROWS, max_bytes=PAGE_BYTES
        )
    )


class OutboxSink:
    """An HTTP request as the hub knows it: it hears no news, and ends when its token does."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.scope = trio.CancelScope()
        self.is_revoked = True  # unless another reason is given

    def notify(self, message: bytes) -> None:
        """News go to sockets."""

    def hang_up(self, code: int, reason: str) -> None:
        """The token was revoked, or the daemon goes down."""
        self.is_revoked = code == close_codes.REVOKED
        self.scope.cancel(reason)


@asynccontextmanager
async def token_holds(backend: Backend, caller: Caller) -> AsyncGenerator[None]:
    """The block ends with Unauthenticated when the token expires or is revoked, or with Draining."""
    guest = OutboxSink(caller)
    if caller.expires_ms is not None:
        left_s = (caller.expires_ms - backend.now_ms()) / 1000
        guest.scope.deadline = trio.current_time() + left_s
    backend.hub.attach(guest)
    try:
        with guest.scope:
            yield
    finally:
        backend.hub.detach(guest)
    if guest.scope.cancelled_caught and guest.is_revoked:
        raise Unauthenticated("the token was revoked or has expired; the run goes on")
    if guest.scope.cancelled_caught:
        raise Draining("the daemon is going down; the run goes on after its restart")
