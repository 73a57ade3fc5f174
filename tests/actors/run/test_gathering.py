"""Gathering for a prompt in a live run: order of events, cancel, crash, deadline, replay."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.run.gather import SOURCE_S
from palyra.core.model.messages import GuidanceMessage, UserMessage
from palyra.core.model.sources import ContextSource, MemorySources, RecallScope
from palyra.errors import Unavailable
from palyra.services.context.references import ContextSources
from palyra.services.policy.gate import Gate
from palyra.tools.toolbox import Toolbox
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, Kit, inline_blocking, now_ms, say
from tests.actors.run.test_runs import settle
from tests.store.memory.journal import MemoryJournal


class Memory:
    """A memory that answers at once, fails, or never answers."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.error: Unavailable | None = None
        self.is_slow = False

    async def prepare(self, _principal: str) -> None:
        """Have items of everyone."""

    def has_items(self, _principal: str) -> bool:
        """Have items of everyone."""
        return True

    async def find_standing(self, _scope: RecallScope) -> MemorySources:
        """A preference."""
        await trio.lowlevel.checkpoint()
        tabs = ContextSource(name="mem_1", kind="preference", text="tabs", trust="trusted_local")
        return MemorySources((tabs,))

    async def recall(self, question: str, _scope: RecallScope) -> Sequence[ContextSource]:
        """A fact."""
        self.questions.append(question)
        if self.is_slow:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return [ContextSource(name="mem_2", kind="fact", text=f"fact {len(self.questions)}")]


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


@pytest.fixture
def memory() -> Memory:
    """A memory that outlives them, too."""
    return Memory()


@asynccontextmanager
async def running(
    store: MemoryJournal, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Kit]:
    """A kit with that memory."""

    def build(kit: Kit, toolbox: Toolbox, gate: Gate) -> ContextSources:
        return ContextSources(
            journal=kit.journal, toolbox=toolbox, gate=gate, run_blocking=inline_blocking,
            now_ms=now_ms, recall=memory,
        )  # fmt: skip

    monkeypatch.setattr(Kit, "build_sources", build)
    async with office_kit.running(store, history_tokens=500) as kit:
        yield kit


