"""Subscriptions: what the reply promises, filters, resets, wide streams, and whose runs they are."""

from typing import Any

import pytest
import trio.testing

from palyra.actors.hub import PublishedRow, RunFeed
from palyra.core.journal.changes import Change, TapePage
from palyra.errors import InvariantBroken, Unavailable
from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.delivery import feed_cursor as lane_module
from palyra.net.delivery.feed_cursor import FeedCursor
from palyra.net.delivery.outbox import Outbox
from tests.net.api.fake_services import RUN, Daemon, open_daemon, row
from tests.net.api.fake_store import run_record
from tests.net.server.memory_peer import Peer

Clock = trio.testing.MockClock


def fill(daemon: Daemon, count: int, run_id: str = RUN, *, kind: str = "turn.started") -> None:
    """Publish and commit so many rows, the last one of that kind."""
    rows = [row(seq, run_id) for seq in range(count - 1)] + [row(count - 1, run_id, kind=kind)]
    daemon.publish(*rows)
    daemon.commit(*rows)


def restart(daemon: Daemon) -> None:
    """Forget what only lived in memory, as a new process has."""
    daemon.hub.reset()


def outline(peer: Peer) -> list[Any]:
    """The frames that the peer got: a seq for an event, name and number for any other."""
    short: list[Any] = []
    for notice in peer.notices:
        params = notice["params"]
        match notice["method"]:
            case "tape.event":
                short.append(params["seq"])
            case "tape.caught_up":
                short.append(("caught_up", params["through"]))
            case "tape.reset":
                short.append((params["reason"], params["floor"]))
            case name:
                short.append((name, params.get("committed")))
    return short


# --- one run ---


async def test_a_subscription_to_an_ended_run_completes(autojump_clock: Clock) -> None:
    """A client with the last event does not wait for another one."""
    async with open_daemon() as daemon:
        fill(daemon, 3, kind="run.done")
        daemon.store.runs[RUN] = run_record(RUN, state="done", head_seq=2)
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN, after_seq=2)
        assert reply["ended"]
        daemon.store.runs[RUN] = run_record(RUN, state="done", head_seq=3)  # just committed
        reply = await peer.call("tape.subscribe", run_id=RUN, after_seq=2)
        assert "ended" not in reply


async def test_replay_then_live(autojump_clock: Clock) -> None:
    """The reply comes first, then the rows after the cursor, then caught_up, then what is new."""
    async with open_daemon() as daemon:
        fill(daemon, 3)
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN, after_seq=0)
        assert [] == peer.notices
        expected = {"subscription": reply["subscription"], "from": 1, "through": 2, "floor": 0}
        assert expected == reply
        await peer.read_all()
        daemon.publish(row(3))
        await peer.read_all()
        assert [1, 2, ("caught_up", 2), 3] == outline(peer)
        assert [2, 2, 2] == [event["committed"] for event in peer.events()]


async def test_events_carry_the_stored_bytes(autojump_clock: Clock) -> None:
    """Live and replayed, an event shows the same fields and the payload as it is on the tape."""
    async with open_daemon() as daemon:
        live = await daemon.connect()
        await live.call("tape.subscribe", run_id=RUN)
        fill(daemon, 1)
        restart(daemon)
        late = await daemon.connect()
        reply = await late.call("tape.subscribe", run_id=RUN)
        await live.read_all()
        await late.read_all()
        expected = {
            "run_id": RUN,
            "session_id": "ses_1",
            "seq": 0,
            "at_ms": 1_000,
            "kind": "turn.started",
            "data": {"n": 0, "text": ""},
            "subscription": reply["subscription"],
            "committed": 0,
        }
        assert [expected] == late.events()
        (seen,) = live.events()
        assert expected | {"subscription": seen["subscription"]} == seen


