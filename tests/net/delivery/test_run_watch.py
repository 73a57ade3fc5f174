"""Watches of runs: snapshot, changes, filters, bounds, and whose runs they are."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio.testing

from palyra.core.access import Caller
from palyra.core.journal.changes import RunFilter
from palyra.core.session.commands import RunView
from palyra.errors import Unavailable
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.delivery import run_watch as module
from tests.net.api.fake_services import RUN, Daemon, row
from tests.net.api.fake_services import open_daemon as open_with_run
from tests.net.api.fake_store import run_record
from tests.net.server.memory_peer import Peer

Clock = trio.testing.MockClock
SECOND_S = 1.0


@asynccontextmanager
async def open_daemon(limits: ConnectionLimits | None = None) -> AsyncGenerator[Daemon]:
    """A daemon without a run."""
    async with open_with_run(limits) as daemon:
        del daemon.store.runs[RUN]
        yield daemon


def change(daemon: Daemon, run_id: str, seq: int, **changes: object) -> None:
    """Commit one event of a run, and its record."""
    daemon.store.runs[run_id] = run_record(run_id, head_seq=seq, **changes)  # type: ignore[arg-type]  # a principal is a text
    daemon.publish(row(seq, run_id))
    daemon.commit(row(seq, run_id))


def frames(peer: Peer) -> list[dict[str, Any]]:
    """The parameters of each `run.updated`, taken out of the notices."""
    found = [each["params"] for each in peer.notices if each["method"] == "run.updated"]
    peer.notices.clear()
    return found


def heads(peer: Peer) -> list[tuple[str, int]]:
    """Run and head of each view that came."""
    return [(run["run_id"], run["head_seq"]) for one in frames(peer) for run in one.get("runs", [])]


async def test_the_snapshot_comes_first_and_then_changes(autojump_clock: Clock) -> None:
    """All open runs come in frames up to a complete one; then a changed run with its newest state."""
    async with open_daemon() as daemon:
        for number in range(70):
            daemon.store.runs[f"run_{number:02}"] = run_record(f"run_{number:02}")
        daemon.store.runs["run_99"] = run_record("run_99", state="done")
        peer = await daemon.connect()
        reply = await peer.call("run.watch")
        assert [] == peer.notices
        await peer.read_all()
        came = frames(peer)
        assert [32, 32, 6] == [len(one["runs"]) for one in came]
        assert [False, False, True] == [one.get("complete", False) for one in came]
        assert {(True, reply["subscription"])} == {
            (one["snapshot"], one["subscription"]) for one in came
        }
        assert [f"run_{number:02}" for number in range(69, -1, -1)] == [
            run["run_id"] for one in came for run in one["runs"]
        ]
        change(daemon, "run_01", 0, turns=1)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        (one,) = frames(peer)
        assert ["run_01", 1] == [one["runs"][0]["run_id"], one["runs"][0]["turns"]]
        assert not {"snapshot", "complete", "gone"} & one.keys()


async def test_a_run_is_sent_four_times_a_second_at_most(autojump_clock: Clock) -> None:
    """A hundred commits within a second cost at most five frames, and the last one has the last."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        frames(peer)
        for seq in range(100):
            change(daemon, "run_1", seq)
            await trio.sleep(SECOND_S / 100)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        sent = heads(peer)
        assert ("run_1", 99) == sent[-1]
        assert len(sent) <= 5


async def test_only_runs_that_fit_are_sent(autojump_clock: Clock) -> None:
    """A run that leaves the filter is named once as gone, and one that never was in it is silent."""
    async with open_daemon() as daemon:
        change(daemon, "run_1", 0, pending_approvals=1)
        change(daemon, "run_2", 0)
        peer = await daemon.connect()
        await peer.call("run.watch", phases=["awaiting_approval"])
        await peer.read_all()
        assert [("run_1", 0)] == heads(peer)
        change(daemon, "run_1", 1)
        change(daemon, "run_2", 1)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        (one,) = frames(peer)
        assert (["run_1"], []) == (one["gone"], one.get("runs", []))
        change(daemon, "run_1", 2)
        change(daemon, "run_2", 2, pending_approvals=1)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        assert [("run_2", 2)] == heads(peer)


