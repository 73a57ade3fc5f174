"""The client against a small daemon over real sockets (`fake_daemon`)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio.testing

from palyra import errors
from palyra.client import (
    CaughtUp,
    Client,
    EventsDiscarded,
    Item,
    ProgressItem,
    Reset,
    Subscription,
    TapeEvent,
    connect,
    wait_any,
)
from palyra.client.dial import TRIO
from palyra.client.feed import FeedReader
from palyra.core.backoff import Backoff
from palyra.core.tape.events import MessageCompleted, MessageReceived, RunDone
from palyra.net.protocol.notifications import TapeEventNotice
from tests.client.fake_daemon import (
    RUN,
    RUN_VIEW,
    SESSION,
    TOKEN,
    Connection,
    FakeDaemon,
    Json,
    Refusal,
    fake_daemon,
)
from tests.tools.web.certificates import Authority

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("_no_pauses")]

WITHIN_S = 120.0  # a bound against hanging, not a promise


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnects follow at once."""
    monkeypatch.setattr("palyra.client.reconnecting.BACKOFF", Backoff(base_s=0.001, cap_s=0.002))


@asynccontextmanager
async def client_of(daemon: FakeDaemon) -> AsyncGenerator[Client]:
    with trio.fail_after(WITHIN_S):
        async with connect(daemon.url, token=TOKEN, patience_s=5) as client:
            yield client


def said(text: str) -> MessageCompleted:
    return MessageCompleted(text=text)


async def take(items: Subscription, count: int) -> list[Item]:
    """The next `count` items."""
    return [await anext(items) for _ in range(count)]


def seqs(items: list[Item]) -> list[int]:
    """The seqs of the tape events among the items."""
    return [item.seq for item in items if isinstance(item, TapeEvent)]


async def test_connect_reports_daemon_and_principal() -> None:
    """After connecting the client knows the daemon's hello and its own principal."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        assert daemon.instance_id == client.hello.instance_id
        assert "owner" == client.welcome.principal
        assert 1 == (await client.ping()).now_ms


async def test_refused_token_is_unauthenticated() -> None:
    """A daemon that closes with 4401 makes connecting raise Unauthenticated."""
    async with fake_daemon() as daemon:
        with pytest.raises(errors.Unauthenticated, match="unknown token"):
            async with connect(daemon.url, token="wrong"):
                pass


async def test_no_daemon_is_unavailable() -> None:
    """Connecting to a port without a listener raises Unavailable and does not retry."""
    with pytest.raises(errors.Unavailable, match="not reachable"):
        async with connect("ws://127.0.0.1:9/v1/ws", token=TOKEN):
            pass


async def test_peer_that_hangs_up_in_the_upgrade() -> None:
    """A peer that ends the TCP connection instead of upgrading is Unavailable at once."""
    async with fake_daemon() as daemon:
        daemon.budgets = [0]
        with (
            trio.fail_after(WITHIN_S),
            pytest.raises(errors.Unavailable, match="closed the connection"),
        ):
            async with connect(daemon.url, token=TOKEN):
                pass


async def test_error_of_the_body_comes_out_as_it_is() -> None:
    """An exception raised inside `async with connect` is not wrapped in a group."""
    async with fake_daemon() as daemon:
        with pytest.raises(ValueError, match="mine"):
            async with connect(daemon.url, token=TOKEN):
                raise ValueError("mine")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not_found", errors.NotFound),
        ("forbidden", errors.Forbidden),
        ("digest_mismatch", errors.DigestMismatch),
        ("idempotency_conflict", errors.IdempotencyConflict),
        ("illegal_state", errors.IllegalState),
        ("too_large", errors.TooLarge),
        ("timeout", errors.TooSlow),
        ("brand_new", errors.PalyraError),
    ],
)
async def test_error_reply_is_raised_as_its_class(code: str, kind: type[Exception]) -> None:
    """`data.code` decides the class; a code this client lacks is a plain PalyraError."""

    def refuse(_connection: object, _params: Json) -> object:
        raise Refusal(code, "because")

    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.answers["run.get"] = refuse
        with pytest.raises(errors.PalyraError, match="because") as caught:
            await client.get_run(RUN)
        assert kind is type(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"), [("rate_limited", errors.RateLimited), ("unavailable", errors.Unavailable)]
)
async def test_a_refusal_carries_the_pause(code: str, kind: type[errors.PalyraError]) -> None:
    """`retry_after_ms` of a reply is on the exception."""

    def refuse(_connection: object, _params: Json) -> object:
        raise Refusal(code, "slower", retry_after_ms=1234)

    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.answers["run.get"] = refuse
        with pytest.raises(errors.PalyraError) as caught:
            await client.get_run(RUN)
        assert (kind, 1234) == (type(caught.value), getattr(caught.value, "retry_after_ms", None))


async def test_events_replay_catch_up_and_go_live() -> None:
    """The tape so far comes first, then CaughtUp once, then live events, then the end."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.append(MessageReceived(text="hi"))
        daemon.commit()
        async with client.events(RUN) as items:
            first = await take(items, 2)
            await daemon.publish(said("a"), RunDone(reason="answered"))
            rest = [item async for item in items]
    assert [0] == seqs(first)
    assert CaughtUp(through=0) == first[1]
    assert [1, 2] == seqs(rest)


