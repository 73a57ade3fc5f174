"""A world: one seed, one story of a daemon, its people and everything that goes wrong."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import trio.testing

from palyra.actors.journal.actor import JournalHandle
from palyra.config.load import Config
from palyra.config.sections import HealingConfig, LearningConfig, RunsConfig, TasksConfig
from palyra.core.channel import CODE_CHARS, CODE_LETTERS
from palyra.core.healing.rules import SWEEP_S, HealingMode
from palyra.core.ids import Prefix
from palyra.core.journal.changes import Change, MemoryFilter
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.ports import JournalStore, MemoryEmbedder
from palyra.core.tape.events import RunPurged
from palyra.errors import ActorGone
from palyra.net.api.tokens import token_record
from palyra.services.memory.index import SharedMemoryIndex
from palyra.wiring.runs import MemoryIndexes
from tests.simulate.archive import Archive
from tests.simulate.bridge import Bridge, Doorkeeper
from tests.simulate.chance import Chance
from tests.simulate.keepers import Keeper, Snoop
from tests.simulate.life import LIFE, Life
from tests.simulate.network import Network
from tests.simulate.officials import Approver, Operator, Pry
from tests.simulate.oracle import Oracle
from tests.simulate.planners import Planner
from tests.simulate.purse import draw_budgets
from tests.simulate.standing import KEYS, OPERATOR_TOKEN, config
from tests.simulate.trace import InvariantFailed, Planted, Trace
from tests.simulate.weather import Weather
from tests.simulate.wiretap import Wiretap
from tests.simulate.worker import Worker
from tests.store.memory.journal import MemoryJournal

if TYPE_CHECKING:
    from tests.simulate.people import Person


# Of a story: those who start runs, those who use the memory, those who leave work to the daemon.
Cast = Literal["workers", "askers", "keepers", "planners"]
HISTORIES = (300, 600, 1_200)  # tokens
HEALING: tuple[HealingMode, ...] = ("auto", "auto", "observe_only", "disabled")
LEARNING: tuple[Literal["auto", "review", "off"], ...] = ("auto", "auto", "review", "off")
HEALED_WITHIN_S = 3 * SWEEP_S
DEEDS_WITHIN_S = 2 * 3_600.0  # they do all they wanted, if the weather permits
EPOCH_MS = 1_800_000_000_000
OVER_WITHIN_S = 12 * 3_600.0  # after the last fault; silence of a person costs a quarter hour each
STOP_WITHIN_S = 180.0
STORY_WITHIN_S = 40 * 3_600.0
PACES = (1, 1, 10, 60)  # of people and troubles: stories of minutes, and of half a day
GOOD_HOUR_S, LOOK_S = 3_600.0, 1.0
MAX_STANDSTILLS = 10
EDITED = 0.4  # how likely the rules are edited
STEPS_PER_INSTANT = 200_000  # of the scheduler, without any time passing
NUISANCES = ("power cut", "power cut", "power cut at an effect", "power cut at a step", "restart")
TROUBLES = (*NUISANCES, "tear everything", "disk full", "clock jump", "a good hour")


class _Pulse(trio.abc.Instrument):
    """Counts the scheduler's steps, and looks after each."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.steps = 0
        self._now_s = -1.0
        self._since = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.world.is_thorough:
            self.world.trace.fold_in(task.name)

    def after_task_step(self, _task: trio.lowlevel.Task) -> None:
        self.steps += 1
        world = self.world
        world.after_step()
        now_s = world.clock.current_time()
        if now_s != self._now_s:
            self._now_s, self._since = now_s, self.steps
        elif self.steps - self._since == STEPS_PER_INSTANT:
            world.fail("time goes on", f"{STEPS_PER_INSTANT} steps at {now_s}")


