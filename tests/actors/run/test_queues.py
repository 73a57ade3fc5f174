"""Queues as they live: every mode through the gateway, on virtual time and over restarts."""

from typing import Any, NoReturn

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.run.handle import RunHandle
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import SessionRecord
from palyra.core.model.messages import UserMessage
from palyra.core.session.commands import ChangeQueue, Queue, Started, StartRun
from palyra.errors import (
    ActorGone,
    Conflict,
    Forbidden,
    IllegalState,
    NotFound,
    Overloaded,
    TooSlow,
    Unavailable,
)
from tests.actors.run.office_kit import OPERATOR, STRANGER, Kit, call, running, say
from tests.actors.run.test_runs import settle
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def send(kit: Kit, text: str, mode: str | None = None, **fields: Any) -> Started:
    """One message to the session `k`."""
    command = StartRun(text=text, session_key="k", queue_mode=mode, **fields)  # type: ignore[arg-type]  # a literal
    return await kit.gateway.start_run(OPERATOR, command)


async def arrange(kit: Kit, **change: Any) -> Queue:
    """A change of the queue of session `k`, or a look."""
    session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
    return await kit.sessions.arrange_queue(OPERATOR, session.session_id, ChangeQueue(**change))


def heard(kit: Kit, request: int = -1) -> list[str]:
    """The user messages of one request to the model."""
    messages = kit.model.requests[request].messages
    return [message.text for message in messages if isinstance(message, UserMessage)]


def texts(kit: Kit, run_id: str) -> list[str]:
    """The messages on a run's tape."""
    return [event.text for event in kit.events(run_id, "message.received")]


# --- collect -------------------------------------------------------------------------------------


