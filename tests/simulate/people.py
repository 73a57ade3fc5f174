"""The people of a story: impatient users of the real client library, who trust its answers."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from palyra.client.client import Client
from palyra.client.connection import Handshake
from palyra.client.dial import TRIO, keep_open
from palyra.client.reconnecting import ClientOptions, ReconnectingConnection
from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.errors import (
    Conflict,
    IllegalState,
    InvalidParams,
    Overloaded,
    PalyraError,
    TooSlow,
    Unavailable,
)
from palyra.net.protocol.discovery import Endpoint

if TYPE_CHECKING:
    from random import Random

    from tests.simulate.world import World

FOR_EVER_S = 1e12
TOLERATED = (Overloaded, Unavailable, TooSlow)  # the same request may succeed later


class Person:
    """A user with a token."""

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
        """Return an unused idempotency key."""
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
            terms = ClientOptions(
                find_endpoint=lambda: endpoint,
                handshake=Handshake(name=self.name, want=self.rng.choice(((), ("batch",)))),
                patience_s=FOR_EVER_S,
                rng=self.rng.random,
            )
            line = ReconnectingConnection(terms, TRIO)
            async with trio.open_nursery() as nursery:
                try:
                    await nursery.start(keep_open, line)
                except PalyraError as error:
                    self.note(f"cannot connect: {error.code}")
                else:
                    yield Client(line)  # noqa: RUF075 - what fails in there ends the world
                    await line.close()
                    nursery.cancel_scope.cancel()
                    return
            await self.pause(0.1, 5)

    def begin(
        self, nursery: trio.Nursery, deed: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        """Do in the background what may start a run: nothing is settled before it is done."""
        self.world.starts += 1
        nursery.start_soon(self._start, deed, *args)

    async def _start(self, deed: Callable[..., Awaitable[None]], *args: object) -> None:
        await deed(*args)
        self.world.starts -= 1

    async def live(self) -> None:
        """Play this person's part of the story."""
        raise NotImplementedError

    async def insist(self, ask: Any) -> Any:
        """Return the reply, after any number of attempts; None if the daemon refuses for good.

        Sometimes the first attempt is abandoned in progress, which the key makes harmless.
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