async def test_memories_are_on_the_tape_before_the_turn(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathered, assembled, asked; the prompt names them; the next run recalls again."""
    async with running(store, memory, monkeypatch) as kit:
        run_id = await kit.start("where are we? @run:nothing", session_key="k")
        assert "done" == await kit.end(run_id)
        begin = kit.kinds(run_id)[2:8]
        assert begin == [
            "run.started", *["context.gathered"] * 4, "context.assembled",
        ]  # fmt: skip
        layers = [event.layer for event in kit.events(run_id, "context.gathered")]
        assert ["project_files", "preferences", "recalled", "references"] == layers
        assert ["where are we?"] == memory.questions
        (assembled,) = kit.events(run_id, "context.assembled")
        assert ("mem_1", "mem_2") == assembled.memories
        first, recalled, message = kit.model.requests[-1].messages
        assert isinstance(first, GuidanceMessage)
        assert isinstance(recalled, GuidanceMessage)
        assert isinstance(message, UserMessage)
        assert "tabs" in first.text
        assert "fact 1" in recalled.text
        assert "[1] @run:nothing: not available: there is no such run of yours" in message.text
        again = await kit.start("and now?", session_key="k")
        await kit.end(again)
        said = kit.model.requests[-1].messages
        assert said[0] == first, "the stable prefix is the same in the next run"
        assert said[1] == message, "the history shows a message with its references"
        assert "fact 2" in said[-2].text  # type: ignore[union-attr]


async def test_a_memory_that_fails_or_is_late_is_noted(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues without it, and the tape and the explanation say why."""
    async with running(store, memory, monkeypatch) as kit:
        memory.error = Unavailable("the index is being rebuilt")
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        gathered = kit.events(run_id, "context.gathered")
        assert {"recalled": "the index is being rebuilt", "preferences": ""} == {
            event.layer: event.absent for event in gathered
        }
        assert "tabs" in repr(kit.model.requests[-1]), "preferences do not depend on the search"
        memory.error, memory.is_slow = None, True
        began = trio.current_time()
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        assert SOURCE_S <= trio.current_time() - began < SOURCE_S + 1
        explained = await kit.gateway.explain_context(OPERATOR, run_id)
        whys = [each.why for each in explained.segments if each.layer == "recalled"]
        assert ["not there within 2 s"] == whys


async def test_a_source_in_a_blocked_thread_is_late_as_well(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that ignores its cancel does not delay the turn, and what it finds later is not used."""
    unblocked = trio.Event()

    async def recall(_question: str, _scope: RecallScope) -> Sequence[ContextSource]:
        with trio.CancelScope(shield=True):  # as a call in a thread
            await unblocked.wait()
        return [ContextSource(name="mem_1", kind="fact", text="too late")]

    monkeypatch.setattr(memory, "recall", recall)
    async with running(store, memory, monkeypatch) as kit:
        run_id = await kit.start("@memory:x please")
        await trio.sleep(SOURCE_S + 0.5)
        assert "message.completed" in kit.kinds(run_id)
        unblocked.set()
        assert "done" == await kit.end(run_id)
        gathered = kit.events(run_id, "context.gathered")
        assert ["not there within 2 s"] == [
            each.absent for each in gathered if each.layer == "recalled"
        ]
        errors = [source.error for each in gathered for source in each.sources if source.error]
        assert ["not there within 2 s"] == errors
        assert "too late" not in repr(kit.model.requests)
        assert "done" == await kit.end(await kit.start("and now?")), "the next run finds it again"
        assert "too late" in repr(kit.model.requests[-1])


async def test_a_cancel_does_not_wait_for_sources(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that gathers is cancelled at once, and no model is called."""
    async with running(store, memory, monkeypatch) as kit:
        memory.is_slow = True
        run_id = await kit.start()
        await settle()
        (task,) = kit.live(run_id).tasks.values()
        assert ("context", "context") == (task.id, task.waits_for)
        began = trio.current_time()
        assert "cancelled" == (await kit.gateway.cancel_run(OPERATOR, run_id, "enough")).state
        assert trio.current_time() - began < 0.25
        assert [] == kit.model.requests
        assert ["run.started", "run.cancelled"] == kit.kinds(run_id)[-2:]
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched


async def test_a_crash_while_gathering_gathers_again(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon asks again; after the event it uses the text of the tape."""
    memory.is_slow = True
    async with running(store, memory, monkeypatch) as kit:
        run_id = await kit.start("@run:x please")
        await wait_all_tasks_blocked()
        assert "run.started" == kit.kinds(run_id)[-1]
    memory.is_slow = False
    hang = trio.Event()
    async with running(store, memory, monkeypatch) as kit:
        kit.model.turns = [hang]
        await settle()
        assert 4 == kit.kinds(run_id).count("context.gathered")
        before = kit.model.requests[-1].messages
    memory.error = Unavailable("not any more")
    async with running(store, memory, monkeypatch) as kit:
        kit.model.turns = [say("at last")]
        assert "done" == await kit.end(run_id)
        assert 4 == kit.kinds(run_id).count("context.gathered")
        assert before == kit.model.requests[-1].messages
        for strict in (False, True):
            report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
            assert report.matched, report.first_divergence


async def test_secrets_in_gathered_texts_are_hidden(
    store: MemoryJournal, memory: Memory, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither tape, prompt, explanation nor preview shows one."""

    async def recall(_question: str, _scope: RecallScope) -> Sequence[ContextSource]:
        await trio.lowlevel.checkpoint()
        return [ContextSource(name="mem_1", kind="fact", text=f"it is {office_kit.SECRET}")]

    monkeypatch.setattr(memory, "recall", recall)
    async with running(store, memory, monkeypatch) as kit:
        run_id = await kit.start(f"@session:{office_kit.SECRET} hello")
        assert "done" == await kit.end(run_id)
        tape = b"".join(row.data for row in kit.rows(run_id)).decode()
        explained = await kit.gateway.explain_context(OPERATOR, run_id)
        for shown in (tape, repr(kit.model.requests), repr(explained)):
            assert office_kit.SECRET not in shown
        assert "it is " in tape
