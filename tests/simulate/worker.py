"""Those who start runs, and meddle with them."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from palyra.client.client import Client
from palyra.core.journal.records import Role
from palyra.errors import NotFound
from tests.simulate.people import FOR_EVER_S, TOLERATED, Person
from tests.simulate.script import ASKED_TOOLS, QUESTION_TOOLS, TOOLS, draw_text
from tests.simulate.trace import InvariantFailed
from tests.simulate.view import View

if TYPE_CHECKING:
    from tests.simulate.world import World

LEAVES, DAWDLES = 0.3, 0.02  # how likely a reader leaves early, or pauses after an item
FORKS = 0.15
MODES = ("followup", "followup", "followup", "interrupt", "reject", "collect", "steer")


class Worker(Person):
    """Starts runs, and meddles with them."""

    def __init__(self, world: "World", name: str, role: Role, tasks: int) -> None:
        super().__init__(world, name, role)
        self.tasks = tasks
        self.tools: tuple[str, ...] = self.rng.choice((TOOLS, TOOLS, ASKED_TOOLS))
        if world.cast == "askers":
            self.tools = QUESTION_TOOLS
        self.runs: list[str] = []
        self.replies: dict[str, Any] = {}  # by key

    async def live(self) -> None:
        """Until all tasks are handed in, and everything watched has ended."""
        async with self.connected() as client, trio.open_nursery() as nursery:
            for number in range(self.tasks):
                await self.pause(0.01, 60)
                if self.world.is_over:
                    break
                self.begin(nursery, self.handle, client, nursery, f"task {self.name}.{number}")
            self.world.starters.discard(self.name)

    async def handle(self, client: Client, nursery: trio.Nursery, name: str) -> None:
        """One task: handed in, perhaps twice, then watched, steered, cancelled or forgotten."""
        options = self.draw_options()
        text = draw_text(self.rng, name, self.tools)
        key = self.new_key()
        started = await self.insist(lambda: client.start_run(text, idempotency_key=key, **options))
        if started is None:
            return
        self.note(f"{name} is {started.run_id} {started.disposition} {started.seq}")
        self.runs.append(started.run_id)
        self.world.known_runs.append(started.run_id)
        if self.rng.random() < 0.2:
            again = await self.insist(
                lambda: client.start_run(text, idempotency_key=key, **options)
            )
            if again != started:
                self.fail("the same key gets the same receipt", f"{again} after {started}")
        for deed in self.rng.sample(self.deeds, 3):
            nursery.start_soon(deed, client, started.run_id)
        if self.rng.random() < FORKS:
            self.begin(nursery, self.fork, client, nursery, f"{name} forked", started.run_id)

    @property
    def deeds(self) -> tuple[Callable[[Client, str], Awaitable[None]], ...]:
        """The possible actions on a run."""
        return (
            self.watch, self.watch, self.steer, self.cancel, self.wait, self.look, self.replay,
            self.arrange, self.glance,
        )  # fmt: skip

    def draw_options(self) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {"queue_mode": rng.choice(MODES)}
        if rng.random() < 0.8:
            options["session_key"] = f"desk {rng.randrange(2)}"
        if rng.random() < 0.1:
            options["approval_mode"] = "deny"
        if rng.random() < 0.05:
            options["json_mode"] = True
        if rng.random() < 0.2:
            options["agent"] = "helper"
        return options

    async def watch(self, client: Client, run_id: str) -> None:
        """Follow a run; a first subscription that is refused for the moment is asked for again."""
        view = View(run_id, self.rng.choice((-1, -1, 0, 3, 10_000)))
        is_whole = False
        while not is_whole:
            try:
                is_whole = await self.follow(client, view)
                if is_whole:
                    view.compare(self.world.oracle)
            except TOLERATED as error:
                self.note(f"is put off: {error.code}")
                await self.pause(0.2, 5)
            except InvariantFailed as broken:
                self.fail(broken.name, broken.detail)
                return
        self.world.trace.counts["streams compared"] += 1

    async def follow(self, client: Client, view: View) -> bool:
        """Read on, slowly at times; False when the reader left before the end."""
        leaves_at = self.rng.randint(1, 30) if self.rng.random() < LEAVES else FOR_EVER_S
        async with client.events(view.run_id, view.after) as items:
            async for item in items:
                view.take(item)
                if self.rng.random() < DAWDLES:
                    await self.pause(0.01, 15)
                if len(view) >= leaves_at:
                    view.leave(items.cursor)
                    return False
        return True

    async def steer(self, client: Client, run_id: str) -> None:
        await self.pause(0.01, 30)
        key, text = self.new_key(), f"/say steered by {self.name}"
        await self.insist(lambda: client.steer(run_id, text, idempotency_key=key))

    async def cancel(self, client: Client, run_id: str) -> None:
        await self.pause(0.001, 60)
        key = self.new_key()
        ended = await self.insist(lambda: client.cancel(run_id, "enough", idempotency_key=key))
        if ended is not None and self.rng.random() < 0.3:
            again = await self.insist(lambda: client.cancel(run_id, "enough", idempotency_key=key))
            if again != ended:
                self.fail("the same key gets the same receipt", f"{again} after {ended}")

    async def wait(self, client: Client, run_id: str) -> None:
        view = await self.insist(lambda: client.wait_run(run_id))
        durable = self.world.oracle.runs[run_id]
        if view is not None and view.state != durable.state:
            self.fail("an end that is told is durable", f"{run_id}: {view.state}")

    async def look(self, client: Client, run_id: str) -> None:
        await self.pause(0.01, 30)
        view = await self.insist(lambda: client.get_run(run_id))
        page = await self.insist(lambda: client.read_tape(run_id))
        listed = await self.insist(client.list_runs)
        for run in listed.runs:
            if not self.caller.sees(run.principal):
                self.fail("nothing crosses principals", f"{self.name} sees {run.run_id}")
        if view is not None and page.head_seq < view.head_seq:
            self.fail("reads do not go back", f"{run_id}: {page.head_seq} < {view.head_seq}")

    async def glance(self, client: Client, run_id: str) -> None:
        """Subscribe to few kinds of events, in addition to this connection's other work."""
        kinds = self.rng.choice((["tool.started"], ["run.done", "run.failed", "run.cancelled"]))
        asked = {"run_id": run_id, "kinds": kinds}
        opened = await self.insist(lambda: client.call("tape.subscribe", asked))
        await self.pause(0.1, 60)
        if opened is not None:
            with contextlib.suppress(NotFound, *TOLERATED):  # another connection, by now
                await client.call("tape.unsubscribe", {"subscription": opened["subscription"]})

    async def replay(self, client: Client, run_id: str) -> None:
        """A run that has ended replays, byte for byte."""
        await self.insist(lambda: client.wait_run(run_id))
        report = await self.insist(lambda: client.replay_run(run_id))
        if report is not None and not report.matched:
            self.fail("a tape replays", f"{run_id}: {report.first_divergence}")
        self.world.trace.counts["replayed"] += report is not None

    async def arrange(self, client: Client, run_id: str) -> None:
        """Hold the queue of the run's session for a while, drop what waits, or another mode."""
        await self.pause(0.01, 30)
        run = self.world.oracle.runs[run_id]
        session_id, rng = run.accepted.session_id, self.rng
        change: Any = rng.choice(
            ({"paused": True}, {"mode": rng.choice(MODES)}, {"drop": [run_id]}, {})
        )
        if change:
            change["idempotency_key"] = self.new_key()
        await self.insist(lambda: client.queue(session_id, **change))
        if "paused" in change:
            await self.pause(0.1, 30)
            key = self.new_key()
            await self.insist(lambda: client.queue(session_id, paused=False, idempotency_key=key))

    async def fork(self, client: Client, nursery: trio.Nursery, name: str, run_id: str) -> None:
        """Another run from the middle of this one; the one it came from does not notice."""
        await self.pause(0.01, 60)
        at_seq, key = self.rng.randint(0, self.world.oracle.head(run_id)), self.new_key()
        text = self.rng.choice((None, f"{name}\n/say a fork"))
        forked = await self.insist(
            lambda: client.fork_run(run_id, at_seq, text, idempotency_key=key)
        )
        if forked is None:
            return
        self.world.known_runs.append(forked.run_id)
        self.world.trace.counts["forked"] += 1
        if forked.at_seq > at_seq:
            self.fail("a fork begins no later than asked", f"{forked.at_seq} > {at_seq}")
        nursery.start_soon(self.watch, client, forked.run_id)
