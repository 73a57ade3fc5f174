"""Replays and forks behind the gateway: real runs, their committed tapes, and who may ask."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.run import replay as replay_module
from palyra.core.access import Caller
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import stable_prefix
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.model.messages import ModelFailure, ToolMessage
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.run.environment import RunLimits
from palyra.core.session.commands import Forked
from palyra.core.trust.fences import inside_fence
from palyra.errors import Forbidden, InvalidParams, NotFound, TooLarge
from tests.actors.run.office_kit import (
    OPERATOR,
    OTHER,
    SECRET,
    STRANGER,
    Kit,
    NamePolicy,
    call,
    running,
    say,
)
from tests.store.memory.journal import MemoryJournal

OBSERVER = Caller(principal="oscar", role="observer", token_id="tok_oscar")
BOTH = pytest.mark.parametrize("strict", [True, False])


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def settle() -> None:
    """Let every actor come to rest."""
    await wait_all_tasks_blocked(0.0001)


async def answer(kit: Kit, run_id: str, decision: str = "allow") -> None:
    """Answer the run's approval once it is pending."""
    await kit.gateway.wait_run(OPERATOR, run_id, until="attention", timeout_s=60)
    (asked,) = await kit.answers.list_seen(OPERATOR, run_id=run_id, pending_only=True, limit=9)
    command = ResolveApproval(
        approval_id=asked.approval_id,
        decision=decision,  # type: ignore[arg-type]  # a literal
        digest=asked.digest,
    )
    await kit.answers.resolve(OPERATOR, command)


async def told(kit: Kit) -> str:
    """A run with several calls, an approval, a denial, a failure and a word."""
    kit.model.turns = [
        ModelFailure("timeout", "late"),
        call(("note", {"text": "a"}), ("ask_note", {"text": "b"}), ("forbidden", {"text": "c"})),
        call(("nothing_like_it", {}), ("note", {"text": 7}), ("ask_note", {"text": "d"})),
        say("all done"),
    ]
    run_id = await kit.start()
    await answer(kit, run_id)
    await answer(kit, run_id, "deny")
    assert await kit.end(run_id) == "done"
    return run_id


# --- replay --------------------------------------------------------------------------------------


@BOTH
async def test_a_run_with_everything_matches(
    store: MemoryJournal, autojump_clock: MockClock, *, strict: bool
) -> None:
    """Retries, batches, approvals, denials and refusals follow from the inputs."""
    async with running(store) as kit:
        run_id = await told(kit)
        effects = list(kit.effects)
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
        assert report.first_divergence is None
        assert (report.matched, report.events) == (True, len(kit.rows(run_id)))
        assert report.recorded_digest == report.replayed_digest
        assert kit.effects == effects
        assert (kit.model.turns, kit.rows(run_id)[-1].kind) == ([], "run.done")


@BOTH
async def test_a_question_about_equal_calls_matches(
    store: MemoryJournal, autojump_clock: MockClock, *, strict: bool
) -> None:
    """A strict replay finds the duplicates that one approval request covers."""
    async with running(store) as kit:
        same = ("ask_note", {"text": "b"})
        kit.model.turns = [call(same, same), say("done")]
        run_id = await kit.start()
        await answer(kit, run_id)
        assert await kit.end(run_id) == "done"
        (asked,) = kit.events(run_id, "approval.requested")
        assert 2 == len(asked.covers)
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
        assert report.first_divergence is None


@BOTH
async def test_a_run_over_a_restart_matches(
    store: MemoryJournal, autojump_clock: MockClock, *, strict: bool
) -> None:
    """A restart during a call is an input like any other."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {"text": "x"}), ("hang_safe", {"text": "y"}))]
        run_id = await kit.start()
        await settle()
    async with running(store) as kit:
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
        assert report.first_divergence is None
        assert "run.recovered" in kit.kinds(run_id)


@BOTH
async def test_cancelled_and_timed_out_runs_match(
    store: MemoryJournal, autojump_clock: MockClock, *, strict: bool
) -> None:
    """Ends that come from outside are inputs."""
    async with running(store, RunLimits(wall_ms=5_000)) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        first = await kit.start()
        await settle()
        await kit.gateway.cancel_run(OPERATOR, first, "enough")
        kit.model.turns = [call(("hang", {"text": "x"}))]
        second = await kit.start()
        assert (await kit.end(first), await kit.end(second)) == ("cancelled", "failed")
        for run_id in (first, second):
            report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
            assert report.first_divergence is None


async def test_the_verdict_of_redacted_arguments_is_taken_from_the_tape(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Redacted arguments cannot be evaluated again; the report names the proposal."""
    async with running(store) as kit:
        kit.model.turns = [
            call(("note", {"text": f"it is {SECRET}"}), ("note", {"text": "harmless"})),
            say("done"),
        ]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=True)
        proposed = kit.kinds(run_id).index("tool.proposed")
        assert (report.matched, report.unjudged) == (True, (proposed,))
        lenient = await kit.gateway.replay_run(OPERATOR, run_id, strict=False)
        assert (lenient.matched, lenient.unjudged) == (True, ())


