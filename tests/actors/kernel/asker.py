"""A task that asks an actor and records the outcome with its time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.reply import Reply
from palyra.errors import ActorGone, Rejected, TooSlow

AT_ONCE_S = 0.0
LONG_S = 60.0


@dataclass(frozen=True)
class Question:
    text: str
    reply: Reply[str]


@dataclass
class Asker:
    """Asks in a task of its own and notes what came of it, and when."""

    inbox: Mailbox[Question]
    timeout_s: float = LONG_S
    answer: str | None = None
    error: Exception | None = None
    waited_s: float | None = None

    async def ask(self, text: str = "?") -> None:
        begun_s = trio.current_time()

        def make(reply: Reply[str]) -> Question:
            return Question(text, reply)

        try:
            self.answer = await self.inbox.ask(make, timeout_s=self.timeout_s)
        except (ActorGone, TooSlow, Rejected) as error:
            self.error = error
        self.waited_s = trio.current_time() - begun_s

    @property
    def outcome(self) -> tuple[str, float | None]:
        end = type(self.error).__name__ if self.error else f"answer {self.answer}"
        return end, self.waited_s


@asynccontextmanager
async def asking(inbox: Mailbox[Question], *, timeout_s: float = LONG_S) -> AsyncGenerator[Asker]:
    """An asker whose question is on its way inside the block and settled after it."""
    asker = Asker(inbox, timeout_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asker.ask)
        await wait_all_tasks_blocked()
        yield asker


def fill(inbox: Mailbox[int]) -> None:
    for number in range(inbox.capacity):
        inbox.offer(number)
