"""Runs as they live: real actors on virtual time, from the gateway to the tape."""

import gc
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.approval import ResolveApproval
from palyra.core.journal.changes import RunFilter
from palyra.core.model.messages import ModelFailure, ToolMessage
from palyra.core.run.environment import RunLimits
from palyra.core.session.commands import ChangeQueue, StartRun
from palyra.core.tape.events import TERMINAL_KINDS
from palyra.core.trust.fences import inside_fence
from palyra.errors import (
    Conflict,
    DigestMismatch,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    Overloaded,
    PalyraError,
    Unavailable,
)
from tests.actors.run.office_kit import OPERATOR, OTHER, SECRET, STRANGER, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def settle() -> None:
    """Let every actor come to rest."""
    await wait_all_tasks_blocked(0.0001)


def answer(_kit: Kit, approval: Any, decision: str = "allow", **fields: Any) -> ResolveApproval:
    """An answer to an open prompt."""
    return ResolveApproval(
        approval_id=approval.approval_id,
        decision=decision,  # type: ignore[arg-type]  # a literal
        **{"digest": approval.digest, **fields},
    )


async def prompt_of(kit: Kit, run_id: str) -> Any:
    """The run's open approval."""
    view, _ = await kit.gateway.wait_run(OPERATOR, run_id, until="attention", timeout_s=60)
    assert view.phase == "awaiting_approval"
    found = await kit.answers.list_seen(OPERATOR, run_id=run_id, pending_only=True, limit=10)
    return found[0]


# --- the first loop ------------------------------------------------------------------------------


