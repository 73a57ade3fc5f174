"""Bounds of runs: what is too large, who waits together, and a run that never came to be."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.errors import InvalidParams, TooLarge, Unavailable
from tests.actors.run.office_kit import OPERATOR, SECRET, call, running, say
from tests.store.memory.journal import MemoryJournal

TOO_LONG = "x" * (MAX_PAYLOAD_BYTES + 1)


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def test_many_may_wait_for_one_run(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A wait that timed out, later waits and a cancel do not disturb each other."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        kit.model.turns = [trio.Event()]
        run_id = await kit.start()
        _, timed_out = await kit.gateway.wait_run(OPERATOR, run_id, until="terminal", timeout_s=0.1)
        assert timed_out
        states: list[str] = []

        async def wait() -> None:
            states.append(await kit.end(run_id))

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await wait_all_tasks_blocked(0.0001)
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        await wait_all_tasks_blocked(0.0001)
        assert states == ["cancelled", "cancelled"]


async def test_a_message_too_large_starts_nothing(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The error names the limit; there is no tape and no actor, and the session works."""
    async with running(store) as kit:
        with pytest.raises(TooLarge, match=str(MAX_PAYLOAD_BYTES)):
            await kit.start(TOO_LONG, session_key="k")
        assert kit.registry.runs == {}
        assert await kit.end(await kit.start("short", session_key="k")) == "done"


async def test_a_steer_too_large_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The error names the limit, and the run continues without the message."""
    async with running(store) as kit:
        kit.model.turns = [call(("hang", {})), say("ok")]
        run_id = await kit.start()
        await wait_all_tasks_blocked(0.0001)
        with pytest.raises(TooLarge, match=str(MAX_PAYLOAD_BYTES)):
            await kit.gateway.steer_run(OPERATOR, run_id, TOO_LONG)
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"
        assert "run.recovered" not in kit.kinds(run_id)


async def test_a_turn_too_large_fails_the_run_with_its_size(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A model that says more than an event may hold ends the run cleanly, naming the limit."""
    async with running(store) as kit:
        kit.model.turns = [say(TOO_LONG)]
        run_id = await kit.start()
        assert await kit.end(run_id) == "failed"
        failed = kit.events(run_id, "run.failed")[0]
        assert (failed.failure_class, str(MAX_PAYLOAD_BYTES) in failed.reason) == (
            "malformed",
            True,
        )


async def test_what_is_too_large_is_not_searched_for_secrets(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size refuses it first: a message, a steer, a text of a turn, arguments and ids of calls."""
    searched: list[int] = []
    for owner, name in (
        (Redactor, "redact_bytes"),
        (Redactor, "redact_text"),
        (StreamRedactor, "feed"),
    ):
        monkeypatch.setattr(owner, name, _counting(getattr(owner, name), searched))
    async with running(store) as kit:
        with pytest.raises(TooLarge):
            await kit.start(TOO_LONG)
        kit.model.turns = [call(("hang", {})), say("ok")]
        run_id = await kit.start()
        await wait_all_tasks_blocked(0.0001)
        with pytest.raises(TooLarge):
            await kit.gateway.steer_run(OPERATOR, run_id, TOO_LONG)
        kit.gate_open.set()
        assert await kit.end(run_id) == "done"
        twice = call(("echo", {"text": "a"}), ("echo", {"text": "b"}))
        long = tuple(msgspec.structs.replace(each, call_id=TOO_LONG) for each in twice.calls)
        turns = [
            say(TOO_LONG),
            call(("echo", {"text": TOO_LONG})),
            msgspec.structs.replace(twice, calls=long),
        ]
        for turn in turns:
            kit.model.turns = [turn]
            assert await kit.end(await kit.start()) == "failed"
    assert searched
    assert max(searched) <= MAX_PAYLOAD_BYTES


def _counting(search: Callable[..., Any], lengths: list[int]) -> Callable[..., Any]:
    """Return the search, which also notes the length of each text."""

    def note(self: object, text: str | bytes) -> Any:
        lengths.append(len(text))
        return search(self, text)

    return note


async def test_a_turn_with_two_equal_call_ids_fails_the_run_and_no_more(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A provider that numbers its calls badly crashes nothing: the next run works."""
    async with running(store) as kit:
        twice = call(("echo", {"text": "a"}), ("echo", {"text": "b"}))
        same = tuple(msgspec.structs.replace(named, call_id="call_1") for named in twice.calls)
        kit.model.turns = [msgspec.structs.replace(twice, calls=same)]
        run_id = await kit.start(session_key="k")
        assert await kit.end(run_id) == "failed"
        assert kit.events(run_id, "run.failed")[0].failure_class == "malformed"
        assert not {"run.recovered", "tool.proposed"} & set(kit.kinds(run_id))
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched
        assert await kit.end(await kit.start(session_key="k")) == "done"


async def test_a_run_that_was_never_accepted_is_forgotten(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A refused acceptance leaves no ghost: the session's next message starts at once."""
    async with running(store) as kit:
        kit.journal.fail_with = Unavailable("disk full")
        with pytest.raises(Unavailable):
            await kit.start(session_key="k")
        kit.journal.fail_with = None
        await wait_all_tasks_blocked(0.0001)
        run_id = await kit.start(session_key="k")
        assert await kit.end(run_id) == "done"
        await wait_all_tasks_blocked(0.0001)
        assert kit.registry.runs == {}


async def test_a_cancel_on_a_full_disk_fails_at_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The reply does not wait for space; the run ends when there is space again."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        run_id = await kit.start()
        await wait_all_tasks_blocked(0.0001)
        kit.journal.fail_with, kit.journal.is_writable = Unavailable("disk full"), False
        began_s = trio.current_time()
        with pytest.raises(Unavailable, match="will be cancelled once"):
            await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        assert trio.current_time() - began_s < 1
        kit.journal.fail_with, kit.journal.is_writable = None, True
        assert "cancelled" == await kit.end(run_id)


async def test_a_secret_is_no_name_for_a_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A key that holds a secret would be stored as it is: it is refused."""
    async with running(store) as kit:
        with pytest.raises(InvalidParams, match="secret"):
            await kit.start(session_key=f"k-{SECRET}")


async def test_a_queued_run_is_queued_after_a_restart_too(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Only a run that has begun is recovering."""
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await kit.start(session_key="k")
        queued = await kit.start(session_key="k")
    async with running(store) as kit:
        kit.model.turns = [trio.Event()]
        await wait_all_tasks_blocked(0.0001)
        assert (await kit.gateway.get_run(OPERATOR, queued)).phase == "queued"


async def test_a_model_that_is_not_there_is_refused_before_there_is_a_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """With its name and those there are."""
    async with running(store) as kit:
        with pytest.raises(InvalidParams, match="no model 'none/such'; known: "):
            await kit.start(model="none/such")
        assert {} == kit.registry.runs
