"""A connection to the daemon that is replaced whenever it ends.

Owns: the current connection, the open subscriptions, the inboxes.  One task (`keep_open`)
reconnects; all other methods are called from the consumer's tasks or, synchronously, from the
reader of the current connection.

A lost connection has three effects.  Requests with an idempotency key, and those of methods without
an effect (`reads`), are sent again on the next connection; other requests raise Unreachable, since
they may have taken effect.  Subscriptions are
opened again from their cursor, which excludes events that are not durable yet (`feed`).
Notifications sent in between are lost.
"""

import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from palyra.client.connection import (
    ClientConnection,
    ConnectionLost,
    Handshake,
    OnNotice,
    OnResult,
    decode,
)
from palyra.client.feed import FeedReader
from palyra.client.reads import READS
from palyra.client.subscription import Inbox, Notice, RunWatching, Stream, Subscription
from palyra.client.waits import Waits
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
    RunsUpdated,
    TapeCaughtUp,
    TapeCommitted,
    TapeEventNotice,
    TapeReset,
)
from palyra.net.protocol.results import StartedRun, Subscribed

BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
RETRY_MS = 250  # before a retry, if the daemon names no time
MAX_READS = 5  # times that a read is sent: its reply may be what ends the connection
STEADY_S = 5.0  # a connection that lasted so long resets the count of failures


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options to find, greet and wait for the daemon."""

    find_endpoint: Callable[[], Endpoint]  # called for each attempt: the port may change
    handshake: Handshake
    patience_s: float  # reconnecting is given up after so long without a connection
    rng: Callable[[], float] = random.random  # noqa: S311 - spreads reconnects, guards nothing


RunConnection = Callable[
    [Endpoint, Handshake, OnNotice, Callable[[ClientConnection], None]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class Driver(Waits):
    """An event loop that can open connections.

    `run_connection` connects, calls its last argument with the open connection, and serves it until
    it ends.  It raises Unauthenticated or Forbidden if a retry is pointless, else another PalyraError.
    """

    run_connection: RunConnection


class ReconnectingConnection:
    """Requests, subscriptions and notifications over the current connection."""

    def __init__(self, options: ClientOptions, driver: Driver) -> None:
        self._options = options
        self._driver = driver
        self._current: ClientConnection | None = None
        self._was_up = False
        self._down_since_s: float | None = None
        self._failure: PalyraError | None = None
        self._changed = driver.make_event()
        self._subscriptions: dict[Subscription, None] = {}  # in order of arrival
        self._watches: dict[RunWatching, None] = {}
        self._inboxes: set[Inbox] = set()

    @property
    def current(self) -> ClientConnection | None:
        """The open connection, if any."""
        return self._current

    async def keep_open(self, on_first: Callable[[], None]) -> None:
        """Reconnect until refused or out of patience; `on_first` is called at the first connection.

        Raises the error of the first attempt if that fails; later errors reach the callers.
        """
        failures = 0
        while self._failure is None:
            began_s = self._driver.now_s()
            error = await self._serve_connection(on_first)
            if not self._was_up:
                raise error
            failures = 1 if self._driver.now_s() - began_s > STEADY_S else failures + 1
            self._note_failure(error)
            if self._failure is None:
                await self._driver.sleep(compute_delay_s(BACKOFF, failures, self._options.rng))

    async def request(
        self, method: str, params: dict[str, Any], on_result: OnResult | None = None
    ) -> msgspec.Raw:
        """Send a request on the current or the next connection and return the result.

        With an `idempotency_key` among the params, or if the method has no effect, a request whose
        connection is lost is sent again on the next one.  Raises the daemon's error, or Unavailable if the outcome is unknown.
        """
        sent = 0
        while True:
            connection = await self.wait_connection()
            sent += 1
            try:
                return await connection.request(method, params, on_result)
            except ConnectionLost:
                is_read = method in READS and sent < MAX_READS
                if not is_read and params.get("idempotency_key") is None:
                    raise Unreachable(
                        f"the connection was lost during {method}: it may or may not have been executed"
                    ) from None

    def subscribe(self, run_id: str, after_seq: int, *, progress: bool) -> Subscription:
        """Open a subscription, live until `unsubscribe`."""
        subscription = self._add_subscription(FeedReader(run_id, after_seq), progress=progress)
        self._resubscribe(subscription)
        return subscription

    async def start_run(
        self,
        params: dict[str, Any],
        on_start: Callable[[StartedRun, Subscription], None],
        *,
        progress: bool,
    ) -> None:
        """Start a run, subscribed before it begins; `on_start` gets both as soon as they are known.

        Raises as `request`.  Cancellation: the run may have started; without `on_start` there is no
        subscription.
        """

        def on_result(result: msgspec.Raw) -> None:
            started = decode(result, StartedRun)
            subscription = self._add_subscription(FeedReader(started.run_id, -1), progress=progress)
            on_start(started, subscription)
            if started.subscription is None or self._current is None:
                self._resubscribe(subscription)
                return
            opened = Subscribed(
                subscription=started.subscription, from_=0, through=-1, floor=0
            )  # no row is certain yet: `tape.caught_up` says which are
            subscription.open(opened, self._current.hello.instance_id)

        await self.request("run.start", {**params, "subscribe": True}, on_result)

    def _add_subscription(self, feed: FeedReader, *, progress: bool) -> Subscription:
        subscription = Subscription(
            feed, progress=progress, restart=self._resubscribe, waits=self._driver
        )
        self._subscriptions[subscription] = None
        return subscription

    def unsubscribe(self, stream: Subscription | RunWatching) -> None:
        """Close a subscription or a watch without waiting for the daemon's reply."""
        if isinstance(stream, RunWatching):
            self._watches.pop(stream, None)
        else:
            self._subscriptions.pop(stream, None)
        if self._current is not None and not self._current.closed.is_set():
            self._current.spawn(_release, self._current, stream)

    def watch_runs(self, wanted: dict[str, Any]) -> RunWatching:
        """Open a watch of runs, live until `unsubscribe`."""
        watching = RunWatching(wanted, self._driver)
        self._watches[watching] = None
        self._resubscribe(watching)
        return watching

    def open_inbox(self) -> Inbox:
        """Collect notifications from now on, until `close_inbox`."""
        inbox = Inbox(self._driver)
        self._inboxes.add(inbox)
        return inbox

    def close_inbox(self, inbox: Inbox) -> None:
        self._inboxes.discard(inbox)

    async def close(self) -> None:
        """Close the connection; pending calls raise Unavailable."""
        if self._current is not None:
            await self._current.close()
        self.give_up(Unreachable("this client was closed"))

    async def _serve_connection(self, on_first: Callable[[], None]) -> PalyraError:
        """Serve one connection and return the error that ended or prevented it."""

        def on_open(connection: ClientConnection) -> None:
            self._set_open(connection)
            if not self._was_up:
                self._was_up = True
                on_first()

        try:
            await self._driver.run_connection(
                self._options.find_endpoint(), self._options.handshake, self._route, on_open
            )
        except PalyraError as error:
            return error
        finally:
            self._set_closed()
        return Unreachable("the connection was lost")

    def _set_open(self, connection: ClientConnection) -> None:
        self._current, self._down_since_s = connection, None
        self._note_change()
        for stream in self._streams():
            self._resubscribe(stream)

    def _set_closed(self) -> None:
        self._current = None
        if self._down_since_s is None:
            self._down_since_s = self._driver.now_s()
        for stream in self._streams():
            stream.detach()

    def _note_failure(self, error: PalyraError) -> None:
        if isinstance(error, (Unauthenticated, Forbidden)):
            self.give_up(error)
            return
        now_s = self._driver.now_s()
        down_s = now_s - (now_s if self._down_since_s is None else self._down_since_s)
        if down_s > self._options.patience_s:
            self.give_up(Unreachable(f"no daemon for {down_s:.0f} s: {error.message}"))

    def give_up(self, error: PalyraError) -> None:
        """End all calls, subscriptions and inboxes with that error; later calls raise it too."""
        self._failure = self._failure or error
        self._note_change()
        for stream in self._streams():
            stream.fail(error)
        for inbox in self._inboxes:
            inbox.fail(error)

    def _streams(self) -> list[Stream]:
        return [*self._subscriptions, *self._watches]

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = self._driver.make_event()

    async def wait_connection(self) -> ClientConnection:
        """Return the open connection, or wait for the next one.  Raises if reconnecting was given up."""
        while self._current is None or self._current.closed.is_set():
            if self._failure is not None:
                raise self._failure
            await self._changed.wait()
        return self._current

    def _resubscribe(self, stream: Stream) -> None:
        """Open a stream (again), on the current connection or else on the next one."""
        if self._failure is not None:
            stream.fail(self._failure)
        connection = self._current
        if connection is None or connection.closed.is_set() or stream.is_opening:
            return
        stream.is_opening = True
        connection.spawn(self._open, connection, stream)

    async def _open(self, connection: ClientConnection, stream: Stream) -> None:
        """Close the daemon's earlier stream, then open one that continues it."""
        await _release(connection, stream)
        with contextlib.suppress(ConnectionLost):  # the next connection opens it again
            try:
                await connection.request(
                    stream.open_method,
                    stream.make_params(),
                    lambda result: stream.accept(result, connection.hello.instance_id),
                )
            except (Overloaded, Unavailable) as error:
                await self._open_later(stream, error)
            except PalyraError as error:
                stream.fail(error)
            if stream not in self._streams():
                await _release(connection, stream)

    async def _open_later(self, stream: Stream, error: Overloaded | Unavailable) -> None:
        """Retry a stream that was open before; for a new one the caller decides."""
        if not stream.was_opened:
            stream.fail(error)
            return
        pause_ms = RETRY_MS if error.retry_after_ms is None else error.retry_after_ms
        await self._driver.sleep(pause_ms / 1000)
        stream.is_opening = False
        self._resubscribe(stream)

    def _route(self, method: str, params: msgspec.Raw) -> None:
        """Dispatch a notification to its subscription or the inboxes.  Called by the reader; never waits."""
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
            case "tape.caught_up" | "tape.reset" | "run.updated":
                self._route_whole(method, params)
            case _:
                self._deliver(method, params)

    def _route_whole(self, method: str, params: msgspec.Raw) -> None:
        """Dispatch a notification about a whole stream."""
        match method:
            case "run.updated":
                news = decode(params, RunsUpdated)
                for watching in self._watches:
                    if watching.route == news.subscription:
                        watching.take(news)
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
        """Find subscriptions by the daemon's id if the notification has one, else by run."""
        if route is not None:
            return [one for one in self._subscriptions if one.route == route]
        return [one for one in self._subscriptions if one.feed.run_id == run_id]


async def _release(connection: ClientConnection, stream: Stream) -> None:
    """Close the daemon's stream, if it has one."""
    route, stream.route = stream.route, None
    if route is not None:
        with contextlib.suppress(ConnectionLost, PalyraError):  # closed either way
            await connection.request(stream.close_method, {"subscription": route})
