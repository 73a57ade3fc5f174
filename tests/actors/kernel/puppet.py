"""Children for tests of supervisors: one that is controlled by the test, one with a mailbox."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.kernel.child import ChildSnapshot, ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.supervisor import Supervisor
from palyra.core.supervision import Restart

Start = BaseException | Literal["serve", "hang", "return"]
S = TypeVar("S", Supervisor, DynamicSupervisor)
Order = BaseException | Literal["return"]


@dataclass
class Puppet:
    """`starts` says what the next starts do; when it is used up they serve."""

    name: str
    notes: list[str] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    cleanup_s: float = 0.0  # shielded from the cancel
    incarnation: int = 0

    def __post_init__(self) -> None:
        self._send, self._orders = trio.open_memory_channel[Order](100)

    def spec(self, restart: Restart = "permanent", grace_s: float = 5.0) -> ChildSpec:
        return ChildSpec(self.name, self.start, restart, grace_s)

    async def start(self, *, task_status: trio.TaskStatus[Any]) -> None:
        self.incarnation += 1
        self.notes.append(f"{self.name} starts")
        try:
            await self._begin(task_status)
        finally:
            self.notes.append(f"{self.name} ends")
            with trio.CancelScope(shield=True):
                await trio.sleep(self.cleanup_s)

    async def _begin(self, task_status: trio.TaskStatus[Any]) -> None:
        match self.starts.pop(0) if self.starts else "serve":
            case BaseException() as error:
                raise error
            case "hang":
                await trio.sleep_forever()
            case "return":
                pass
            case "serve":
                task_status.started(f"{self.name} serves")
                self.notes.append(f"{self.name} serves")
                await self._obey()

    async def _obey(self) -> None:
        order = await self._orders.receive()
        if isinstance(order, BaseException):
            raise order

    async def tell(self, order: Order) -> None:
        """Give the order and wait until all that follows from it has happened."""
        self._send.send_nowait(order)
        await wait_all_tasks_blocked()


# Restarts without pauses, so that all that follows from a crash has happened when the test goes on.
one_for_one = partial(Supervisor, "top", strategy="one_for_one", backoff=None)
rest_for_one = partial(Supervisor, "top", strategy="rest_for_one", backoff=None)


class Boom(Exception):
    """The exception that puppets crash with."""


class Halt(BaseException):
    """Like KeyboardInterrupt, but harmless to the test runner."""


def puppets(*names: str) -> tuple[list[str], list[Puppet]]:
    """Puppets that share one list of notes."""
    notes: list[str] = []
    return notes, [Puppet(name, notes) for name in names]


@asynccontextmanager
async def running(supervisor: S) -> AsyncGenerator[S]:
    """The supervisor serves inside the block and has stopped after it."""
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        yield supervisor  # noqa: RUF075 - an error in the block cancels the run
        supervisor.stop("the test ends")


def states(snapshot: ChildSnapshot) -> dict[str, str]:
    return {child.id: child.state for child in snapshot.children}


def server(inbox: Mailbox[float], served: list[float]) -> Callable[..., Any]:
    """An actor whose messages are the seconds it takes to serve them."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        with inbox.receiver() as messages:
            task_status.started()
            async for work_s in messages:
                await trio.sleep(work_s)
                served.append(work_s)

    return start
