"""A run as an HTTP request follows it, on virtual time."""

import pytest
import trio.testing

from palyra.core.access import Caller
from palyra.core.journal.tape_row import TapeRow
from palyra.errors import Draining, Overloaded, Unauthenticated
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.http.compat.answer import Committed, Item, Streamed
from palyra.net.http.compat.run_follower import open_following, token_holds
from tests.net.api.fake_services import RUN, Daemon, open_daemon, row

Clock = trio.testing.MockClock
ANN = Caller(principal="ann", role="operator", token_id="tok_ann")


def seqs(items: list[Item]) -> list[int]:
    return [item.seq for item in items if isinstance(item, TapeRow)]


def stream(daemon: Daemon, delta: str, *, kind: str = "text", order: int = 1) -> None:
    daemon.hub.progress(run_id=RUN, item="turn:1", order=order, kind=kind, delta=delta)  # type: ignore[arg-type]  # a kind


async def test_a_follower_misses_no_event_of_its_run(autojump_clock: Clock) -> None:
    """It gets deltas from before its subscription, and no output of tools."""
    async with open_daemon() as daemon, open_following(daemon.backend, ANN) as following:
        following.await_run(RUN)
        daemon.publish(row(0))
        stream(daemon, "one ")
        stream(daemon, "two", order=2)
        stream(daemon, "noise", kind="tool_output")
        items = await following.next_items(1)
        assert [0] == seqs(items)
        assert [Streamed("turn:1", "text", bytearray(b"one two"))] == [
            item for item in items if isinstance(item, Streamed)
        ]
        daemon.commit(row(0))
        assert [Committed(0)] == await following.next_items(1)


async def test_silence_has_an_end(autojump_clock: Clock) -> None:
    """So that a heartbeat can be sent."""
    async with open_daemon() as daemon, open_following(daemon.backend, ANN) as following:
        following.await_run(RUN)
        assert [] == await following.next_items(15)  # it is caught up, and so much for that
        began_s = trio.current_time()
        assert [] == await following.next_items(15)
        assert 15 == pytest.approx(trio.current_time() - began_s)


async def test_a_run_of_before_is_read_from_its_tape(autojump_clock: Clock) -> None:
    """Page by page, as a socket would."""
    async with open_daemon() as daemon:
        daemon.store.page_rows = 3
        rows = [row(seq) for seq in range(10)]
        daemon.publish(*rows)
        daemon.commit(*rows)
        daemon.hub.reset()
        async with open_following(daemon.backend, ANN) as following:
            following.follow(RUN)
            seen: list[int] = []
            while len(seen) < 10:
                seen += seqs(await following.next_items(1))
        assert list(range(10)) == seen


async def test_a_client_that_does_not_read_is_disconnected(autojump_clock: Clock) -> None:
    """The queue is bounded; the run continues."""
    async with open_daemon(ConnectionLimits(outbox_bytes=10_000)) as daemon:
        async with open_following(daemon.backend, ANN) as following:
            following.await_run(RUN)
            for seq in range(20):
                daemon.publish(row(seq, text="x" * 1_000))
            with pytest.raises(Overloaded):
                await following.next_items(1)
        daemon.publish(row(20))


async def hold(daemon: Daemon, caller: Caller) -> None:
    """A request that lasts as long as its token."""
    async with token_holds(daemon.backend, caller):
        await trio.sleep_forever()


async def test_a_request_ends_with_its_token(autojump_clock: Clock) -> None:
    """Revoked, expired, or the daemon goes down: each says so."""
    soon = Caller(principal="bob", role="client", token_id="tok_bob", expires_ms=1_002_000)
    async with open_daemon() as daemon:
        daemon.hub.revoke("tok_ann")
        with pytest.raises(Unauthenticated):
            await hold(daemon, ANN)
        with pytest.raises(Unauthenticated):
            await hold(daemon, soon)
        daemon.nursery.start_soon(hang_up, daemon)
        with pytest.raises(Draining):
            await hold(daemon, Caller(principal="cal", role="client", token_id="tok_cal"))
        assert 0 == daemon.hub.watcher_count


async def hang_up(daemon: Daemon) -> None:
    await trio.testing.wait_all_tasks_blocked()
    daemon.hub.hang_up(1001, "going away")


async def test_a_request_that_is_answered_in_time_is_left_alone(autojump_clock: Clock) -> None:
    """The control of the test above."""
    async with open_daemon() as daemon:
        async with token_holds(daemon.backend, ANN):
            assert 1 == daemon.hub.watcher_count
        assert 0 == daemon.hub.watcher_count