async def test_event_is_decoded() -> None:
    """A known kind carries its struct, an unknown one its raw data only."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.append(said("hello"))
        daemon.append(said("from the future"))
        daemon.tapes[RUN].rows[1]["kind"] = "time.travelled"
        daemon.commit()
        async with client.events(RUN) as items:
            known, unknown = await take(items, 2)
    assert isinstance(known, TapeEvent)
    assert isinstance(unknown, TapeEvent)
    assert said("hello") == known.event
    assert SESSION == known.session_id
    assert None is unknown.event
    assert b'{"text":"from the future","calls":[]}' == unknown.data


async def test_progress_is_passed_on_unless_declined() -> None:
    """Deltas reach a subscription that wants them and no other."""
    delta = ProgressItem(run_id=RUN, item="t1", order=0, kind="text", delta="He")
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.append(said("a"))
        daemon.commit()
        async with client.events(RUN) as wanting, client.events(RUN, progress=False) as declining:
            await take(wanting, 2)
            await take(declining, 2)
            await daemon.connections[0].notify("progress", **msgspec.to_builtins(delta))
            await daemon.publish(RunDone(reason="answered"))
            heard = [item async for item in wanting]
            spared = [item async for item in declining]
    assert delta == heard[0]
    assert [1] == seqs(heard)
    assert [1] == seqs(spared)
    assert 1 == len(spared)


async def test_unknown_run_is_not_found() -> None:
    """Subscribing to a run that does not exist raises NotFound on entering."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        with pytest.raises(errors.NotFound):
            async with client.events(RUN):
                pass


async def test_request_waits_for_the_next_connection() -> None:
    """A request made after a cut is sent on the new connection."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.cut()
        await trio.testing.wait_all_tasks_blocked()
        assert 1 == (await client.ping()).now_ms
        assert 2 == daemon.methods().count("connect")


async def test_mutation_in_flight_is_repeated_with_its_key() -> None:
    """A mutation whose connection is cut is sent again with the same idempotency key."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.reply_with("run.steer", {"seq": 7})
        asked = daemon.swallow("run.steer")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_after, daemon, asked)
            assert 7 == await client.steer(RUN, "left")
    keys = [
        params["idempotency_key"] for method, params in daemon.requests if method == "run.steer"
    ]
    assert 2 == len(keys)
    assert keys[0] == keys[1]


async def test_message_over_the_limit_is_refused_here() -> None:
    """A message over the daemon's limit is refused unsent, and the connection stays usable."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        with (
            trio.fail_after(WITHIN_S),
            pytest.raises(errors.TooLarge, match=r"1048\d{3} .* 1048576 in"),
        ):
            await client.start_run("a" * 1_048_576)
        assert "run.start" not in daemon.methods()
        await client.ping()
        assert 1 == len(daemon.connections)


async def test_text_that_is_no_unicode_is_refused_here() -> None:
    """Half a surrogate pair, as a stray byte of a command line becomes one, is bad input."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        with pytest.raises(errors.InvalidParams, match=r"run\.start: .*udcff"):
            await client.start_run("a\udcff")
        await client.ping()