class Strict(NamePolicy):
    """Rules of another day."""

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        if request.tool == "note":
            return PolicyDecision(
                answer="deny", reason_code="deny", reason="not today", policies=(), version="v1"
            )
        return super().decide(request)


async def test_changed_policies_are_a_divergence_of_a_strict_replay(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The first decision that would differ today is named; a lenient replay matches."""
    async with running(store) as kit:
        run_id = await told(kit)
        kit.services.gate._policy = Strict()
        found = (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).first_divergence
        assert found is not None
        assert (found.seq, found.kind) == (
            kit.kinds(run_id).index("tool.decided"),
            "tool.decided",
        )
        assert (found.expected, found.found) == ("allow", "deny")
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=False)).matched


async def test_other_instructions_are_a_divergence_of_a_strict_replay(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed instructions of an agent differ in the first context."""
    async with running(store) as kit:
        run_id = await told(kit)
        changed = msgspec.structs.replace(DEFAULT_AGENT, instructions="Be brief.")
        prefix = stable_prefix(changed, kit.services.toolbox.catalogue())
        monkeypatch.setattr(
            kit.services.agents, "prefix", lambda _agent, _principal, _workspace, _mode: prefix
        )
        found = (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).first_divergence
        assert found is not None
        assert found.kind == "context.assembled"
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=False)).matched


async def test_an_open_run_is_replayed_as_far_as_it_got(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run that waits for a person matches so far."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        await settle()
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=True)
        assert (report.matched, report.events) == (True, len(kit.rows(run_id)))