async def test_a_run_with_one_tool_goes_through_every_station(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Accepted … proposed < decided < started < completed < attested … answered, done."""
    async with running(store) as kit:
        kit.model.turns = [call(("echo", {"text": "hi"})), say("it said hi")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert kit.kinds(run_id) == [
            "run.accepted",
            "message.received",
            "run.started",
            "context.assembled",
            "turn.started",
            "turn.completed",
            "tool.proposed",
            "tool.decided",
            "tool.started",
            "tool.completed",
            "tool.attested",
            "context.assembled",
            "turn.started",
            "turn.completed",
            "message.completed",
            "run.done",
        ]
        assert kit.events(run_id, "message.completed")[0].text == "it said hi"
        await settle()
        assert kit.registry.runs == {}


async def test_a_finished_session_keeps_no_actor(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """When nothing is open, the directory and the supervisor are empty."""
    async with running(store) as kit:
        await kit.end(await kit.start())
        await settle()
        assert (kit.registry.sessions, len(kit.work)) == ({}, 0)


async def test_the_reply_to_start_comes_after_the_commit(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """While the journal has not committed, run.start has no answer."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.journal.hold = True
        replies: list[str] = []

        async def start() -> None:
            replies.append(await kit.start())

        nursery.start_soon(start)
        await settle()
        assert replies == []
        kit.journal.hold = False
        kit.journal.flush()
        await settle()
        assert len(replies) == 1


async def test_a_tool_starts_only_after_its_start_is_committed(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Wire, tape, act: the effect waits for the commit of tool.started."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait, call(("note", {"text": "x"}))]
        run_id = await kit.start()
        kit.journal.hold = True
        wait.set()
        await settle()
        assert kit.live(run_id).run.find_call(kit.live(run_id).run.calls[0].call_id) is not None
        assert kit.effects == []
        kit.journal.hold = False
        kit.journal.flush()
        await kit.end(run_id)
        assert kit.effects == ["x"]


async def test_a_refused_commit_is_the_starters_error(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A full disk is an error for the client that starts the run."""
    async with running(store) as kit:
        kit.journal.fail_with = Unavailable("no space left")
        with pytest.raises(Unavailable, match="no space"):
            await kit.start()


async def test_a_secret_is_nowhere_on_the_tape(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Message, arguments, output and answer are redacted, and the tool got the real value."""
    async with running(store) as kit:
        kit.model.turns = [call(("note", {"text": SECRET})), say(f"wrote {SECRET}")]
        run_id = await kit.start(f"note {SECRET}")
        assert await kit.end(run_id) == "done"
        assert kit.effects == [SECRET]
        assert all(SECRET.encode() not in row.data for row in kit.rows(run_id))


async def test_the_duration_of_a_call_is_on_the_tape(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The duration of a call is that of its tool."""
    async with running(store) as kit:
        kit.model.turns = [call(("sleep", {"seconds": 3})), say("done")]
        run_id = await kit.start()
        await kit.end(run_id)
        assert [event.duration_ms for event in kit.events(run_id, "tool.completed")] == [3_000]


async def test_a_tool_that_overruns_its_deadline_is_stopped(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The call ends as timed_out, and the model is told so."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("it hung")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "tool.completed")[0].status == "timed_out"


async def test_the_wall_clock_stops_a_model_that_hangs(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The time limit of the budget applies inside a model call."""
    began_s = trio.current_time()
    async with running(store, RunLimits(wall_ms=5_000)) as kit:
        kit.model.turns = [trio.Event()]
        run_id = await kit.start()
        assert await kit.end(run_id) == "failed"
        assert kit.events(run_id, "run.failed")[0].failure_class == "wall_clock"
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.5)


async def test_the_wall_clock_pauses_during_an_approval(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Hours before an answer do not count; the approval has a deadline of its own."""
    async with running(store, RunLimits(wall_ms=5_000, approval_ms=7_200_000)) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        autojump_clock.jump(3_600)
        await kit.answers.resolve(OPERATOR, answer(kit, approval))
        assert await kit.end(run_id) == "done"


async def test_a_failing_provider_is_retried_with_back_off(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Transient failures cost time, not the run."""
    async with running(store) as kit:
        kit.model.turns = [
            ModelFailure("transient", "503"),
            ModelFailure("timeout", "slow"),
            say("at last"),
        ]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert [e.delay_ms for e in kit.events(run_id, "turn.failed")] == [100, 200]


# --- approvals -----------------------------------------------------------------------------------


async def test_an_approval_wakes_the_run(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The call waits, another caller allows it, and it runs exactly once."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        assert kit.effects == []
        outcome = await kit.answers.resolve(OTHER, answer(kit, approval))
        assert (outcome.decision, outcome.by, outcome.won) == ("allow", "bob", True)
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["x"]
        kinds = kit.kinds(run_id)
        order = [
            "tool.proposed",
            "approval.requested",
            "approval.resolved",
            "tool.decided",
            "tool.started",
            "tool.completed",
            "tool.attested",
        ]
        assert [kind for kind in kinds if kind in order] == order


async def test_a_denial_is_fed_back(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The denied call never runs; the model gets the reason and the run continues."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"})), say("then not")]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        await kit.answers.resolve(OPERATOR, answer(kit, approval, "deny", reason="not today"))
        assert await kit.end(run_id) == "done"
        assert kit.effects == []
        told = kit.model.requests[-1].messages[-1]
        assert isinstance(told, ToolMessage)
        assert "not today" == inside_fence(told.output)


async def test_the_same_proposal_is_not_asked_twice_after_a_denial(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A model that insists gets the denial without a second prompt."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"})), call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        await kit.answers.resolve(OPERATOR, answer(kit, approval, "deny"))
        assert await kit.end(run_id) == "done"
        assert kit.kinds(run_id).count("approval.requested") == 1
        assert kit.events(run_id, "tool.decided")[1].reason_code == "denied_before"


