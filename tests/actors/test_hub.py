"""The hub: feeds, fan-out, retirement, and notices."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio.testing

from palyra.actors import hub as hub_module
from palyra.actors.hub import KEEP_BYTES, Hub, ProgressDelta, PublishedRow, RunFeed, child_spec
from palyra.actors.kernel.supervisor import Supervisor
from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.core.journal.tape_row import TapeRow
from palyra.errors import InvariantBroken
from palyra.net.protocol.jsonrpc import encode_notification

Clock = trio.testing.MockClock
RUN = "run_1"
PROMISED_S = 0.05  # semantics 3: how long an idle stream may not know of a commit


def row(
    seq: int,
    *,
    run_id: str = RUN,
    kind: str = "turn.started",
    principal: str = "ann",
    session_id: str = "ses_1",
    size: int = 2,
) -> TapeRow:
    return TapeRow(run_id, session_id, seq, 0, kind, principal, False, b'"%b"' % (b"x" * size))  # noqa: FBT003


@dataclass(eq=False)
class Recorder:
    """A listener that records its notifications."""

    feed: RunFeed
    heard: list[object] = field(default_factory=list)
    delivered: list[PublishedRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed.listeners[self] = None

    def deliver(self, rows: Sequence[PublishedRow]) -> None:
        self.delivered += rows
        self.heard += [each.row.seq for each in rows]

    def rewind(self, seq: int) -> None:
        self.heard.append(("rewind", seq))

    def offer_progress(self, delta: ProgressDelta) -> None:
        self.heard.append(delta)

    def notify_committed(self) -> None:
        self.heard.append(("committed", self.feed.committed))

    def end(self) -> None:
        self.heard.append("end")


@dataclass(eq=False)
class Follower:
    """A spectator of one session."""

    session_id: str = "ses_1"
    is_omnivorous: bool = False
    followed: list[str] = field(default_factory=list)

    def wants(self, feed: RunFeed) -> bool:
        return self.is_omnivorous or feed.session_id == self.session_id

    def follow(self, feed: RunFeed) -> None:
        self.followed.append(feed.run_id)


@dataclass(eq=False)
class Watcher:
    """A connection."""

    caller: Caller
    heard: list[dict[str, Any]] = field(default_factory=list)
    farewell: tuple[int, str] | None = None

    def notify(self, message: bytes) -> None:
        self.heard.append(json.loads(message))

    def hang_up(self, code: int, reason: str) -> None:
        self.farewell = (code, reason)


def watcher(principal: str, role: Role) -> Watcher:
    return Watcher(Caller(principal=principal, role=role, token_id=f"tok_{principal}"))


@pytest.fixture
def hub() -> Hub:
    return Hub(encode_notification)


# --- publishing ---


def test_published_rows_reach_every_lane_of_the_run(hub: Hub) -> None:
    """All lanes get all rows at once, other runs' lanes nothing."""
    first, second = Recorder(hub.get_feed(RUN)), Recorder(hub.get_feed(RUN))
    other = Recorder(hub.get_feed("run_2"))
    hub.publish([row(0), row(1)])
    hub.publish([row(2)])
    assert [[0, 1, 2], [0, 1, 2], []] == [first.heard, second.heard, other.heard]


def test_readers_share_what_is_published(hub: Hub) -> None:
    """Every lane is given the same object, so that what the first one encodes serves all."""
    lanes = [Recorder(hub.get_feed(RUN)) for _ in range(2)]
    hub.publish([row(0)])
    (first,), (second,) = lanes[0].delivered, lanes[1].delivered
    assert first is second
    assert first.encoded is None


def test_a_failed_commit_rewinds(hub: Hub) -> None:
    """Rows published over uncommitted ones replace them; listeners learn the first replaced seq."""
    lane = Recorder(hub.get_feed(RUN))
    hub.publish([row(0), row(1), row(2)])
    hub.committed([(RUN, 0)])
    hub.publish([row(1, kind="run.failed")])
    assert [0, 1, 2, ("rewind", 1), 1] == lane.heard
    feed = hub.get_feed(RUN)
    assert [("turn.started", 0), ("run.failed", 1)] == [
        (kept.kind, kept.seq) for kept in feed.find_rows(0) or []
    ]


def test_the_last_row_alone_may_be_published_again(hub: Hub) -> None:
    """One that ended the run, too: what takes its place decides whether the run is over."""
    feed = hub.get_feed(RUN)
    lane = Recorder(feed)
    hub.publish([row(0)])
    hub.committed([(RUN, 0)])
    for kind in ("turn.started", "run.done"):
        hub.publish([row(1, kind=kind, size=KEEP_BYTES - 100)])
    hub.publish([row(1)])
    hub.committed([(RUN, 1)])
    assert [0, 1, ("rewind", 1), 1, ("rewind", 1), 1] == lane.heard
    assert (feed, 2) == (hub.get_feed(RUN), len(feed.find_rows(0) or []))  # and its bytes are gone


