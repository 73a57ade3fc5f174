"""A kit with a watchdog on virtual time, and the timeline of its incidents."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_args

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors import watchdog as actor
from palyra.actors.kernel.child import Exit
from palyra.actors.task_queue import requeue_task
from palyra.actors.watchdog import Watchdog, watch
from palyra.core.healing.rules import HealingMode, Remedy, subject_of
from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.records import IncidentRecord
from palyra.core.memory.items import FILE_GONE
from palyra.services.upkeep.healing import HealingModes
from palyra.tools.toolbox import AsyncTool
from tests.actors.run.office_kit import Kit, call, running, say, spec
from tests.actors.task_kit import Office
from tests.store.memory.journal import MemoryJournal

SWEEP_S = 5.0


class Damaged:
    """A memory index whose damage the test sets."""

    def __init__(self) -> None:
        self.damage = ""

    async def find_damage(self) -> str:
        return self.damage


class Desk:
    """A kit with a watchdog whose remedies are recorded; those of runs and approvals are real."""

    def __init__(self, kit: Kit, mode: HealingMode, nursery: trio.Nursery) -> None:
        self.kit = kit
        self.nursery = nursery
        self.office = Office()
        self.office.listener = self.notice_worker
        self.tried: list[tuple[Remedy, float]] = []
        self.begun_s = trio.current_time()
        self.timeline: list[
            str
        ] = []  # of all incidents: seconds since the start, and what happened
        self.seen: dict[str, IncidentRecord] = {}  # the last notification of each, by key
        self._notify = kit.hub.notify
        kit.hub.notify = self.note  # type: ignore[assignment]
        self.index = Damaged()
        self.helps: Callable[[str], None] = lambda _key: None  # effect of the recorded remedies
        real: dict[Remedy, Callable[[str], Any]] = {
            "end_call": partial(actor.end_calls, kit.registry),
            "cancel_run": partial(actor.cancel_run, kit.registry),
            "resume_run": partial(actor.resume_run, kit.registry, kit.work),
            "revive_session": lambda key: kit.sessions.revive(subject_of(key)),
            "requeue_task": partial(requeue_task, self.office.queue),
            "expire_approval": partial(actor.expire_approval, kit.approvals),
        }
        kit.incidents.on_resolved = lambda each: kit.sessions.revive(subject_of(each.key))
        self.watchdog = Watchdog(
            incidents=kit.incidents,
            modes=HealingModes(mode, sweep_s=SWEEP_S),
            registry=kit.registry,
            approvals=kit.approvals,
            journal=kit.journal,  # type: ignore[arg-type]  # the inline twin
            remedies={
                each: partial(self.attempt, each, real.get(each)) for each in get_args(Remedy)
            },
            queue=self.office.queue,
            indexes={"memory": self.index},  # type: ignore[dict-item]  # has what the watchdog asks
        )

    async def attempt(self, remedy: Remedy, real: Callable[[str], Any] | None, key: str) -> str:
        self.tried.append((remedy, trio.current_time()))
        if real is None:
            self.helps(key)
            return "done"
        done = real(key)
        return done if isinstance(done, str) else await done

    def notice_worker(self, end: Exit) -> None:
        """Pass the crash of a worker on, as the wiring does."""
        self.watchdog.note_exit(end)

    def note(self, method: str, shown: Any, **rest: Any) -> None:
        """Note what changes in an incident, before clients are notified."""
        if isinstance(shown, IncidentRecord):
            before = self.seen.get(shown.key)
            self.seen[shown.key] = shown
            what = change_of(before, shown)
            if what:
                self.timeline.append(f"{trio.current_time() - self.begun_s:.0f} {what}")
        self._notify(method, shown, **rest)

    def play(self, stream: Any) -> None:
        """Replace the model's stream."""
        self.kit.model.stream = stream  # type: ignore[method-assign]

    @property
    def remedies(self) -> list[str]:
        return [remedy for remedy, _ in self.tried]

    def incidents(self) -> list[IncidentRecord]:
        """The committed incidents, oldest first."""
        return self.kit.journal.store.list_incidents(IncidentFilter(limit=100))[::-1]


def change_of(before: IncidentRecord | None, after: IncidentRecord) -> str:
    """Name the change of an incident; "" for the end of an attempt and for a further count."""
    if before is None or before.incident_id != after.incident_id:
        return f"opened {after.domain}"
    if after.state == "remediating":
        return after.remedy
    if after.state not in {before.state, "open"}:
        return after.state
    return f"would {after.remedy}" if after.remedy != before.remedy else ""


@asynccontextmanager
async def watching(mode: HealingMode, store: MemoryJournal | None = None) -> AsyncGenerator[Desk]:
    """A kit and its watchdog inside the block."""
    if store is None:
        store = MemoryJournal()
        store.open()
    async with running(store) as kit, trio.open_nursery() as nursery:
        desk = Desk(kit, mode, nursery)
        await nursery.start(watch, desk.watchdog)
        try:
            yield desk
        finally:
            nursery.cancel_scope.cancel()


async def elapse(seconds: float) -> None:
    """Let virtual time pass."""
    await trio.sleep(seconds)


async def forever(*_: Any) -> Any:
    await trio.sleep_forever()


# --- faults


def add_tool(desk: Desk, name: str, work: Any) -> None:
    """Add a tool that may take long."""
    toolbox: Any = desk.kit.services.toolbox
    patient = msgspec.structs.replace(spec(name), deadline_s=9_000.0)
    toolbox.put(name, [AsyncTool(patient, work)])


def crash(desk: Desk, supervisor: str, child: str, times: int) -> None:
    """Report crashes of an actor, as its supervisor does."""
    for _ in range(times):
        desk.watchdog.note_exit(Exit(supervisor, child, 1, "crashed", ValueError("broken pipe")))


async def hang_run(desk: Desk) -> None:
    """Start a run whose model never answers."""
    desk.play(forever)
    await desk.kit.start()


async def submit_task(desk: Desk, **wanted: Any) -> str:
    """Run the queue with a task that waits for its gate; return the id."""
    desk.office.work.gate = trio.Event()
    task = await desk.office.submit(**wanted)
    desk.nursery.start_soon(live, desk.office)
    return task.task_id


async def live(office: Office) -> None:
    """Run the queue until cancelled."""
    async with office.live():
        await trio.sleep_forever()


async def hang_call(desk: Desk) -> None:
    """Start a run whose tool never ends."""
    add_tool(desk, "frozen", forever)
    desk.kit.model.turns = [call(("frozen", {"text": "x"}))]
    await desk.kit.start()


async def miss_deadline(desk: Desk) -> None:
    """Ask a person, and have the task of the question miss its deadline."""
    desk.kit.model.turns = [call(("ask_note", {"text": "x"})), say("denied, then")]
    await desk.kit.start()
    await wait_all_tasks_blocked()
    (question,) = desk.kit.approvals._open.values()
    question.deadline_s = trio.current_time() - 30


def damage_index(desk: Desk) -> None:
    """Lose the file of the index."""
    desk.index.damage = FILE_GONE