async def test_given_key_is_used() -> None:
    """A caller's own idempotency key is passed on as it is."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.reply_with("run.steer", {"seq": 7})
        await client.steer(RUN, "left", idempotency_key="mine")
    assert "mine" == daemon.requests[-1][1]["idempotency_key"]


async def test_inbox_gets_other_notifications() -> None:
    """Notifications that belong to no subscription reach an open inbox."""
    async with fake_daemon() as daemon, client_of(daemon) as client, client.notices() as inbox:
        await daemon.connections[0].notify("approval.requested", approval_id="apr_1")
        notice = await anext(inbox)
    assert ("approval.requested", {"approval_id": "apr_1"}) == (notice.method, notice.params)


def test_the_cursor_does_not_skip_buffered_events() -> None:
    """A consumer that leaves with events in the buffer gets them again from the cursor."""
    subscription = Subscription(
        FeedReader(RUN, -1), progress=False, restart=lambda _: None, waits=TRIO
    )
    for seq in range(3):
        frame = TapeEventNotice(
            run_id=RUN,
            session_id=SESSION,
            subscription="sub_1",
            seq=seq,
            at_ms=1,
            kind="other",
            data=msgspec.Raw(b"{}"),
            committed=2,
        )
        subscription.take_event(frame)
    assert -1 == subscription.cursor
    subscription._items.clear()
    assert 2 == subscription.cursor


def test_the_cursor_minds_a_buffered_drop() -> None:
    """The cursor excludes an event that a buffered `EventsDiscarded` makes void."""
    news: list[Item] = [EventsDiscarded(run_id=RUN, after_seq=1)]
    subscription = Subscription(
        FeedReader(RUN, 5), progress=False, restart=lambda _: None, waits=TRIO
    )
    subscription._items.extend(news)
    assert 1 == subscription.cursor


async def test_uncommitted_tail_survives_a_mere_cut() -> None:
    """Events shown before they were durable are not shown again when only the connection broke."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
            await daemon.publish(said("b"), said("c"), durable=False)
            shown = await take(items, 2)
            assert 0 == items.cursor
            await daemon.cut()
            await daemon.publish(RunDone(reason="answered"))
            rest = [item async for item in items]
    assert [1, 2] == seqs(shown)
    assert [3] == seqs(rest)
    assert [] == [item for item in rest if isinstance(item, EventsDiscarded)]


async def test_crash_drops_the_uncommitted_tail() -> None:
    """`EventsDiscarded` announces events lost in a crash; their replacements follow."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
            await daemon.publish(said("lost"), said("lost too"), durable=False)
            await take(items, 2)
            await daemon.crash()
            dropped = await anext(items)
            await daemon.publish(said("other"), RunDone(reason="answered"))
            rest = [item async for item in items]
    assert EventsDiscarded(run_id=RUN, after_seq=0) == dropped
    assert [1, 2] == seqs(rest)
    first = rest[0]
    assert isinstance(first, TapeEvent)
    assert said("other") == first.event


async def test_crash_with_other_events_already_in_place() -> None:
    """A tail that was replaced before the client came back is found by comparing."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
            await daemon.publish(said("lost"), durable=False)
            await take(items, 1)
            tape = daemon.tapes[RUN]
            del tape.rows[1:]
            daemon.append(said("other"))
            daemon.append(RunDone(reason="answered"))
            daemon.commit()
            await daemon.crash()
            rest = [item async for item in items]
    assert EventsDiscarded(run_id=RUN, after_seq=0) == rest[0]
    assert [1, 2] == seqs(rest)


async def test_slow_consumer_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer whose buffer overflows is resubscribed and still sees every event once."""
    monkeypatch.setattr("palyra.client.subscription.MAX_ITEMS", 8)
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.append(said("0"))
        daemon.commit()
        async with client.events(RUN) as items:
            for number in range(1, 100):
                await daemon.publish(said(str(number)))
            await daemon.publish(RunDone(reason="answered"))
            seen = [item async for item in items]
    assert list(range(101)) == seqs(seen)
    assert 1 < daemon.methods().count("tape.subscribe")


async def test_gap_is_read_again() -> None:
    """A skipped seq makes the client subscribe again from its cursor, unseen by the consumer."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
            connection = daemon.connections[0]
            ((name, (run_id, _)),) = connection.subscriptions.items()
            daemon.append(said("b"))
            connection.subscriptions[name] = (run_id, 1)  # seq 1 will never be pushed
            await daemon.publish(RunDone(reason="answered"))
            rest = [item async for item in items]
    assert [1, 2] == seqs(rest)
    asked = [method for method in daemon.methods() if method.startswith("tape.")]
    assert ["tape.subscribe", "tape.unsubscribe", "tape.subscribe"] == asked[:3]