@pytest.mark.parametrize("seq", [0, 4])
def test_a_gap_or_a_committed_seq_is_a_bug(hub: Hub, seq: int) -> None:
    """A publisher that skips a seq or repeats a committed one gets InvariantBroken."""
    hub.publish([row(0), row(1)])
    hub.committed([(RUN, 0)])
    with pytest.raises(InvariantBroken, match=f"published seq {seq} after 1, committed 0"):
        hub.publish([row(seq)])


def test_a_resumed_run_continues_from_the_committed_head(hub: Hub) -> None:
    """The first published row of a resumed run need not be seq 0."""
    hub.publish([row(7)])
    feed = hub.get_feed(RUN)
    assert (6, 7) == (feed.committed, feed.published)
    assert feed.find_rows(6) is None


# --- the tail ---


def test_tail_keeps_what_is_uncommitted(hub: Hub) -> None:
    """However much is published, nothing uncommitted is dropped; committed rows are, by bytes."""
    for seq in range(100):
        hub.publish([row(seq, size=2_000)])
    feed = hub.get_feed(RUN)
    assert 100 == len(feed.find_rows(0) or [])
    hub.committed([(RUN, 98)])
    assert feed.find_rows(0) is None
    kept = next(feed.find_rows(seq) for seq in range(100) if feed.find_rows(seq) is not None)
    assert kept is not None
    assert 0 < sum(len(row.data) for row in kept) <= KEEP_BYTES
    hub.committed([(RUN, 99)])
    assert [] == feed.find_rows(100)


def test_no_uncommitted_row_makes_room(hub: Hub) -> None:
    """However large it is: it can be read nowhere else."""
    hub.publish([row(seq, size=KEEP_BYTES) for seq in range(3)])
    hub.committed([(RUN, 0)])
    assert 2 == len(hub.get_feed(RUN).find_rows(1) or [])


def test_small_tapes_stay_joinable(hub: Hub) -> None:
    """A run whose tape is small can be joined from seq 0 without the journal."""
    hub.publish([row(0), row(1)])
    hub.committed([(RUN, 1)])
    assert [0, 1] == [kept.seq for kept in hub.get_feed(RUN).find_rows(0) or []]


def test_unknown_feed_sends_readers_to_the_journal(hub: Hub) -> None:
    """The hub knows a run without publications only after it was given its head."""
    feed = hub.get_feed(RUN)
    assert feed.find_rows(0) is None
    feed.note_head(4)
    assert feed.find_rows(4) is None
    assert [] == feed.find_rows(5)


# --- commits and the end ---


async def test_idle_listeners_get_one_notice_of_several_commits(
    hub: Hub, autojump_clock: Clock
) -> None:
    """Commits in quick succession become one notice within the promised 50 ms."""
    async with trio.open_nursery() as nursery:
        await nursery.start(hub_module.hub, hub)
        lane = Recorder(hub.get_feed(RUN))
        hub.publish([row(seq) for seq in range(3)])
        lane.heard.clear()
        for seq in range(3):
            hub.committed([(RUN, seq)])
        assert [] == lane.heard
        await trio.sleep(PROMISED_S)
        assert [("committed", 2)] == lane.heard
        await trio.sleep(PROMISED_S)
        assert [("committed", 2)] == lane.heard
        nursery.cancel_scope.cancel()


def test_terminal_commit_is_announced_at_once(hub: Hub) -> None:
    """The end of a run does not wait for the next tick, and the hub forgets the run."""
    lane = Recorder(hub.get_feed(RUN))
    hub.publish([row(0), row(1, kind="run.done")])
    hub.committed([(RUN, 0)])
    assert [0, 1] == lane.heard
    hub.committed([(RUN, 1)])
    assert [0, 1, ("committed", 1), "end"] == lane.heard
    assert lane.feed is not hub.get_feed(RUN)


async def test_a_commit_is_announced_once(hub: Hub, autojump_clock: Clock) -> None:
    """A repeated commit and an ended run send no notice, and the actor is idle."""
    lane = Recorder(hub.get_feed(RUN))
    hub.publish([row(0), row(1, kind="run.done")])
    for _ in range(2):
        hub.committed([(RUN, 0)])
        hub.notify_committed()
    assert [0, 1, ("committed", 0)] == lane.heard
    with trio.move_on_after(1) as scope:
        await hub.wait_dirty()
    assert scope.cancelled_caught
    hub.publish([row(2, run_id="run_2")])
    other = Recorder(hub.get_feed("run_2"))
    hub.committed([("run_2", 2)])
    hub.publish([row(3, run_id="run_2", kind="run.done")])
    hub.committed([("run_2", 3)])
    hub.notify_committed()
    assert [3, ("committed", 3), "end"] == other.heard


def test_removing_a_listener_of_an_earlier_feed_affects_no_other(hub: Hub) -> None:
    """The feed was recreated in between."""
    old = hub.get_feed(RUN)
    lane = Recorder(old)
    hub.reset()
    new = hub.get_feed(RUN)
    hub.leave(old, lane)
    assert new is hub.get_feed(RUN)