def _jumping_clock(on_standstill: Callable[[], None]) -> trio.testing.MockClock:
    """A clock that jumps to the next deadline; where there is none, everybody waits for ever."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    jump = clock._autojump

    def look_and_jump() -> None:
        if trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf"):
            on_standstill()
        jump()

    clock._autojump = look_and_jump  # type: ignore[method-assign]
    return clock


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, cast: Cast, *, is_thorough: bool = False) -> None:
        self.is_thorough = is_thorough
        self.cast = cast
        self.chance = Chance(seed)
        self.clock = _jumping_clock(self._stand_still)
        self.trace = Trace()
        self.weather = Weather(self.chance.stream("weather"), self.trace)
        self.config = self._draw_config()
        self.keys, self.operator_token, self.seed = KEYS, OPERATOR_TOKEN, seed
        self.archive = Archive(KEYS, self.now_ms) if cast == "keepers" else None
        self.durable: JournalStore = (
            MemoryJournal(KEYS, now_ms=self.now_ms)
            if self.archive is None
            else self.archive.journal
        )
        self.oracle = Oracle(self.fail, self.config.usage.budgets, self.now_ms)
        self.network = Network(self.weather, self.trace)
        self.people: list[Person] = []
        self.known_runs: list[str] = []  # that were acknowledged
        self.known_items: list[str] = []  # of memory, likewise
        self.purged_sessions: list[str] = []  # likewise
        self.codes: list[tuple[str, str]] = []  # that senders were given: pairing, code
        self.starters: set[str] = set()  # people who have not begun everything yet
        self.starts = 0  # requests in progress to start a run
        self.refused_openings = 0
        self.standstills = self.effects = 0
        self.life: Life | None = None
        self.lives = 0
        self.ghosts: list[Life] = []
        self.pace = self.chance.stream("story").choice(PACES)
        self.is_over = False  # no more faults, no more tasks
        self.is_settled = False  # and every run has ended
        self.is_closing = False
        self.failure: InvariantFailed | None = None
        self.everything = trio.CancelScope()
        self._offset_ms = self._largest_offset_ms = 0
        self._ids = itertools.count()
        self._id_rng = self.chance.stream("ids")
        self.pulse = _Pulse(self)

    def _draw_config(self) -> Config:
        """Keepers have short histories, so that their sessions are summarised again and again."""
        healing = HealingConfig(mode=self.chance.stream("healing").choice(HEALING))
        if self.cast in {"workers", "askers"}:
            return config(draw_budgets(self.chance.stream("purse")), healing=healing)
        rng = self.chance.stream("story")
        if self.cast == "planners":
            learning = LearningConfig(mode=rng.choice(LEARNING))
            tasks = TasksConfig(max_running=rng.choice((1, 2, 16)))
            return config((), healing=healing, learning=learning, tasks=tasks)
        model = rng.choice(("", "", "scripted"))
        runs = RunsConfig(history_tokens=rng.choice(HISTORIES), compaction_model=model)
        return config((), runs, healing)

    def close(self) -> None:
        """Remove what the world has on a real disk."""
        if self.archive is not None:
            self.archive.remove()

    # --- what the daemon takes from its host

    def build_memory_indexes(
        self,
        _config: Config,
        store: Any,
        journal: JournalHandle,
        find_embedder: Callable[[], MemoryEmbedder],
    ) -> MemoryIndexes | None:
        """Return the indexes of memory of a new life, where the world has a file for them."""
        archive = self.archive
        if archive is None:
            return None
        turns = store.turns()
        return MemoryIndexes(
            SharedMemoryIndex(
                partial(archive.make_index, store, "memory.index"), journal, find_embedder
            ),
            SharedMemoryIndex(
                partial(archive.make_index, turns, "conversations.index"),
                journal,
                find_embedder,
                turns.plan_turns,
            ),
        )

    def now_ms(self) -> int:
        """The wall clock, which jumps."""
        return EPOCH_MS + self._offset_ms + round(self.clock.current_time() * 1_000)

    def new_id(self, prefix: Prefix) -> str:
        """A UUIDv7 by this world's clock and chance."""
        stamp = f"{self.now_ms():012x}"
        low, rest = next(self._ids) % 4_096, f"{self._id_rng.getrandbits(60):015x}"
        return f"{prefix}_{stamp[:8]}-{stamp[8:]}-7{low:03x}-8{rest[:3]}-{rest[3:]}"

    def new_code(self) -> str:
        """A code for a sender, by this world's chance."""
        return "".join(self._id_rng.choice(CODE_LETTERS) for _ in range(CODE_CHARS))

    # --- failing

    def fail(self, name: str, detail: str) -> None:
        """A promise is broken: the first one is what the story is about."""
        if self.failure is None:
            self.trace.add("FAILED", f"{name}: {detail[:300]}")
            self.failure = InvariantFailed(name, detail)
            self.everything.cancel()

    def _stand_still(self) -> None:
        """Fail the story: every task waits, and the passing of time will not help."""
        self.standstills += 1
        if self.standstills > MAX_STANDSTILLS:
            raise AssertionError(f"seed {self.seed} hangs: {_describe_tasks()}")
        self.fail("nobody waits for ever", _describe_tasks())
        for life in self.ghosts:
            life.cut_power("at a standstill")

    def after_step(self) -> None:
        """Between two steps of the scheduler."""
        life = self.life
        if life is None or not life.is_on:
            return
        if self.oracle.dirty:
            self.oracle.check_live(life)
        if life.steps_left is not None:
            life.steps_left -= 1
            if life.steps_left <= 0:
                life.cut_power("at a step")

    def logged(self, level: str, event: dict[str, object]) -> None:
        """Check a line of the daemon's log: unplanned crashes are bugs."""
        life = LIFE.get()
        if life is None or not life.is_on:
            return
        text = str(event.get("event"))
        kind, _, run_id = str(event.get("key")).partition(":")
        if text == "an incident is opened" and kind == "run_stranded":
            self.oracle.left_alone.add(run_id)
        error = event.get("exc_info")
        if text == "child crashed" and isinstance(error, BaseException):
            planted = (Planted,) if life.may_crash_journal() else (Planted, ActorGone)
            if not _is_planted(error, planted):  # who waits for a fallen journal may fall too
                self.fail("nothing crashes by itself", f"{event['child']}: {error!r}")
            self.trace.counts["actor crashes"] += 1
        self.trace.add("log", f"{level} {text} {event.get('child', event.get('run_id', ''))}")

    # --- the story

    async def tell(self) -> None:
        """All of it."""
        self._hire()
        self._give_tokens()
        with self.everything:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_daemon, nursery)
                nursery.start_soon(self._lose_patience)
                await self._let_live()
                await self._close()
                nursery.cancel_scope.cancel()

    async def _let_live(self) -> None:
        """Until everybody has seen how it ends."""
        async with trio.open_nursery() as crowd:
            for person in self.people:
                crowd.start_soon(person.live, name=person.name)
            crowd.start_soon(self._go_through)
            crowd.start_soon(self._edit_rules)

    def _hire(self) -> None:
        match self.cast:
            case "keepers":
                self._hire_keepers()
            case "planners":
                self._hire_planners()
            case "workers" | "askers":
                self._hire_workers()

    def _hire_keepers(self) -> None:
        rng = self.chance.stream("story")
        deeds = rng.choice((4, 8, 16))
        keepers = [
            Keeper(self, "ann", "client", deeds),
            Keeper(self, "bob", "client", rng.randint(1, 6)),
            Keeper(self, "oda", "operator", rng.choice((0, 0, 4))),
        ]
        self.starters = {person.name for person in keepers}
        self.people = [*keepers, Approver(self, "carol"), Snoop(self, "eve", "client")]

    def _hire_planners(self) -> None:
        rng = self.chance.stream("story")
        deeds = rng.choice((4, 8, 16))
        planners = [
            Planner(self, "ann", "client", deeds),
            Planner(self, "bob", "client", rng.randint(0, deeds)),
            Planner(self, "oda", "operator", rng.choice((0, 2, 4))),
        ]
        self.starters = {person.name for person in planners}
        self.people = [
            *planners,
            Approver(self, "carol"),
            Pry(self, "eve", "client"),
            Operator(self, "olga", "operator"),
        ]

    def _hire_workers(self) -> None:
        rng = self.chance.stream("story")
        tasks = rng.choice((1, 2, 4, 8))
        workers = [
            Worker(self, "ann", "client", tasks),
            Worker(self, "bob", "client", rng.randint(0, tasks)),
            Worker(self, "oda", "operator", rng.randint(0, 2)),
        ]
        bridge = Bridge(self, "bea", rng.choice((0, 0, 2, 5)))
        self.starters = {person.name for person in (*workers, bridge)}
        self.people = [
            *workers,
            bridge,
            Approver(self, "carol"),
            Approver(self, "dave"),
            Pry(self, "eve", "client"),
            Operator(self, "olga", "operator"),
            Doorkeeper(self, "dora", "operator"),
        ]

    def _give_tokens(self) -> None:
        """Everybody's token is in the journal from the beginning."""
        callers = {person.token: person.caller for person in self.people}
        tap = Wiretap(self.oracle, callers, self.fail)
        self.network.on_request, self.network.on_reply = tap.on_request, tap.on_reply
        records = [
            token_record(
                token,
                token_id=caller.token_id,
                principal=caller.principal,
                role=caller.role,
                name=caller.principal,
                now_ms=0,
            )
            for token, caller in callers.items()
        ]
        self.durable.open()
        self.durable.commit([Change(records=tuple(records))])

    async def _keep_daemon(self, nursery: trio.Nursery) -> None:
        """Start the daemon again whenever it ends."""
        while not self.is_closing:
            self.lives += 1
            life = self.life = Life(self, self.lives)
            self.ghosts.append(life)
            self.trace.add("life", f"{life.number} begins")
            nursery.start_soon(life.live)
            nursery.start_soon(life.open_door)
            await life.ended.wait()
            if not self.is_closing:
                await trio.sleep(self.chance.stream("story").choice((0, 0.01, 1, 10)))

    async def _go_through(self) -> None:
        """Trouble after trouble, then peace, then the end of every run."""
        rng = self.chance.stream("story")
        for _ in range(rng.choice((0, 1, 2, 4, 6))):
            await trio.sleep(self.weather.draw_s(0.05, 90 * self.pace))
            await self._suffer(rng.choice(TROUBLES))
        await trio.sleep(self.weather.draw_s(0.05, 90 * self.pace))
        with trio.move_on_after(DEEDS_WITHIN_S):
            while self.cast in {"keepers", "planners"} and self.starters:  # noqa: ASYNC110 - no event exists
                await trio.sleep(LOOK_S)
        self.is_over = True
        self.weather.calm()
        self.trace.add("world", "peace")
        await self._restart()
        with trio.move_on_after(OVER_WITHIN_S) as patience:
            while self.starters or self.starts or self.oracle.find_open():  # noqa: ASYNC110 - no event exists
                await trio.sleep(LOOK_S)
        if patience.cancelled_caught:
            self.fail("every run ends", f"{sorted(self.starters)} {self.oracle.find_open()}")
        self.is_settled = True
        await trio.sleep(HEALED_WITHIN_S)
        if self.life is not None and self.life.is_on:
            self.oracle.vigil.check_end(self.life.daemon)

    async def _edit_rules(self) -> None:
        """In some stories the rules are changed again and again."""
        rng = self.chance.stream("rules")
        is_edited = rng.random() < EDITED and self.cast in {"workers", "askers"}
        while is_edited and not self.is_over:
            await trio.sleep(self.weather.draw_s(0.1, 30 * self.pace))
            self.weather.files.change(rng)
            self.trace.add("world", f"rules: {self.weather.files.holds}")
            self.trace.counts["other rules"] += 1

    async def _suffer(self, trouble: str) -> None:
        rng, life = self.chance.stream("story"), self.life
        self.trace.add("world", trouble)
        self.trace.counts[trouble] += 1
        match trouble:
            case "power cut" if life is not None:
                life.cut_power("from outside")
            case "power cut at an effect" if life is not None:
                life.effects_left = rng.randint(1, 40)
            case "power cut at a step" if life is not None:
                life.steps_left = rng.randint(1, 2_000)
            case "restart":
                await self._restart()
            case "tear everything":
                self.network.cut_all()
            case "disk full":
                length_s = self.weather.draw_s(0.1, 60)
                self.weather.disk_full_until_s = trio.current_time() + length_s
            case "clock jump":
                jump_ms = rng.choice((-1, 1)) * rng.choice((10, 5_000, 3_600_000))
                self._offset_ms += jump_ms
                self._largest_offset_ms = max(self._largest_offset_ms, self._offset_ms)
                self.oracle.memory.set_clock_back(max(0, -jump_ms))
            case _:
                await trio.sleep(GOOD_HOUR_S)

    async def _lose_patience(self) -> None:
        """Fail a story that takes too long, because a task waits for ever."""
        await trio.sleep(STORY_WITHIN_S)
        self.fail("nobody waits for ever", _describe_tasks())

    async def _restart(self) -> None:
        """Stop the daemon in order, if there is one; it is started again."""
        life = self.life
        if life is None or not life.is_on or life.ended.is_set():
            return
        await self._stop(life)

    async def _stop(self, life: Life) -> None:
        with trio.move_on_after(self.weather.draw_s(0.01, 30)):
            await life.daemon.wait_ready()
        life.drain()
        with trio.move_on_after(STOP_WITHIN_S) as patience:
            await life.ended.wait()
        if patience.cancelled_caught:
            self.fail("stopping is bounded", f"life {life.number}")

    async def _close(self) -> None:
        """Stop for the last time; nothing may be left."""
        self.is_closing = True
        if self.life is not None and self.life.is_on:
            await self._stop(self.life)
        with trio.move_on_after(STOP_WITHIN_S) as patience:
            for life in self.ghosts:
                await life.gone.wait()
        if patience.cancelled_caught:
            self.fail("no task is left behind", "a ghost")
        self._check_rest()

    def _check_rest(self) -> None:
        """Check the invariants of a world in which everything has stopped."""
        life = self.life
        if (
            life is not None
            and not life.was_cut
            and (life.daemon.services.approvals._open or life.daemon.hub._watchers)
        ):
            self.fail("no task is left behind", "an open prompt or a watcher")
        self.durable.open()
        if self.durable.verify().breaks:
            self.fail("the chain holds", "it does not verify")
        self._check_archive()
        if life is not None and not life.was_cut:
            self.oracle.purse.check_rest(life.daemon)
        self.oracle.backlog.check_end(self.oracle.runs, self.oracle.records)
        for task_id, task in self.oracle.backlog.tasks.items():
            if self.durable.find_task(task_id) != task:
                self.fail("an acknowledged task is there", task_id)
        for run_id, run in self.oracle.runs.items():
            if not run.is_terminal:
                self.fail("every run ends", run_id)
            self.oracle.purse.check_run(run)
            stored = self.durable.find_run(run_id)
            if stored != self.oracle.records.get(run_id):
                self.fail("a record is the fold of its tape", run_id)

    def _check_archive(self) -> None:
        """Check that the file has the tapes and items that were committed, and nothing besides."""
        if self.archive is None:
            return
        for orphan in self.archive.find_orphans():
            self.fail("to forget leaves nothing", orphan)
        stored = {
            item.memory_id: item
            for name in ("ann", "bob", "oda")
            for item in self.durable.list_memories(
                MemoryFilter(
                    principal=name, now_ms=0, limit=10_000, with_superseded=True, with_hidden=True
                )
            )
        }
        latest_ms = self.now_ms() - self._offset_ms + self._largest_offset_ms
        expected = {
            memory_id: item
            for memory_id, item in self.oracle.memory.items.items()
            if memory_id in stored or item.expires_ms is None or item.expires_ms > latest_ms
        }  # the journal deletes expired items some time later
        if stored != expected:
            changed = sorted(memory_id for memory_id, _ in stored.items() ^ expected.items())
            self.fail("what is committed is there", str(changed))
        for run_id, tape in self.oracle.tapes.items():
            page = self.durable.read_tape(run_id, after_seq=-1, limit=10_000, max_bytes=2**40)
            is_purged = self.oracle.runs[run_id].accepted.session_id in self.purged_sessions
            payloads = [row for row in page.rows if read_tombstone(row.data) is None]
            if is_purged and [RunPurged.KIND] != [row.kind for row in payloads]:
                self.fail("what is purged does not come back", run_id)
            if page.rows != tape:
                self.fail("what is committed never changes", run_id)


def _describe_tasks() -> str:
    """Return the position of every task, for debugging."""
    names = []
    tasks = [trio.lowlevel.current_root_task()]
    while tasks:
        task = tasks.pop()
        if task is not None:
            frames = [frame.f_code.co_qualname for frame, _ in task.iter_await_frames()]
            names.append(f"{task.name}: {' > '.join(frames[-6:])}")
            tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return "; ".join(names)


def _is_planted(error: BaseException, planted: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_planted(inner, planted) for inner in error.exceptions)
    return isinstance(error, planted)