async def test_the_first_answer_wins(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Of many concurrent answers one counts; all others get the recorded outcome."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        outcomes: list[Any] = []

        async def resolve(decision: str) -> None:
            outcomes.append(await kit.answers.resolve(OPERATOR, answer(kit, approval, decision)))

        async with trio.open_nursery() as nursery:
            for decision in ("allow", "deny", "deny", "allow"):
                nursery.start_soon(resolve, decision)
        await kit.end(run_id)
        late = await kit.answers.resolve(OTHER, answer(kit, approval, "deny"))
        assert [outcome.won for outcome in outcomes].count(True) == 1
        assert not late.won
        assert len({(o.decision, o.by) for o in [*outcomes, late]}) == 1


async def test_an_answer_to_something_else_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A wrong digest and a scope that was not offered change nothing."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        with pytest.raises(DigestMismatch):
            await kit.answers.resolve(OPERATOR, answer(kit, approval, digest="0" * 64))
        with pytest.raises(InvalidParams, match="not offered"):
            await kit.answers.resolve(OPERATOR, answer(kit, approval, scope="session"))
        assert (await kit.gateway.get_run(OPERATOR, run_id)).phase == "awaiting_approval"


async def test_an_unanswered_approval_is_denied(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """At its deadline the approval is denied."""
    began_s = trio.current_time()
    async with running(store, RunLimits(approval_ms=60_000)) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "approval.resolved")[0].by == "deadline"
        assert kit.effects == []
        assert trio.current_time() - began_s == pytest.approx(60, abs=1)


async def test_an_unattended_run_is_denied_without_asking(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """approval_mode deny: no prompt, and the reason says so."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start(approval_mode="deny")
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "tool.decided")[0].reason_code == "no_approver"
        assert "approval.requested" not in kit.kinds(run_id)


async def test_a_role_that_may_not_approve_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A client cannot answer, and a foreign approval does not exist for it."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        approval = await prompt_of(kit, run_id)
        with pytest.raises(Forbidden):
            await kit.answers.resolve(STRANGER, answer(kit, approval))
        with pytest.raises(NotFound):
            await kit.answers.get(STRANGER, approval.approval_id)


# --- cancel --------------------------------------------------------------------------------------


async def reach(kit: Kit, phase: str) -> str:
    """A run that is in the given phase; its id."""
    if phase == "queued":
        kit.model.turns = [trio.Event()]
        await kit.start(session_key="k")
        return await kit.start(session_key="k")
    turns: dict[str, list[Any]] = {
        "turn": [trio.Event()],
        "tool": [call(("hang", {}))],
        "batch": [call(("hang_safe", {}), ("hang_safe", {}), ("hang", {}))],
        "approval": [call(("ask_note", {"text": "x"}))],
        "backoff": [ModelFailure("transient", "503")],
    }
    kit.model.turns = turns[phase]
    run_id = await kit.start()
    await settle()
    return run_id


@pytest.mark.parametrize("phase", ["queued", "turn", "tool", "batch", "approval", "backoff"])
async def test_cancel_works_in_every_phase(
    store: MemoryJournal, autojump_clock: MockClock, phase: str
) -> None:
    """One terminal event, at once, nothing started afterwards, every call attested."""
    async with running(store) as kit:
        run_id = await reach(kit, phase)
        before_s = trio.current_time()
        result = await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        assert result.state == "cancelled"
        assert trio.current_time() - before_s < 0.05
        kinds = kit.kinds(run_id)
        assert (kinds[-1], sum(k in TERMINAL_KINDS for k in kinds)) == ("run.cancelled", 1)
        assert kinds.count("tool.proposed") == kinds.count("tool.attested")
        assert kinds.count("approval.requested") == kinds.count("approval.resolved")
        kit.gate_open.set()
        await settle()
        assert kit.kinds(run_id) == kinds
        assert kit.effects == []


async def test_cancelling_an_ended_run_is_no_error(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run keeps the end it had."""
    async with running(store) as kit:
        run_id = await kit.start()
        await kit.end(run_id)
        assert (await kit.gateway.cancel_run(OPERATOR, run_id, "late")).state == "done"


async def test_an_answer_after_a_cancel_gets_aborted(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The approval of a cancelled run is closed, and the reply says so."""
    async with running(store) as kit:
        run_id = await reach(kit, "approval")
        approval = await prompt_of(kit, run_id)
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        outcome = await kit.answers.resolve(OPERATOR, answer(kit, approval))
        assert (outcome.decision, outcome.won) == ("abort", False)


# --- sessions ------------------------------------------------------------------------------------


async def test_one_foreground_run_at_a_time_in_order(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Messages of one session wait for each other; other sessions do not."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        runs = [await kit.start(f"m{n}", session_key="k") for n in range(3)]
        other = await kit.start(session_key="other")
        assert await kit.end(other) == "done"
        session = kit.registry.keys["ann", "k"].session_id
        queue = await kit.sessions.arrange_queue(OPERATOR, session, ChangeQueue())
        assert (queue.active, queue.waiting, queue.messages) == (runs[0], runs[1:], 2)
        assert (await kit.gateway.get_run(OPERATOR, runs[1])).phase == "queued"
        wait.set()
        for run_id in runs:
            assert await kit.end(run_id) == "done"
        started = [kit.rows(run_id)[2].at_ms for run_id in runs]
        assert started == sorted(started)


async def test_a_full_queue_refuses(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Above the limit a message is refused as Overloaded."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        for _ in range(4):
            await kit.start(session_key="k")
        with pytest.raises(Overloaded, match="waiting"):
            await kit.start(session_key="k")


async def test_reject_refuses_a_busy_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A busy session answers reject with a conflict."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await kit.start(session_key="k")
        with pytest.raises(Conflict, match="busy"):
            await kit.start(session_key="k", queue_mode="reject")


async def test_interrupt_cancels_and_goes_first(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The running run is cancelled, the interrupting one overtakes the queue."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        first = await kit.start(session_key="k")
        queued = await kit.start(session_key="k")
        urgent = await kit.start(session_key="k", queue_mode="interrupt")
        assert [await kit.end(run_id) for run_id in (first, urgent, queued)] == [
            "cancelled",
            "done",
            "done",
        ]
        assert kit.rows(urgent)[2].at_ms <= kit.rows(queued)[2].at_ms


async def test_a_steer_reaches_the_model_of_the_same_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """run.steer is on the tape and in the next request."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("ok")]
        run_id = await kit.start()
        await settle()
        seq = await kit.gateway.steer_run(OPERATOR, run_id, "be brief")
        assert kit.rows(run_id)[seq].kind == "steer.received"
        kit.gate_open.set()
        await kit.end(run_id)
        assert kit.model.requests[-1].messages[-1].text == "be brief"  # type: ignore[union-attr]  # a user message
        with pytest.raises(IllegalState):
            await kit.gateway.steer_run(OPERATOR, run_id, "too late")


async def test_two_first_messages_with_one_key_share_a_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A race to make a session ends in one session."""
    async with running(store) as kit:
        ids: list[str] = []

        async def start() -> None:
            started = await kit.gateway.start_run(OPERATOR, StartRun(text="x", session_key="race"))
            ids.append(started.session_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            nursery.start_soon(start)
        assert len(set(ids)) == 1


async def test_an_archived_session_takes_no_messages(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Archive is durable; reset raises the epoch."""
    async with running(store) as kit:
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        assert (await kit.sessions.reset(OPERATOR, session.session_id)).epoch == 1
        await kit.sessions.archive(OPERATOR, session.session_id)
        with pytest.raises(IllegalState, match="archived"):
            await kit.start(session_id=session.session_id)


# --- principals ----------------------------------------------------------------------------------


async def test_nothing_crosses_principals(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """For a client, foreign runs, sessions and lists do not exist."""
    async with running(store) as kit:
        run_id = await kit.start(session_key="k")
        await kit.end(run_id)
        session_id = (await kit.gateway.get_run(OPERATOR, run_id)).session_id
        attempts: list[Any] = [
            lambda: kit.gateway.get_run(STRANGER, run_id),
            lambda: kit.gateway.cancel_run(STRANGER, run_id, "x"),
            lambda: kit.gateway.steer_run(STRANGER, run_id, "x"),
            lambda: kit.gateway.wait_run(STRANGER, run_id, until="terminal", timeout_s=1),
            lambda: kit.sessions.get(STRANGER, session_id),
            lambda: kit.start(caller=STRANGER, session_id=session_id),
        ]
        for attempt in attempts:
            with pytest.raises(NotFound):
                await attempt()
        assert await kit.gateway.list_runs(STRANGER, RunFilter(principal="ann")) == []
        assert await kit.sessions.list_seen(STRANGER, before=None, limit=10) == []


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["turn", "tool", "batch", "approval", "backoff", "queued"])
async def test_a_restart_resumes_every_open_run(
    store: MemoryJournal, autojump_clock: MockClock, phase: str
) -> None:
    """In every phase a run continues from its tape to an end."""
    async with running(store) as kit:
        run_id = await reach(kit, phase)
        before = kit.kinds(run_id)
        approvals = [
            r.approval_id
            for r in store.list_approvals(principal=None, run_id=run_id, pending_only=True, limit=9)
        ]
    async with running(store) as kit:
        kit.gate_open.set()
        await settle()
        for approval_id in approvals:
            approval = await kit.answers.get(OPERATOR, approval_id)
            await kit.answers.resolve(OPERATOR, answer(kit, approval))
        assert await kit.end(run_id) == "done"
        kinds = kit.kinds(run_id)
        assert kinds[: len(before)] == before
        assert kinds.count("tool.proposed") == kinds.count("tool.attested")
        assert kinds.count("approval.requested") == kinds.count("approval.resolved")


async def test_an_interrupted_effect_is_unknown_after_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call that may have happened is not repeated; the model is told so."""
    async with running(store) as kit:
        run_id = await reach(kit, "tool")
    async with running(store) as kit:
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "tool.completed")[0].status == "unknown"


async def test_an_interrupted_read_runs_again_after_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A read is repeated and succeeds."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang_safe", {}))]
        run_id = await kit.start()
        await settle()
    async with running(store) as kit:
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "tool.completed")[0].status == "succeeded"


async def test_an_approval_keeps_id_digest_and_deadline_over_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The question after the restart is the question from before it."""
    async with running(store) as kit:
        before = await prompt_of(kit, await reach(kit, "approval"))
    async with running(store) as kit:
        await settle()
        after = await prompt_of(kit, before.run_id)
        assert after == before
        await kit.answers.resolve(OPERATOR, answer(kit, after))
        assert await kit.end(before.run_id) == "done"
        assert kit.effects == ["x"]


async def test_secret_arguments_do_not_survive_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An approval of redacted arguments cannot be allowed after a restart, with the reason."""
    async with running(store) as kit:
        kit.model.turns = [call(("ask_note", {"text": SECRET}))]
        before = await prompt_of(kit, await kit.start())
    async with running(store) as kit:
        await settle()
        with pytest.raises(Forbidden, match="stands for a secret"):
            await kit.answers.resolve(OPERATOR, answer(kit, before))
        await kit.answers.resolve(OPERATOR, answer(kit, before, decision="deny"))
        assert await kit.end(before.run_id) == "done"
        assert kit.effects == []


async def test_a_crashed_run_is_resumed_and_affects_no_other(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A bug in one run's model ends only that run's actor, which resumes from its tape."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        other = await kit.start()
        await settle()
        kit.model.turns = [RuntimeError("a bug"), say("recovered")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert "run.recovered" in kit.kinds(run_id)
        wait.set()
        assert await kit.end(other) == "done"


async def test_a_run_that_crashes_repeatedly_fails(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After three resumes without progress the run fails and the session continues."""
    async with running(store) as kit:
        kit.model.turns = [RuntimeError("bug")] * 4 + [say("next")]
        run_id = await kit.start(session_key="k")
        following = await kit.start(session_key="k")
        assert await kit.end(run_id) == "failed"
        assert kit.events(run_id, "run.failed")[0].failure_class == "recovery_exhausted"
        assert await kit.end(following) == "done"


async def test_a_failed_append_stops_the_run_until_the_journal_is_back(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """On a full disk nothing is executed; with space again the run continues from its tape."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait, call(("note", {"text": "x"}))]
        run_id = await kit.start()
        await settle()
        kit.journal.fail_with, kit.journal.is_writable = Unavailable("disk full"), False
        wait.set()
        await settle()
        autojump_clock.jump(5)
        await settle()
        assert kit.effects == []
        kit.journal.fail_with, kit.journal.is_writable = None, True
        kit.model.turns = [call(("note", {"text": "y"})), say("done")]
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["y"]


async def test_receipts_are_committed_with_their_effect(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The receipt of a start repeats its reply."""
    from palyra.core.journal.idempotency import IdempotencyKey  # noqa: PLC0415 - one test's vocabulary

    async with running(store) as kit:
        key = IdempotencyKey(principal="ann", key="k1", body_sha256="b")
        started = await kit.gateway.start_run(OPERATOR, StartRun(text="x"), key)
        receipt = store.find_receipt("ann", "k1", now_ms=0)
        assert receipt is not None
        assert started.run_id.encode() in bytes(receipt.result)


def test_errors_are_palyra_errors() -> None:
    """Whatever the gateway raises on purpose has one root."""
    assert issubclass(NotFound, PalyraError)


async def test_an_ended_run_leaves_nothing_for_the_collector(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Runs are freed by counting references: a collector pause would stall every client."""
    async with running(store) as kit:
        for number in range(3):
            kit.model.turns += [call(("note", {"text": f"n{number}"})), say("done")]
            assert "done" == await kit.end(await kit.start())
        await settle()
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                kit.model.turns += [call(("note", {"text": f"m{number}"})), say("done")]
                assert "done" == await kit.end(await kit.start())
            await settle()
            assert 20 * 10 > gc.collect()
        finally:
            gc.enable()