async def test_replays_do_not_cross_principals(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A principal that sees a run may replay it; for others it does not exist."""
    async with running(store) as kit:
        run_id = await told(kit)
        assert (await kit.gateway.replay_run(OBSERVER, run_id, strict=True)).matched
        for caller, asked in ((STRANGER, run_id), (OPERATOR, "run_x")):
            with pytest.raises(NotFound):
                await kit.gateway.replay_run(caller, asked, strict=False)


async def test_a_tape_that_is_too_large_is_refused(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay holds the whole tape: beyond the bound it is work for the command line."""
    monkeypatch.setattr(replay_module, "MAX_BYTES", 1_000)
    async with running(store) as kit:
        run_id = await told(kit)
        with pytest.raises(TooLarge, match="palyra tape replay"):
            await kit.gateway.replay_run(OPERATOR, run_id, strict=False)


# --- fork ----------------------------------------------------------------------------------------


async def fork(kit: Kit, run_id: str, at_seq: int, text: str | None = None, **more: Any) -> Forked:
    """Fork as the operator."""
    return await kit.gateway.fork_run(OPERATOR, run_id, at_seq, text, **more)


def said(kit: Kit) -> list[str]:
    """The messages that the model was last shown."""
    return [
        inside_fence(message.output) if isinstance(message, ToolMessage) else message.text
        for message in kit.model.requests[-1].messages
    ]


async def test_a_fork_sees_what_was_there_and_nothing_after(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The model of the branch gets the conversation up to the place; the original stays."""
    async with running(store) as kit:
        run_id = await told(kit)
        before = kit.rows(run_id)
        at_seq = kit.kinds(run_id).index("turn.completed") - 1
        made = await fork(kit, run_id, at_seq, "something else")
        assert await kit.end(made.run_id) == "done"
        assert said(kit) == ["hello", "something else"]
        assert kit.rows(run_id) == before
        assert made.session_id != before[0].session_id
        view = await kit.gateway.get_run(OPERATOR, made.run_id)
        assert view.parent_run_id == run_id
        assert (made.parent_run_id, made.at_seq) == (run_id, at_seq)


async def test_a_fork_says_which_event_it_begins_behind(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Inside a turn the last whole place counts; its link is on the new tape."""
    async with running(store) as kit:
        run_id = await told(kit)
        inside = kit.kinds(run_id).index("tool.started")
        made = await fork(kit, run_id, inside)
        assert await kit.end(made.run_id) == "done"
        assert made.at_seq == kit.kinds(run_id).index("turn.completed") - 1
        (inherited,) = kit.events(made.run_id, "conversation.inherited")
        (row,) = store.read_chain(run_id, after_seq=made.at_seq - 1, limit=1)
        assert (inherited.run_id, inherited.at_seq) == (run_id, made.at_seq)
        assert (inherited.link, row.row.seq) == (row.hash.hex(), made.at_seq)
        assert said(kit) == ["hello"]
        assert "message.received" not in kit.kinds(made.run_id)


async def test_a_fork_can_be_forked(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The inherited conversation is inherited again; both forks replay."""
    async with running(store) as kit:
        run_id = await told(kit)
        first = await fork(kit, run_id, 1, "second word")
        await kit.end(first.run_id)
        head = len(kit.rows(first.run_id)) - 1
        second = await fork(kit, first.run_id, head, "third word")
        await kit.end(second.run_id)
        assert said(kit) == ["hello", "second word", "done", "third word"]
        for made in (first, second):
            report = await kit.gateway.replay_run(OPERATOR, made.run_id, strict=True)
            assert report.first_divergence is None


async def test_an_open_run_can_be_forked(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The fork has the conversation up to the committed head; the original continues."""
    async with running(store) as kit:
        kit.model.turns = [call(("note", {"text": "a"})), call(("hang", {"text": "b"}))]
        run_id = await kit.start()
        await settle()
        head = len(kit.rows(run_id)) - 1
        made = await fork(kit, run_id, head)
        assert await kit.end(made.run_id) == "done"
        assert said(kit) == ["hello", "", "wrote a"]
        assert (await kit.gateway.get_run(OPERATOR, run_id)).phase == "in_progress"
        with pytest.raises(InvalidParams, match="ends with seq"):
            await fork(kit, run_id, head + 1)
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"


async def test_a_fork_survives_a_restart(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Its own tape is all that a recovery needs."""
    async with running(store) as kit:
        run_id = await told(kit)
        kit.model.turns = [trio.Event()]
        made = await fork(kit, run_id, 1, "again")
        await settle()
    async with running(store) as kit:
        assert await kit.end(made.run_id) == "done"
        assert said(kit) == ["hello", "again"]


async def test_only_ones_own_runs_are_forked(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run of another principal does not exist, also for an operator; observers cannot fork."""
    async with running(store) as kit:
        run_id = await told(kit)
        for caller in (OTHER, STRANGER):
            with pytest.raises(NotFound):
                await kit.gateway.fork_run(caller, run_id, 1, "mine now")
        with pytest.raises(NotFound):
            await fork(kit, "run_x", 1)
        with pytest.raises(Forbidden):
            await kit.gateway.fork_run(OBSERVER, run_id, 1, "x")


async def test_a_fork_of_a_finished_run_needs_a_text(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After the model's answer there is nothing to answer."""
    async with running(store) as kit:
        run_id = await told(kit)
        head = len(kit.rows(run_id)) - 1
        with pytest.raises(InvalidParams, match="give a text"):
            await fork(kit, run_id, head)
        made = await fork(kit, run_id, head, "and then?")
        await kit.end(made.run_id)
        assert said(kit)[-2:] == ["all done", "and then?"]


async def test_a_fork_inherits_how_it_is_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Modes and budget are those of the other run; who asks is who asks now."""
    async with running(store) as kit:
        run_id = await kit.start(json_mode=True, approval_mode="deny", origin="background")
        await kit.end(run_id)
        made = await fork(kit, run_id, 1)
        await kit.end(made.run_id)
        (accepted,) = kit.events(made.run_id, "run.accepted")
        assert (accepted.json_mode, accepted.approval_mode, accepted.origin) == (
            True,
            "deny",
            "background",
        )


async def test_the_receipt_of_a_fork_is_its_answer(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The receipt is committed with the fork and says the same."""
    async with running(store) as kit:
        run_id = await told(kit)
        key = IdempotencyKey(principal="ann", key="k", body_sha256="b")
        made = await fork(kit, run_id, 1, "again", receipt=key)
        kept = store.find_receipt("ann", "k", now_ms=0)
        assert kept is not None
        assert msgspec.json.decode(kept.result, type=Forked) == made
