"""Opening a connection: hello, connect, and everything that is not a good connect."""

import json

import pytest
import trio.testing
from structlog.testing import capture_logs

from palyra.core.access import Caller
from tests.net.api.fake_services import open_daemon

Clock = trio.testing.MockClock


def request(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


async def test_hello_comes_first(autojump_clock: Clock) -> None:
    """The first message says what the daemon is, can, and will take."""
    async with open_daemon() as daemon:
        daemon.state = "starting"
        hello = await daemon.dial().wait_notice("hello")
        expected = {
            "server": "palyra",
            "version": "1.2.3",
            "instance_id": "i-1",
            "protocol": "palyra.v1",
            "features": ["batch", "vectors", "wasm"],
            "limits": {
                "max_message_bytes": 1_048_576,
                "max_inflight": 64,
                "max_subscriptions": 256,
                "outbox_bytes": 8_388_608,
                "requests_per_s": 100,
            },
            "state": "starting",
        }
        assert expected == hello


async def test_the_reply_to_connect_has_the_identity(autojump_clock: Clock) -> None:
    """It has principal, role, scopes, and the fate of every wanted feature."""
    async with open_daemon() as daemon:
        welcome = await daemon.dial().call(
            "connect", token="tok-observer", client={"name": "x"}, want=["batch", "telepathy"]
        )
        expected = {
            "principal": "oscar",
            "role": "observer",
            "scopes": [
                "agents:read",
                "approvals:read",
                "incidents:read",
                "runs:read",
                "sessions:read",
                "system:read",
                "tasks:read",
                "tools:read",
                "usage:read",
            ],
            "granted": ["batch"],
            "declined": [{"feature": "telepathy", "reason": "unknown to this version"}],
            "state": "ready",
        }
        assert expected == welcome


async def test_token_may_come_with_the_upgrade(autojump_clock: Clock) -> None:
    """A bearer token of the transport needs no repetition in `connect`."""
    async with open_daemon() as daemon:
        assert "bob" == (await daemon.dial(bearer="tok-bob").call("connect"))["principal"]


async def test_parent_process_needs_no_token(autojump_clock: Clock) -> None:
    """A peer that the transport vouches for connects without a token."""
    async with open_daemon() as daemon:
        parent = Caller(principal="desk", role="operator", token_id="parent")
        peer = daemon.dial(caller=parent)
        assert "desk" == (await peer.call("connect"))["principal"]


async def test_silence_is_closed_after_ten_seconds(autojump_clock: Clock) -> None:
    """Without `connect` the connection ends with 4401, at 10 s and not before."""
    async with open_daemon() as daemon:
        began_s = trio.current_time()
        peer = daemon.dial()
        assert (4401, "no connect request within 10 s") == await peer.read_to_end()
        assert 10 == trio.current_time() - began_s


OPENINGS: dict[str, tuple[bytes, int, int, str]] = {
    "another request first": (request("ping"), 4401, -32000, "unauthenticated"),
    "no token": (request("connect"), 4401, -32000, "unauthenticated"),
    "unknown token": (request("connect", token="nope"), 4401, -32000, "unauthenticated"),
    "long token": (request("connect", token="x" * 300), 4401, -32000, "unauthenticated"),
    "token of a wrong type": (request("connect", token=5), 4400, -32602, "invalid_params"),
    "unknown param": (request("connect", tokn="x"), 4400, -32602, "invalid_params"),
    "not JSON": (b"hello?", 4400, -32700, "parse_error"),
    "batch": (b"[]", 4400, -32600, "invalid_request"),
    "large": (b" " * 16_385, 1009, -32000, "too_large"),
}


@pytest.mark.parametrize(("data", "close", "number", "code"), OPENINGS.values(), ids=OPENINGS)
async def test_bad_opening_is_answered_and_closed(
    autojump_clock: Clock, data: bytes, close: int, number: int, code: str
) -> None:
    """Whatever is not a good `connect` gets an error that says so, then the close code."""
    async with open_daemon() as daemon:
        peer = daemon.dial()
        peer.send_raw(data)
        assert close == (await peer.read_to_end())[0]
        error = peer.messages[1]["error"]
        assert (number, code) == (error["code"], error["data"]["code"])
        assert 0 == daemon.hub.watcher_count


async def test_expired_and_revoked_tokens_open_nothing(autojump_clock: Clock) -> None:
    """Both answer exactly like an unknown token."""
    async with open_daemon() as daemon:
        daemon.add_token("tok-old", "ann", "client", expires_ms=daemon.now_ms)
        operator = await daemon.connect("tok-operator")
        await operator.call("token.revoke", token_id="id-of-tok-bob")
        errors = []
        for token in ("tok-old", "tok-bob", "unknown"):
            peer = daemon.dial()
            errors.append((await peer.fail("connect", token=token))["message"])
            assert 4401 == (await peer.read_to_end())[0]
        assert 1 == len(set(errors))


async def test_connecting_twice_is_refused(autojump_clock: Clock) -> None:
    """A second `connect` is an error, changes nothing, and the connection continues."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        assert "illegal_state" == (await peer.fail("connect", token="tok-bob"))["data"]["code"]
        assert {"now_ms": daemon.now_ms} == await peer.call("ping")


async def test_no_token_reaches_a_log(autojump_clock: Clock) -> None:
    """Neither good nor bad tokens, from frame or header, appear in any log line."""
    async with open_daemon() as daemon:
        with capture_logs() as logs:
            peer = await daemon.connect("tok-ann")
            peer.leave()
            refused = daemon.dial(bearer="tok-from-header")
            refused.post("connect", token="tok-wrong")
            await refused.read_to_end()
            await daemon.dial(bearer="tok-from-header").fail("connect")
            await trio.testing.wait_all_tasks_blocked()
        assert {"connected", "connection closed"} == {line["event"] for line in logs}
        assert "tok-" not in str(logs)
