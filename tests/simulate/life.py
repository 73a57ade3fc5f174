"""One life of the daemon: the real tree, from its start to its stop or to a power cut.

After a power cut the old tree still runs down, as a ghost: nothing it does reaches disk, network,
tools or models any more.  So a cut needs no cooperation of the code it hits.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from palyra import process
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.supervisor import Escalated, Supervisor
from palyra.daemon import Daemon
from palyra.errors import ActorGone, Overloaded, PalyraError, Unavailable
from palyra.net.server.transport import Peer
from palyra.wiring.host import Host
from tests.simulate.disk import Disk, SimulatedThread, work
from tests.simulate.models import simulated_modelset
from tests.simulate.network import DaemonEnd, Wire
from tests.simulate.tools import simulated_tools, watch_calls
from tests.store.memory.files import MemoryArtifacts, MemoryCheckpoints

if TYPE_CHECKING:
    from tests.simulate.world import World


T = TypeVar("T")
LIFE: ContextVar["Life | None"] = ContextVar("LIFE", default=None)
CRASHES_APART_S = 2.0  # of the journal: more often, and the daemon may give up
GIVES_UP_AFTER, GIVES_UP_WITHIN_S = 3, 5.0  # failures that the supervisor endures, and its time
STOPS_WITHIN_S = 120.0


class Life:
    """A daemon between two starts."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.is_on = True
        self.was_cut = False
        self.ended = trio.Event()  # by a cut, a stop, or a refusal to start
        self.gone = trio.Event()  # not even a ghost is left
        self.effects_left: int | None = None  # until the power goes
        self.steps_left: int | None = None  # of the scheduler, likewise
        self.sees_other_rules = False  # before the commit in progress is reported
        self.refused_runs: set[str] = set()  # a change of theirs was refused: a gap may follow
        self._journal_crashed_s = -CRASHES_APART_S
        self._failures_s: list[float] = []  # of the journal, that were planted
        self._shields: dict[trio.CancelScope, None] = {}
        self._scope = trio.CancelScope()
        self._connections = DynamicSupervisor("connections", max_children=64)
        self.daemon = self._build()

    def _build(self) -> Daemon:
        world = self.world
        daemon = Daemon(
            world.config,
            keys=world.keys,
            operator_token=world.operator_token,
            store=Disk(self),
            modelset=simulated_modelset(self),
            tools=simulated_tools(self),
            host=Host(
                now_ms=world.now_ms,
                new_id=world.new_id,
                new_code=world.new_code,
                random=world.chance.stream("jitter").random,
                run_blocking=self.run_blocking,
                new_thread=partial(SimulatedThread, self),
                file_stores=(MemoryArtifacts(), MemoryCheckpoints()),
                is_closed=True,
            ),
        )
        daemon.abandon = lambda stuck: world.fail("nothing outlives its grace", str(list(stuck)))
        watch_calls(self, daemon)
        world.oracle.vigil.watch(self, daemon)
        return daemon

    # --- the life itself

    async def live(self) -> None:
        """Run the daemon to its end."""
        LIFE.set(self)
        world = self.world
        edge = Supervisor(
            "edge", [self._connections.child_spec(grace_s=11)], strategy="one_for_one"
        )
        drain = ChildSpec("drain", partial(process._drain, self.daemon))
        try:
            with self._scope:
                await self.daemon.run([edge.child_spec(), drain])
        except* (Unavailable, Escalated, ActorGone) as group:  # gone: it crashed at the start
            self._judge(group)
        finally:
            self.is_on = False
            self._shut_door()
            world.network.cut_all(self)
            self.ended.set()
            self.gone.set()

    async def open_door(self) -> None:
        """Let clients in, once open runs are with their sessions."""
        await self.daemon.wait_ready()
        if self.is_on:
            self.world.network.listening = self

    def _shut_door(self) -> None:
        """Stop accepting connections; another life's door is not touched."""
        if self.world.network.listening is self:
            self.world.network.listening = None

    def _judge(self, group: BaseExceptionGroup[PalyraError]) -> None:
        """A daemon may give up only when its disk does, again and again."""
        now_s = trio.current_time()
        planted = sum(now_s - at_s <= GIVES_UP_WITHIN_S for at_s in self._failures_s)
        may_give_up = planted > GIVES_UP_AFTER
        if self.is_on and group.subgroup(Escalated) is not None and not may_give_up:
            self.world.fail("the daemon never gives up", repr(group.exceptions))
        self.world.trace.add("life", f"{self.number} ends: {group.exceptions[0]}")

    def cut_power(self, why: str) -> None:
        """Stop the machine, now."""
        if not self.is_on:
            return
        self.is_on = False
        self.was_cut = True
        self.world.trace.counts["power cut"] += 1
        self.world.trace.add("life", f"{self.number} ends: power cut, {why}")
        self._shut_door()
        self.world.network.cut_all(self)
        for shield in list(self._shields):
            shield.cancel()
        self._scope.cancel()
        self.ended.set()

    def drain(self) -> None:
        """Begin an orderly stop."""
        self.world.trace.add("life", f"{self.number} drains")
        self._shut_door()
        self.daemon.begin_drain()

    # --- what the adapters ask

    def effect(self, name: str, gone: Callable[[], Exception] | None = None) -> None:
        """Something is about to touch the world: perhaps it comes no further."""
        self.require_power(gone)
        self.world.trace.add(f"life {self.number}", name)
        self.world.effects += 1
        if self.effects_left is not None:
            self.effects_left -= 1
            if self.effects_left <= 0:
                self.cut_power(f"at {name}")
                self.require_power(gone)

    async def reach(self, name: str) -> None:
        """An effect of a task of its own: a ghost's task never comes back from here."""
        await trio.lowlevel.checkpoint()
        try:
            self.effect(name)
        except Unavailable:
            await trio.sleep_forever()

    def require_power(self, gone: Callable[[], Exception] | None = None) -> None:
        """Raise when the power is gone; only a ghost can see it."""
        if not self.is_on:
            raise Unavailable("the power is gone") if gone is None else gone()

    def welcome(self, wire: Wire) -> bool:
        """Serve a connection; return False when the daemon cannot."""
        start = partial(self._serve, wire)
        spec = ChildSpec(f"connection:{wire.number}", start, restart="temporary", grace_s=5.0)
        try:
            self._connections.spawn_child(spec)
        except (ActorGone, Overloaded):
            return False
        return True

    async def _serve(self, wire: Wire, *, task_status: trio.TaskStatus[None]) -> None:
        LIFE.set(self)  # a connection is opened in the context of the person who dials
        task_status.started()
        await self.daemon.serve_transport(DaemonEnd(wire), Peer(wire.name))

    def may_crash_journal(self) -> bool:
        """Return True if the supervision tree can survive another crash."""
        return trio.current_time() - self._journal_crashed_s > CRASHES_APART_S

    def note_journal_crash(self) -> None:
        self._journal_crashed_s = trio.current_time()
        self.note_failure()

    def note_failure(self) -> None:
        """The journal fails because the story wants it."""
        self._failures_s.append(trio.current_time())

    # --- threads

    async def run_blocking(self, fn: Callable[..., T], *args: object) -> T:
        return await self.run_in_thread(None, "read slow", fn, *args)

    async def run_in_thread(
        self, turn: trio.Lock | None, fault: str, fn: Callable[..., T], *args: object
    ) -> T:
        """A call that is not cancelled, except by a power cut."""
        self.require_power()
        with self._shielded():
            if turn is None:
                return await work(self, fault, fn, *args)
            async with turn:
                return await work(self, fault, fn, *args)
        raise Unavailable("the power is gone")

    @contextmanager
    def _shielded(self) -> Generator[None]:
        with trio.CancelScope(shield=True) as shield:
            self._shields[shield] = None
            try:
                yield
            finally:
                del self._shields[shield]