@pytest.mark.parametrize(
    "wanted",
    [{"agent": "scout"}, {"parent_run_id": "run_0"}, {"principal": "bob"}],
)
async def test_each_filter_selects(autojump_clock: Clock, wanted: dict[str, str]) -> None:
    """Snapshot and changes have the one run that a filter describes, and not the other."""
    async with open_daemon() as daemon:
        peer = await daemon.connect("tok-operator")
        change(daemon, "run_1", 0, **wanted)
        change(daemon, "run_2", 0)
        await peer.call("run.watch", **wanted)
        await peer.read_all()
        assert [("run_1", 0)] == heads(peer)
        change(daemon, "run_1", 1, **wanted)
        change(daemon, "run_2", 1)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        assert [("run_1", 1)] == heads(peer)


async def test_an_end_is_sent_once(autojump_clock: Clock) -> None:
    """The terminal state of a run is its last frame, also if it began and ended between two passes."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        frames(peer)
        change(daemon, "run_1", 0)
        change(daemon, "run_1", 1, state="done")
        await trio.sleep(SECOND_S)
        await peer.read_all()
        (one,) = frames(peer)
        assert [("run_1", "done")] == [(run["run_id"], run["state"]) for run in one["runs"]]


async def test_runs_of_others_are_not_sent_to_a_confined_token(autojump_clock: Clock) -> None:
    """Neither snapshot nor change shows another principal's run, and an operator sees both."""
    async with open_daemon() as daemon:
        change(daemon, "run_1", 0, principal="bob")
        confined = await daemon.connect("tok-ann")
        operator = await daemon.connect("tok-operator")
        for peer in (confined, operator):
            await peer.call("run.watch")
            await peer.read_all()
        assert ([], [("run_1", 0)]) == (heads(confined), heads(operator))
        change(daemon, "run_1", 1, principal="bob")
        await trio.sleep(SECOND_S)
        for peer in (confined, operator):
            await peer.read_all()
        assert ([], [("run_1", 1)]) == (heads(confined), heads(operator))
        await confined.call("run.watch", principal="bob")  # the filter widens nothing
        await confined.read_all()
        assert [] == heads(confined)


