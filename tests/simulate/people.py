"""The people of a story: they use the real client library, impatiently, and believe what it says."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from palyra.core.access import Caller
from palyra.core.records import Role
from palyra.errors import (
    Conflict,
    IllegalState,
    InvalidParams,
    Overloaded,
    PalyraError,
    TooSlow,
    Unavailable,
)
from palyra.net.client.client import Client
from palyra.net.client.line import Line, Terms
from palyra.net.client.link import Greeting
from palyra.net.discovery import Endpoint
from tests.simulate.script import draw_text
from tests.simulate.trace import InvariantFailed
from tests.simulate.view import View

if TYPE_CHECKING:
    from random import Random

    from tests.simulate.world import World

FOR_EVER_S = 1e12
LEAVES, DAWDLES = 0.3, 0.02  # how likely a reader leaves early, or pauses after an item
TOLERATED = (Overloaded, Unavailable, TooSlow)  # the same request may succeed later
MODES = ("followup", "followup", "followup", "interrupt", "reject", "collect", "steer")


class Person:
    """Somebody with a token."""

    def __init__(self, world: "World", name: str, role: Role) -> None:
        self.world = world
        self.name = name
        self.token = f"pal_{name:a<43}"
        self.caller = Caller(principal=name, role=role, token_id=f"tok_{name}")
        self.rng: Random = world.chance.stream(name)
        self._keys = 0

    def note(self, what: str) -> None:
        self.world.trace.add(self.name, what)

    def fail(self, name: str, detail: str) -> None:
        self.world.fail(name, detail)

    def new_key(self) -> str:
        """An idempotency key that nobody used."""
        self._keys += 1
        return f"{self.name}-{self._keys}"

    async def pause(self, shortest_s: float, longest_s: float) -> None:
        """Wait a while, of any scale, as the story's pace makes it."""
        longest_s *= self.world.pace
        await trio.sleep(shortest_s * float(longest_s / shortest_s) ** self.rng.random())

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Client]:
        """A client that never loses patience; waits for the daemon first."""
        endpoint = Endpoint("ws://simulated/v1/ws", self.token)
        while True:
            terms = Terms(
                find_endpoint=lambda: endpoint,
                greeting=Greeting(name=self.name, want=self.rng.choice(((), ("batch",)))),
                patience_s=FOR_EVER_S,
                rng=self.rng.random,
            )
            line = Line(terms)
            async with trio.open_nursery() as nursery:
                try:
                    await nursery.start(line.hold)
                except PalyraError as error:
                    self.note(f"cannot connect: {error.code}")
                else:
                    yield Client(line)  # noqa: RUF075 - what fails in there ends the world
                    await line.close()
                    nursery.cancel_scope.cancel()
                    return
            await self.pause(0.1, 5)

    async def live(self) -> None:
        """What this person does in the story."""
        raise NotImplementedError


class Worker(Person):
    """Starts runs, and meddles with them."""

    def __init__(self, world: "World", name: str, role: Role, tasks: int) -> None:
        super().__init__(world, name, role)
        self.tasks = tasks
        self.runs: list[str] = []
        self.replies: dict[str, Any] = {}  # by key

    async def live(self) -> None:
        """Until all tasks are handed in, and everything watched has ended."""
        async with self.connected() as client, trio.open_nursery() as nursery:
            for number in range(self.tasks):
                await self.pause(0.01, 60)
                if self.world.is_over:
                    break
                nursery.start_soon(self.handle, client, nursery, f"task {self.name}.{number}")
            self.world.starters.discard(self.name)

    async def handle(self, client: Client, nursery: trio.Nursery, name: str) -> None:
        """One task: handed in, perhaps twice, then watched, steered, cancelled or forgotten."""
        options = self.draw_options()
        text = draw_text(self.rng, name)
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
        for deed in self.rng.sample(
            (self.watch, self.watch, self.steer, self.cancel, self.wait, self.look), 3
        ):
            nursery.start_soon(deed, client, started.run_id)

    def draw_options(self) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {"queue_mode": rng.choice(MODES)}
        if rng.random() < 0.8:
            options["session_key"] = f"desk {rng.randrange(2)}"
        if rng.random() < 0.1:
            options["approval_mode"] = "deny"
        if rng.random() < 0.05:
            options["json_mode"] = True
        return options

    async def insist(self, ask: Any) -> Any:
        """The answer, however often it takes; None when the daemon says no for good.

        Sometimes the first attempt is abandoned under way: the key makes that harmless.
        """
        while True:
            patience_s = 0.02 if self.rng.random() < 0.1 else FOR_EVER_S
            try:
                with trio.move_on_after(patience_s):
                    return await ask()
            except TOLERATED as error:
                self.note(f"is put off: {error.code}")
                if self.world.is_over and isinstance(error, Overloaded):
                    return None
                await self.pause(0.2, 5)
            except (Conflict, IllegalState, InvalidParams) as error:
                self.note(f"is refused: {error.code} {error.message[:80]}")
                return None

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