def test_unknown_and_stale_commits_are_ignored(hub: Hub) -> None:
    """A commit of a run without feed, or one already known, changes nothing."""
    lane = Recorder(hub.get_feed(RUN))
    hub.publish([row(0), row(1, kind="run.done")])
    hub.committed([("run_unknown", 5), (RUN, 1)])
    hub.committed([(RUN, 1), (RUN, 0)])
    assert [0, 1, ("committed", 1), "end"] == lane.heard


def test_an_unpublished_feed_is_removed_with_its_last_listener(hub: Hub) -> None:
    """Reading finished runs leaves nothing in the hub."""
    feed = hub.get_feed(RUN)
    first, second = Recorder(feed), Recorder(feed)
    hub.leave(feed, first)
    assert feed is hub.get_feed(RUN)
    hub.leave(feed, second)
    assert feed is not hub.get_feed(RUN)


def test_open_run_outlives_its_listeners(hub: Hub) -> None:
    """A reader that leaves does not make the hub forget an open run."""
    hub.publish([row(0)])
    feed = hub.get_feed(RUN)
    hub.leave(feed, Recorder(feed))
    assert feed is hub.get_feed(RUN)


# --- spectators, progress, notices ---


def test_spectators_follow_open_and_new_runs(hub: Hub) -> None:
    """A spectator is shown the runs of its session that are open and those that begin later."""
    hub.publish([row(0, run_id="run_old")])
    hub.get_feed("run_watched_only")
    spectator = Follower()
    hub.add_spectator(spectator)
    hub.publish([row(0, run_id="run_new")])
    hub.publish([row(1, run_id="run_new")])
    hub.publish([row(0, run_id="run_foreign", session_id="ses_2")])
    hub.remove_spectator(spectator)
    hub.publish([row(0, run_id="run_late")])
    assert ["run_old", "run_new"] == spectator.followed


def test_feeds_without_a_publisher_are_not_listed_as_runs(hub: Hub) -> None:
    """A subscriber to all runs is not shown a run that another client only read."""
    hub.get_feed("run_watched_only")
    spectator = Follower(is_omnivorous=True)
    hub.add_spectator(spectator)
    assert [] == spectator.followed


def test_progress_goes_to_lanes_of_open_runs(hub: Hub) -> None:
    """All lanes are given the same delta; without a lane it goes nowhere."""
    lanes = [Recorder(hub.get_feed(RUN)) for _ in range(2)]
    for run_id in (RUN, "run_unwatched"):
        hub.progress(run_id=run_id, item="t1", order=0, kind="text", delta="hi")
    (first,), (second,) = lanes[0].heard, lanes[1].heard
    assert first is second


def test_notices_respect_scope_and_principal(hub: Hub) -> None:
    """A notice reaches only connections that hold the scope and see the principal."""
    ann, bob = watcher("ann", "client"), watcher("bob", "client")
    approver, observer = watcher("eve", "approver"), watcher("oscar", "observer")
    everybody = [ann, bob, approver, observer]
    for one in everybody:
        hub.attach(one)
    hub.notify("approval.requested", {"n": 1}, principal="ann", scope="approvals:read")
    hub.notify("secret", {}, principal="ann", scope="approvals:write")
    hub.detach(observer)
    hub.broadcast("system.draining", {})
    heard = [[notice["method"] for notice in one.heard] for one in everybody]
    expected = [
        ["approval.requested", "system.draining"],
        ["system.draining"],
        ["approval.requested", "secret", "system.draining"],
        ["approval.requested"],
    ]
    assert expected == heard


def test_revocation_hangs_up_present_and_future_connections(hub: Hub) -> None:
    """Every connection of a revoked token is closed, also one that attaches afterwards."""
    ann, bob, late = watcher("ann", "client"), watcher("bob", "client"), watcher("ann", "client")
    hub.attach(ann)
    hub.attach(bob)
    hub.revoke("tok_ann")
    hub.attach(late)
    revoked = (4403, "token revoked")
    assert [revoked, None, revoked] == [one.farewell for one in (ann, bob, late)]


def test_hang_up_reaches_all(hub: Hub) -> None:
    """The daemon can close every connection with one call."""
    ann, bob = watcher("ann", "client"), watcher("bob", "operator")
    hub.attach(ann)
    hub.attach(bob)
    hub.hang_up(1001, "draining")
    assert [(1001, "draining")] * 2 == [one.farewell for one in (ann, bob)]
    assert 2 == hub.watcher_count


# --- the actor ---


async def test_a_new_incarnation_begins_empty(hub: Hub, autojump_clock: Clock) -> None:
    """Restarted, the hub knows no run and no watcher: they are restarted with it."""
    hub.publish([row(0)])
    hub.attach(watcher("ann", "client"))
    supervisor = Supervisor("test", [child_spec(hub)], strategy="one_for_one")
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        assert 0 == hub.watcher_count
        hub.publish([row(5)])
        nursery.cancel_scope.cancel()
