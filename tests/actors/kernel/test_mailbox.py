"""The mailbox: bounds, order, questions, fairness."""

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.mailbox import BATCH, Mailbox, Receiver
from palyra.actors.kernel.reply import PendingReply, Reply
from palyra.errors import Overloaded, Rejected, TooSlow
from tests.actors.kernel.asker import AT_ONCE_S, Asker, Question, asking, fill

# ---- tell and offer


async def test_messages_arrive_in_order(autojump_clock: MockClock) -> None:
    """One writer's messages are taken in the order it wrote them."""
    inbox = Mailbox[int]("order", 8)
    inbox.offer(1)
    await inbox.tell(2)
    inbox.offer(3)
    with inbox.receiver() as messages:
        assert [1, 2, 3] == [await messages.receive() for _ in range(3)]


def test_offer_never_waits() -> None:
    """An offer to a full mailbox is refused on the spot, by name and size."""
    inbox = Mailbox[int]("full", 2)
    fill(inbox)
    with pytest.raises(Overloaded, match="full: all 2 places"):
        inbox.offer(9)
    assert 2 == inbox.depth


async def test_tell_waits_for_room(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A tell to a full mailbox completes when one message is taken."""
    inbox = Mailbox[int]("full", 2)
    fill(inbox)
    nursery.start_soon(inbox.tell, 2)
    await wait_all_tasks_blocked()
    with inbox.receiver() as messages:
        assert [0, 1, 2] == [await messages.receive() for _ in range(3)]


async def test_cancelled_tell_queues_nothing(autojump_clock: MockClock) -> None:
    """A tell that is cancelled while it waits leaves no message."""
    inbox = Mailbox[int]("full", 1)
    fill(inbox)
    with trio.move_on_after(1):
        await inbox.tell(9)
    with inbox.receiver() as messages:
        assert [0] == await messages.drain()


async def test_depth_and_peak(autojump_clock: MockClock) -> None:
    """Depth is what waits now, peak the most that ever waited."""
    inbox = Mailbox[int]("depth", 5)
    for number in range(3):
        inbox.offer(number)
    with inbox.receiver() as messages:
        await messages.receive()
    assert (2, 3, 5) == (inbox.depth, inbox.peak, inbox.capacity)


async def test_age_counts_from_the_last_message_taken(autojump_clock: MockClock) -> None:
    """The age is unknown before the first message and then grows with the clock."""
    inbox = Mailbox[int]("age", 5)
    inbox.offer(1)
    assert inbox.last_message_age_s is None
    with inbox.receiver() as messages:
        await messages.receive()
    autojump_clock.jump(3)
    assert 3.0 == pytest.approx(inbox.last_message_age_s)


# ---- ask


async def test_ask_returns_the_answer(autojump_clock: MockClock) -> None:
    """The asker gets the value the answerer put."""
    inbox = Mailbox[Question]("ask", 1)
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            (await messages.receive()).reply.put("yes")
    assert "yes" == asker.answer


async def test_drained_questions_can_be_answered(autojump_clock: MockClock) -> None:
    """A drain hands out questions as messages, the first and the others."""
    inbox = Mailbox[Question]("ask", 4)
    async with asking(inbox) as first, asking(inbox) as second:
        with inbox.receiver() as messages:
            for question in await messages.drain():
                question.reply.put("yes")
    assert ["yes", "yes"] == [first.answer, second.answer]


async def test_ask_raises_what_the_answerer_failed_with(autojump_clock: MockClock) -> None:
    """A failed reply raises the very error in the asker."""
    inbox = Mailbox[Question]("ask", 1)
    error = Rejected("no such run")
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            (await messages.receive()).reply.fail(error)
    assert asker.error is error


async def test_second_answer_is_ignored(autojump_clock: MockClock) -> None:
    """Only the first of several answers counts."""
    inbox = Mailbox[Question]("ask", 1)
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            reply = (await messages.receive()).reply
            reply.put("first")
            reply.put("second")
            reply.fail(Rejected("third"))
            reply.close()
    assert ("answer first", AT_ONCE_S) == asker.outcome


async def test_late_answer_is_ignored(autojump_clock: MockClock) -> None:
    """An answer after the deadline neither blocks the answerer nor reaches anyone."""
    inbox = Mailbox[Question]("late", 1)
    async with asking(inbox, timeout_s=2) as asker:
        with inbox.receiver() as messages:
            question = await messages.receive()
            await trio.sleep_until(trio.current_time() + 5)
            question.reply.put("too late")
    assert "TooSlow" == asker.outcome[0]
    assert 2.0 == pytest.approx(asker.waited_s)


async def test_deadline_covers_the_wait_for_room(autojump_clock: MockClock) -> None:
    """A question that never got into the full mailbox is given up at its deadline."""
    inbox = Mailbox[Question | int]("full", 1)
    inbox.offer(0)
    begun_s = trio.current_time()
    with pytest.raises(TooSlow, match="full gave no answer within 2 s"):
        await inbox.ask(lambda reply: Question("?", reply), timeout_s=2)
    assert 2.0 == pytest.approx(trio.current_time() - begun_s)
    assert 1 == inbox.depth


async def test_deadline_covers_send_and_wait_together(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Three seconds of waiting for room leave two of five for the answer."""
    inbox = Mailbox[Question | int]("busy", 1)
    inbox.offer(0)

    held: list[Question | int] = []

    async def make_room_late() -> None:
        with inbox.receiver() as messages:
            await trio.sleep_until(begun_s + 3)
            held.extend(await messages.drain())
            await trio.sleep_forever()

    begun_s = trio.current_time()
    nursery.start_soon(make_room_late)
    with pytest.raises(TooSlow):
        await inbox.ask(lambda reply: Question("?", reply), timeout_s=5)
    assert 5.0 == pytest.approx(trio.current_time() - begun_s)
    nursery.cancel_scope.cancel()


async def test_closed_reply_fails_the_asker_at_once(autojump_clock: MockClock) -> None:
    """An answerer that gives up spares the asker its deadline."""
    inbox = Mailbox[Question]("ask", 1)
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            (await messages.receive()).reply.close()
            await wait_all_tasks_blocked()
            assert ("ActorGone", AT_ONCE_S) == asker.outcome


async def test_forgotten_reply_fails_the_asker_at_once(autojump_clock: MockClock) -> None:
    """A question thrown away unanswered fails although its taker lives on."""
    inbox = Mailbox[Question]("forgetful", 1)
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            await messages.receive()
            await wait_all_tasks_blocked()
            assert ("ActorGone", AT_ONCE_S) == asker.outcome


async def test_reply_collected_in_another_thread_fails_the_asker(autojump_clock: MockClock) -> None:
    """The garbage collector may find an unanswered reply in any thread."""
    inbox = Mailbox[Question]("forgetful", 1)
    async with asking(inbox) as asker:
        with inbox.receiver() as messages:
            held = [await messages.receive()]
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
            assert asker.error is None
            await wait_all_tasks_blocked()
            assert ("ActorGone", AT_ONCE_S) == asker.outcome


def test_reply_collected_after_the_run_is_harmless() -> None:
    """A reply that is collected after trio's end raises nothing."""

    async def main() -> list[Reply[str]]:
        await trio.lowlevel.checkpoint()
        return [Reply(PendingReply[str]("over"))]

    trio.run(main).clear()  # an error in a finalizer would fail the test as a warning


async def test_cancelled_asker_leaves_its_question_to_the_answerer(
    autojump_clock: MockClock,
) -> None:
    """An asker that was cancelled is not waited for, and its question is still served."""
    inbox = Mailbox[Question]("ask", 1)
    with trio.CancelScope() as scope:
        async with asking(inbox):
            scope.cancel()
    with inbox.receiver() as messages:
        question = await messages.receive()
        question.reply.put("nobody listens")
        assert "?" == question.text


async def test_a_question_is_abandoned_with_its_asker(autojump_clock: MockClock) -> None:
    """From the step of the cancel on; one that is answered in that step keeps its answer."""
    inbox = Mailbox[Question]("ask", 2)
    with trio.CancelScope() as scope:
        async with asking(inbox) as late, asking(inbox) as lucky:
            with inbox.receiver() as messages:
                first, second = await messages.drain()
                seen = [first.reply.is_abandoned]
                first.reply.put("yes")
                scope.cancel()
                seen += [first.reply.is_abandoned, second.reply.is_abandoned]
    assert [False, False, True] == seen
    assert ["yes", None] == sorted([late.answer, lucky.answer], key=str, reverse=True)


# ---- fairness


async def test_iteration_checkpoints_once_a_batch(autojump_clock: MockClock) -> None:
    """The loop lets others run between two batches, and only between them."""
    inbox = Mailbox[int]("fair", 3 * BATCH)
    fill(inbox)
    task = trio.lowlevel.current_task()
    points: list[int] = []
    with inbox.receiver() as messages:
        async for _ in messages:
            points.append(task._schedule_points)
            if len(points) == 3 * BATCH:
                break
    assert [BATCH] * 3 == [points.count(point) for point in sorted(set(points))]


async def test_a_cancelled_iteration_ends_within_a_batch(autojump_clock: MockClock) -> None:
    """A cancelled loop ends after at most one batch, and the rest stays queued."""
    inbox = Mailbox[int]("cancelled", 3 * BATCH)
    fill(inbox)
    with trio.CancelScope() as scope, inbox.receiver() as messages:
        async for _ in messages:
            scope.cancel()
    assert scope.cancelled_caught
    assert 2 * BATCH == inbox.depth


# ---- all together

Step = Literal["ask", "answer", "take", "crash", "reply_late"]
STEPS = st.lists(st.sampled_from(["ask", "answer", "take", "crash", "reply_late"]), max_size=40)


@dataclass
class World:
    """A mailbox under a script, with the expected outcome of each request."""

    nursery: trio.Nursery
    inbox: Mailbox[Question] = field(default_factory=lambda: Mailbox("world", 4))
    askers: list[Asker] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    held: dict[int, Reply[str]] = field(default_factory=dict)
    orphans: list[Reply[str]] = field(default_factory=list)

    async def play(self, script: list[Step]) -> None:
        with ExitStack() as lives:
            life = lives.enter_context(self.inbox.receiver())
            for step in script:
                if step == "crash":
                    lives.close()
                    life = lives.enter_context(self.inbox.receiver())
                await self.play_one(step, life)
                await wait_all_tasks_blocked()
                assert self.expected == [asker.outcome[0] for asker in self.askers]
            self.inbox.close()
        self.lose([*self.queued, *self.held])

    async def play_one(self, step: Step, life: Receiver[Question]) -> None:
        match step:
            case "ask":
                await self.ask()
            case "answer" | "take" if self.queued:
                await self.take(life, is_answered=step == "answer")
            case "crash":
                self.lose(list(self.held))
            case _:
                for reply in self.orphans:
                    reply.put("ghost")

    async def ask(self) -> None:
        self.queued.append(len(self.askers))
        self.askers.append(Asker(self.inbox))
        self.expected.append("answer None")  # none yet
        self.nursery.start_soon(self.askers[-1].ask, str(len(self.askers) - 1))
        await wait_all_tasks_blocked()

    async def take(self, life: Receiver[Question], *, is_answered: bool) -> None:
        question, number = await life.receive(), self.queued.pop(0)
        assert str(number) == question.text
        if is_answered:
            question.reply.put(question.text)
            self.expected[number] = f"answer {number}"
        else:
            self.held[number] = question.reply

    def lose(self, numbers: list[int]) -> None:
        for number in numbers:
            self.expected[number] = "ActorGone"
        self.orphans.extend(self.held.values())
        self.held.clear()


@given(script=STEPS)
def test_every_question_ends_once_and_at_once(script: list[Step]) -> None:
    """Whatever the order of events, each question ends as the model says, without any delay."""

    async def main() -> list[Asker]:
        async with trio.open_nursery() as nursery:
            world = World(nursery)
            await world.play(script)
        assert world.expected == [asker.outcome[0] for asker in world.askers]
        return world.askers

    askers = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert {AT_ONCE_S} >= {asker.waited_s for asker in askers}