async def test_a_cursor_ahead_of_the_head_is_reset(autojump_clock: Clock) -> None:
    """After a crash lost rows, the reply's `through` is below the cursor."""
    async with open_daemon() as daemon:
        fill(daemon, 2)
        restart(daemon)
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN, after_seq=9)
        assert (2, 1) == (reply["from"], reply["through"])
        daemon.publish(row(2))
        await peer.read_all()
        assert [("caught_up", 1), 2] == outline(peer)


async def test_uncommitted_rows_follow_caught_up(autojump_clock: Clock) -> None:
    """`caught_up` names a committed seq; what is published beyond it is already live."""
    async with open_daemon() as daemon:
        fill(daemon, 2)
        daemon.publish(row(2))
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN)
        await peer.read_all()
        assert 1 == reply["through"]
        assert [0, 1, ("caught_up", 1), 2] == outline(peer)


async def test_rows_below_the_floor_are_announced(autojump_clock: Clock) -> None:
    """A cursor below what is kept gets a reset that names the floor, and the rows from there."""
    async with open_daemon() as daemon:
        fill(daemon, 6)
        daemon.store.floors[RUN] = 4
        restart(daemon)
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN, after_seq=1)
        assert (4, 5, 4) == (reply["from"], reply["through"], reply["floor"])
        await peer.read_all()
        assert [("below_floor", 4), 4, 5, ("caught_up", 5)] == outline(peer)


async def test_failed_commit_resets_who_saw_it(autojump_clock: Clock) -> None:
    """Rows that never became durable are voided by a reset and replaced; others see only these."""
    async with open_daemon() as daemon:
        fill(daemon, 1)
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        daemon.publish(row(1, text="lost"), row(2, text="lost"))
        await peer.read_all()
        daemon.publish(row(1, text="kept"))
        await peer.read_all()
        assert [0, ("caught_up", 0), 1, 2, ("truncated", 1), 1] == outline(peer)


async def test_void_rows_in_the_queue_are_not_sent(autojump_clock: Clock) -> None:
    """Sent later, they would count as committed, because other rows have their numbers."""
    async with open_daemon() as daemon:
        fill(daemon, 1)
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        await peer.read_all()
        daemon.publish(row(1, text="lost"), row(2, text="lost"))
        daemon.publish(row(1, text="kept"))
        daemon.commit(row(1, text="kept"))
        await peer.read_all()
        assert [0, ("caught_up", 0), ("truncated", 1), 1] == outline(peer)
        last = peer.events()[-1]
        assert ("kept", 1) == (last["data"]["text"], last["committed"])
        assert "kept" == peer.events()[-1]["data"]["text"]


async def test_finished_run_is_read_from_the_journal(autojump_clock: Clock) -> None:
    """A run that ended long ago is replayed whole and leaves nothing behind in the hub."""
    async with open_daemon() as daemon:
        fill(daemon, 5, kind="run.done")
        daemon.store.page_rows = 2
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN)
        await peer.read_all()
        assert [0, 1, 2, 3, 4, ("caught_up", 4)] == outline(peer)
        feed = daemon.hub.get_feed(RUN)
        await peer.call("tape.unsubscribe", subscription=reply["subscription"])
        assert feed is not daemon.hub.get_feed(RUN)


async def test_run_that_ends_while_read_is_whole(autojump_clock: Clock) -> None:
    """A run that publishes, commits and ends between two pages misses nothing."""
    async with open_daemon() as daemon:
        fill(daemon, 4)
        restart(daemon)
        daemon.store.page_rows = 1
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        rows = [row(4), row(5, kind="run.done")]
        daemon.publish(*rows)
        daemon.commit(*rows)
        await peer.read_all()
        assert [0, 1, 2, 3, 4, 5, ("caught_up", 5)] == outline(peer)


