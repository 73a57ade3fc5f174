"""Procedures: proposed with their proofs, accepted, replaced, taken back, and withdrawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.records import CandidateRecord
from palyra.core.tape.events import (
    Budget,
    DelegationStarted,
    Event,
    ToolCompleted,
    ToolDecided,
    ToolProposed,
)
from palyra.errors import IllegalState, InvalidParams, TooLarge, Unavailable
from palyra.services.learning import procedures as procedures_module
from palyra.services.learning.procedures import Shown
from tests.services.learning_kit import LearningKit
from tests.services.memory_kit import ANN, BOB
from tests.store.kit import run

pytestmark = pytest.mark.real
Step = tuple[str, dict[str, Any]]


def step_events(number: int, step: Step, outcome: str = "succeeded") -> list[Event]:
    """Proposal and end of a call."""
    tool, arguments = step
    call_id = f"call_{number}"
    proposed = ToolProposed(
        call_id=call_id, tool=tool, arguments=arguments, digest="", tool_class="effect"
    )
    if outcome == "denied":
        return [
            proposed,
            ToolDecided(
                call_id=call_id,
                verdict="deny",
                reason_code="",
                reason="",
                policies=(),
                policy_version="",
            ),
        ]
    return [proposed, ToolCompleted(call_id=call_id, status=outcome, output="")]  # type: ignore[arg-type]  # of a row


def release(version: str, target: str = "north") -> list[Step]:
    """Two calls that share a value, one with a fixed one."""
    return [
        ("build", {"version": version}),
        ("publish", {"version": version, "target": target}),
    ]


class ProcedureKit(LearningKit):
    """Runs that make calls, and the tools that are shown."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.shown: list[tuple[str, str]] = []
        self.procedures.show = self._show

    def _show(self, shown: Shown) -> None:
        self.shown = [(principal, each.name) for principal, each in shown]

    async def perform(self, steps: Sequence[Step], **fields: Any) -> list[CandidateRecord]:
        """Reflect upon a run that made the calls; the candidates that it proved."""
        events = [event for number, step in enumerate(steps) for event in step_events(number, step)]
        return await self.reflect_on(events, **{"tool_calls": len(steps), **fields})

    async def reflect_on(self, events: Sequence[Event], **fields: Any) -> list[CandidateRecord]:
        done = await self.learning().reflect(self.record(events, **fields))
        return [await self.find(each) for each in done.candidate_ids]

    async def find(self, candidate_id: str) -> CandidateRecord:
        found = await self.journal.find(lambda store: store.find_candidate(candidate_id))
        assert found is not None
        return found

    async def teach(self, *versions: str, target: str = "north") -> CandidateRecord:
        """The candidate that the last of these releases proved."""
        found: list[CandidateRecord] = []
        for version in versions:
            found = await self.perform(release(version, target))
        assert 1 == len(found)
        return found[0]


@pytest.fixture
def kit(tmp_path: Path) -> ProcedureKit:
    return ProcedureKit(tmp_path)


async def test_the_second_run_proposes_and_the_third_supports(kit: ProcedureKit) -> None:
    """One candidate for all, with a proof and evidence for each run."""
    assert [] == await kit.perform(release("1"))
    (proposed,) = await kit.perform(release("2"))
    assert ("procedure", "proposed", 8_500) == (
        proposed.kind, proposed.state, proposed.score_bps,
    )  # fmt: skip
    assert ["run_2", "run_1"] == [each.run_id for each in proposed.evidence]
    (again,) = await kit.perform(release("3"))
    assert (proposed.candidate_id, 9_500) == (again.candidate_id, again.score_bps)
    assert again.procedure is not None
    assert proposed.procedure is not None
    assert ("build_publish", 3) == (again.procedure.name, len(again.procedure.proofs))
    assert {"version": "3"} == again.procedure.proofs[0].values


@pytest.mark.parametrize(
    "fields",
    [
        {"principal": "bob"},
        {"state": "failed"},
        {"parent_run_id": "run_0"},
        {"tool_calls": 1},
    ],
)
async def test_only_runs_of_the_same_person_that_succeeded_prove(
    kit: ProcedureKit, fields: dict[str, Any]
) -> None:
    """Another person's run, a failed one, a delegated one and one with too few calls do not."""
    await kit.perform(release("1"), **fields)
    assert [] == await kit.perform(release("2"))
    assert 1 == len(await kit.perform(release("3")))  # the control: run 2 proves it