async def test_patience_ends() -> None:
    """Without a daemon for longer than `patience_s` iterators and calls raise Unavailable."""
    async with trio.open_nursery() as nursery:
        async with fake_daemon() as daemon:
            client = await nursery.start(hold_client, daemon.url)
        with trio.fail_after(WITHIN_S), pytest.raises(errors.Unavailable, match="no daemon for"):
            await client.ping()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(12))
async def test_cuts_at_arbitrary_bytes_leave_no_gap_and_no_repeat(seed: int) -> None:
    """However often and wherever the stream is cut, the consumer sees the tape once, in order."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.batches = bool(seed % 2)
        daemon.append(said("0"))
        daemon.commit()
        daemon.budgets = [900 + 97 * seed + 211 * step for step in range(15)]
        await daemon.cut()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish_all, daemon)
            async with client.events(RUN) as items:
                seen = [item async for item in items]
    assert list(range(62)) == seqs(seen)
    assert [row["at_ms"] for row in daemon.tapes[RUN].rows] == [
        item.at_ms for item in seen if isinstance(item, TapeEvent)
    ]
    assert 1 == sum(isinstance(item, CaughtUp) for item in seen)
    assert [] == daemon.budgets


async def publish_all(daemon: FakeDaemon) -> None:
    """Sixty events, some durable late, then the end."""
    for number in range(60):
        await daemon.publish(said(str(number)), durable=number % 3 == 0)
        await trio.lowlevel.checkpoint()
    await daemon.publish(RunDone(reason="answered"))


async def hold_client(url: str, *, task_status: trio.TaskStatus[Client]) -> None:
    async with connect(url, token=TOKEN, patience_s=0.05) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def cut_after(daemon: FakeDaemon, asked: trio.Event) -> None:
    await asked.wait()
    await daemon.cut()


# --- peers that are no daemon, or no good one ---


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncGenerator[str]:
    """Yield a server that sends these bytes on each connection and then nothing more."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        serve_tcp = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        listeners = await nursery.start(serve_tcp)
        try:
            yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1/ws"
        finally:
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", errors.Unauthenticated),
        ("403 Forbidden", errors.Forbidden),
        ("503 Service Unavailable", errors.Unavailable),
    ],
)
async def test_refused_upgrade(status: str, kind: type[errors.PalyraError]) -> None:
    """An HTTP answer instead of the upgrade is raised as what its status means."""
    answer = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
    async with raw_server(answer) as url:
        with trio.fail_after(WITHIN_S), pytest.raises(kind):
            async with connect(url, token=TOKEN):
                pass


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"\x00\x01\x02\r\n\r\n"])
async def test_other_protocol(answer: bytes) -> None:
    """A server that speaks something else is Unavailable, not a crash and not a wait."""
    async with raw_server(answer) as url:
        with trio.fail_after(WITHIN_S), pytest.raises(errors.PalyraError):
            async with connect(url, token=TOKEN):
                pass


async def test_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers is given up after the time for opening."""
    monkeypatch.setattr("palyra.client.dial.OPEN_WITHIN_S", 0.1)
    async with raw_server(b"") as url:
        with trio.fail_after(WITHIN_S), pytest.raises(errors.Unavailable, match="did not answer"):
            async with connect(url, token=TOKEN):
                pass


async def test_untrusted_certificate(tmp_path: Path) -> None:
    """It is named at once, not reported as a server that does not answer."""
    context = Authority(tmp_path).server_context("127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        server = trio.SSLStream(stream, context, server_side=True)
        with pytest.raises(trio.BrokenResourceError):
            await server.do_handshake()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"wss://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1/ws"
        with (
            trio.fail_after(WITHIN_S),
            pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            async with connect(url, token=TOKEN):
                pass
        nursery.cancel_scope.cancel()


async def test_server_without_hello() -> None:
    """A WebSocket server whose first message is no hello raises ProtocolError."""
    async with fake_daemon() as daemon:
        daemon.greeting = "good.day"
        with pytest.raises(errors.ProtocolError, match="hello"):
            async with connect(daemon.url, token=TOKEN):
                pass


@pytest.mark.parametrize("message", ["{", "[1]", b"binary"])
async def test_nonsense_costs_a_connection_only(message: str | bytes) -> None:
    """A message that is no JSON-RPC ends the connection, and the client makes another."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.connections[0].socket.send_message(message)
        await daemon.connections[0].ended.wait()
        assert 1 == (await client.ping()).now_ms
    assert 2 == daemon.methods().count("connect")