@pytest.mark.parametrize("steps", range(8))
async def test_run_that_ends_during_the_request_is_whole(autojump_clock: Clock, steps: int) -> None:
    """Wherever the request is when the run ends: all rows, and caught_up once."""
    async with open_daemon() as daemon:
        fill(daemon, 2)
        peer = await daemon.connect()
        peer.post("tape.subscribe", run_id=RUN)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        daemon.publish(row(2, kind="run.done"))
        daemon.commit(row(2, kind="run.done"))
        await peer.read_all()
        told = outline(peer)
        assert [0, 1, 2] == [seq for seq in told if isinstance(seq, int)]
        assert 1 == sum(entry[0] == "caught_up" for entry in told if isinstance(entry, tuple))


async def test_terminal_commit_is_sent_at_once(autojump_clock: Clock) -> None:
    """The commit of a run's end reaches an idle reader without the usual delay."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        daemon.publish(row(0, kind="run.done"))
        await peer.read_all()
        began_s = trio.current_time()
        daemon.commit(row(0, kind="run.done"))
        await peer.read_all()
        assert began_s == trio.current_time()
        assert [("caught_up", -1), 0, ("tape.committed", 0)] == outline(peer)


async def test_reading_a_head_does_not_consume_a_commit_notice(autojump_clock: Clock) -> None:
    """A listener that waits for the notice still gets it after another one read the head."""
    async with open_daemon() as daemon:
        peer, late = await daemon.connect(), await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN)
        daemon.publish(row(0), row(1, kind="run.done"))
        daemon.store.write(Change(rows=(row(0), row(1, kind="run.done"))))  # and no word of it yet
        await peer.read_all()
        reply = await late.call("tape.subscribe", run_id=RUN)
        daemon.hub.committed([(RUN, 1)])
        await peer.read_all()
        await late.read_all()
        assert 1 == reply["through"]
        assert [("caught_up", -1), 0, 1, ("tape.committed", 1)] == outline(peer)
        assert [0, 1, ("caught_up", 1)] == outline(late)


async def test_kinds_filter_the_events(autojump_clock: Clock) -> None:
    """Only the wanted kinds are sent; cursors and commits count all rows."""
    async with open_daemon() as daemon:
        fill(daemon, 3, kind="tool.started")
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN, kinds=["tool.started", "run.done"])
        daemon.publish(row(3), row(4, kind="run.done"))
        await peer.read_all()
        assert [2, ("caught_up", 2), 4] == outline(peer)


async def test_unwanted_kinds_do_not_silence_a_connection(autojump_clock: Clock) -> None:
    """Filtered rows do not block the next reply of an idle connection."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        await peer.call("tape.subscribe", run_id=RUN, kinds=["run.done"])
        await peer.read_all()
        daemon.publish(row(0), row(1))
        await peer.read_all()
        await peer.call("ping")
        daemon.publish(row(2, kind="run.done"))
        await peer.read_all()
        assert [("caught_up", -1), 2] == outline(peer)


async def test_unsubscribed_is_silent(autojump_clock: Clock) -> None:
    """Nothing follows the reply to `tape.unsubscribe`; a second one is not found."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", run_id=RUN)
        daemon.publish(row(0))
        await peer.call("tape.unsubscribe", subscription=reply["subscription"])
        peer.notices.clear()
        daemon.publish(row(1))
        await peer.read_all()
        assert [] == peer.notices
        error = await peer.fail("tape.unsubscribe", subscription=reply["subscription"])
        assert "not_found" == error["data"]["code"]


async def test_unsubscribing_before_the_reply_sends_no_rows(autojump_clock: Clock) -> None:
    """The client gets the reply to `tape.subscribe` and no row."""
    async with open_daemon() as daemon:
        fill(daemon, 2)
        peer = await daemon.connect()
        began = peer.post("tape.subscribe", all=True)
        await peer.call("tape.unsubscribe", subscription="sub_1")
        assert "sub_1" == (await peer.reply(began))["result"]["subscription"]
        daemon.publish(row(2))
        await peer.read_all()
        assert [] == outline(peer)


async def test_start_with_subscribe_shows_the_run_whole(autojump_clock: Clock) -> None:
    """`subscribe: true`: the reply, then the run's events from seq 0 without another request."""
    async with open_daemon() as daemon:
        daemon.store.runs.clear()
        peer = await daemon.connect()
        daemon.publish(
            row(0), row(1)
        )  # the gateway's run is run_1, and publishes before it commits
        daemon.commit(row(0), row(1))
        result = await peer.call("run.start", text="hi", subscribe=True)
        assert [] == peer.notices
        daemon.publish(row(2))
        await peer.read_all()
        assert [0, 1, ("caught_up", 1), 2] == outline(peer)
        assert {result["subscription"]} == {event["subscription"] for event in peer.events()}


