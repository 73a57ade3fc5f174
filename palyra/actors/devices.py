"""Browsers that ring when a question waits: one task for each login that subscribed.

Owns: the tasks.  Talks to: the open questions, the records of tokens, the push services (`Ring`).
Never: rings for a question that the login may not answer, or after the login has ended.
Restart: permanent; the records of tokens name the devices, so an incarnation begins with all of them,
and rings again for the questions that wait.  Records that cannot be read are read again: until then
the devices that are known ring.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.notices import Addressee
from palyra.actors.run.approval import OpenApprovals
from palyra.core.access import caller_of, is_alive
from palyra.core.journal.records import TokenRecord
from palyra.core.notice import QuestionNotice
from palyra.core.ports import NowMs
from palyra.core.push import MAX_DEVICES
from palyra.errors import IllegalState, NotFound, Rejected, Unavailable

READ_AGAIN_S = 5.0

Ring = Callable[
    [str], Awaitable[None]
]  # Raises NotFound for an address that is gone, else as `Post`.
ListTokens = Callable[[], Awaitable[Sequence[TokenRecord]]]
ChangeRecord = Callable[[str, str, str], Awaitable[object]]  # token_id, endpoint, one to replace
Entry = tuple[str, Addressee, trio.CancelScope]  # endpoint, its notices, the scope of its task


class Devices:
    """All devices."""

    def __init__(  # noqa: PLR0913 - all by name, and each a part of its own
        self,
        *,
        ring: Ring,
        approvals: OpenApprovals,
        list_tokens: ListTokens,
        change: ChangeRecord,
        find_key: Callable[[], Awaitable[str]],
        check: Callable[[str], object],
        now_ms: NowMs,
        rng: Callable[[], float],
    ) -> None:
        """`change` commits the endpoint of a token; `check` raises InvalidParams for a foreign one."""
        self.after_s = 0.0
        self.find_key = find_key
        self.check = check
        self._ring, self._approvals, self._list_tokens = ring, approvals, list_tokens
        self._change, self._now_ms, self._rng = change, now_ms, rng
        self._entries: dict[str, Entry] = {}
        self._changed = trio.Event()

    def configure(self, after_s: float) -> None:
        """Take up the time that a question waits first."""
        self.after_s = after_s
        for endpoint, addressee, _ in self._entries.values():
            addressee.configure(endpoint, after_s)

    def wake(self) -> None:
        """A question has begun to wait.  Never waits."""
        for _, addressee, _ in self._entries.values():
            addressee.wake()

    @property
    def problems(self) -> list[str]:
        """Reasons of failed attempts, one for each device whose last attempt failed."""
        return [each.problem for _, each, _ in self._entries.values() if each.problem]

    async def find(self, token_id: str) -> str:
        """Return where this login rings, "" for nowhere."""
        return next((e.push for e in await self._list_live() if e.token_id == token_id), "")

    async def subscribe(self, token_id: str, endpoint: str) -> None:
        """Ring there for this login from now on, and nowhere else.

        Raises InvalidParams for an address of no push service, NotFound, and IllegalState for too many
        devices.  Cancellation: may be subscribed; a repeat changes nothing.
        """
        self.check(endpoint)
        live = await self._list_live()
        if len([each for each in live if each.token_id != token_id]) >= MAX_DEVICES:
            raise IllegalState(
                f"{MAX_DEVICES} devices ring already: end one of their logins, or let one not ring"
            )
        await self._change(token_id, endpoint, "")
        self._changed.set()

    async def unsubscribe(self, token_id: str) -> None:
        """Ring no longer for this login.  Raises NotFound.  Cancellation: may be unsubscribed."""
        await self._change(token_id, "", "")
        self._changed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ring until cancelled.  Cancellation: a device may have rung."""
        task_status.started()
        self._entries = {}
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                pause_s = math.inf
                try:
                    self._take_up(await self._list_live(), nursery)
                except Unavailable:
                    pause_s = READ_AGAIN_S
                with trio.move_on_after(pause_s):
                    await self._changed.wait()

    async def _list_live(self) -> list[TokenRecord]:
        now_ms = self._now_ms()
        return [each for each in await self._list_tokens() if each.push and is_alive(each, now_ms)]

    def _take_up(self, live: Sequence[TokenRecord], nursery: trio.Nursery) -> None:
        """Start a task for each new device, and end those of others."""
        wanted = {each.token_id: each for each in live}
        for token_id, (endpoint, _, _) in list(self._entries.items()):
            if token_id not in wanted or wanted[token_id].push != endpoint:
                self._end(token_id, endpoint)
        for token_id, record in wanted.items():
            if token_id not in self._entries:
                addressee = Addressee(
                    f"push {token_id}",
                    partial(self._attempt, token_id),
                    partial(self._approvals.list_waiting, caller_of(record)),
                    str,  # a push has no content, so no link either
                    self._rng,
                )
                addressee.configure(record.push, self.after_s)
                self._entries[token_id] = record.push, addressee, trio.CancelScope()
                nursery.start_soon(_serve, *self._entries[token_id][1:])

    def _end(self, token_id: str, endpoint: str) -> None:
        """End the task of a device, at its next await, and forget its problem."""
        entry = self._entries.get(token_id)
        if entry is not None and entry[0] == endpoint:  # else another one has taken its place
            del self._entries[token_id]
            entry[2].cancel("the device no longer rings")

    async def _attempt(self, token_id: str, endpoint: str, _notice: QuestionNotice) -> None:
        """Ring once, if the login still lives; forget a device that its service no longer knows."""
        if await self.find(token_id) != endpoint:
            self._end(token_id, endpoint)
            self._changed.set()  # it may ring elsewhere
            raise Rejected("its login has ended, or rings elsewhere now")
        try:
            await self._ring(endpoint)
        except NotFound as error:
            gone = error
        else:
            return
        await self._change(token_id, "", endpoint)
        self._end(token_id, endpoint)
        raise Rejected(f"the browser no longer takes it: {gone.message}")

    def child_specs(self) -> list[ChildSpec]:
        """Return the child, which sleeps without a device."""
        return [ChildSpec("push", partial(self.run))]


async def _serve(addressee: Addressee, scope: trio.CancelScope) -> None:
    """Ring one device until it no longer rings.  Cancellation: it may have rung."""
    with scope:
        await addressee.run()
