"""Payloads of tasks are checked like requests, and a run is begun once over all attempts."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.core.journal.changes import RunFilter, VerifyReport
from palyra.core.journal.records import TaskRecord
from palyra.core.model.messages import ModelFailure
from palyra.core.ports import Journal
from palyra.core.session.commands import StartRun
from palyra.core.tape.events import Budget
from palyra.core.task.life import Submission, submit
from palyra.errors import ActorGone, DiskFull, IllegalState, InvalidParams, PalyraError, Unavailable
from palyra.operations.task_handlers import Maintenance, RunWork, compaction, prompt
from tests.actors.healing_kit import elapse
from tests.actors.run.asking_kit import answer, pending
from tests.actors.run.office_kit import Kit, call, running, say
from tests.actors.task_kit import Office
from tests.rows import every_row
from tests.store.memory.journal import MemoryJournal


@every_row(
    "payload",
    [
        {},
        {"text": ""},
        {"text": " \n"},
        {"text": 1},
        {"text": "a", "txt": "b"},
        {"text": "a", "session_key": ""},
        {"text": "a", "session_key": "k" * 257},
        {"text": "a", "session_id": ""},
        {"text": "a", "session_id": "s" * 65},
        {"text": "a", "session_id": "ses_a", "session_key": "k"},
        {"text": "a", "agent": ""},
        {"text": "a", "agent": "a" * 65},
        {"text": "a", "approval_mode": "never"},
        {"text": "a", "budget": {"wall_ms": -1}},
        {"text": "a", "budget": {"wall_ms": 604_800_001}},
        {"text": "a", "budget": {"tokens": 0}},
        {"text": "a", "budget": {"usd_micros": 1.5}},
        {"text": "a", "budget": {"walls_ms": 1_000}},
    ],
)
def test_a_prompt_that_no_run_would_take_is_refused(payload: dict[str, Any]) -> None:
    """What `run.start` refuses is refused when the task is submitted, not when its time comes."""
    with pytest.raises(InvalidParams, match="payload"):
        prompt(payload)


@every_row("payload", [{}, {"session_id": ""}, {"session_id": "s" * 65}])
def test_a_compaction_names_a_session(payload: dict[str, Any]) -> None:
    """A text that cannot be an id is refused."""
    with pytest.raises(InvalidParams, match="payload"):
        compaction(payload)


def test_a_prompt_at_its_limits_is_taken() -> None:
    """The control: the largest values reach the run."""
    payload = {"text": "a", "session_key": "k" * 256, "budget": {"wall_ms": 604_800_000}}
    wanted = StartRun(
        text="a",
        session_key="k" * 256,
        budget=Budget(wall_ms=604_800_000),
        origin="background",
    )
    assert wanted == prompt(payload)


async def attempt(kit: Kit, task: TaskRecord, fail: Callable[[], None]) -> None:
    """Begin the run of a task, whose model waits; then the journal fails."""
    work = RunWork(kit.gateway, cast("Journal", kit.journal), prompt)
    async with trio.open_nursery() as nursery:
        kit.journal.hold = True
        nursery.start_soon(work.work, task, lambda: None)
        await elapse(1)
        assert 1 == len(kit.model.requests)
        fail()


def opened() -> MemoryJournal:
    store = MemoryJournal()
    store.open()
    return store


@pytest.fixture
def task() -> TaskRecord:
    """A prompt whose run has its id, as if a worker had claimed it."""
    wanted = Submission(kind="prompt", payload={"text": "a"})
    return msgspec.structs.replace(submit(wanted, "tsk_a", "ann", 0), run_id="run_a")


async def test_a_run_whose_acceptance_is_refused_stops_asking_its_model(
    task: TaskRecord, autojump_clock: MockClock
) -> None:
    """On a full disk nothing is paid for; the next attempt begins the run."""
    store = MemoryJournal()
    store.open()
    async with running(store) as kit:
        kit.model.turns = [trio.Event(), say("done")]

        def fill_disk() -> None:
            kit.journal.fail_with = DiskFull("full")
            kit.journal.release()

        with pytest.RaisesGroup(DiskFull):
            await attempt(kit, task, fill_disk)
        kit.journal.fail_with = None
        await elapse(1)
        assert "run_a" not in kit.registry.runs
        await RunWork(kit.gateway, cast("Journal", kit.journal), prompt).work(task, lambda: None)
    ended = store.find_run("run_a")
    assert ended is not None
    assert "done" == ended.state


async def finish(kit: Kit, task: TaskRecord) -> Any:
    """Do the work of a task; return its result, or the error."""
    try:
        return await RunWork(kit.gateway, cast("Journal", kit.journal), prompt).work(
            task, lambda: None
        )
    except PalyraError as error:
        return error


async def test_a_prompt_may_ask_and_waits_for_the_answer(
    task: TaskRecord, autojump_clock: MockClock
) -> None:
    """An answer lets the call run and the task succeed; without one the task fails in bounded time."""
    for decision in ("allow", "deny", None):
        store = MemoryJournal()
        store.open()
        results = list[Any]()

        async def do(kit: Kit, results: list[Any] = results) -> None:
            results.append(await finish(kit, task))

        async with running(store) as kit, trio.open_nursery() as nursery:
            kit.model.turns = [call(("ask_note", {"text": "x"})), say("so it is")]
            nursery.start_soon(do, kit)
            await elapse(60)
            (asked,) = await pending(kit, "run_a")
            if decision is not None:
                await answer(kit, asked, decision)
            await elapse(3_600)
        (result,) = results
        if decision == "allow":
            assert "run_a" == result["run_id"]
        else:
            assert isinstance(result, IllegalState)
            assert "refused" in result.message


async def test_a_refused_call_fails_the_task(task: TaskRecord, autojump_clock: MockClock) -> None:
    """However well the run ends."""
    refused = {"text": "a", "approval_mode": "deny"}
    async with running(opened()) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"})), say("then not")]
        result = await finish(kit, msgspec.structs.replace(task, payload=refused))
    assert isinstance(result, IllegalState)
    assert "no_approver" in result.message


async def test_a_provider_that_is_down_before_any_call_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    """By another run, after a pause; after a call has run the task fails at once."""
    down = [ModelFailure("unavailable", "no route to host") for _ in range(20)]
    acted = call(("note", {"text": "x"}))
    for turns, states in (
        ([*down[:4], say("up again")], ["failed", "done"]),
        ([acted, *down], ["failed"]),
        ([ModelFailure("auth", "no"), say("never")], ["failed"]),
    ):
        office = Office()
        async with running(opened()) as kit:
            kit.model.turns = turns
            work = RunWork(kit.gateway, cast("Journal", kit.journal), prompt)
            office.tasks.handlers = {"prompt": work}
            async with office.live():
                task = await office.submit(kind="prompt", payload={"text": "a"})
                await elapse(600)
            runs = kit.journal.store.list_runs(RunFilter(limit=9))
            assert states == [each.state for each in runs][::-1]
            ended = office.task(task.task_id)
            done = "succeeded" if states[-1] == "done" else "failed"
            assert (done, len(states)) == (ended.state, ended.attempts)


async def test_a_run_whose_acceptance_is_unknown_is_begun_when_its_actor_has_ended(
    task: TaskRecord, autojump_clock: MockClock
) -> None:
    """After a crash of the journal the actor waits for its model; a second one would disturb it."""
    store = MemoryJournal()
    store.open()
    async with running(store) as kit, trio.open_nursery() as nursery:
        answers = trio.Event()
        kit.model.turns = [answers, say("lost"), say("done")]
        with pytest.RaisesGroup(ActorGone):
            await attempt(kit, task, kit.journal.fall)
        kit.journal.is_down = kit.journal.hold = False
        first = kit.registry.runs["run_a"]
        work = RunWork(kit.gateway, cast("Journal", kit.journal), prompt)
        nursery.start_soon(work.work, task, lambda: None)
        await elapse(60)
        assert (first, None) == (kit.registry.runs["run_a"], store.find_run("run_a"))
        answers.set()
        await elapse(60)
        ended = store.find_run("run_a")
    assert ended is not None
    assert ("done", 2) == (ended.state, len(kit.model.requests))


@pytest.mark.parametrize(
    ("named", "known"),
    [({"agent": "nobody"}, "no agent 'nobody'; known: default"), ({"model": "gpt-9"}, "scripted")],
)
async def test_an_unknown_agent_or_model_is_refused_when_the_task_is_submitted(
    autojump_clock: MockClock, named: dict[str, str], known: str
) -> None:
    """The error names the known ones; a schedule and a retry check it as well."""
    store = MemoryJournal()
    store.open()
    async with running(store) as kit:
        work = RunWork(kit.gateway, cast("Journal", kit.journal), prompt)
        with pytest.raises(InvalidParams, match=known) as refused:
            await work.check({"text": "a", **named})
        assert {refused.value.field} == named.keys()
        await work.check({"text": "a", "agent": "default", "model": "scripted"})
    office = Office()
    office.tasks.handlers = {"prompt": work}
    for submit_it in (office.submit, office.add):
        with pytest.raises(InvalidParams, match=known):
            await submit_it(kind="prompt", payload={"text": "a", **named})


class SlowJournal:
    """A verification that passes a root every minute, a few times, in a thread of its own."""

    def __init__(self, roots: int, *, error: PalyraError | None = None) -> None:
        self.roots = roots
        self.error = error

    async def read(self, query: Callable[[Any], Any]) -> Any:
        notes: list[Callable[[int], object]] = []

        def verify(*, note: Callable[[int], object]) -> VerifyReport:
            notes.append(note)
            return VerifyReport(
                checked_events=5, checked_roots=self.roots, through_position=5,
                signed_through_position=5,
            )  # fmt: skip

        report = query(SimpleNamespace(verify=verify))
        for number in range(self.roots):
            await elapse(60)
            notes[0](number)
        await elapse(300)  # without a sign of life
        if self.error is not None:
            raise self.error
        return report


async def test_a_long_verification_shows_its_progress(autojump_clock: MockClock) -> None:
    """Each signed root is a sign of life, and silence is none."""
    seen: list[float] = []
    began_s = trio.current_time()
    work = Maintenance(cast("Journal", SlowJournal(4)))
    task = submit(Submission(kind="maintenance"), "tsk_a", "palyra", 0)
    done = await work.work(task, lambda: seen.append(trio.current_time() - began_s))
    assert {"checked_events": 5, "checked_roots": 4} == done
    assert [60, 120, 180, 240] == [60 * round(at_s / 60) for at_s in seen]
    assert max(seen) < 250


async def test_a_verification_that_fails_fails_its_task(autojump_clock: MockClock) -> None:
    """With the error itself, which says if a later attempt may succeed."""
    work = Maintenance(cast("Journal", SlowJournal(1, error=Unavailable("closed"))))
    task = submit(Submission(kind="maintenance"), "tsk_a", "palyra", 0)
    with pytest.raises(Unavailable, match="closed"):
        await work.work(task, lambda: None)