@pytest.mark.parametrize("is_over", [False, True], ids=["under way", "complete"])
async def test_deltas_before_the_reply_are_not_lost(
    autojump_clock: Clock, *, is_over: bool
) -> None:
    """The model may answer before the acceptance is committed; a complete turn needs no deltas."""
    async with open_daemon() as daemon:

        def stream(run_id: str) -> None:
            daemon.publish(row(0, run_id), row(1, run_id))
            daemon.hub.progress(run_id=run_id, item="t1", order=0, kind="text", delta="hi")
            if is_over:
                daemon.publish(row(2, run_id, kind="turn.completed"))

        daemon.gateway.on_start = stream
        peer = await daemon.connect()
        await peer.call("run.start", text="hi", subscribe=True)
        await peer.read_all()
        deltas = [event["delta"] for event in peer.events("progress")]
        assert ([] if is_over else ["hi"]) == deltas
        assert [0, 1, *([2] if is_over else [])] == [
            seq for seq in outline(peer) if isinstance(seq, int)
        ]


async def test_deltas_above_the_buffer_are_all_dropped(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streamed part of a text has no gap."""
    monkeypatch.setattr(lane_module, "MOST_HELD", 2)
    async with open_daemon() as daemon:

        def say(run_id: str, order: int) -> None:
            daemon.hub.progress(
                run_id=run_id, item="t1", order=order, kind="text", delta=str(order)
            )

        def stream(run_id: str) -> None:
            begun.append(run_id)
            daemon.publish(row(0, run_id))
            for order in range(3):
                say(run_id, order)

        begun: list[str] = []
        daemon.gateway.on_start = stream
        peer = await daemon.connect()
        await peer.call("run.start", text="hi", subscribe=True)
        await peer.read_all()
        say(begun[0], 3)
        await peer.read_all()
        assert ["3"] == [event["delta"] for event in peer.events("progress")]


async def test_a_start_that_is_refused_leaves_no_subscription(autojump_clock: Clock) -> None:
    """A client may try as often as it likes."""
    async with open_daemon(ConnectionLimits(max_subscriptions=1)) as daemon:

        def refuse(run_id: str) -> None:
            raise Unavailable(f"no {run_id} today")

        daemon.gateway.on_start = refuse
        peer = await daemon.connect()
        for _ in range(3):
            error = await peer.fail("run.start", text="hi", subscribe=True)
            assert "unavailable" == error["data"]["code"]


async def test_start_without_subscribe_shows_nothing(autojump_clock: Clock) -> None:
    """Without the flag nothing is sent and no subscription is named."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        assert "subscription" not in await peer.call("run.start", text="hi")
        daemon.publish(row(0))
        await peer.read_all()
        assert [] == peer.notices


# --- progress ---


def progress(daemon: Daemon, delta: str) -> None:
    daemon.hub.progress(run_id=RUN, item="t1", order=0, kind="text", delta=delta)


async def test_progress_is_sent_to_who_wants_it(autojump_clock: Clock) -> None:
    """Deltas reach live subscriptions, once per connection, and not those that declined."""
    async with open_daemon() as daemon:
        daemon.publish(row(0))
        eager, calm = await daemon.connect(), await daemon.connect()
        await eager.call("tape.subscribe", run_id=RUN)
        await eager.call("tape.subscribe", all=True)
        await calm.call("tape.subscribe", run_id=RUN, progress=False)
        progress(daemon, "hi")
        for peer in (eager, calm):
            await peer.read_all()
        expected = {
            "run_id": RUN,
            "item": "t1",
            "order": 0,
            "kind": "text",
            "delta": "hi",
            "offset": 0,
        }
        assert [expected] == eager.events("progress")
        assert [] == calm.events("progress")


# --- many runs ---


async def test_session_stream_shows_each_run_whole(autojump_clock: Clock) -> None:
    """Runs already open are replayed from seq 0, later ones appear when they begin."""
    async with open_daemon() as daemon:
        fill(daemon, 2)
        fill(daemon, 2, "run_over", kind="run.done")
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", session_id="ses_1")
        assert (0, -1, 0) == (reply["from"], reply["through"], reply["floor"])
        await peer.read_all()
        assert [0, 1, ("caught_up", -1)] == outline(peer)
        daemon.publish(row(0, "run_2"))
        daemon.publish(row(2))
        await peer.read_all()
        seen = [(event["run_id"], event["seq"]) for event in peer.events()]
        assert [(RUN, 0), (RUN, 1), ("run_2", 0), (RUN, 2)] == seen


async def test_wide_stream_replays_runs_of_an_earlier_life(autojump_clock: Clock) -> None:
    """A run that is open but silent since the restart is shown from the journal."""
    async with open_daemon() as daemon:
        fill(daemon, 3)
        restart(daemon)
        peer = await daemon.connect()
        await peer.call("tape.subscribe", all=True)
        await peer.read_all()
        assert [0, 1, 2, ("caught_up", -1)] == outline(peer)
        daemon.publish(row(3))
        await peer.read_all()
        assert 3 == outline(peer)[-1]


async def test_wide_stream_reads_the_beginning_of_a_resumed_run(autojump_clock: Clock) -> None:
    """A run that appears in the middle of its tape is shown from seq 0, once."""
    async with open_daemon() as daemon:
        fill(daemon, 3)
        restart(daemon)
        daemon.store.runs.clear()
        peer = await daemon.connect()
        await peer.call("tape.subscribe", all=True)
        await peer.read_all()
        daemon.publish(row(3), row(4))
        await peer.read_all()
        assert [("caught_up", -1), 0, 1, 2, 3, 4] == outline(peer)


async def test_wide_stream_without_runs_is_caught_up(autojump_clock: Clock) -> None:
    """With nothing to replay, caught_up follows the reply."""
    async with open_daemon() as daemon:
        daemon.store.runs.clear()
        peer = await daemon.connect()
        await peer.call("tape.subscribe", all=True)
        await peer.read_all()
        assert [("caught_up", -1)] == outline(peer)


async def test_wide_stream_forgets_ended_runs(autojump_clock: Clock) -> None:
    """After many runs have come and gone, closing the stream has nothing left to close."""
    async with open_daemon() as daemon:
        daemon.store.runs.clear()
        peer = await daemon.connect()
        reply = await peer.call("tape.subscribe", all=True)
        for number in range(20):
            fill(daemon, 2, f"run_{number}", kind="run.done")
        await peer.read_all()
        assert 40 == len(peer.events())
        await peer.call("tape.unsubscribe", subscription=reply["subscription"])
        daemon.publish(row(0, "run_late"))
        assert {} == daemon.hub.get_feed("run_late").listeners


# --- whose runs ---


async def test_foreign_run_is_like_a_missing_one(autojump_clock: Clock) -> None:
    """Every method about a run replies the same for a foreign and a missing run."""
    async with open_daemon() as daemon:
        bob = await daemon.connect("tok-bob")
        for method in ("run.get", "tape.subscribe", "tape.read", "tape.verify", "tape.export"):
            foreign = await bob.fail(method, run_id=RUN)
            missing = await bob.fail(method, run_id="run_x")
            assert "not_found" == foreign["data"]["code"]
            assert foreign["message"].replace(RUN, "run_x") == missing["message"]
        assert "not_found" == (await bob.fail("tape.subscribe", session_id="ses_1"))["data"]["code"]
        assert {} == daemon.hub.get_feed(RUN).listeners


async def test_wide_stream_stays_with_its_principal(autojump_clock: Clock) -> None:
    """A client's wide stream shows its own runs only; an observer's shows all."""
    async with open_daemon() as daemon:
        fill(daemon, 1)
        bob, observer = await daemon.connect("tok-bob"), await daemon.connect("tok-observer")
        for peer in (bob, observer):
            await peer.call("tape.subscribe", all=True)
        daemon.publish(row(1))
        daemon.publish(row(0, "run_2"))
        progress(daemon, "secret")
        for peer in (bob, observer):
            await peer.read_all()
        assert [("caught_up", -1)] == outline(bob)
        assert 3 == len(observer.events())
        assert 1 == len(observer.events("progress"))


# --- parameters ---


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "run_id"),
        ({"run_id": RUN, "all": True}, "run_id"),
        ({"run_id": RUN, "session_id": "ses_1"}, "run_id"),
        ({"all": True, "after_seq": 3}, "after_seq"),
        ({"session_id": "ses_1", "after_seq": -1}, "after_seq"),
        ({"run_id": RUN, "after_seq": -2}, "after_seq"),
    ],
)
async def test_contradictory_wishes_are_refused(
    autojump_clock: Clock, params: dict[str, object], field: str
) -> None:
    """Exactly one target, and a cursor only for one run."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        error = await peer.fail("tape.subscribe", **params)
        assert ("invalid_params", field) == (error["data"]["code"], error["data"]["field"])


# --- the lane's own defences ---


class OneLane:
    """A subscription with one lane, which counts how often it falls behind."""

    subscription_id = "sub_1"
    kinds = None
    wants_progress = True

    def __init__(self) -> None:
        self.sink = Outbox(1_000_000, lambda: None)
        self.behind = 0

    def joined(self, lane: FeedCursor) -> None:
        """Not of interest here."""

    def fall_behind(self, _lane: FeedCursor) -> None:
        self.behind += 1

    def end_run(self, lane: FeedCursor) -> None:
        """Not of interest here."""


async def test_lane_that_sees_a_gap_goes_back_to_the_tape(autojump_clock: Clock) -> None:
    """A live lane that is handed anything but its next row sends nothing and reads the tape."""
    async with open_daemon() as daemon:
        daemon.publish(row(0), row(1))
        feed = daemon.hub.get_feed(RUN)
        follower = OneLane()
        lane = FeedCursor(follower, feed, 0)
        assert lane.join()
        follower.sink.pack(is_batched=False)
        lane.deliver([PublishedRow(row(0))])
        lane.deliver([PublishedRow(row(0))])
        assert ([], 1) == (follower.sink.pack(is_batched=False), follower.behind)


def test_tape_that_lacks_rows_below_its_head_is_a_bug() -> None:
    """A page without rows that claims there are some is reported, not read again for ever."""
    lane = FeedCursor(OneLane(), RunFeed(RUN), 0)
    page = TapePage(rows=[], head_seq=3, floor_seq=0, next_after_seq=None, size_bytes=0)
    with pytest.raises(InvariantBroken, match="lacks seq 0"):
        lane.replay(page)


async def test_runs_of_others_stay_open_for_them(autojump_clock: Clock) -> None:
    """Open runs of another principal are not replayed to a client's wide stream."""
    async with open_daemon() as daemon:
        daemon.store.runs["run_bob"] = run_record("run_bob", principal="bob")
        peer = await daemon.connect("tok-bob")
        await peer.call("tape.subscribe", all=True)
        assert [1, 0] == [len(daemon.hub.get_feed(run).listeners) for run in ("run_bob", RUN)]
