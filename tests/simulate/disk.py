"""The journal's store and its thread in one life of the daemon, with everything disks do."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import outcome
import trio

from palyra.actors.config_watch import POLL_S
from palyra.core.journal.changes import Change, OpenReport
from palyra.errors import ActorGone, PalyraError, Unavailable
from tests.simulate.trace import Planted

if TYPE_CHECKING:
    from tests.simulate.life import Life


T = TypeVar("T")
SLOW_S = (0.002, 1.5)
OPENINGS_REFUSED = 2  # in a row; then the disk is there


class Disk:
    """A `JournalStore` over the durable one, for as long as the power is on."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self._durable = life.world.durable

    def open(self) -> OpenReport:
        self._life.effect("open")
        world = self._life.world
        may_refuse = self._life.number > 1 and world.refused_openings < OPENINGS_REFUSED
        if may_refuse and world.weather.strikes("open refused"):
            world.refused_openings += 1
            self._life.note_failure()
            raise Unavailable("the simulated disk is not there yet")
        world.refused_openings = 0
        return self._durable.open()

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """As the store, unless the power goes before or after, or the disk has had enough."""
        life = self._life
        weather = life.world.weather
        life.effect("before commit")
        if trio.current_time() < weather.disk_full_until_s or weather.strikes("commit refused"):
            life.refused_runs |= {change.rows[0].run_id for change in changes if change.rows}
            raise Unavailable("the simulated disk is full")
        if life.may_crash_journal() and weather.strikes("journal crash before commit"):
            life.note_journal_crash()
            raise Planted("journal, before its commit")
        outcomes = self._durable.commit(changes)
        life.world.oracle.committed(changes, outcomes, life.refused_runs)
        is_start = any(row.kind == "tool.started" for change in changes for row in change.rows)
        if is_start and weather.strikes("rules change before a start"):
            weather.files.change(life.world.chance.stream("rules"))
            life.sees_other_rules = True
        life.effect("after commit")
        if changes and life.may_crash_journal() and weather.strikes("journal crash after commit"):
            life.note_journal_crash()
            raise Planted("journal, after its commit")
        return outcomes

    def seal(self) -> bool:
        self._life.effect("seal")
        return self._durable.seal()

    def close(self) -> None:
        self._life.effect("close")
        self._durable.close()

    def __getattr__(self, name: str) -> Any:
        """The read half, as it is."""
        self._life.require_power()
        return getattr(self._durable, name)


class SimulatedThread:
    """Calls in the order they were made, on the spot, with the delays a thread would have."""

    def __init__(self, life: "Life", name: str) -> None:
        self._life = life
        self._fault = "commit slow" if name == "journal" else "read slow"
        self._is_closed = False
        self._turn = trio.Lock()

    async def call(self, fn: Callable[..., T], *args: object) -> T:
        """See `DedicatedThread.call`; raises Unavailable when the power goes meanwhile."""
        if self._is_closed:
            raise ActorGone("the simulated thread is closed")
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._life.run_in_thread(self._turn, self._fault, fn, *args)

    def close(self) -> None:
        self._is_closed = True


async def work(life: "Life", fault: str, fn: Callable[..., T], *args: object) -> T:
    """Run `fn` between two delays."""
    weather = life.world.weather
    await trio.lowlevel.checkpoint()
    if weather.strikes(fault):
        await trio.sleep(weather.draw_s(*SLOW_S))
    result = outcome.capture(fn, *args)
    await trio.lowlevel.checkpoint()
    if weather.strikes(fault):
        await trio.sleep(weather.draw_s(*SLOW_S))
    if life.sees_other_rules:
        life.sees_other_rules = False
        await trio.sleep(2 * POLL_S)
    life.require_power()
    return result.unwrap()
