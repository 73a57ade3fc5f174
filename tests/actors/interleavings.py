"""Stories of one session's life: people, a model, a journal and crashes, all by the seed.

A story is played on virtual time with real actors, over several lives of the daemon on one store.
Then every message is looked for: what was accepted is on exactly one tape, exactly once and where
the reply said; what was refused is on none.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import msgspec
import trio
import trio._core._run as trio_run  # noqa: PLC2701 - its chance is made a function of the seed
from trio.testing import MockClock

from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.run.environment import RunLimits
from palyra.core.session.commands import ChangeQueue, Started, StartRun
from palyra.core.session.queue import BESIDE
from palyra.core.tape.events import TERMINAL_KINDS
from palyra.errors import ActorGone, InvariantBroken, PalyraError, TooSlow, Unavailable
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal

KEYS = ("a", "b")  # of sessions
MODES = (
    None,
    "followup",
    "followup",
    "collect",
    "collect",
    "steer",
    "steer",
    "interrupt",
    "reject",
)
PERSONS = 4
SENDS = 4  # of one person in one life
LIMITS = RunLimits(
    approval_ms=1_000, max_recoveries=50
)  # nothing ends for having been resumed often
SPOKEN = ("message.received", "steer.received")


@dataclass
class Word:
    """One message and the reply that its sender got."""

    text: str
    key: str
    started: Started | None = None
    refusal: PalyraError | None = None  # with neither: the daemon fell, nobody knows


class MoodyModel:
    """Answers after a while; sometimes calls a tool, fails, or, once in a run, has a bug."""

    name = provider = "scripted"

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.crashed: set[str] = set()  # more would have the run left alone (`MAX_CRASHES`)

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:  # noqa: ARG002 - the port
        await trio.sleep(self.rng.choice((0, 0.001, 0.2, 2)))
        fate = self.rng.random()
        if fate < 0.03 and request.run_id not in self.crashed:
            self.crashed.add(request.run_id)
            raise RuntimeError("a bug")
        if fate < 0.08:
            raise ModelFailure("transient", "503")
        if fate < 0.3 and request.turn < 5:
            return call((self.rng.choice(("note", "note", "ask_note")), {"text": "x"}))
        return say("done")


@dataclass
class Story:
    """Everything that happens for one seed."""

    seed: int
    store: MemoryJournal = field(default_factory=MemoryJournal)
    words: list[Word] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)  # known to people

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.numbers = count()
        self.store.open()

    # --- lives

    async def play(self) -> None:
        """Some lives that end in a crash, then one in which everything comes to its end."""
        for _ in range(self.rng.randint(0, 2)):
            with trio.move_on_after(self.rng.choice((0.001, 0.2, 0.5, 1, 2, 4))):
                await self.live(until_quiet=False)
        await self.live(until_quiet=True)

    async def live(self, *, until_quiet: bool) -> None:
        """One life of the daemon; leaving it is a crash for whatever is open."""
        async with running(self.store, LIMITS) as kit, trio.open_nursery() as life:
            kit.services.models["scripted"] = MoodyModel(self.rng)  # type: ignore[index]  # a dict
            life.start_soon(self.end, kit)
            async with trio.open_nursery() as nursery:
                for _ in range(PERSONS):
                    nursery.start_soon(self.person, kit)
                nursery.start_soon(self.disk, kit)
            if until_quiet:
                await self.come_to_rest(kit)
            life.cancel_scope.cancel()

    @staticmethod
    async def end(kit: Kit) -> None:
        """The journal falls with its daemon: who waits for a commit waits no longer."""
        try:
            await trio.sleep_forever()
        finally:
            kit.journal.fall()

    async def come_to_rest(self, kit: Kit) -> None:
        """Nothing is paused, and nothing is left."""
        for key in KEYS:
            session = await kit.sessions.resolve(OPERATOR, key=key, session_id=None)
            await kit.sessions.arrange_queue(
                OPERATOR, session.session_id, ChangeQueue(paused=False)
            )
        for record in self.store.list_open_runs():
            await kit.end(record.run_id)
        await trio.sleep_until(trio.current_time() + 5)
        assert ({}, {}) == (kit.registry.runs, kit.registry.sessions)

    async def disk(self, kit: Kit) -> None:
        """A disk that is slow, or full for a while; what it has not written a crash takes away."""
        for _ in range(self.rng.randint(0, 3)):
            await trio.sleep(self.rng.random())
            if self.rng.random() < 0.6:
                kit.journal.keep = self.rng.choice((0, 0, 1, 2, 5))
                await trio.sleep(self.rng.choice((0, 0.1, 1)))
                kit.journal.keep = None
                kit.journal.release()
            else:
                kit.journal.fail_with, kit.journal.is_writable = Unavailable("full"), False
                await trio.sleep(self.rng.choice((0, 0.1)))
                kit.journal.fail_with, kit.journal.is_writable = None, True

    # --- people

    async def person(self, kit: Kit) -> None:
        """Sends messages, and now and then does something else."""
        for _ in range(self.rng.randint(1, SENDS)):
            await trio.sleep(self.rng.choice((0, 0, 0.0001, 0.1, 0.4, 1)))
            await self.send(kit)
            if self.rng.random() < 0.4:
                await self.meddle(kit)

    async def send(self, kit: Kit) -> None:
        """One message, under a key that would repeat its receipt."""
        text = f"word {next(self.numbers)}"
        word = Word(text, self.rng.choice(KEYS))
        self.words.append(word)
        command = StartRun(
            text=text,
            session_key=word.key,
            queue_mode=self.rng.choice(MODES),  # type: ignore[arg-type]  # a literal
            origin=self.rng.choice(("interactive",) * 9 + ("background",)),
        )
        key = IdempotencyKey(principal="ann", key=text, body_sha256="b")
        try:
            word.started = await kit.gateway.start_run(OPERATOR, command, key)
        except PalyraError as refusal:
            word.refusal = refusal
        else:
            self.runs.append(word.started.run_id)

    async def meddle(self, kit: Kit) -> None:
        """Steer, cancel, rearrange or reset; a refusal is an answer too."""
        deeds: list[Callable[[Kit], Awaitable[Any]]] = [
            self.steer, self.steer, self.cancel, self.arrange, self.arrange, self.arrange,
            self.reset,
        ]  # fmt: skip
        with suppress(PalyraError):
            await self.rng.choice(deeds)(kit)

    async def steer(self, kit: Kit) -> None:
        if not self.runs:
            return
        word = Word(f"word {next(self.numbers)}", "")
        self.words.append(word)
        run_id = self.rng.choice(self.runs[-3:])
        key = IdempotencyKey(principal="ann", key=word.text, body_sha256="b")
        try:
            seq = await kit.gateway.steer_run(OPERATOR, run_id, word.text, key)
        except PalyraError as refusal:
            word.refusal = refusal
        else:
            word.started = Started(run_id=run_id, session_id="", seq=seq, disposition="steered")

    async def cancel(self, kit: Kit) -> None:
        if self.runs:
            await kit.gateway.cancel_run(OPERATOR, self.rng.choice(self.runs[-3:]), "enough")

    async def arrange(self, kit: Kit) -> None:
        key = self.rng.choice(KEYS)
        session = await kit.sessions.resolve(OPERATOR, key=key, session_id=None)
        look = await kit.sessions.arrange_queue(OPERATOR, session.session_id, ChangeQueue())
        named = tuple(self.rng.sample(look.waiting, self.rng.randint(0, len(look.waiting))))
        split = self.rng.randint(0, min(1, len(named)))
        change = ChangeQueue(
            paused=self.rng.choice((None, True, False)),
            mode=self.rng.choice((None, "followup", "collect", "steer")),
            drop=named[:split],
            order=named[split:],
        )
        await kit.sessions.arrange_queue(OPERATOR, session.session_id, change)

    async def reset(self, kit: Kit) -> None:
        key = self.rng.choice(KEYS)
        session = await kit.sessions.resolve(OPERATOR, key=key, session_id=None)
        await kit.sessions.reset(OPERATOR, session.session_id)

    # --- what must be true

    def check(self) -> Counter[str]:
        """Where the words went; raises AssertionError for one that is lost or there twice."""
        tapes = self.read_tapes()
        places: dict[str, list[tuple[str, int]]] = {}
        for run_id, rows in tapes.items():
            self.check_tape(rows)
            for row in rows:
                if row.kind in SPOKEN:
                    text = msgspec.json.decode(row.data)["text"]
                    places.setdefault(text, []).append((run_id, row.seq))
        for word in self.words:
            self.check_word(word, places.pop(word.text, []))
        assert {} == places
        self.check_turns(tapes)
        return Counter(self.name_end(word) for word in self.words)

    def read_tapes(self) -> dict[str, list[TapeRow]]:
        ids = dict.fromkeys(link.row.run_id for link in self.store._tapes.links)
        return {
            run_id: list(self.store.read_tape(run_id, after_seq=-1, limit=1_000).rows)
            for run_id in ids
        }

    def check_tape(self, rows: list[TapeRow]) -> None:
        """One terminal event, at the end; every message to an answered run precedes the answer."""
        ends = [row.kind for row in rows if row.kind in TERMINAL_KINDS]
        assert (1, True) == (len(ends), rows[-1].kind in TERMINAL_KINDS), rows[0].run_id
        if rows[-1].kind == "run.done":
            last_turn = max(row.seq for row in rows if row.kind == "turn.started")
            assert all(row.seq < last_turn for row in rows if row.kind in SPOKEN)

    def check_word(self, word: Word, places: list[tuple[str, int]]) -> None:
        """Accepted: once, where the reply said.  Rejected: nowhere.  Unknown: as the receipt says."""
        receipt = self.store.find_receipt("ann", word.text, now_ms=0)
        assert not isinstance(word.refusal, InvariantBroken), word
        assert len(places) == (receipt is not None), (word, places)
        if word.started is not None:
            assert [(word.started.run_id, word.started.seq)] == places, word
        elif word.refusal is not None and not isinstance(word.refusal, ActorGone | TooSlow):
            assert [] == places, word

    def check_turns(self, tapes: dict[str, list[TapeRow]]) -> None:
        """One foreground run of a session at a time, in the order of the journal."""
        active: dict[str, str] = {}
        for row in (link.row for link in self.store._tapes.links):
            if msgspec.json.decode(tapes[row.run_id][0].data)["origin"] in BESIDE:
                continue
            if row.kind == "run.started":
                assert row.session_id not in active, (row.run_id, active[row.session_id])
                active[row.session_id] = row.run_id
            elif row.kind in TERMINAL_KINDS and active.get(row.session_id) == row.run_id:
                del active[row.session_id]

    def name_end(self, word: Word) -> str:
        if word.started is not None:
            return word.started.disposition
        return "unknown" if word.refusal is None else type(word.refusal).__name__


def play(seed: int) -> Counter[str]:
    """Play the story of a seed and check it: the same seed is the same story."""
    story = Story(seed)
    machinery: Any = trio_run
    before, state = machinery._ALLOW_DETERMINISTIC_SCHEDULING, machinery._r.getstate()
    machinery._ALLOW_DETERMINISTIC_SCHEDULING = True
    machinery._r.seed(seed)
    try:
        trio.run(story.play, clock=MockClock(autojump_threshold=0))
        return story.check()
    except BaseException as error:
        error.add_note(f"the story of seed {seed}")
        raise
    finally:
        machinery._ALLOW_DETERMINISTIC_SCHEDULING = before
        machinery._r.setstate(state)
