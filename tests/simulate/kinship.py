"""Stories of delegated runs: trees of runs, people, cancels and kills, on virtual time.

Sessions, runs, delegation and recovery are real, over a store in memory.  A seed decides the tree, what
each run does in its turns, when and how a person answers, what is cancelled, and when the process is
killed, perhaps with its last commits lost.  `kinship(seed)` returns the names of the invariants that
did not hold:

    once        a `delegation.started` without exactly one `delegation.ended`
    true        an end that is not the one of the child's tape, or a refused child that exists
    known       a child that no tape above names, or a call with two children
    over        a run that is open long after the story
    together    a child that went on after the end of its parent
    clock       a run that failed at its time limit without having spent it
    tools       a child with a tool that was not handed down
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio
from trio.testing import MockClock

from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import RunRecord
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.run.delegation import DELEGATE, MAX_DEPTH
from palyra.core.run.environment import RunLimits
from palyra.core.run.state import fold
from palyra.core.tape import events as ev
from palyra.errors import PalyraError
from palyra.operations.delegation import Delegations
from palyra.tools.delegation import delegation_tools
from tests.actors.run.asking_kit import answer, pending
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal

DEEDS = 12
WALL_MS = 30_000
LIMITS = RunLimits(wall_ms=WALL_MS, approval_ms=7_200_000)
END_STEP_S, END_STEPS = 30.0, 200
TOGETHER_MS = 5_000  # between the end of a run and that of its children, without a kill
CLOCK_MS = 100  # of rounding
STEPS = ("nap", "nap", "ask", "delegate", "delegate", "delegate", "note", "fail")


class Tree:
    """The runs of a story by name, and the turns of each."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.turns: dict[str, list[ModelTurn | ModelFailure]] = {}

    def grow(self, depth: int = 0) -> str:
        """Draw a run and those below it; return its name."""
        name = f"node{len(self.turns)}"
        turns = self.turns[name] = list[ModelTurn | ModelFailure]()
        for _ in range(self.rng.randint(1, 3)):
            turns.append(self._draw(depth))
        return name

    def _draw(self, depth: int) -> ModelTurn | ModelFailure:
        step = self.rng.choice(STEPS)
        if step == "delegate" and depth < MAX_DEPTH and len(self.turns) < 12:
            below = [self.grow(depth + 1) for _ in range(self.rng.randint(1, 3))]
            tools = self.rng.choice(({}, {"tools": ["sleep", "ask_note", DELEGATE]}))
            return call(*[(DELEGATE, {"task": name, **tools}) for name in below])
        match step:
            case "ask":
                return call(("ask_note", {"text": "x"}))
            case "note":
                return call(("note", {"text": "x"}))
            case "fail":
                return ModelFailure("auth", "no key")
            case _:
                return call(("sleep", {"seconds": self.rng.choice((0.5, 4))}))

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Play the turn of the run whose message is its name."""
        del on_delta
        await trio.lowlevel.checkpoint()
        task = repr(request.messages[:1])
        turns = next(turns for name, turns in self.turns.items() if f"'{name}'" in task)
        turn = turns[request.turn - 1] if request.turn <= len(turns) else say("done")
        if isinstance(turn, ModelFailure):
            raise turn
        return turn


class Story:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = Tree(random.Random(seed + 1))
        self.roots = [self.tree.grow() for _ in range(2)]
        self.store = MemoryJournal()
        self.store.open()
        self.kills_ms: list[int] = []
        self.broken: set[str] = set()

    async def live(self) -> None:
        """Tell the story."""
        left, names = DEEDS, list(self.roots)
        while left:
            lasts = left if self.rng.random() < 0.3 else self.rng.randint(1, left)
            async with running(self.store, LIMITS) as kit:
                self.equip(kit)
                while names:
                    await kit.start(names.pop())
                for _ in range(lasts):
                    await trio.sleep(self.rng.choice((0.0, 0.3, 2.0, 2.0, 7.0, 900.0)))
                    await self.act(kit)
                left -= lasts
                if left:
                    kit.journal.keep = self.rng.choice((None, 0, 1, 2))
                    await trio.sleep(self.rng.choice((0.0, 0.01, 1.0)))
                    kit.journal.fall()  # what waits for a commit learns that there is none
                else:
                    await self.end(kit)
            self.kills_ms.append(round(trio.current_time() * 1000))
        self.look()

    def equip(self, kit: Kit) -> None:
        """Give the daemon the tool and the model."""
        toolbox: Any = kit.services.toolbox
        toolbox.put(DELEGATE, delegation_tools(Delegations(kit.services, kit.gateway)))
        kit.model.stream = self.tree.stream  # type: ignore[method-assign]

    async def act(self, kit: Kit) -> None:
        """Answer, cancel, or do nothing; a refusal is no matter."""
        try:
            await self.do_deed(kit)
        except PalyraError:
            return

    async def do_deed(self, kit: Kit) -> None:
        match self.rng.choice(("answer", "answer", "answer", "cancel", "nothing")):
            case "answer":
                await self.answer(kit)
            case "cancel" if kit.registry.runs and self.rng.random() < 0.4:
                run_id = self.rng.choice(sorted(kit.registry.runs))
                await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
            case _:
                pass

    async def answer(self, kit: Kit) -> None:
        for question in await pending(kit):
            await answer(kit, question, self.rng.choice(("allow", "allow", "deny")))

    async def end(self, kit: Kit) -> None:
        """Answer everything until all runs have ended."""
        for _ in range(END_STEPS):
            await trio.sleep(END_STEP_S)
            try:
                await self.answer(kit)
            except PalyraError:
                continue
            if not kit.registry.runs and not self.open_runs():
                return

    def open_runs(self) -> list[RunRecord]:
        return [each for each in self.list_runs() if not each.is_terminal]

    def list_runs(self) -> list[RunRecord]:
        return self.store.list_runs(RunFilter(limit=500))

    # --- invariants

    def look(self) -> None:
        """Compare all tapes."""
        if self.open_runs():
            self.broken.add("over")
        runs = {each.run_id: each for each in self.list_runs()}
        named: dict[str, str] = {}  # child -> parent
        for run_id, record in runs.items():
            tape = self.read(run_id)
            started = [each for each in tape if isinstance(each, ev.DelegationStarted)]
            ended = [each for each in tape if isinstance(each, ev.DelegationEnded)]
            named |= {each.run_id: run_id for each in started}
            if record.is_terminal and Counter(e.run_id for e in started) != Counter(
                e.run_id for e in ended
            ):
                self.broken.add("once")
            if len({each.call_id for each in started}) != len(started):
                self.broken.add("known")
            for end in ended:
                self.look_at_end(record, end, runs.get(end.run_id))
            self.look_at_failure(run_id, tape)
        for record in runs.values():
            if record.depth and named.get(record.run_id) != record.parent_run_id:
                self.broken.add("known")
            self.look_at_rights(record, runs)

    def look_at_end(
        self, above: RunRecord, end: ev.DelegationEnded, child: RunRecord | None
    ) -> None:
        """Compare an end on a tape with the child; of a parent that ended first it is its own."""
        if child is None or not child.is_terminal:
            if end.state not in {"refused", "cancelled"}:
                self.broken.add("true")
            return
        state = "partial" if (child.state, child.reason) == ("done", "partial") else child.state
        is_own = end.state == "cancelled" and above.state != "done"
        if end.state != state and not is_own:
            self.broken.add("true")
        since_ms, until_ms = above.finished_ms or 0, child.finished_ms or 0
        was_killed = any(since_ms - 1 <= at_ms <= until_ms for at_ms in self.kills_ms)
        if above.is_terminal and until_ms > since_ms + TOGETHER_MS and not was_killed:
            self.broken.add("together")

    def look_at_failure(self, run_id: str, tape: list[ev.Event]) -> None:
        last = tape[-1]
        if not isinstance(last, ev.RunFailed):
            return
        rows = self.store.read_tape(run_id, after_seq=-1, limit=1_000).rows
        run = fold(run_id, [(row.kind, row.at_ms, row.data) for row in rows])
        wall_ms = min(run.accepted.budget.wall_ms or WALL_MS, WALL_MS)
        if last.failure_class == "wall_clock" and run.spent_ms() < wall_ms - CLOCK_MS:
            self.broken.add("clock")

    def look_at_rights(self, record: RunRecord, runs: dict[str, RunRecord]) -> None:
        """A child has no tool that its parent had not, if that had only some."""
        parent = runs.get(record.parent_run_id or "")
        if not record.depth or parent is None:
            return
        own, above = (self.read(each.run_id)[0] for each in (record, parent))
        if isinstance(own, ev.RunAccepted) and isinstance(above, ev.RunAccepted):
            handed = set(above.tools) if above.tools is not None else None
            if own.tools is None or (handed is not None and not set(own.tools) <= handed):
                self.broken.add("tools")

    def read(self, run_id: str) -> list[ev.Event]:
        rows = self.store.read_tape(run_id, after_seq=-1, limit=1_000).rows
        return [ev.decode_event(row.kind, row.data) for row in rows]


def kinship(seed: int) -> set[str]:
    """Tell the story of a seed; return the invariants that did not hold."""
    story = Story(seed)
    trio.run(story.live, clock=MockClock(autojump_threshold=0))
    return story.broken
