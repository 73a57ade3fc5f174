"""A slow or stalled client: bounded memory, a close code, no delay of others."""

import json

import pytest
import trio.testing

from palyra.net.api.rate_limit import ConnectionLimits
from tests.actors.kernel.virtual_awake import VirtualAwakeClock
from tests.net.api.fake_services import RUN, open_daemon, row

Clock = trio.testing.MockClock


def request(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


async def test_stalled_client_is_closed_and_delays_no_other(autojump_clock: Clock) -> None:
    """It is closed with 1013 after 10 s; the other client sees every event at once."""
    async with open_daemon() as daemon:
        stalled, reader = await daemon.connect(window=2), await daemon.connect()
        for peer in (stalled, reader):
            await peer.call("tape.subscribe", run_id=RUN)
        began_s = trio.current_time()
        for seq in range(20):
            daemon.publish(row(seq))
            await reader.read_all()
            assert seq == reader.events()[-1]["seq"]
        assert began_s == trio.current_time()
        await stalled.transport.closed.wait()
        assert 10 == trio.current_time() - began_s
        assert (1013, f"slow consumer: last seq 0 of {RUN}") == stalled.transport.farewell


async def test_full_outbox_closes_at_once(autojump_clock: Clock) -> None:
    """When more waits than the outbox holds, the client is closed without waiting for a stall."""
    async with open_daemon(ConnectionLimits(outbox_bytes=50_000)) as daemon:
        stalled, reader = await daemon.connect(window=2), await daemon.connect()
        for peer in (stalled, reader):
            await peer.call("tape.subscribe", run_id=RUN)
        began_s = trio.current_time()
        for seq in range(20):
            daemon.publish(row(seq, text="x" * 5_000))
            await reader.read_all()
        await stalled.transport.closed.wait()
        assert began_s == trio.current_time()
        assert stalled.transport.farewell is not None
        assert 1013 == stalled.transport.farewell[0]
        assert list(range(20)) == [event["seq"] for event in reader.events()]


async def test_replay_waits_for_the_reader(autojump_clock: Clock) -> None:
    """A tape larger than the outbox reaches a slow but steady reader whole."""
    async with open_daemon(ConnectionLimits(outbox_bytes=600_000)) as daemon:
        rows = [row(seq, text="x" * 10_000) for seq in range(200)]
        for one in rows:
            daemon.publish(one)
            daemon.commit(one)
        peer = await daemon.connect(window=1)
        daemon.store.page_rows = 10
        await peer.call("tape.subscribe", run_id=RUN)
        await peer.wait_notice("tape.caught_up")
        seqs = [m["params"]["seq"] for m in peer.messages if m.get("method") == "tape.event"]
        assert list(range(200)) == seqs


async def test_large_replies_wait_for_the_reader(autojump_clock: Clock) -> None:
    """Many large replies at once neither overflow the outbox nor get lost."""
    async with open_daemon(ConnectionLimits(outbox_bytes=600_000)) as daemon:
        rows = [row(seq, text="x" * 10_000) for seq in range(20)]
        daemon.publish(*rows)
        daemon.commit(*rows)
        peer = await daemon.connect(window=1)
        pages = [peer.post("tape.read", run_id=RUN) for _ in range(20)]
        await trio.testing.wait_all_tasks_blocked()
        for page in pages:
            assert 20 == len((await peer.reply(page))["result"]["events"])


async def test_reply_over_half_the_outbox_is_refused(autojump_clock: Clock) -> None:
    """A reply that could never be sent is an error that says to ask for less."""
    async with open_daemon(ConnectionLimits(outbox_bytes=20_000)) as daemon:
        rows = [row(seq, text="x" * 1_000) for seq in range(20)]
        daemon.publish(*rows)
        daemon.commit(*rows)
        peer = await daemon.connect()
        assert "too_large" == (await peer.fail("tape.read", run_id=RUN))["data"]["code"]
        assert 5 == len((await peer.call("tape.read", run_id=RUN, limit=5))["events"])


@pytest.mark.parametrize("is_gap", [True, False], ids=["a gap", "the control"])
def test_a_suspended_machine_closes_no_healthy_client(*, is_gap: bool) -> None:
    """An hour in which the daemon did not run does not count; one in which the client stalls does."""
    clock = VirtualAwakeClock()

    async def work() -> tuple[int, str] | None:
        async with open_daemon() as daemon:
            peer = await daemon.connect(window=2)
            await peer.call("tape.subscribe", run_id=RUN)
            daemon.publish(*(row(seq) for seq in range(20)))
            started_s = trio.current_time()
            await trio.sleep_until(started_s + 2)
            clock.now_s += 3_600 if is_gap else 0
            await trio.sleep_until(started_s + (3 if is_gap else 3_600))
            return peer.transport.farewell

    farewell = trio.run(work, clock=clock)
    assert (None if is_gap else 1013) == (farewell and farewell[0])
