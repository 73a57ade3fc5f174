"""Recovery of open runs at a start: each rule on virtual time, with real actors."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.session import recovery
from palyra.core.journal.changes import Change, IncidentFilter, RunFilter
from palyra.core.journal.records import IncidentRecord, RunRecord, RunState, SessionRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ToolMessage, UserMessage
from palyra.core.run.environment import RunLimits
from palyra.core.session.commands import Cancelled, StartRun
from palyra.core.tape import events as ev
from palyra.errors import IllegalState, Unavailable
from palyra.operations.runs import Gateway
from tests.actors.run.office_kit import OPERATOR, SECRET, InlineJournal, Kit, call, running, say
from tests.actors.run.test_runs import answer, prompt_of, reach, settle
from tests.store.kit import approval
from tests.store.memory.journal import MemoryJournal

LOOK_S = 1.0
APPROVAL_S = RunLimits().approval_ms / 1000


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def incidents(store: MemoryJournal) -> list[IncidentRecord]:
    """The recorded incidents, newest first."""
    return store.list_incidents(IncidentFilter())


# --- the charge ----------------------------------------------------------------------------------


async def test_an_attempt_is_paid_before_the_model_is_asked(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A model call that takes the daemon down at once has cost an attempt all the same."""
    async with running(store) as kit:
        run_id = await reach(kit, "turn")
    async with running(store, hold=True) as kit:
        await settle()
        assert "run.recovered" not in kit.kinds(run_id)
        assert [] == kit.model.requests
        kit.journal.release()
        assert await kit.end(run_id) == "done"
        assert 1 == len(kit.model.requests)


async def test_an_attempt_is_paid_before_a_safe_call_runs_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The same for a tool."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang_safe", {}))]
        run_id = await kit.start()
        await settle()
    async with running(store, hold=True) as kit:
        kit.gate_open.set()
        await settle()
        assert "tool.completed" not in kit.kinds(run_id)
        assert kit.live(run_id).run.calls[0].phase == "started"
        kit.journal.release()
        assert await kit.end(run_id) == "done"


