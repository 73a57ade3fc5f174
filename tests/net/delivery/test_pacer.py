"""Pacing: news gathers for a moment, replies do not wait, everybody gets a turn."""

import pytest
import trio.testing

from palyra.net.api.rate_limit import GAP_S, LONGEST_S, SLOT_S, Pacer
from tests.net.api.fake_services import RUN, open_daemon, row

Clock = trio.testing.MockClock
LONG_AGO_S = -100.0


def test_first_news_after_a_pause_is_due_at_once() -> None:
    """A connection that wrote nothing for a while waits for nothing."""
    assert pytest.approx(5.0) == Pacer().reserve(5.0, LONG_AGO_S)


def test_one_connection_leaves_gaps() -> None:
    """The next write of the same connection is due a gap after its last."""
    pacer = Pacer()
    assert pytest.approx(5.0 + GAP_S) == pacer.reserve(5.0, pacer.reserve(5.0, LONG_AGO_S))


def test_many_connections_share_slots() -> None:
    """Connections that want to write at the same moment do so one slot after the other."""
    pacer = Pacer()
    due = [pacer.reserve(5.0, LONG_AGO_S) for _ in range(4)]
    assert pytest.approx([5.0 + turn * SLOT_S for turn in range(4)]) == due


def test_no_turn_is_later_than_the_limit() -> None:
    """With any number of connections a turn comes within LONGEST_S, and a burst is soon forgotten."""
    pacer = Pacer()
    assert pytest.approx(5.0 + LONGEST_S) == max(
        pacer.reserve(5.0, LONG_AGO_S) for _ in range(1_000)
    )
    assert pytest.approx(6.0) == pacer.reserve(6.0, LONG_AGO_S)


async def test_news_gathers_and_replies_do_not_wait(autojump_clock: Clock) -> None:
    """Events after the first share a write; a reply takes them along at once."""
    async with open_daemon(is_paced=True) as daemon:
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        await peer.wait_notice("tape.caught_up")
        await trio.sleep(LONGEST_S)
        peer.transport.writes.clear()
        for seq in range(5):
            daemon.publish(row(seq))
            await trio.testing.wait_all_tasks_blocked()
        assert [1] == peer.transport.writes
        began_s = trio.current_time()
        await peer.call("ping")
        assert began_s == trio.current_time()
        assert [1, 5] == peer.transport.writes
        daemon.publish(row(5))
        daemon.publish(row(6))
        await trio.sleep(LONGEST_S)
        assert [1, 5, 2] == peer.transport.writes