async def test_too_many_changes_become_a_snapshot(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the bound the ids are forgotten and the open runs are sent again."""
    monkeypatch.setattr(module, "MOST_CHANGED", 2)
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        frames(peer)
        for number in range(3):
            change(daemon, f"run_{number}", 0)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        (one,) = frames(peer)
        assert (True, True, 3) == (one["snapshot"], one["complete"], len(one["runs"]))


async def test_a_failed_read_is_made_good(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the journal refuses reads nothing is sent; then the snapshot comes."""
    async with open_daemon() as daemon:
        is_broken = False
        read = daemon.gateway.list_runs

        async def list_runs(caller: Caller, wanted: RunFilter) -> list[RunView]:
            if is_broken:
                raise Unavailable("the disk is busy")
            return await read(caller, wanted)

        monkeypatch.setattr(daemon.gateway, "list_runs", list_runs)
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        frames(peer)
        is_broken = True
        change(daemon, "run_1", 0)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        assert [] == frames(peer)
        is_broken = False
        await trio.sleep(SECOND_S)
        await peer.read_all()
        (one,) = frames(peer)
        assert (True, ["run_1"]) == (one["complete"], [run["run_id"] for run in one["runs"]])


async def test_a_snapshot_that_was_broken_off_goes_on(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was in its first part and ended before its last is sent as ended after it."""
    async with open_daemon() as daemon:
        reads_left = 1
        read = daemon.gateway.list_runs

        async def list_runs(caller: Caller, wanted: RunFilter) -> list[RunView]:
            nonlocal reads_left
            if not reads_left:
                raise Unavailable("the disk is busy")
            reads_left -= 1
            return await read(caller, wanted)

        monkeypatch.setattr(daemon.gateway, "list_runs", list_runs)
        for number in range(40):
            daemon.store.runs[f"run_{number:02}"] = run_record(f"run_{number:02}")
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        (part,) = frames(peer)
        assert (32, False) == (len(part["runs"]), part.get("complete", False))
        change(daemon, "run_39", 0, state="done")
        await trio.sleep(SECOND_S)
        reads_left = 10
        await trio.sleep(SECOND_S)
        await peer.read_all()
        rest, ended = frames(peer)
        shown = [run["run_id"] for one in (part, rest) for run in one["runs"]]
        assert [f"run_{number:02}" for number in range(39, -1, -1)] == shown
        assert rest["complete"]
        assert [("run_39", "done")] == [(run["run_id"], run["state"]) for run in ended["runs"]]


async def test_changes_that_were_forgotten_during_a_snapshot_bring_another(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many changes while a snapshot is broken off are made good without a further commit."""
    monkeypatch.setattr(module, "MOST_CHANGED", 2)
    async with open_daemon() as daemon:
        reads_left = 1
        read = daemon.gateway.list_runs

        async def list_runs(caller: Caller, wanted: RunFilter) -> list[RunView]:
            nonlocal reads_left
            if not reads_left:
                raise Unavailable("the disk is busy")
            reads_left -= 1
            return await read(caller, wanted)

        monkeypatch.setattr(daemon.gateway, "list_runs", list_runs)
        for number in range(40):
            daemon.store.runs[f"run_{number:02}"] = run_record(f"run_{number:02}")
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.read_all()
        frames(peer)
        for number in range(37, 40):
            change(daemon, f"run_{number}", 0, state="done")
        await trio.sleep(SECOND_S)
        reads_left = 10
        await trio.sleep(SECOND_S)
        await peer.read_all()
        rest, *again = frames(peer)
        assert rest["complete"]
        assert [32, 5] == [len(one["runs"]) for one in again]
        assert again[-1]["complete"]


async def test_a_slow_reader_gets_fewer_frames_and_keeps_its_connection(
    autojump_clock: Clock,
) -> None:
    """While a reader takes nothing, what waits for it stays bounded; later it has the newest state."""
    limits = ConnectionLimits(outbox_bytes=600_000, stall_s=3_600)
    async with open_daemon(limits) as daemon:
        peer = await daemon.connect(window=0)
        await peer.call("run.watch")
        await peer.read()
        for seq in range(50):
            for number in range(400):
                change(daemon, f"run_{number:03}", seq, reason="x" * 200)
            await trio.sleep(SECOND_S)
        assert peer.transport.farewell is None
        seen = dict[str, int]()
        with trio.move_on_after(60 * SECOND_S):
            while True:
                await peer.read()
                seen |= dict(heads(peer))
        assert {49} == set(seen.values())
        assert 400 == len(seen)


async def test_without_a_watch_nothing_is_read(autojump_clock: Clock) -> None:
    """Before the first watch and after the last the daemon prepares nothing, and a reader ends it."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        assert {} == daemon.hub.run_watchers
        reply = await peer.call("run.watch")
        assert 1 == len(daemon.hub.run_watchers)
        await peer.call("run.unwatch", subscription=reply["subscription"])
        assert {} == daemon.hub.run_watchers
        frames(peer)
        change(daemon, "run_1", 0)
        await trio.sleep(SECOND_S)
        await peer.read_all()
        assert [] == frames(peer)
        gone = await peer.fail("run.unwatch", subscription=reply["subscription"])
        assert "not_found" == gone["data"]["code"]
        await peer.call("run.watch")
        peer.transport.to_daemon.close()
        await peer.read_to_end()
        assert {} == daemon.hub.run_watchers


async def test_a_watch_counts_as_a_subscription(autojump_clock: Clock) -> None:
    """A connection has no more watches and subscriptions together than its limit."""
    async with open_daemon(ConnectionLimits(max_subscriptions=2)) as daemon:
        peer = await daemon.connect()
        await peer.call("run.watch")
        await peer.call("tape.subscribe", all=True)
        assert "overloaded" == (await peer.fail("run.watch"))["data"]["code"]