async def test_messages_are_collected_into_one_run_with_their_provenance(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each is an event with sender and time; the model sees them one by one."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        active = await send(kit, "busy")
        first = await send(kit, "one", "collect")
        await trio.sleep_until(trio.current_time() + 0.1)
        second = await send(kit, "two", "collect")
        assert (first.disposition, first.position) == ("queued", 1)
        assert (second.disposition, second.run_id) == ("merged", first.run_id)
        assert kit.rows(first.run_id)[second.seq].kind == "message.received"
        wait.set()
        assert await kit.end(active.run_id) == await kit.end(first.run_id) == "done"
        assert heard(kit) == ["one", "two"]
        events = kit.events(first.run_id, "message.received")
        assert [event.by for event in events] == ["ann", "ann"]
        times = [row.at_ms for row in kit.rows(first.run_id) if row.kind == "message.received"]
        assert times[1] - times[0] == 100


async def test_a_collected_run_lets_half_a_second_pass_after_the_last_message(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Also on a session at rest: a burst of messages gets one answer."""
    async with running(store) as kit:
        began_s = trio.current_time()
        first = await send(kit, "one", "collect")
        await trio.sleep_until(trio.current_time() + 0.4)
        assert (await send(kit, "two", "collect")).disposition == "merged"
        assert await kit.end(first.run_id) == "done"
        assert trio.current_time() - began_s == pytest.approx(0.9, abs=0.01)
        assert heard(kit) == ["one", "two"]


async def test_a_window_closes_when_something_waits_behind_it(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nothing more can be collected, so nothing is waited for; the order stays."""
    async with running(store) as kit:
        began_s = trio.current_time()
        collected = await send(kit, "one", "collect")
        following = await send(kit, "two")
        later = await send(kit, "three", "collect")
        assert [following.disposition, later.disposition] == ["queued", "queued"]
        assert await kit.end(collected.run_id) == await kit.end(following.run_id) == "done"
        assert trio.current_time() - began_s < 0.1
        await kit.end(later.run_id)
        assert [heard(kit, index) for index in range(3)] == [["one"], ["two"], ["three"]]


async def test_without_a_debounce_a_collect_starts_at_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """With runs.debounce_ms = 0 only what comes while a run is active is collected."""
    async with running(store, debounce_ms=0) as kit:
        assert (await send(kit, "one", "collect")).disposition == "started"


async def test_collected_messages_count_to_the_cap(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Three may wait here, in one run or in three."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await send(kit, "busy")
        for number in range(3):
            await send(kit, f"m{number}", "collect")
        for mode in ("collect", "followup"):
            with pytest.raises(Overloaded, match="3 messages waiting"):
                await send(kit, "too many", mode)


async def test_another_role_is_not_collected_into_the_same_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A message never gains or lends authority by being merged."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await send(kit, "busy")
        first = await send(kit, "as operator", "collect")
        as_client = type(OPERATOR)(principal="ann", role="client", token_id="tok_app")
        second = await kit.gateway.start_run(
            as_client, StartRun(text="as client", session_key="k", queue_mode="collect")
        )
        assert second.disposition == "queued"
        assert second.run_id != first.run_id


async def test_a_collected_message_keeps_its_receipt(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The receipt is committed with the message and repeats the reply."""
    async with running(store) as kit:
        key = IdempotencyKey(principal="ann", key="k1", body_sha256="b")
        await send(kit, "one", "collect")
        command = StartRun(text="two", session_key="k", queue_mode="collect")
        merged = await kit.gateway.start_run(OPERATOR, command, key)
        receipt = store.find_receipt("ann", "k1", now_ms=0)
        assert receipt is not None
        assert (merged.disposition, b"merged" in bytes(receipt.result)) == ("merged", True)


async def test_a_refused_message_affects_no_other(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A merge refused by a full disk fails for its sender; the others arrive once each."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        await send(kit, "busy")
        first = await send(kit, "one", "collect")
        kit.journal.fail_with = Unavailable("disk full")
        for mode in ("collect", "followup"):
            with pytest.raises(Unavailable):
                await send(kit, "lost", mode)
        kit.journal.fail_with = None
        third = await send(kit, "three", "collect")
        assert third.disposition == "queued"
        assert (await arrange(kit)).waiting == [first.run_id, third.run_id]
        wait.set()
        assert await kit.end(first.run_id) == await kit.end(third.run_id) == "done"
        assert [heard(kit, index) for index in (1, 2)] == [["one"], ["three"]]
        assert len(kit.model.requests) == 3  # nobody began with what the tape does not have


# --- steer ---------------------------------------------------------------------------------------


async def test_a_steer_is_a_word_to_the_active_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Committed on its tape, and in the next request, between the results and the next turn."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("ok")]
        active = await send(kit, "work")
        await settle()
        steered = await send(kit, "be brief", "steer", attachments=({"type": "x"},))
        assert (steered.disposition, steered.run_id) == ("steered", active.run_id)
        row = kit.rows(active.run_id)[steered.seq]
        event = kit.events(active.run_id, "steer.received")[0]
        assert (row.kind, event.by) == ("steer.received", "ann")
        assert event.attachments == ({"type": "x"},)
        kit.gate_open.set()
        await kit.end(active.run_id)
        assert heard(kit) == ["work", "be brief"]


async def test_a_word_that_no_run_takes_waits_under_the_name_it_came_with(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose first commit failed has no record: by its id it would not be found."""

    async def lose(run: RunHandle, *_: Any, **__: Any) -> NoReturn:
        await trio.lowlevel.checkpoint()
        kit.registry.remove_session(kit.registry.sessions[run.run.accepted.session_id])
        store._records[SessionRecord].clear()
        raise ActorGone("the run was lost with its session")

    async with running(store) as kit:
        kit.model.turns = [call(("hang", {}))]
        await send(kit, "work")
        await settle()
        monkeypatch.setattr(RunHandle, "send", lose)
        assert (await send(kit, "be brief", "steer")).disposition == "started"


async def test_a_steer_on_an_idle_session_starts_a_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Without an active run the message starts one."""
    async with running(store) as kit:
        assert (await send(kit, "go", "steer")).disposition == "started"


async def test_a_steer_that_comes_too_late_waits_its_turn(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run has ended, though not durably yet: the word becomes the next run."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        wait = trio.Event()
        kit.model.turns = [wait]
        active = await send(kit, "work")
        kit.journal.hold = True
        wait.set()
        await settle()
        late: list[Started] = []

        async def steer() -> None:
            late.append(await send(kit, "and this", "steer"))

        nursery.start_soon(steer)
        await settle()
        kit.journal.release()
        await settle()
        assert [started.disposition for started in late] == ["started"]
        assert await kit.end(late[0].run_id) == "done"
        assert "steer.received" not in kit.kinds(active.run_id)


async def test_a_steer_keeps_its_receipt(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The receipt of a steered message repeats where it went."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        active = await send(kit, "work")
        key = IdempotencyKey(principal="ann", key="k1", body_sha256="b")
        command = StartRun(text="left", session_key="k", queue_mode="steer")
        await kit.gateway.start_run(OPERATOR, command, key)
        receipt = store.find_receipt("ann", "k1", now_ms=0)
        assert receipt is not None
        assert b"steered" in bytes(receipt.result)
        assert active.run_id.encode() in bytes(receipt.result)


async def test_a_repeated_steer_reaches_the_model_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of two attempts under one key, while the disk is full, only the second counts."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        run = await send(kit, "work")
        await settle()
        kit.journal.is_writable, kit.journal.fail_with = False, Unavailable("the disk is full")
        with pytest.raises(Unavailable):
            await kit.gateway.steer_run(OPERATOR, run.run_id, "lost")
        await settle()
        key = IdempotencyKey(principal="ann", key="k1", body_sha256="b")
        with pytest.raises(TooSlow):
            await kit.gateway.steer_run(OPERATOR, run.run_id, "once", key)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.gateway.steer_run, OPERATOR, run.run_id, "once", key)
            await settle()
            kit.journal.is_writable, kit.journal.fail_with = True, None
        wait.set()
        assert await kit.end(run.run_id) == "done"
        assert ["once"] == [event.text for event in kit.events(run.run_id, "steer.received")]
        assert 1 == len(kit.events(run.run_id, "run.recovered"))


@pytest.mark.parametrize("mode", ["followup", "steer", None])
async def test_a_disconnected_sender_waits_for_its_commit(
    store: MemoryJournal, autojump_clock: MockClock, mode: str | None
) -> None:
    """The request ends once its message is committed or refused, so a repetition is decided."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.model.turns = [trio.Event()]
        run = await send(kit, "work")
        await settle()
        kit.journal.hold = True
        sender, gone = trio.CancelScope(), trio.Event()

        async def say_it() -> None:
            with sender:
                if mode is None:
                    await kit.gateway.steer_run(OPERATOR, run.run_id, "word")
                else:
                    await send(kit, "word", mode)
            gone.set()

        nursery.start_soon(say_it)
        await settle()
        sender.cancel()
        await settle()
        assert not gone.is_set()
        kit.journal.release()
        await gone.wait()


async def test_a_word_to_a_waiting_run_is_on_its_tape_at_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """run.steer does not wait for the run's turn; its first request has the word."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        await send(kit, "busy")
        queued = await send(kit, "next")
        seq = await kit.gateway.steer_run(OPERATOR, queued.run_id, "in English")
        assert kit.rows(queued.run_id)[seq].kind == "steer.received"
        wait.set()
        await kit.end(queued.run_id)
        assert heard(kit) == ["next", "in English"]


# --- interrupt -----------------------------------------------------------------------------------


async def test_of_several_interrupts_the_last_one_runs(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each ends what it found; what was queued keeps its place behind."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        active = await send(kit, "busy")
        queued = await send(kit, "queued")
        kit.journal.hold = True  # none of the ends can be committed in between
        interrupts: list[Started] = []

        async def interrupt(text: str) -> None:
            interrupts.append(await send(kit, text, "interrupt"))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(interrupt, f"stop {number}")
                await settle()
            kit.journal.release()
        assert {started.disposition for started in interrupts} == {"interrupted"}
        ends = [await kit.end(run_id) for run_id in sorted(each.run_id for each in interrupts)]
        assert ["cancelled", "cancelled", "done"] == ends
        assert await kit.end(active.run_id) == "cancelled"
        assert await kit.end(queued.run_id) == "done"
        assert kit.events(active.run_id, "run.cancelled")[0].reason.startswith("interrupted")
        assert [heard(kit, 1), heard(kit, 2)] == [["stop 2"], ["queued"]]


async def test_interrupts_in_a_row_end_each_other(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The same when each has had time to begin."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event() for _ in range(3)]
        started = [await send(kit, "busy")]
        for number in range(3):
            started.append(await send(kit, f"stop {number}", "interrupt"))
            await settle()
        ends = [await kit.end(each.run_id) for each in started]
        assert ["cancelled", "cancelled", "cancelled", "done"] == ends


async def test_an_interrupt_needs_no_place_in_a_full_queue(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An interrupt is accepted although the queue is full."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        for number in range(4):
            await send(kit, f"m{number}")
        urgent = await send(kit, "stop", "interrupt")
        assert (urgent.disposition, urgent.position) == ("interrupted", 1)
        assert await kit.end(urgent.run_id) == "done"


async def test_an_interrupt_survives_the_crash_of_what_it_ends(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After a restart the interrupted run ends first, before it does anything more."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        active, queued = await send(kit, "busy"), await send(kit, "queued")
        await settle()
        urgent: list[Started] = []

        async def interrupt() -> None:
            urgent.append(await send(kit, "stop", "interrupt"))

        async with trio.open_nursery() as nursery:
            kit.journal.keep = 1  # the message is committed, what follows is not
            nursery.start_soon(interrupt)
            await settle()
    async with running(store) as kit:
        assert await kit.end(active.run_id) == "cancelled"
        assert await kit.end(urgent[0].run_id) == await kit.end(queued.run_id) == "done"
        assert "run.recovered" not in kit.kinds(active.run_id)
        assert [heard(kit, 0), heard(kit, 1)] == [["stop"], ["queued"]]


@pytest.mark.parametrize("steps", range(12))
async def test_a_session_starts_nothing_in_a_branch_that_stops(
    store: MemoryJournal, steps: int, autojump_clock: MockClock
) -> None:
    """Whenever a run ends while everything stops, its session leaves the rest to the next start."""
    async with running(store) as kit:
        answer = trio.Event()
        kit.model.turns = [answer]
        await send(kit, "busy")
        queued = await send(kit, "queued")
        await settle()
        answer.set()
        with capture_logs() as logs:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            kit.work.stop("everything stops")
            await settle()
        assert [line["event"] for line in logs if line["log_level"] == "error"] == []
    async with running(store) as kit:
        assert await kit.end(queued.run_id) == "done"


async def test_an_interrupt_holds_when_the_end_of_the_other_is_not_written(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The disk takes the message and refuses the cancel: the run's next life begins with it."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.model.turns = [trio.Event()]
        active = await send(kit, "busy")
        await settle()
        kit.journal.hold = True
        nursery.start_soon(send, kit, "stop", "interrupt")
        await settle()
        later, kit.journal.queued = kit.journal.queued[1:], kit.journal.queued[:1]
        kit.journal.flush()
        kit.journal.queued, kit.journal.fail_with = later, Unavailable("disk full")
        kit.journal.flush()
        kit.journal.hold, kit.journal.fail_with = False, None
        assert await kit.end(active.run_id) == "cancelled"
        assert len(kit.events(active.run_id, "turn.started")) == 1


async def test_a_crash_on_a_slow_disk_loses_no_message(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run is resumed from what is on its way to the tape, too."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.model.turns = [RuntimeError("a bug"), say("recovered")]
        kit.journal.hold = True
        started: list[Started] = []

        async def start() -> None:
            started.append(await send(kit, "slow"))

        nursery.start_soon(start)
        await trio.sleep_until(trio.current_time() + 2)
        kit.journal.release()
        await settle()
        with trio.fail_after(60):
            assert await kit.end(started[0].run_id) == "done"


async def test_a_session_is_created_once_on_a_slow_disk(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Requests before the session's record is committed find the same session."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.journal.hold = True
        nursery.start_soon(arrange, kit)
        await settle()
        started: list[Started] = []

        async def start() -> None:
            started.append(await send(kit, "hello"))

        nursery.start_soon(start)
        await settle()
        kit.journal.release()
        await settle()
        assert await kit.end(started[0].run_id) == "done"
        assert len(store.list_sessions(None, before=None, limit=9)) == 1


async def test_a_lookup_overtaken_by_a_creation_is_repeated(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A lookup before a session was created returns the same session after it has ended."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        started: list[Started] = []

        async def start() -> None:
            started.append(await send(kit, "second"))

        with kit.journal.slow_look() as answers:
            nursery.start_soon(start)
            await settle()
        first = await send(kit, "first")
        await kit.end(first.run_id)
        await settle()
        assert not kit.registry.sessions
        answers.set()
        await settle()
        assert [first.session_id] == [second.session_id for second in started]
        assert await kit.end(started[0].run_id) == "done"


async def test_a_change_overtaken_by_another_is_repeated_on_it(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A change that read the session too early is applied to its current state."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        await settle()
        with kit.journal.slow_look() as answers:
            nursery.start_soon(kit.sessions.reset, OPERATOR, session.session_id)
            await settle()
        await kit.sessions.reset(OPERATOR, session.session_id)
        await settle()
        answers.set()
        await settle()
        record = await kit.sessions.get(OPERATOR, session.session_id)
        assert 2 == record.epoch


# --- restart -------------------------------------------------------------------------------------


async def test_order_pause_and_mode_survive_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The queue has its order, pause and mode; a paused one starts nothing."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        active = await send(kit, "busy")
        ids = [(await send(kit, f"m{number}")).run_id for number in range(3)]
        order = (ids[2], ids[0])
        after = await arrange(kit, order=order, paused=True, mode="steer")
        assert after.waiting == [ids[2], ids[0], ids[1]]
        await settle()
    async with running(store) as kit:
        assert await kit.end(active.run_id) == "done"  # it had its turn
        await trio.sleep_until(trio.current_time() + 60)
        found = await arrange(kit)
        assert (found.waiting, found.paused, found.mode) == (after.waiting, True, "steer")
        assert [(await kit.gateway.get_run(OPERATOR, run_id)).phase for run_id in ids] == [
            "queued"
        ] * 3
        await arrange(kit, paused=False)
        for run_id in ids:
            assert await kit.end(run_id) == "done"
        assert [heard(kit, index) for index in (1, 2, 3)] == [["m2"], ["m0"], ["m1"]]


async def test_the_debounce_window_survives_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Collected messages survive, with the rest of the half second."""
    async with running(store) as kit:
        first = await send(kit, "one", "collect")
        await send(kit, "two", "collect")
        began_s = trio.current_time()
        await trio.sleep_until(trio.current_time() + 0.3)
    async with running(store) as kit:
        await settle()
        third = await send(kit, "three", "collect")
        assert (third.disposition, third.run_id) == ("merged", first.run_id)
        assert await kit.end(first.run_id) == "done"
        assert trio.current_time() - began_s == pytest.approx(0.8, abs=0.02)
        assert heard(kit) == ["one", "two", "three"]


async def test_a_window_that_closed_meanwhile_is_not_opened_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After a longer stop the collected run starts at once."""
    async with running(store) as kit:
        first = await send(kit, "one", "collect")
    await trio.sleep_until(trio.current_time() + 10)
    began_s = trio.current_time()
    async with running(store) as kit:
        assert await kit.end(first.run_id) == "done"
        assert trio.current_time() - began_s < 0.1


# --- session.queue -------------------------------------------------------------------------------


async def test_the_session_has_a_mode_for_messages_that_name_none(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A message's own mode goes before it."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        assert (await arrange(kit, mode="steer")).mode == "steer"
        active = await send(kit, "busy")
        assert (await send(kit, "left")).run_id == active.run_id
        assert (await send(kit, "later", "followup")).disposition == "queued"
        assert kit.events(active.run_id, "run.accepted")[0].queue_mode == "steer"


async def test_a_paused_queue_takes_messages_and_starts_none(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The active run continues; new messages wait until the queue is resumed."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        active = await send(kit, "busy")
        await arrange(kit, paused=True)
        wait.set()
        assert await kit.end(active.run_id) == "done"
        queued = await send(kit, "later")
        assert (queued.disposition, queued.position) == ("queued", 1)
        with pytest.raises(Conflict, match="paused"):
            await send(kit, "now or never", "reject")
        urgent = await send(kit, "first", "interrupt")
        assert (urgent.disposition, urgent.position) == ("queued", 1)
        await trio.sleep_until(trio.current_time() + 60)
        assert (await kit.gateway.get_run(OPERATOR, queued.run_id)).phase == "queued"
        await arrange(kit, paused=False)
        assert await kit.end(queued.run_id) == await kit.end(urgent.run_id) == "done"
        assert [heard(kit, 1), heard(kit, 2)] == [["first"], ["later"]]


async def test_a_dropped_run_ends_before_the_reply(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It says so on its tape, never starts, and the others move up."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        active = await send(kit, "busy")
        one, two = await send(kit, "one"), await send(kit, "two")
        assert (await arrange(kit, drop=(one.run_id,))).waiting == [two.run_id]
        assert kit.kinds(one.run_id) == ["run.accepted", "message.received", "run.cancelled"]
        assert kit.events(one.run_id, "run.cancelled")[0].reason == "dropped from the queue"
        with pytest.raises(Conflict, match="does not wait"):
            await arrange(kit, drop=(two.run_id, active.run_id))
        assert (await arrange(kit)).waiting == [two.run_id]


async def test_a_queue_belongs_to_its_principal(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Strangers see nothing; who may only read may not change."""
    async with running(store) as kit:
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        observer = type(OPERATOR)(principal="ann", role="observer", token_id="tok_o")
        look, pause = ChangeQueue(), ChangeQueue(paused=True)
        found = await kit.sessions.arrange_queue(observer, session.session_id, look)
        assert found.waiting == []
        with pytest.raises(Forbidden):
            await kit.sessions.arrange_queue(observer, session.session_id, pause)
        for change in (look, pause):
            with pytest.raises(NotFound):
                await kit.sessions.arrange_queue(STRANGER, session.session_id, change)


async def test_clients_are_notified_of_queue_changes(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """session.updated has the waiting runs, the mode and the pause."""
    async with running(store) as kit:
        news: list[Any] = []
        kit.hub.notify = lambda method, data, **_: news.append((method, data))  # type: ignore[method-assign]  # a listener
        wait = trio.Event()
        kit.model.turns = [wait]
        await send(kit, "busy")
        assert news == []  # a session at rest has no queue to speak of
        queued = await send(kit, "next")
        await arrange(kit, paused=True)
        await arrange(kit, paused=False)
        wait.set()
        await kit.end(queued.run_id)
        records = [data for method, data in news if method == "session.updated"]
        waiting = [list(record.waiting) for record in records]
        assert [queued.run_id] == waiting[0]
        assert [] == waiting[-1]
        assert {True, False} == {record.paused_ms is not None for record in records}


# --- beside, archive, reset ----------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["background", "delegated"])
async def test_a_background_run_does_not_wait(
    store: MemoryJournal, autojump_clock: MockClock, origin: str
) -> None:
    """No run waits for it either; a pause and a reset do not affect it."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [trio.Event(), wait]
        await send(kit, "busy")
        await arrange(kit, paused=True)
        beside = await send(kit, "beside", origin=origin)
        assert (beside.disposition, beside.position) == ("started", None)
        found = await arrange(kit)
        assert (found.waiting, found.active != beside.run_id) == ([], True)
        await settle()
        session = kit.registry.keys["ann", "k"].session_id
        await kit.sessions.reset(OPERATOR, session)
        wait.set()
        assert await kit.end(beside.run_id) == "done"


async def test_a_background_run_is_resumed_concurrently(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """After a restart both runs continue at once."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event(), trio.Event()]
        active, beside = await send(kit, "busy"), await send(kit, "b", origin="background")
        await settle()
    async with running(store) as kit:
        kit.model.turns = [trio.Event(), say("one of the two")]
        await settle()
        assert 1 == len({active.run_id, beside.run_id} & set(kit.registry.runs))


async def test_an_archived_session_finishes_its_runs(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Active and queued runs end normally; new messages are refused in every mode."""
    async with running(store) as kit:
        wait = trio.Event()
        kit.model.turns = [wait]
        active, queued = await send(kit, "busy"), await send(kit, "queued")
        session = kit.registry.keys["ann", "k"].session_id
        await kit.sessions.archive(OPERATOR, session)
        for mode in ("followup", "collect", "steer", "interrupt", "reject"):
            with pytest.raises(IllegalState, match="archived"):
                await send(kit, "more", mode)
        wait.set()
        assert await kit.end(active.run_id) == await kit.end(queued.run_id) == "done"


async def test_a_reset_ends_the_active_run_and_the_queue(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each says why on its tape; the next message belongs to the new epoch and starts."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        old = [await send(kit, "busy"), await send(kit, "one"), await send(kit, "c", "collect")]
        session = kit.registry.keys["ann", "k"].session_id
        after = await kit.sessions.reset(OPERATOR, session)
        assert (1, ()) == (after.epoch, after.waiting)
        assert [await kit.end(each.run_id) for each in old] == ["cancelled"] * 3
        reasons = {kit.events(each.run_id, "run.cancelled")[0].reason for each in old}
        assert {"the session was reset"} == reasons
        new = await send(kit, "anew")
        assert await kit.end(new.run_id) == "done"
        assert kit.events(new.run_id, "run.accepted")[0].epoch == 1


async def test_a_reset_holds_over_a_crash(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The epoch is committed before the ends are: a restart brings them about."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        old = [await send(kit, "busy"), await send(kit, "one")]
        await settle()
        session = kit.registry.keys["ann", "k"].session_id
        await arrange(kit, paused=True)
        kit.journal.keep = 1
        with trio.move_on_after(1):
            await kit.sessions.reset(OPERATOR, session)
        assert store.find_session(session).epoch == 1  # type: ignore[union-attr]  # it is there
    async with running(store) as kit:
        assert [await kit.end(each.run_id) for each in old] == ["cancelled"] * 2
        assert kit.model.requests == []
