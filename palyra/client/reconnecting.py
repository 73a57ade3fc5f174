"""A line to the daemon: a link that is replaced whenever it ends.

Owns: the present link, the live subscriptions, the inboxes.  One task holds the line; everything
else is called from the consumer's tasks or, synchronously, from the link's reader.
"""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import trio

from palyra.client.connection import ClientConnection, Handshake, LinkLost, OnResult, decode
from palyra.client.dial import run_link
from palyra.client.feed import FeedReader
from palyra.client.subscription import Inbox, Notice, Subscription
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.errors import (
    Forbidden,
    Overloaded,
    PalyraError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from palyra.net.protocol.discovery import Endpoint
from palyra.net.protocol.notifications import (
    ProgressItem,
    TapeCaughtUp,
    TapeCommitted,
    TapeEventNotice,
    TapeReset,
)
from palyra.net.protocol.results import Subscribed

BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
RETRY_MS = 250  # before asking again a daemon whose journal is just coming back
STEADY_S = 5.0  # a link that lived so long was a success: start counting failures anew


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a line behaves."""

    find_endpoint: Callable[[], Endpoint]  # asked anew for each attempt: the port may change
    greeting: Handshake
    patience_s: float  # without a link for longer than this, the line gives up
    rng: Callable[[], float] = random.random  # noqa: S311 - spreads reconnects, guards nothing


class ReconnectingConnection:
    """Requests, subscriptions and notifications over whatever link is up."""

    def __init__(self, terms: ClientOptions) -> None:
        self._terms = terms
        self._link: ClientConnection | None = None
        self._was_up = False
        self._down_since_s: float | None = None
        self._failure: PalyraError | None = None
        self._changed = trio.Event()
        self._subscriptions: dict[Subscription, None] = {}  # in order of arrival
        self._inboxes: set[Inbox] = set()

    @property
    def link(self) -> ClientConnection | None:
        """The link that is up now, if any."""
        return self._link

    async def hold(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a link up until refused or out of patience; started when the first one is up.

        Raises, before that only, why there is none.
        """
        failures = 0
        while self._failure is None:
            began_s = trio.current_time()
            error = await self._serve_link(task_status)
            if not self._was_up:
                raise error
            failures = 1 if trio.current_time() - began_s > STEADY_S else failures + 1
            self._judge(error)
            if self._failure is None:
                await trio.sleep(compute_delay_s(BACKOFF, failures, self._terms.rng))

    async def request(
        self, method: str, params: dict[str, Any], on_result: OnResult | None = None
    ) -> msgspec.Raw:
        """The result, waiting for a link where there is none.

        With an `idempotency_key` among the params a request whose link is lost is sent again on
        the next one.  Raises the daemon's error, or Unavailable: then nothing is known of it.
        """
        while True:
            link = await self.wait_link()
            try:
                return await link.request(method, params, on_result)
            except LinkLost:
                if "idempotency_key" not in params:
                    raise Unreachable(
                        f"the connection was lost during {method}: it may or may not have happened"
                    ) from None

    def subscribe(self, run_id: str, after_seq: int, *, progress: bool) -> Subscription:
        """A new subscription, live until `unsubscribe`."""
        feed = FeedReader(run_id, after_seq)
        subscription = Subscription(feed, progress=progress, restart=self._begin)
        self._subscriptions[subscription] = None
        self._begin(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End it; the daemon is told, but not waited for."""
        self._subscriptions.pop(subscription, None)
        if self._link is not None and not self._link.closed.is_set():
            self._link.spawn(_release, self._link, subscription)

    def open_inbox(self) -> Inbox:
        """Notifications from now on, until `close_inbox`."""
        inbox = Inbox()
        self._inboxes.add(inbox)
        return inbox

    def close_inbox(self, inbox: Inbox) -> None:
        self._inboxes.discard(inbox)

    async def close(self) -> None:
        """Say goodbye; whoever still waits gets Unavailable."""
        if self._link is not None:
            await self._link.close()
        self._give_up(Unreachable("this client was closed"))

    async def _serve_link(self, task_status: trio.TaskStatus[None]) -> PalyraError:
        """Why the link ended or never came up."""

        def on_open(link: ClientConnection) -> None:
            self._put_up(link)
            if not self._was_up:
                self._was_up = True
                task_status.started()

        try:
            await run_link(self._terms.find_endpoint(), self._terms.greeting, self._route, on_open)
        except PalyraError as error:
            return error
        finally:
            self._take_down()
        return Unreachable("the connection was lost")

    def _put_up(self, link: ClientConnection) -> None:
        self._link, self._down_since_s = link, None
        self._note_change()
        for subscription in self._subscriptions:
            self._begin(subscription)

    def _take_down(self) -> None:
        self._link = None
        if self._down_since_s is None:
            self._down_since_s = trio.current_time()
        for subscription in self._subscriptions:
            subscription.detach()

    def _judge(self, error: PalyraError) -> None:
        if isinstance(error, (Unauthenticated, Forbidden)):
            self._give_up(error)
            return
        down_s = trio.current_time() - (self._down_since_s or trio.current_time())
        if down_s > self._terms.patience_s:
            self._give_up(Unreachable(f"no daemon for {down_s:.0f} s: {error.message}"))

    def _give_up(self, error: PalyraError) -> None:
        self._failure = self._failure or error
        self._note_change()
        for subscription in self._subscriptions:
            subscription.fail(error)
        for inbox in self._inboxes:
            inbox.fail(error)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_link(self) -> ClientConnection:
        """The link that is up, or the next one.  Raises why there will be none."""
        while self._link is None or self._link.closed.is_set():
            if self._failure is not None:
                raise self._failure
            await self._changed.wait()
        return self._link

    def _begin(self, subscription: Subscription) -> None:
        """Subscribe (again) from the cursor, on the present link or else on the next."""
        if self._failure is not None:
            subscription.fail(self._failure)
        link = self._link
        if link is None or link.closed.is_set() or subscription.is_opening:
            return
        subscription.is_opening = True
        link.spawn(self._open, link, subscription)

    async def _open(self, link: ClientConnection, subscription: Subscription) -> None:
        """Give up what the daemon still holds for it, then ask for the rows after its cursor."""
        await _release(link, subscription)
        with contextlib.suppress(LinkLost):  # the next link will begin it again
            try:
                await link.request(
                    "tape.subscribe",
                    subscription.make_params(),
                    lambda result: subscription.open(
                        decode(result, Subscribed), link.hello.instance_id
                    ),
                )
            except (Overloaded, Unavailable) as error:
                await self._open_later(subscription, error)
            except PalyraError as error:
                subscription.fail(error)
            if subscription not in self._subscriptions:
                await _release(link, subscription)

    async def _open_later(
        self, subscription: Subscription, error: Overloaded | Unavailable
    ) -> None:
        """One that was open before is worth waiting for; a new one is the caller's decision."""
        if not subscription.was_opened:
            subscription.fail(error)
            return
        pause_ms = RETRY_MS if error.retry_after_ms is None else error.retry_after_ms
        await trio.sleep(pause_ms / 1000)
        subscription.is_opening = False
        self._begin(subscription)

    def _route(self, method: str, params: msgspec.Raw) -> None:
        """Hand a notification to whom it concerns.  Called by the link's reader; never waits."""
        match method:
            case "tape.event":
                frame = decode(params, TapeEventNotice)
                for subscription in self._listeners(frame.run_id, frame.subscription):
                    subscription.take_event(frame)
            case "progress":
                progress = decode(params, ProgressItem)
                for subscription in self._listeners(progress.run_id, None):
                    subscription.take_progress(progress)
            case "tape.committed":
                committed = decode(params, TapeCommitted)
                for subscription in self._listeners(committed.run_id, None):
                    subscription.take_committed(committed.committed)
            case "tape.caught_up" | "tape.reset":
                self._route_position(method, params)
            case _:
                self._deliver(method, params)

    def _route_position(self, method: str, params: msgspec.Raw) -> None:
        match method:
            case "tape.caught_up":
                caught_up = decode(params, TapeCaughtUp)
                for subscription in self._listeners(None, caught_up.subscription):
                    subscription.take_caught_up(caught_up.through)
            case _:
                reset = decode(params, TapeReset)
                for subscription in self._listeners(reset.run_id, reset.subscription):
                    subscription.take_reset(reset.reason, reset.floor)

    def _deliver(self, method: str, params: msgspec.Raw) -> None:
        if self._inboxes:
            notice = Notice(method=method, params=decode(params, dict[str, Any]))
            for inbox in self._inboxes:
                inbox.take(notice)

    def _listeners(self, run_id: str | None, route: str | None) -> list[Subscription]:
        """By the daemon's name of the subscription where it gives one, else by run."""
        if route is not None:
            return [one for one in self._subscriptions if one.route == route]
        return [one for one in self._subscriptions if one.feed.run_id == run_id]


async def _release(link: ClientConnection, subscription: Subscription) -> None:
    """Tell the daemon that nobody listens any more to what it has of this subscription."""
    route, subscription.route = subscription.route, None
    if route is not None:
        with contextlib.suppress(LinkLost, PalyraError):  # it is gone either way
            await link.request("tape.unsubscribe", {"subscription": route})
