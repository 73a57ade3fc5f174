"""Answers to approvals while commits are slow: every client learns the outcome."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.approval import ResolveApproval
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.views import Resolved
from tests.actors.run.office_kit import OPERATOR, OTHER, Kit, call, running
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


class Inbox:
    """A connection that only collects notices."""

    def __init__(self, kit: Kit) -> None:
        self.caller = OTHER
        self.notices: list[Any] = []
        kit.hub.attach(self)

    def notify(self, message: bytes) -> None:
        self.notices.append(msgspec.json.decode(message))

    def hang_up(self, code: int, reason: str) -> None:
        raise AssertionError(f"{code} {reason}")

    def told(self, method: str) -> list[Any]:
        """The params of the notices of that name."""
        return [notice["params"] for notice in self.notices if notice["method"] == method]


async def settle() -> None:
    """Let every actor come to rest."""
    await wait_all_tasks_blocked(0.0001)


async def reach_prompt(kit: Kit) -> ApprovalRecord:
    """A run that waits for a person; its prompt, as shown."""
    kit.model.turns = [call(("ask_note", {"text": "x"}))]
    run_id = await kit.start()
    await settle()
    (prompt,) = kit.live(run_id).prompts.values()
    return prompt


def release(kit: Kit) -> None:
    """Commit what was held, and whatever comes."""
    kit.journal.hold = False
    kit.journal.flush()


async def while_held(
    kit: Kit, prompt: ApprovalRecord, decision: str, meanwhile: Callable[[], Awaitable[None]]
) -> Resolved:
    """The reply to an answer when nothing is committed before `meanwhile` is at rest."""
    outcomes: list[Resolved] = []

    async def answer() -> None:
        command = ResolveApproval(
            approval_id=prompt.approval_id,
            decision=decision,  # type: ignore[arg-type]  # a literal
            digest=prompt.digest,
        )
        outcomes.append(await kit.answers.resolve(OPERATOR, command))

    kit.journal.hold = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        await settle()
        await meanwhile()
        await settle()
        assert [] == outcomes
        release(kit)
    return outcomes[0]


async def test_the_answer_that_ends_a_run(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A run that ends before the answer is committed still replies to the winner."""
    async with running(store) as kit:
        inbox = Inbox(kit)
        prompt = await reach_prompt(kit)
        outcome = await while_held(kit, prompt, "deny", settle)
        assert "done" == await kit.end(prompt.run_id)
        assert (True, "deny", "ann") == (outcome.won, outcome.decision, outcome.by)
        assert "approval.resolved" == kit.rows(prompt.run_id)[outcome.seq or 0].kind
        (told,) = inbox.told("approval.resolved")
        assert (prompt.approval_id, "deny") == (told["approval_id"], told["decision"])


async def test_an_answer_before_the_prompt_is_durable(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An answer to an approval that is only on the wire waits for the commit."""
    async with running(store) as kit:
        gate = trio.Event()
        kit.model.turns = [gate, call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        await settle()
        kit.journal.hold = True
        gate.set()
        await settle()
        (prompt,) = kit.live(run_id).prompts.values()
        assert kit.approvals.find_open(run_id) is None
        outcome = await while_held(kit, prompt, "allow", settle)
        assert "done" == await kit.end(run_id)
        assert outcome.won
        assert ["x"] == kit.effects


async def test_an_answer_and_then_a_cancel(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """An answer that was taken before the cancel has won, though its call never starts."""
    async with running(store) as kit:
        prompt = await reach_prompt(kit)

        async def cancel() -> None:
            nursery.start_soon(kit.gateway.cancel_run, OPERATOR, prompt.run_id, "enough")
            await settle()

        async with trio.open_nursery() as nursery:
            outcome = await while_held(kit, prompt, "allow", cancel)
        assert (True, "allow") == (outcome.won, outcome.decision)
        assert "cancelled" == await kit.end(prompt.run_id)
        kinds = kit.kinds(prompt.run_id)
        assert 1 == kinds.count("approval.resolved")
        assert [] == kit.effects


async def test_a_cancel_and_then_an_answer(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """An answer that arrives while the run is ending waits for the end and gets `abort`."""
    async with running(store) as kit:
        inbox = Inbox(kit)
        prompt = await reach_prompt(kit)
        kit.journal.hold = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.gateway.cancel_run, OPERATOR, prompt.run_id, "enough")
            await settle()
            outcome = await while_held(kit, prompt, "allow", settle)
        assert (False, "abort") == (outcome.won, outcome.decision)
        (told,) = inbox.told("approval.resolved")
        assert (prompt.approval_id, "abort") == (told["approval_id"], told["decision"])
        assert [] == kit.effects