async def test_a_run_with_a_denied_call_proves_nothing(kit: ProcedureKit) -> None:
    await kit.perform(release("1"))
    events = [event for n, step in enumerate(release("2")) for event in step_events(n, step)]
    denied = step_events(9, ("erase", {}), "denied")
    assert [] == await kit.reflect_on([*events, *denied], tool_calls=3)


async def test_earlier_runs_are_read_once(
    kit: ProcedureKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs there were, a reflection reads its own tape alone."""
    for number in range(6):
        await kit.perform(release(str(number)))
    read, read_tape = list[str](), kit.store.read_tape

    def note(run_id: str, **fields: Any) -> Any:
        read.append(run_id)
        return read_tape(run_id, **fields)

    monkeypatch.setattr(kit.store, "read_tape", note)
    (found,) = await kit.perform(release("again"))
    assert {"run_7"} == set(read)
    assert 7 == len(found.evidence)


@pytest.mark.parametrize("size_bytes", [1, 40_000])
async def test_a_purged_run_proves_nothing(kit: ProcedureKit, size_bytes: int) -> None:
    """A run that was read before its purge is no proof after it, and nothing of it is kept."""
    steps = [*release("1"), ("note", {"text": "x" * size_bytes})]
    await kit.perform(steps)
    gone = run(
        "run_1", state="done", principal="ann", session_id="ses_a", tool_calls=3, purged_ms=1
    )
    assert [None] == kit.store.commit([Change(records=(gone,))])
    assert [] == await kit.perform(steps)
    await kit.procedures.reload()
    assert {} == kit.procedures._kept
    assert 1 == len(await kit.perform(steps))  # the control: run 2 proves it


async def test_an_accepted_one_is_a_tool_and_is_not_proposed_again(kit: ProcedureKit) -> None:
    """Further runs that fit it add no candidate; `undo` takes the tool away."""
    found = await kit.teach("1", "2")
    assert [] == kit.shown
    await kit.learning().accept(ANN, found.candidate_id)
    assert [("ann", "build_publish")] == kit.shown
    assert [] == await kit.perform(release("3"))
    await kit.learning().undo(ANN, found.candidate_id)
    assert [] == kit.shown


async def test_other_values_replace_it_under_its_name(kit: ProcedureKit) -> None:
    """Two runs with another fixed value propose; accepted, it is the tool, and `undo` brings the old one back."""
    old = await kit.teach("1", "2")
    await kit.learning().accept(ANN, old.candidate_id)
    assert [] == await kit.perform(release("3", "south"))
    (new,) = await kit.perform(release("4", "south"))
    assert new.candidate_id != old.candidate_id
    assert new.procedure is not None
    assert "south" == new.procedure.steps[1].fixed["target"]
    assert "build_publish" != new.procedure.name
    await kit.learning().accept(ANN, new.candidate_id)
    assert [("ann", "build_publish")] == kit.shown
    assert "superseded" == (await kit.find(old.candidate_id)).state
    await kit.learning().undo(ANN, new.candidate_id)
    assert [("ann", "build_publish")] == kit.shown
    assert ("applied", "undone") == (
        (await kit.find(old.candidate_id)).state, (await kit.find(new.candidate_id)).changes[-1].action,
    )  # fmt: skip


async def test_two_failures_in_a_row_withdraw_it(kit: ProcedureKit) -> None:
    """A use counts once, a success between two failures keeps the tool, a stranger's use is ignored."""
    found = await kit.teach("1", "2")
    await kit.learning().accept(ANN, found.candidate_id)

    async def use(use_id: str, *, is_success: bool, principal: str = "ann") -> tuple[int, int]:
        await kit.procedures.note_use(principal, "build_publish", use_id, is_success, "run_x")
        procedure = (await kit.find(found.candidate_id)).procedure
        assert procedure is not None
        return procedure.succeeded, procedure.failed

    assert (0, 1) == await use("a", is_success=False)
    assert (0, 1) == await use("a", is_success=False)
    assert (0, 1) == await use("b", is_success=False, principal="bob")
    assert (1, 1) == await use("c", is_success=True)
    assert (1, 2) == await use("d", is_success=False)
    assert [("ann", "build_publish")] == kit.shown
    assert (1, 3) == await use("e", is_success=False)
    assert [] == kit.shown
    after = await kit.find(found.candidate_id)
    assert ("proposed", "withdrawn") == (after.state, after.changes[-1].action)
    assert (1, 3) == await use("f", is_success=False)  # it is no tool any more


async def test_a_denial_is_no_failure(kit: ProcedureKit) -> None:
    """However often a step is refused, the procedure stays: nothing was tried."""
    found = await kit.teach("1", "2")
    await kit.learning().accept(ANN, found.candidate_id)
    step: Step = ("publish", {"version": "3"})
    refused = kit.record(step_events(0, step, "denied"), state="failed")
    for use_id in "abc":
        await kit.procedures.note_use(
            "ann", "build_publish", use_id, is_success=False, run_id=refused
        )
    procedure = (await kit.find(found.candidate_id)).procedure
    assert procedure is not None
    assert (0, 0) == (procedure.succeeded, procedure.failed)
    assert [("ann", "build_publish")] == kit.shown


async def test_a_use_that_cannot_be_written_is_only_logged(
    kit: ProcedureKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has its result already."""
    found = await kit.teach("1", "2")
    await kit.learning().accept(ANN, found.candidate_id)

    async def refuse(_change: object) -> None:  # noqa: RUF029 - as the journal
        raise Unavailable("the disk is full")

    monkeypatch.setattr(kit.journal, "commit", refuse)
    await kit.procedures.note_use("ann", "build_publish", "a", is_success=True, run_id="run_x")
    after = await kit.find(found.candidate_id)
    assert after.procedure is not None
    assert 0 == after.procedure.succeeded


async def test_steps_of_a_failed_procedure_count_for_the_run(kit: ProcedureKit) -> None:
    """The evidence names the procedure's run too, so that a purge of it ends the candidate."""
    found: list[CandidateRecord] = []
    for number, version in enumerate(("1", "2")):
        first, second = release(version)
        child = kit.record(
            [*step_events(0, first), *step_events(1, ("publish", {"x": 1}), "failed")],
            parent_run_id="run_0",
            tool_calls=2,
        )
        started = DelegationStarted(
            call_id="call_0", run_id=child, depth=1, agent="", budget=Budget()
        )
        proposed, ended = step_events(0, ("procedure:release", {"version": version}), "failed")
        events = [proposed, started, ended, *step_events(1, second)]
        found = await kit.reflect_on(events, tool_calls=2)
        assert number == len(found)
    assert found[0].procedure is not None
    assert ["build", "publish"] == [each.tool for each in found[0].procedure.steps]
    assert {"run_1", "run_2", "run_3", "run_4"} == {each.run_id for each in found[0].evidence}


async def test_names_are_unique_in_the_daemon(kit: ProcedureKit) -> None:
    """Another one's name is refused, and a suggested one gets a number."""
    found = await kit.teach("1", "2")
    await kit.perform(release("1"), principal="bob")
    (other,) = await kit.perform(release("2"), principal="bob")
    assert other.procedure is not None
    assert "build_publish_2" == other.procedure.name
    with pytest.raises(InvalidParams, match="another procedure is named 'build_publish'"):
        await kit.learning().rename(BOB, other.candidate_id, "build_publish")
    await kit.learning().rename(BOB, other.candidate_id, "ship")
    assert {"build_publish"} == await kit.procedures.find_taken(other.candidate_id)
    assert {"build_publish", "ship"} == await kit.procedures.find_taken("")
    await kit.learning().accept(ANN, found.candidate_id)
    await kit.learning().accept(BOB, other.candidate_id)
    assert {("ann", "build_publish"), ("bob", "ship")} == set(kit.shown)


async def test_their_number_is_limited(kit: ProcedureKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """One above the limit is refused and stays proposed; one that replaces another is not above it."""
    monkeypatch.setattr(procedures_module, "MAX_ACCEPTED", 1)
    first = await kit.teach("1", "2")
    await kit.learning().accept(ANN, first.candidate_id)
    for word in ("a", "b"):
        found = await kit.perform([("look", {"at": word}), ("note", {"text": word})])
    with pytest.raises(TooLarge, match="1 procedures are accepted, which is the limit"):
        await kit.learning().accept(ANN, found[0].candidate_id)
    assert "proposed" == (await kit.find(found[0].candidate_id)).state
    changed = await kit.teach("3", "4", target="south")
    await kit.learning().accept(ANN, changed.candidate_id)
    assert [("ann", "build_publish")] == kit.shown


async def test_a_statement_has_no_steps(kit: ProcedureKit) -> None:
    """Only a procedure is accepted or named as one."""
    run_id = kit.say("Remember that I always prefer tabs over spaces.")
    (candidate_id,) = (await kit.learning().reflect(run_id)).candidate_ids
    fact = await kit.find(candidate_id)
    with pytest.raises(IllegalState, match="has no steps"):
        await kit.procedures.accept(fact, by="ann")
    with pytest.raises(IllegalState, match="has no steps"):
        await kit.procedures.rename(fact, "x", by="ann")
