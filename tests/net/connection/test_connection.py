"""A connection after opening: hostile frames, limits, failures, and every way it can end."""

import json
from unittest.mock import AsyncMock

import pytest
import trio.testing
from structlog.testing import capture_logs

from palyra.errors import InvariantBroken, Unavailable
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.server.transport import BadFrame
from tests.net.api.fake_services import RUN, open_daemon, row

Clock = trio.testing.MockClock


def request(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


# --- hostile frames after opening ---

HOSTILE: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{", -32700),
    "invalid UTF-8": (b"\xff", -32700),
    "depth bomb": (b"[" * 5_000, -32700),
    "duplicate keys": (b'{"id":1,"id":1}', -32700),
    "NaN": (b"[NaN]", -32700),
    "lone surrogate": (b'["\\ud800"]', -32700),
    "batch": (b"[{}]", -32600),
    "non-object": (b"5", -32600),
    "missing method": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "unknown method": (request("run.strat"), -32601),
    "unknown parameter": (request("ping", x=1), -32602),
    "wrong type": (request("run.get", run_id=5), -32602),
    "out of range": (request("run.wait", run_id="r", timeout_ms=120_001), -32602),
}


@pytest.mark.parametrize(("data", "number"), HOSTILE.values(), ids=HOSTILE)
async def test_hostile_frame_costs_an_error(
    autojump_clock: Clock, data: bytes, number: int
) -> None:
    """Each kind gets its own error; this connection and all others continue."""
    async with open_daemon() as daemon:
        peer, other = await daemon.connect(), await daemon.connect("tok-bob")
        peer.send_raw(data)
        await peer.read()
        assert number == peer.messages[-1]["error"]["code"]
        for one in (peer, other):
            assert {"now_ms": daemon.now_ms} == await one.call("ping")


async def test_unknown_method_is_named(autojump_clock: Clock) -> None:
    """The message shows the offending name."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        assert 'no method "run.strat"' == (await peer.fail("run.strat"))["message"]


async def test_too_large_a_message_ends_the_connection(autojump_clock: Clock) -> None:
    """Over the limit: an error, then 1009."""
    async with open_daemon(ConnectionLimits(max_message_bytes=500)) as daemon:
        peer = await daemon.connect()
        peer.send_raw(b" " * 501)
        assert 1009 == (await peer.read_to_end())[0]
        assert "too_large" == peer.messages[-1]["error"]["data"]["code"]


@pytest.mark.parametrize("code", [1003, 1009])
async def test_bad_frame_of_the_transport_ends_the_connection(
    autojump_clock: Clock, code: int
) -> None:
    """A binary or oversized frame closes with the code the transport gave."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        peer.send_raw(BadFrame(code, "no"))
        assert (code, "no") == await peer.read_to_end()


# --- limits ---


async def test_more_than_the_rate_is_refused(autojump_clock: Clock) -> None:
    """The burst passes, the next request gets retry_after_ms, and then passes."""
    async with open_daemon(ConnectionLimits(requests_per_s=10, burst=3)) as daemon:
        peer = await daemon.connect()
        for _ in range(3):
            await peer.call("ping")
        data = (await peer.fail("ping"))["data"]
        assert ("rate_limited", 100) == (data["code"], data["retry_after_ms"])
        await trio.sleep(data["retry_after_ms"] / 1000)
        assert {"now_ms": daemon.now_ms} == await peer.call("ping")


async def test_large_requests_use_more_of_the_rate(autojump_clock: Clock) -> None:
    """A message costs one request per started 16 KiB, for it takes that much longer to read."""
    async with open_daemon(ConnectionLimits(burst=5)) as daemon:
        peer = await daemon.connect()
        assert "overloaded" != (await peer.fail("ping", x="y" * 60_000))["data"]["code"]
        codes = [(await peer.ask("ping")).get("error", {}).get("code") for _ in range(2)]
        assert [None, -32000] == codes


async def test_a_flood_ends_the_connection(autojump_clock: Clock) -> None:
    """Ten times the rate closes with 4429, also when no message is even a request."""
    async with open_daemon(ConnectionLimits(requests_per_s=5, burst=5)) as daemon:
        peer = await daemon.connect()
        for _ in range(51):
            peer.send_raw(b"x")
        assert (4429, "request flood") == await peer.read_to_end()
        assert {-32700} == {message["error"]["code"] for message in peer.messages[2:]}


async def test_concurrent_requests_are_bounded(autojump_clock: Clock) -> None:
    """One over the limit is `overloaded`; the others are answered."""
    async with open_daemon(ConnectionLimits(max_inflight=2)) as daemon:
        peer = await daemon.connect()
        waits = [peer.post("run.wait", run_id=RUN) for _ in range(2)]
        assert "overloaded" == (await peer.fail("ping"))["data"]["code"]
        daemon.gateway.wake.set()
        for wait in waits:
            assert False is (await peer.reply(wait))["result"]["timed_out"]


async def test_an_id_is_used_once_at_a_time(autojump_clock: Clock) -> None:
    """A request with the id of one in progress is invalid; afterwards the id is free again."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        data = request("run.wait", run_id=RUN)
        peer.send_raw(data)
        peer.send_raw(data)
        assert -32600 == (await peer.reply(1))["error"]["code"]
        daemon.gateway.wake.set()
        assert "result" in await peer.reply(1)
        peer.send_raw(request("ping"))
        assert "result" in await peer.reply(1)


async def test_waiting_delays_nothing(autojump_clock: Clock) -> None:
    """A blocking `run.wait` and a ping behind it: the ping is answered first."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        wait = peer.post("run.wait", run_id=RUN, timeout_ms=5_000)
        began_s = trio.current_time()
        await peer.call("ping")
        assert 0 == trio.current_time() - began_s
        assert True is (await peer.reply(wait))["result"]["timed_out"]
        assert 5 == trio.current_time() - began_s


async def test_subscriptions_are_bounded(autojump_clock: Clock) -> None:
    """One over the bound is `overloaded` until another is given up."""
    async with open_daemon(ConnectionLimits(max_subscriptions=1)) as daemon:
        peer = await daemon.connect()
        first = await peer.call("tape.subscribe", run_id=RUN)
        assert "overloaded" == (await peer.fail("tape.subscribe", all=True))["data"]["code"]
        await peer.call("tape.unsubscribe", subscription=first["subscription"])
        await peer.call("tape.subscribe", all=True)


# --- the end ---


async def test_revoked_token_closes_its_connections(autojump_clock: Clock) -> None:
    """Revoking answers first, then closes every connection of that token with 4403."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        anns = [await daemon.connect(), await daemon.connect()]
        bob = await daemon.connect("tok-bob")
        await operator.call("token.revoke", token_id="id-of-tok-ann")
        for ann in anns:
            assert (4403, "token revoked") == await ann.read_to_end()
        await bob.call("ping")


async def test_revoking_ones_own_token_is_answered(autojump_clock: Clock) -> None:
    """The reply arrives before the close."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        shown = await operator.call("token.revoke", token_id="id-of-tok-operator")
        assert daemon.now_ms == shown["revoked_ms"]
        assert 4403 == (await operator.read_to_end())[0]


async def test_connection_opened_during_revocation_is_closed(autojump_clock: Clock) -> None:
    """A token that was read as valid a moment before its revocation opens nothing lasting."""
    async with open_daemon() as daemon:
        daemon.hub.revoke("id-of-tok-ann")
        peer = daemon.dial()
        peer.post("connect", token="tok-ann")
        assert (4403, "token revoked") == await peer.read_to_end()


async def test_token_that_expires_ends_its_connection(autojump_clock: Clock) -> None:
    """A live connection ends when its token does."""
    async with open_daemon() as daemon:
        daemon.add_token("tok-brief", "ann", "client", expires_ms=daemon.now_ms + 3_000)
        peer = await daemon.connect("tok-brief")
        began_s = trio.current_time()
        assert (4403, "token expired") == await peer.read_to_end()
        assert 3 == trio.current_time() - began_s


async def test_going_down_is_announced_and_closed_with_1001(autojump_clock: Clock) -> None:
    """`system.draining` reaches everybody; a cancelled connection says 1001."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        notice = {"restart_expected": True, "close_after_ms": 50}
        daemon.hub.broadcast("system.draining", notice)
        assert notice == await peer.wait_notice("system.draining")
        daemon.hub.hang_up(1001, "draining")
        assert (1001, "draining") == await peer.read_to_end()


async def test_the_first_close_code_counts(autojump_clock: Clock) -> None:
    """A connection that is ended twice sends the first code."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        daemon.hub.hang_up(1001, "draining")
        daemon.hub.revoke("id-of-tok-ann")
        assert (1001, "draining") == await peer.read_to_end()


async def test_closing_does_not_wait_for_a_stalled_client(autojump_clock: Clock) -> None:
    """Queued frames are written for at most a second, then the connection is closed."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(window=2)
        for number in range(9):
            daemon.hub.broadcast("note", {"n": number})
            await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        daemon.hub.hang_up(1001, "draining")
        await peer.transport.closed.wait()
        assert (1001, "draining") == peer.transport.farewell
        assert daemon.backend.limits.goodbye_s == trio.current_time() - began_s


async def test_cancelled_connection_says_going_away(autojump_clock: Clock) -> None:
    """A supervisor that cancels a connection leaves the client with 1001."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
    assert (1001, "going away") == peer.transport.farewell


async def test_a_disconnected_client_leaves_nothing(autojump_clock: Clock) -> None:
    """Nothing of it remains, and other connections continue."""
    async with open_daemon() as daemon:
        peer, other = await daemon.connect(), await daemon.connect()
        for one in (peer, other):
            await one.call("tape.subscribe", run_id=RUN)
            await one.call("tape.subscribe", all=True)
        peer.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert 1 == daemon.hub.watcher_count
        assert 2 == len(daemon.hub.get_feed(RUN).listeners)
        daemon.publish(row(0))
        await other.read_all()
        assert 2 == len(other.events())


async def test_a_disconnect_is_logged_as_such(autojump_clock: Clock) -> None:
    """The log line does not report a loss."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        peer.leave()
        await peer.transport.closed.wait()
        assert (1000, "closed by the client") == peer.transport.farewell


async def test_socket_that_breaks_while_written_ends_the_connection(autojump_clock: Clock) -> None:
    """A peer that can no longer be written to is gone, also when nothing is read from it."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        peer.transport.from_daemon.close()
        daemon.hub.broadcast("system.draining", {})
        await peer.transport.closed.wait()
        assert (1000, "the connection was closed") == peer.transport.farewell


# --- failures behind the request ---


async def test_unavailable_journal_is_an_answer(autojump_clock: Clock) -> None:
    """A dependency that is down answers `unavailable`, retryable; the subscription is undone."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        daemon.journal.failure = Unavailable("disk full")
        data = (await peer.fail("tape.subscribe", run_id=RUN))["data"]
        assert ("unavailable", True) == (data["code"], data["retryable"])
        assert "unavailable" == (await peer.fail("tape.subscribe", all=True))["data"]["code"]
        daemon.publish(row(0))
        assert {} == daemon.hub.get_feed(RUN).listeners


async def test_bug_behind_a_request_is_internal(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken invariant answers -32603 without details, and is logged."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        broken = AsyncMock(side_effect=InvariantBroken("secret detail"))
        monkeypatch.setattr(daemon.gateway, "list_runs", broken)
        with capture_logs() as logs:
            error = await peer.fail("run.list")
        assert (-32603, "internal error") == (error["code"], error["message"])
        assert ["request failed"] == [line["event"] for line in logs]


async def test_crash_ends_only_its_connection(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception reaches the supervisor; the client gets 1011 and no detail."""
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with open_daemon() as daemon:
            peer = await daemon.connect()
            crash = AsyncMock(side_effect=ZeroDivisionError("secret detail"))
            monkeypatch.setattr(daemon.gateway, "list_runs", crash)
            peer.post("run.list")
            await trio.sleep_forever()
    assert (1011, "internal error") == peer.transport.farewell


async def test_arrays_go_to_those_who_asked(autojump_clock: Clock) -> None:
    """Events that wait together are one array for `batch`, and messages of their own otherwise."""
    async with open_daemon() as daemon:
        batched, single = await daemon.connect(want=("batch",)), await daemon.connect()
        for peer in (batched, single):
            await peer.call("tape.subscribe", run_id=RUN)
            await peer.read_all()
            peer.messages.clear()
        daemon.publish(row(0), row(1), row(2))
        for peer in (batched, single):
            await peer.read_all()
        (array,) = batched.messages
        assert [0, 1, 2] == [message["params"]["seq"] for message in array]
        assert [0, 1, 2] == [message["params"]["seq"] for message in single.messages]
