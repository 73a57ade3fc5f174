"""A bridge to a chat: messages of many senders, conversation by conversation."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from palyra.client.client import Client
from palyra.errors import Forbidden, NotFound, PalyraError
from tests.simulate.people import Person
from tests.simulate.script import draw_text

if TYPE_CHECKING:
    from tests.simulate.world import World

CHANNEL = "chat"
SENDERS = ("sue", "sam")
CONVERSATIONS = ("c0", "c1")


class Bridge(Person):
    """Submits messages of senders; an unpaired sender gets a code, which the operator receives."""

    def __init__(self, world: "World", name: str, messages: int) -> None:
        super().__init__(world, name, "client")
        self.messages = messages

    async def live(self) -> None:
        """Send all messages of every sender."""
        async with self.connected() as client, trio.open_nursery() as nursery:
            for number in range(self.messages):
                await self.pause(0.1, 60)
                if self.world.is_over:
                    break
                self.begin(nursery, self.hand_in, client, f"task {self.name}.{number}")
            self.world.starters.discard(self.name)

    async def hand_in(self, client: Client, name: str) -> None:
        """Submit one message; a sender that is refused repeats it a few times."""
        text, key = draw_text(self.rng, name), self.new_key()
        options: dict[str, Any] = {
            "channel": CHANNEL,
            "conversation_id": self.rng.choice(CONVERSATIONS),
            "sender": self.rng.choice(SENDERS),
            "queue_mode": self.rng.choice(("followup", "collect")),
        }
        for _ in range(5):
            try:
                started = await self.insist(
                    lambda: client.start_run(text, idempotency_key=key, **options)
                )
            except (Forbidden, NotFound) as refused:
                self.hear_code(refused)
                await self.pause(1, 60)
            else:
                if started is not None:
                    await self.see_end(client, started.run_id)
                return

    async def see_end(self, client: Client, run_id: str) -> None:
        self.world.known_runs.append(run_id)
        self.world.trace.counts["came through a channel"] += 1
        await self.insist(lambda: client.wait_run(run_id))

    def hear_code(self, refused: Forbidden | NotFound) -> None:
        details: Any = refused.details or {}
        if "code" in details:
            self.world.codes.append((details["pairing_id"], details["code"]))


class Doorkeeper(Person):
    """The operator who sets up the bridge's channel and lets senders in."""

    async def live(self) -> None:
        """Until the story is over."""
        async with self.connected() as client:
            await self.tolerate(lambda: self.set_up_channel(client))
            while not self.world.is_over:
                await self.pause(0.5, 30)
                deed = self.set_up_channel if self.rng.random() < 0.1 else self.let_in
                await self.tolerate(partial(deed, client))

    async def tolerate(self, deed: Callable[[], Awaitable[None]]) -> None:
        try:
            await deed()
        except PalyraError as error:
            self.note(f"is refused: {error.code}")

    async def set_up_channel(self, client: Client) -> None:
        """Set the bridge's channel to a random agent, or sometimes delete it."""
        # An agent without tools would make a dull story.
        agents = [each.name for each in await client.list_agents() if each.tools != ()]
        if self.rng.random() < 0.1:
            await client.delete_channel(CHANNEL, principal="bea")
        else:
            await client.set_channel(CHANNEL, principal="bea", agent=self.rng.choice(agents))

    async def let_in(self, client: Client) -> None:
        """Approve a sender's code, sometimes a wrong one; now and then remove a sender."""
        if self.rng.random() < 0.2:
            page = await client.list_pairings(principal="bea")
            if page.pairings:
                await client.revoke_pairing(self.rng.choice(page.pairings).pairing_id)
        elif self.world.codes:
            pairing_id, code = self.rng.choice(self.world.codes[-4:])
            wrong = "AAAA-AAAA" if self.rng.random() < 0.2 else code
            await client.approve_pairing(pairing_id, wrong)