async def test_dead_peer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that keeps the connection open but answers nothing is replaced."""
    monkeypatch.setattr("palyra.client.connection.PING_EVERY_S", 0.02)
    monkeypatch.setattr("palyra.client.connection.PONG_WITHIN_S", 0.1)
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.freeze()
        await daemon.connections[0].ended.wait()
        # A busy machine answers late, too: the next connection must not be judged like this.
        monkeypatch.setattr("palyra.client.connection.PONG_WITHIN_S", WITHIN_S)
        assert 1 == (await client.ping()).now_ms
    assert daemon.methods().count("connect") >= 2


# --- the daemon's own words about a subscription ---


async def test_reset_below_the_floor_is_passed_on() -> None:
    """If old rows are no longer stored, the consumer gets the first row that is."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
            ((name, _),) = daemon.connections[0].subscriptions.items()
            connection = daemon.connections[0]
            await connection.notify(
                "tape.reset", subscription=name, run_id=RUN, reason="below_floor", floor=5
            )
            reset = await anext(items)
    assert Reset(reason="below_floor", floor=5) == reset


@pytest.mark.parametrize("code", ["rate_limited", "unavailable"])
async def test_busy_daemon_is_asked_again_later(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resubscription refused for the moment is repeated, unseen by the consumer."""
    monkeypatch.setattr("palyra.client.reconnecting.RETRY_MS", 1)
    refusals = [Refusal(code, "slower", retry_after_ms=1)] * 2

    def subscribe(connection: Connection, params: Json) -> object:
        if refusals:
            raise refusals.pop()
        return original(connection, params)

    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        original = daemon.answers["tape.subscribe"]
        async with client.events(RUN) as items:
            await take(items, 2)
            daemon.answers["tape.subscribe"] = subscribe
            await daemon.cut()
            await daemon.publish(RunDone(reason="answered"))
            assert [1] == seqs([item async for item in items])
    assert [] == refusals


async def test_busy_daemon_refuses_a_new_subscription() -> None:
    """A new subscription that is refused is the caller's decision: it raises."""

    def subscribe(_connection: Connection, _params: Json) -> object:
        raise Refusal("overloaded", "too many subscriptions", retry_after_ms=1)

    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.append(said("a"))
        daemon.answers["tape.subscribe"] = subscribe
        with pytest.raises(errors.Overloaded, match="too many"):
            async with client.events(RUN):
                pass


async def test_left_subscription_is_given_back() -> None:
    """Leaving `events` early unsubscribes, so the daemon sends nothing more."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        await daemon.publish(said("a"))
        async with client.events(RUN) as items:
            await take(items, 2)
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert {} == daemon.connections[0].subscriptions


async def test_waiting_survives_a_cut() -> None:
    """`wait_run` continues after a lost connection."""
    done = {**RUN_VIEW, "timed_out": False}
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.reply_with("run.wait", done)
        asked = daemon.swallow("run.wait")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_after, daemon, asked)
            assert "done" == (await client.wait_run(RUN)).state
    assert 2 == daemon.methods().count("run.wait")


async def test_any_method_can_be_called() -> None:
    """`call` sends any method and gives its plain result."""
    async with fake_daemon() as daemon, client_of(daemon) as client:
        daemon.reply_with("memory.search", {"hits": [1]})
        assert {"hits": [1]} == await client.call("memory.search", {"text": "x"})
        assert client.is_connected


async def test_a_closed_client_is_unavailable() -> None:
    """After the end of `async with connect` every call raises Unavailable."""
    async with fake_daemon() as daemon:
        async with client_of(daemon) as client:
            await client.ping()
        with pytest.raises(errors.Unavailable, match="closed"):
            await client.ping()
        with pytest.raises(errors.Unavailable):
            _ = client.hello


async def test_leaving_is_quick_though_the_peer_does_not_answer() -> None:
    """Closing takes no longer than its bound when the peer keeps TCP open and sends nothing."""
    async with fake_daemon() as daemon, client_of(daemon):
        daemon.freeze()
        before_s = trio.current_time()
    assert trio.current_time() - before_s < WITHIN_S


async def test_wait_any_returns_with_the_first() -> None:
    """`wait_any` ends with the first wait and cancels the other."""
    event = trio.Event()
    event.set()
    with trio.fail_after(WITHIN_S):
        await wait_any(event.wait, trio.sleep_forever)