async def test_a_run_that_crashes_each_start_is_given_up(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After three daemons the fourth ends the run, and its queue continues."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        run_id = await kit.start(session_key="k")
        following = await kit.start(session_key="k")
        await settle()
    for attempt in (1, 2, 3):
        async with running(store) as kit:
            kit.model.turns = [trio.Event()]
            await settle()
            assert attempt == kit.events(run_id, "run.recovered")[-1].attempt
            (view,) = await kit.gateway.list_runs(OPERATOR, RunFilter(states=("in_progress",)))
            assert attempt == view.attempts
    async with running(store) as kit:
        assert await kit.end(run_id) == "failed"
        assert kit.events(run_id, "run.failed")[0].failure_class == "recovery_exhausted"
        assert await kit.end(following) == "done"


async def test_progress_clears_what_was_paid(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run that gets a turn further in each life is never given up."""
    async with running(store) as kit:
        run_id = await reach(kit, "turn")
    for _ in range(6):
        async with running(store) as kit:
            kit.model.turns = [call(("note", {"text": "x"})), trio.Event()]
            await settle()
    async with running(store) as kit:
        assert await kit.end(run_id) == "done"
        assert {1} == {event.attempt for event in kit.events(run_id, "run.recovered")}


# --- outcomes ------------------------------------------------------------------------------------


async def test_an_unknown_outcome_is_an_incident(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Operator and model are informed once, and the effect is not repeated."""
    async with running(store) as kit:
        run_id = await reach(kit, "tool")
    with capture_logs() as logs:
        async with running(store) as kit:
            kit.gate_open.set()
            assert await kit.end(run_id) == "done"
            last = kit.model.requests[0].messages[-1]
    assert isinstance(last, ToolMessage)
    assert "unknown" == last.status
    assert 1 == [row.kind for row in kit.rows(run_id)].count("tool.started")
    (line,) = [line for line in logs if line["event"] == "an incident is opened"]
    (incident,) = incidents(store)
    assert ("error", incident.key) == (line["log_level"], line["key"])
    assert ("open", run_id, "hang", 1) == (
        incident.state,
        incident.evidence["run_id"],
        incident.evidence["tool"],
        incident.count,
    )


async def test_an_unknown_outcome_is_never_without_its_incident(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Both are in one commit: after any crash both exist or neither."""
    async with running(store) as kit:
        run_id = await reach(kit, "tool")
    async with running(store, hold=True) as kit:
        await settle()
        assert ([], []) == (kit.events(run_id, "run.recovered"), incidents(store))
        change = next(each for each, _ in kit.journal.queued if each.rows)
        assert [None] == store.commit([change])
        (ended,) = kit.events(run_id, "tool.completed")
        assert ("unknown", [f"outcome_unknown:{ended.call_id}"]) == (
            ended.status,
            [each.key for each in incidents(store)],
        )
    async with running(store) as kit:
        await kit.end(run_id)
        await settle()
    assert [1] == [each.count for each in incidents(store)]


async def test_a_run_that_is_given_up_is_an_incident(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It says which, and how often it was resumed."""
    async with running(store) as kit:
        run_id = await reach(kit, "turn")
    for _ in range(3):
        async with running(store) as kit:
            kit.model.turns = [trio.Event()]
            await settle()
    assert [] == incidents(store)
    async with running(store) as kit:
        assert "failed" == await kit.end(run_id)
    (incident,) = incidents(store)
    assert (f"recovery_exhausted:{run_id}", {"run_id": run_id, "resumed": 3}) == (
        incident.key,
        incident.evidence,
    )


# --- prompts -------------------------------------------------------------------------------------


async def test_a_prompt_that_ran_out_meanwhile_is_denied(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The deadline does not stop while the daemon is down."""
    async with running(store) as kit:
        run_id = await reach(kit, "approval")
        asked = await prompt_of(kit, run_id)
    autojump_clock.jump(APPROVAL_S + 1)
    async with running(store) as kit:
        assert await kit.end(run_id) == "done"
        (resolved,) = kit.events(run_id, "approval.resolved")
        assert ("deny", "deadline") == (resolved.decision, resolved.by)
        assert "approval_expired" == kit.events(run_id, "tool.decided")[-1].reason_code
        assert "denied" == (await kit.answers.get(OPERATOR, asked.approval_id)).state
        assert [] == kit.effects
        with suppress(IllegalState):
            late = await kit.answers.resolve(OPERATOR, answer(kit, asked))
            assert ("deny", False) == (late.decision, late.won)


async def test_a_prompt_keeps_what_is_left_of_its_time(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A restart neither prolongs nor shortens a question."""
    async with running(store) as kit:
        asked = await prompt_of(kit, await reach(kit, "approval"))
    autojump_clock.jump(APPROVAL_S - 10)
    async with running(store) as kit:
        assert asked == await prompt_of(kit, asked.run_id)
        assert await kit.end(asked.run_id) == "done"
        (resolved,) = kit.events(asked.run_id, "approval.resolved")
        assert "deadline" == resolved.by
    assert abs(trio.current_time() * 1000 - asked.expires_ms) < 1_000


# --- order and phase -----------------------------------------------------------------------------


async def test_a_queue_keeps_its_order_over_restarts(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Runs behind an open one start after it, in the order of acceptance."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        ids = [await kit.start(f"text {n}", session_key="k") for n in range(4)]
        await settle()
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await settle()
        session_id = kit.live(ids[0]).run.accepted.session_id
        waiting = kit.registry.sessions[session_id].waiting
        assert ids[1:] == [run.run_id for run in waiting]
    async with running(store) as kit:
        for run_id in ids:
            assert await kit.end(run_id) == "done"
        starts = [kit.rows(run_id)[2].at_ms for run_id in ids]
        assert sorted(starts) == starts
        said = [request.messages[-1] for request in kit.model.requests]
        assert [UserMessage(f"text {n}") for n in range(4)] == said


async def test_recovering_is_a_phase(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """From the first look until its first resumed step; one that had not begun is queued."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        ids = [await kit.start(session_key="k") for _ in range(2)]
        await settle()
    idle = Kit(store)  # a daemon that answers before its recovery begins
    assert ["recovering", "queued"] == await phases(idle.gateway, ids)
    async with running(store, hold=True) as kit:
        kit.model.turns = [trio.Event()]
        await settle()
        kit.journal.release()
        await settle()
        assert ["in_progress", "queued"] == await phases(kit.gateway, ids)


async def phases(gateway: Gateway, run_ids: list[str]) -> list[str]:
    return [(await gateway.get_run(OPERATOR, run_id)).phase for run_id in run_ids]


# --- poison --------------------------------------------------------------------------------------


def open_tape(run_id: str, *events: tuple[str, bytes], state: RunState = "in_progress") -> Change:
    """An open run of the session `ses_p` with a tape of our own making."""
    rows = tuple(
        TapeRow(run_id, "ses_p", seq, 1, kind, OPERATOR.principal, redacted=False, data=data)
        for seq, (kind, data) in enumerate(events)
    )
    record = RunRecord(
        run_id=run_id,
        session_id="ses_p",
        state=state,
        principal=OPERATOR.principal,
        agent="default",
        model="scripted",
        created_ms=1,
        head_seq=len(rows) - 1,
    )
    session = SessionRecord(
        session_id="ses_p", principal=OPERATOR.principal, key="p", created_ms=1, updated_ms=1
    )
    return Change(rows=rows, records=(session, record))


POISON = {
    "a payload of another shape": [(ev.RunAccepted.KIND, b'{"principal": 7}')],
    "bytes that are no JSON": [(ev.RunAccepted.KIND, b"\x00\xff")],
    "a kind nobody knows": [("run.accepted.v9", b"{}")],
    "an order that cannot be": [(ev.RunStarted.KIND, b"{}")],
    "nothing at all": [],
}


@pytest.mark.parametrize("name", POISON)
async def test_a_tape_that_cannot_be_replayed_stops_no_other_run(
    store: MemoryJournal, autojump_clock: MockClock, name: str
) -> None:
    """Other runs continue, the session accepts messages, and the operator sees the run."""
    async with running(store) as kit:
        good = await reach(kit, "turn")
    assert store.commit([open_tape("run_poison", *POISON[name])]) == [None]
    with capture_logs() as logs:
        async with running(store) as kit:
            assert await kit.end(good) == "done"
            assert 2 == kit.recovered
            assert 1 == len(kit.registry.stranded)
            assert "stranded" == (await kit.gateway.get_run(OPERATOR, "run_poison")).phase
            with pytest.raises(IllegalState, match="cannot be resumed"):
                await kit.end("run_poison")
            kit.model.turns = [say("alive")]
            assert await kit.end(await kit.start(session_id="ses_p")) == "done"
    (line,) = [line for line in logs if line["event"] == "an incident is opened"]
    assert ("critical", "run_poison") == (line["log_level"], line["evidence"]["run_id"])
    assert [("run_stranded:run_poison", "open", 1)] == [
        (each.key, each.state, each.count) for each in incidents(store)
    ]
    async with running(store) as kit:
        await settle()
    assert [("open", 2)] == [(each.state, each.count) for each in incidents(store)]


@pytest.mark.parametrize("name", POISON)
async def test_a_stranded_run_can_be_given_up(
    store: MemoryJournal, autojump_clock: MockClock, name: str
) -> None:
    """Cancelling it ends it for good, once, and says what is not known; the next start is clean."""
    assert store.commit([open_tape("run_poison", *POISON[name])]) == [None]
    head = len(POISON[name]) - 1
    async with running(store) as kit:
        await settle()
        assert 1 == len(kit.registry.stranded)
        ends: list[Cancelled] = []

        async def cancel() -> None:
            ends.append(await kit.gateway.cancel_run(OPERATOR, "run_poison", "enough"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            nursery.start_soon(cancel)
        assert [Cancelled(state="cancelled", applied_seq=head + 1)] * 2 == ends
        view = await kit.gateway.get_run(OPERATOR, "run_poison")
        assert ("cancelled", True) == (view.phase, "no known outcome" in (view.reason or ""))
        assert {} == kit.registry.stranded
        await settle()
        assert ["given up by ann"] == [each.reason for each in incidents(store)]
    async with running(store) as kit:
        await settle()
        assert (0, {}) == (kit.recovered, kit.registry.stranded)


async def test_giving_up_a_run_closes_its_approvals(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The end has a time, and its reason is redacted."""
    change = open_tape("run_poison", *POISON["a kind nobody knows"])
    session, record = change.records
    waiting = msgspec.structs.replace(record, pending_approvals=1)
    question = approval("apr_1", run_id="run_poison", session_id="ses_p", principal="ann")
    assert store.commit([Change(rows=change.rows, records=(session, waiting, question))]) == [None]
    async with running(store) as kit:
        await settle()
        await kit.gateway.cancel_run(OPERATOR, "run_poison", f"no {SECRET}")
        ended = await kit.gateway.get_run(OPERATOR, "run_poison")
    last = store.read_tape("run_poison", after_seq=0, limit=9, max_bytes=9_999).rows[-1]
    assert (last.at_ms, 0, True) == (ended.finished_ms, ended.pending_approvals, last.redacted)
    assert SECRET not in f"{ended.reason}{last.data!r}"
    settled = store.find_approval("apr_1")
    assert settled is not None
    assert ("aborted", "ann", last.at_ms) == (settled.state, settled.by, settled.resolved_ms)


async def test_a_stranded_run_that_is_none_any_more_is_no_incident(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A start that does not find it so again says that it is over."""
    change = open_tape("run_poison", *POISON["a kind nobody knows"])
    store.commit([change])
    async with running(store):
        await settle()
    ended = msgspec.structs.replace(change.records[1], state="cancelled", finished_ms=2)
    assert [None] == store.commit([Change(records=(ended,))])
    assert ["open"] == [each.state for each in incidents(store)]
    async with running(store):
        await settle()
    assert ["resolved"] == [each.state for each in incidents(store)]


def test_sessions_are_read_whole_the_oldest_first() -> None:
    """In looks of about as many runs as one may take, each session once."""

    def run(number: int, session_id: str) -> RunRecord:
        record = open_tape(f"run_{number}").records[1]
        assert isinstance(record, RunRecord)
        return msgspec.structs.replace(record, session_id=session_id, created_ms=number)

    runs = [run(9, "a"), run(2, "b"), run(1, "a"), run(5, "b"), run(0, "c")]
    by_session = recovery._by_session(runs)
    assert [["c", [0]], ["a", [1, 9]], ["b", [2, 5]]] == [
        [of[0].session_id, [each.created_ms for each in of]] for of in by_session
    ]
    many = [[run(number, f"s{number}")] for number in range(recovery.RUNS_A_READ + 2)]
    looks = list(recovery._in_batches(many))
    assert ([recovery.RUNS_A_READ, 2], many) == (
        [*map(len, looks)],
        [of for look in looks for of in look],
    )
    assert [] == list(recovery._in_batches([]))


async def test_a_run_is_not_given_up_while_the_journal_takes_no_writes(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It stays stranded, and can be given up later."""
    assert store.commit([open_tape("run_poison", *POISON["a kind nobody knows"])]) == [None]
    async with running(store) as kit:
        await settle()
        kit.journal.fail_with = Unavailable("the disk is full")
        with pytest.raises(Unavailable):
            await kit.gateway.cancel_run(OPERATOR, "run_poison", "enough")
        kit.journal.fail_with = None
        assert "stranded" == (await kit.gateway.get_run(OPERATOR, "run_poison")).phase
        ended = await kit.gateway.cancel_run(OPERATOR, "run_poison", "enough")
        assert "cancelled" == ended.state


async def test_a_tape_with_a_hole_is_not_followed(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Events that are gone cannot be made up for by those behind them."""
    async with running(store) as kit:
        run_id = await reach(kit, "turn")
    del store._tapes._tapes[run_id][1]
    async with running(store) as kit:
        await settle()
        assert "stranded" == (await kit.gateway.get_run(OPERATOR, run_id)).phase


async def test_a_run_without_a_session_is_reported(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run that no session can resume is not left out silently."""
    change = open_tape("run_alone", (ev.RunStarted.KIND, b"{}"))
    store.commit([Change(rows=change.rows, records=change.records[1:])])
    async with running(store) as kit:
        await settle()
        assert "stranded" == (await kit.gateway.get_run(OPERATOR, "run_alone")).phase
        assert {"run_alone": "its session ses_p is not there"} == kit.registry.stranded


async def test_a_new_message_does_not_overtake_the_runs_of_before(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come before its session has its open runs back; then it waits for them."""
    read = InlineJournal.read

    async def read_slowly(self: InlineJournal, query: Any) -> Any:
        await trio.sleep(LOOK_S)
        return await read(self, query)

    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await kit.start(session_key="k")
        await settle()
    monkeypatch.setattr(InlineJournal, "read", read_slowly)
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        assert not kit.registry.is_complete
        command = StartRun(text="and then", session_key="k")
        started = await kit.gateway.start_run(OPERATOR, command)
        assert (started.disposition, started.position) == ("queued", 1)


async def test_a_message_during_a_slow_recovery_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The client is asked to retry; nothing of the message is stored."""
    async with running(store) as kit:
        await settle()
        kit.registry.is_complete = False
        with pytest.raises(Unavailable, match="being recovered"):
            await kit.start()
