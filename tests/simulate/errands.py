"""Stories of the background queue: tasks, schedules, kills, clocks that jump, on virtual time.

The queue, its workers and the schedules are real, over a store in memory; the story begins a day before
the clocks of Berlin change.  A seed decides what clients do, how long work takes and how it fails, when
the process is killed, when the disk refuses writes and where the wall clock jumps.  `errands(seed)`
returns the names of the invariants that did not hold:

    lost        an acknowledged task is gone, or has not ended long after the story
    twice       two workers of one task at the same time
    ended once  the end of a task changed
    stopped     work of an ended task goes on
    attempts    more attempts than allowed
    expired     a task succeeded after its time
    order       a task was begun before another that was due and ranked earlier
    firing      an instant with two tasks, one that is none of its schedule, two on one day of a
    fixed hour
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import trio
from trio.testing import MockClock

from palyra.core.journal.changes import TaskFilter
from palyra.core.journal.records import At, Cron, Every, TaskRecord
from palyra.core.ports import Progress
from palyra.core.task.life import FINAL, STEP_MS
from palyra.errors import DiskFull, PalyraError, Unavailable
from tests.actors.task_kit import ANN, Office, settle
from tests.store.memory.journal import MemoryJournal

DEEDS = 30
SLOTS = 2
SETTLED_S = 5.0  # more than a sweep: by then a change has its effect
END_STEP_S, END_STEPS = 300.0, 200  # of the end, until all tasks have ended
BERLIN = ZoneInfo("Europe/Berlin")
STARTS = (datetime(2026, 3, 28, 0, 30, tzinfo=UTC), datetime(2026, 10, 24, 0, 30, tzinfo=UTC))
FIXED = Cron(expression="30 2 * * *", zone="Europe/Berlin")
CHANGES = {"2026-03-29", "2026-10-25"}  # days on which an hour is skipped or repeated


@dataclass
class WallClock:
    """The wall clock of all processes of a story."""

    skew_ms: int = 0

    def now_ms(self) -> int:
        return 1_000_000_000_000 + round(trio.current_time() * 1_000) + self.skew_ms


class Process(Office):
    """One life of the daemon."""

    def __init__(self, clock: WallClock, work: "Labour", store: MemoryJournal | None) -> None:
        self.clock = clock
        super().__init__(store, slots=SLOTS)
        self.tasks.handlers = {"embed": work}

    def now_ms(self) -> int:
        return self.clock.now_ms()


@dataclass
class Labour:
    """Work whose length and failures the seed decides, with notes of what it was asked for."""

    story: "Story"
    rng: random.Random
    is_for_all: bool = False
    active: Counter[str] = field(default_factory=Counter)
    done_ms: dict[str, int] = field(default_factory=dict)

    async def check(self, payload: dict[str, Any]) -> None:
        pass

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        self.active[task.task_id] += 1
        self.story.look_at_begin(task)
        try:
            for _ in range(self.rng.randint(0, 4)):
                await trio.sleep(self.rng.choice((0.1, 5.0, 60.0, 200.0)))
                progress()
            if self.rng.random() < 0.2:
                raise self.rng.choice((Unavailable("busy"), ValueError("a bug")))
            self.done_ms[task.task_id] = self.story.clock.now_ms()
            return {}
        finally:
            self.active[task.task_id] -= 1

    async def abandon(self, task: TaskRecord) -> None:
        pass


class Story:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = WallClock()
        self.broken: set[str] = set()
        self.labour = Labour(self, random.Random(seed + 1))
        self.submitted: dict[str, TaskRecord] = {}
        self.touched_s: dict[str, float] = {}  # last change by a client, or of the clock
        self.ends: dict[str, tuple[str, float]] = {}  # state and time at which it was seen
        self.schedules: dict[str, Any] = {}  # timings
        self.moved_s = 0.0  # last jump of the clock, kill or outage

    async def live(self) -> None:
        """Tell the story."""
        start_ms = round(self.rng.choice(STARTS).timestamp() * 1_000)
        self.clock.skew_ms = start_ms - self.clock.now_ms()
        store: MemoryJournal | None = None
        left = DEEDS
        while left:
            process = Process(self.clock, self.labour, store)
            store, self.process = process.store, process
            lasts = left if self.rng.random() < 0.3 else self.rng.randint(1, left)
            self.moved_s = trio.current_time()
            async with process.live():
                for _ in range(lasts):
                    await self.act()
                    await settle(self.rng.choice((0.0, 0.5, 7.0, 7.0, 90.0, 600.0)))
                    self.look()
                left -= lasts
                if not left:
                    await self.end()

    async def act(self) -> None:
        """Do one deed; what is refused is no matter."""
        deeds = (
            self.submit,
            self.submit,
            self.submit,
            self.schedule,
            self.change_task,
            self.change_schedule,
            self.jump,
            self.fill_disk,
        )
        try:
            await self.rng.choice(deeds)()
        except PalyraError:
            return

    async def submit(self) -> None:
        """Submit a few tasks at once."""
        for _ in range(self.rng.randint(1, 5)):
            wanted: dict[str, Any] = {
                "priority": self.rng.randint(0, 9),
                "max_attempts": self.rng.randint(1, 3),
            }
            now_ms = self.clock.now_ms()
            if self.rng.random() < 0.3:
                wanted["not_before_ms"] = now_ms + self.rng.randint(1, 600_000)
            if self.rng.random() < 0.3:
                wanted["expires_ms"] = now_ms + self.rng.randint(600_001, 1_000_000)
            task = await self.process.submit(**wanted)
            self.submitted[task.task_id] = task
            self.touched_s[task.task_id] = trio.current_time()

    async def schedule(self) -> None:
        """Add a schedule."""
        now_ms = self.clock.now_ms()
        timing = self.rng.choice(
            (
                FIXED,
                Cron(expression="*/20 * * * *", zone="Europe/Berlin"),
                Every(period_ms=600_000, anchor_ms=now_ms),
                At(at_ms=now_ms + self.rng.randint(1, 90_000)),
            )
        )
        policies = {
            "missed": self.rng.choice(("skip", "once", "all")),
            "overlap": self.rng.choice(("forbid", "queue", "replace")),
        }
        schedule_id = await self.process.add(timing=timing, **policies)
        self.schedules[schedule_id] = timing

    async def change_task(self) -> None:
        """Pause, resume or cancel a task."""
        if not self.submitted:
            return
        task_id = self.rng.choice(list(self.submitted))
        tasks = self.process.tasks
        self.touched_s[task_id] = trio.current_time()
        match self.rng.randrange(3):
            case 0:
                await tasks.pause(ANN, task_id)
            case 1:
                await tasks.resume(ANN, task_id)
            case _:
                await tasks.cancel(ANN, task_id, "enough")

    async def change_schedule(self) -> None:
        """Pause, resume or remove a schedule."""
        if not self.schedules:
            return
        schedule_id = self.rng.choice(list(self.schedules))
        schedules = self.process.schedules
        change = self.rng.choice((schedules.pause, schedules.resume, schedules.remove))
        await change(ANN, schedule_id)

    async def jump(self) -> None:
        """Set the wall clock forwards or back."""
        self.clock.skew_ms += self.rng.choice((-3_600_000, -5_000, 5_000, 7_200_000, 43_200_000))
        self.moved_s = trio.current_time()
        await trio.lowlevel.checkpoint()

    async def fill_disk(self) -> None:
        """Refuse writes for a while."""
        self.process.journal.fail_with = DiskFull("full")
        await settle(self.rng.choice((1.0, 200.0)))
        self.process.journal.fail_with = None
        self.moved_s = trio.current_time()

    # --- invariants

    def tasks(self) -> list[TaskRecord]:
        """Return all tasks of the store."""
        return self.process.store.list_tasks(TaskFilter(limit=1_000_000))

    def look_at_begin(self, task: TaskRecord) -> None:
        """Check what must hold when work begins."""
        if self.labour.active[task.task_id] > 1:
            self.broken.add("twice")
        if task.attempts > task.max_attempts:
            self.broken.add("attempts")
        now_s, now_ms = trio.current_time(), self.clock.now_ms()
        if now_s - self.moved_s < SETTLED_S:
            return
        for other in self.tasks():
            is_due = other.not_before_ms < now_ms - 1_000 * SETTLED_S
            touched_s = self.touched_s.get(other.task_id, 0.0)
            if other.state != "queued" or not is_due or now_s - touched_s < SETTLED_S:
                continue
            if rank_of(other) < rank_of(task) and other.attempts == task.attempts - 1 == 0:
                self.broken.add("order")

    def look(self) -> None:
        """Check what must hold between two deeds."""
        now_s = trio.current_time()
        found = {each.task_id: each for each in self.tasks()}
        if self.submitted.keys() - found.keys():
            self.broken.add("lost")
        for task_id, (state, seen_s) in self.ends.items():
            if task_id in found and found[task_id].state != state:
                self.broken.add("ended once")
            if self.labour.active[task_id] and now_s - seen_s > SETTLED_S:
                self.broken.add("stopped")
        for task in found.values():
            if task.state in FINAL:
                self.ends.setdefault(task.task_id, (task.state, now_s))
        self._look_at_firings([each.firing for each in found.values() if each.firing])

    def _look_at_firings(self, firings: list[str]) -> None:
        days: Counter[tuple[str, str]] = Counter()
        for firing in firings:
            schedule_id, _, at = firing.partition("@")
            timing, at_ms = self.schedules[schedule_id], int(at)
            moment = datetime.fromtimestamp(at_ms / 1_000, BERLIN)
            day = moment.date().isoformat()
            if timing == FIXED:
                days[schedule_id, day] += 1
                if day not in CHANGES and (moment.hour, moment.minute) != (2, 30):
                    self.broken.add("firing")
            if not _is_instant(timing, at_ms, moment):
                self.broken.add("firing")
        if len(set(firings)) < len(firings) or any(count > 1 for count in days.values()):
            self.broken.add("firing")

    async def end(self) -> None:
        """Let all work end, without further firings."""
        for schedule_id in self.schedules:
            try:
                await self.process.schedules.remove(ANN, schedule_id)
            except PalyraError:
                continue
        for _ in range(END_STEPS):
            await settle(END_STEP_S)
            if all(each.state in {*FINAL, "paused"} for each in self.tasks()):
                break
        self.look()
        for task in self.tasks():
            if task.state not in {*FINAL, "paused"}:
                self.broken.add("lost")
            late_ms = self.labour.done_ms.get(task.task_id, 0) - (task.expires_ms or 10**15)
            if task.state == "succeeded" and late_ms > 1_000 * SETTLED_S:
                self.broken.add("expired")


def rank_of(task: TaskRecord) -> int:
    """Return the place of a task that was never tried: a step of priority is worth a minute."""
    return max(task.created_ms, task.not_before_ms) - task.priority * STEP_MS


def _is_instant(timing: At | Cron | Every, at_ms: int, moment: datetime) -> bool:
    """True if a schedule has this instant, as a person would count."""
    match timing:
        case At():
            return at_ms == timing.at_ms
        case Every():
            return (at_ms - timing.anchor_ms) % timing.period_ms == 0
        case _:
            return at_ms % 60_000 == 0 and (timing == FIXED or moment.minute % 20 == 0)


def errands(seed: int) -> set[str]:
    """Tell the story of this seed; return the invariants that did not hold."""
    story = Story(seed)
    trio.run(story.live, clock=MockClock(autojump_threshold=0))
    return story.broken
