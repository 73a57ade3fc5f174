"""Delivery: whatever is interleaved, a client ends up with exactly the tape.

Interleaved are publishing, committing, subscribing, leaving, failed commits and crashes.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import trio.testing
from hypothesis import given, settings

from palyra.actors import hub as feed
from palyra.actors.hub import COMMITTED_DELAY_S
from palyra.core.journal.tape_row import TapeRow
from palyra.net.api.rate_limit import ConnectionLimits
from tests.net.api.fake_services import RUN, Daemon, open_daemon, row
from tests.net.server.memory_peer import Peer

Json = dict[str, Any]
UNLIMITED = ConnectionLimits(requests_per_s=100_000, burst=100_000)


@dataclass
class Viewer:
    """A client that believes what the protocol promises, and nothing else."""

    peer: Peer
    is_wide: bool = False  # follows everything from the beginning instead of one run after a cursor
    shown: dict[int, str] = field(default_factory=dict)  # seq -> text
    committed: int = -1
    subscription: str | None = None
    caught_up: int = 0
    next_seq: int = 0

    async def subscribe(self) -> None:
        """From the committed number on, as documented; drop what the reply says is void."""
        if self.is_wide:
            self.shown, self.committed = {}, -1
            reply = await self.peer.call("tape.subscribe", all=True)
        else:
            reply = await self.peer.call("tape.subscribe", run_id=RUN, after_seq=self.committed)
        self.subscription, self.caught_up = reply["subscription"], 0
        self.next_seq = reply["from"]
        self.drop(reply["through"] + 1)
        self.take_notices()

    async def read(self) -> None:
        await self.peer.read_all()
        self.take_notices()

    def drop(self, seq: int) -> None:
        self.shown = {at: text for at, text in self.shown.items() if at < seq}

    def take_notices(self) -> None:
        notices, self.peer.notices = self.peer.notices, []
        for notice in notices:
            self.take(notice["method"], notice["params"])

    def take(self, method: str, params: Json) -> None:
        if params.get("subscription", self.subscription) != self.subscription:
            return  # of one that was given up
        match method:
            case "tape.event":
                self.take_event(params)
            case "tape.caught_up":
                self.caught_up += 1
                assert self.is_wide or self.next_seq == params["through"] + 1
            case "tape.reset":
                self.drop(params["floor"])
                self.next_seq = params["floor"]
            case "tape.committed":
                self.commit(params["committed"])
            case _:
                raise AssertionError(method)

    def take_event(self, params: Json) -> None:
        assert self.next_seq == params["seq"], "no gap, no duplicate"
        self.next_seq += 1
        self.shown[params["seq"]] = params["data"]["text"]
        self.commit(params["committed"])

    def commit(self, seq: int) -> None:
        assert seq >= self.committed or self.caught_up == 0, "committed never goes back"
        self.committed = seq


@dataclass
class Stage:
    """One daemon after another over the same store, a publisher, and some viewers."""

    daemon: Daemon
    viewers: list[Viewer] = field(default_factory=list)
    pending: list[TapeRow] = field(default_factory=list)  # published, not committed
    names: Any = field(default_factory=count)

    @property
    def tape(self) -> list[TapeRow]:
        return self.daemon.store.tapes[RUN]

    async def publish(self, amount: int) -> None:
        first = len(self.tape) + len(self.pending)
        rows = [row(first + index, text=f"t{next(self.names)}") for index in range(amount)]
        self.pending += rows
        self.daemon.publish(*rows)

    async def commit(self, amount: int) -> None:
        rows, self.pending = self.pending[:amount], self.pending[amount:]
        if rows:
            self.daemon.commit(*rows)

    async def fail_commit(self, amount: int) -> None:
        """The journal refuses pending rows; the run continues from the committed head."""
        self.pending.clear()
        await self.publish(amount)

    async def join(self, amount: int) -> None:
        viewer = Viewer(await self.daemon.connect(), is_wide=amount % 2 == 0)
        self.viewers.append(viewer)
        await viewer.subscribe()

    async def ask_only(self, amount: int) -> None:
        """Start a subscription without waiting for its reply."""
        if self.viewers:
            viewer = self.viewers[amount % len(self.viewers)]
            viewer.peer.post("tape.subscribe", run_id=RUN, after_seq=-1)

    async def resubscribe(self, amount: int) -> None:
        if self.viewers:
            viewer = self.viewers[amount % len(self.viewers)]
            await viewer.read()
            await viewer.peer.call("tape.unsubscribe", subscription=viewer.subscription)
            viewer.take_notices()
            await viewer.subscribe()

    async def step(self, amount: int) -> None:
        for _ in range(amount):
            await trio.lowlevel.checkpoint()

    async def read(self, _amount: int = 0) -> None:
        """Everything published is there, committed or not."""
        expected = {row.seq: json.loads(row.data)["text"] for row in [*self.tape, *self.pending]}
        for viewer in self.viewers:
            await viewer.read()
            assert expected == viewer.shown

    async def crash(self, _amount: int) -> None:
        """The process is gone, and with it what was not committed."""
        for viewer in self.viewers:
            await viewer.read()
            viewer.peer.leave()
        await trio.testing.wait_all_tasks_blocked()
        self.pending.clear()
        await self.daemon.start_hub()
        for viewer in self.viewers:
            viewer.peer = await self.daemon.connect()
            await viewer.subscribe()


Step = Callable[[Stage, int], Awaitable[None]]
Script = list[tuple[Step, int]]

STEPS: list[Step] = [
    Stage.publish,
    Stage.publish,
    Stage.commit,
    Stage.commit,
    Stage.fail_commit,
    Stage.join,
    Stage.ask_only,
    Stage.resubscribe,
    Stage.step,
    Stage.step,
    Stage.read,
    Stage.crash,
]
SCRIPT = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 5)), min_size=15, max_size=40)


async def play(script: Script, page_rows: int) -> None:
    async with open_daemon(UNLIMITED) as daemon:
        daemon.store.page_rows = page_rows
        stage = Stage(daemon)
        await stage.join(0)
        await stage.join(1)
        for step, amount in script:
            await step(stage, amount)
        await stage.publish(1)
        await stage.read()
        await stage.commit(len(stage.pending))
        await trio.sleep(2 * COMMITTED_DELAY_S)
        await stage.read()
        for viewer in stage.viewers:
            assert viewer.caught_up == 1
            assert len(stage.tape) - 1 == viewer.committed


@settings(max_examples=60)
@given(script=SCRIPT, page_rows=st.integers(1, 4), kept_bytes=st.sampled_from([0, 400, 65_536]))
def test_every_interleaving_ends_with_the_tape(
    script: Script, page_rows: int, kept_bytes: int
) -> None:
    """Each viewer has exactly the tape and one caught_up, and has lost nothing."""
    with mock.patch.object(feed, "KEEP_BYTES", kept_bytes):
        trio.run(play, script, page_rows, clock=trio.testing.MockClock(autojump_threshold=0))
