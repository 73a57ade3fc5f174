"""The mailbox: bounds, order, questions, and what an ending incarnation leaves behind."""
# ruff: noqa: ARG001 - a test gets virtual time by taking the clock as an argument

import threading
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.mailbox import BATCH, Mailbox, Receiver, Reply
from palyra.actors.reply import Answer
from palyra.errors import ActorGone, InvariantBroken, Overloaded, Rejected, TooSlow

AT_ONCE_S = 0.0
LONG_S = 60.0


@dataclass(frozen=True)
class Question:
    text: str
    reply: Reply[str]


@dataclass
class Asker:
    """Asks in a task of its own and notes what came of it, and when."""

    inbox: Mailbox[Question]
    timeout_s: float = LONG_S
    answer: str | None = None
    error: Exception | None = None
    waited_s: float | None = None

    async def ask(self, text: str = "?") -> None:
        begun_s = trio.current_time()

        def make(reply: Reply[str]) -> Question:
            return Question(text, reply)

        try:
            self.answer = await self.inbox.ask(make, timeout_s=self.timeout_s)
        except (ActorGone, TooSlow, Rejected) as error:
            self.error = error
        self.waited_s = trio.current_time() - begun_s

    @property
    def outcome(self) -> tuple[str, float | None]:
        end = type(self.error).__name__ if self.error else f"answer {self.answer}"
        return end, self.waited_s


@asynccontextmanager
async def asking(inbox: Mailbox[Question], *, timeout_s: float = LONG_S) -> AsyncGenerator[Asker]:
    """An asker whose question is on its way inside the block and settled after it."""
    asker = Asker(inbox, timeout_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asker.ask)
        await wait_all_tasks_blocked()
        yield asker


def fill(inbox: Mailbox[int]) -> None:
    for number in range(inbox.capacity):
        inbox.offer(number)


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
    """A tell to a full mailbox goes through as soon as one message is taken."""
    inbox = Mailbox[int]("full", 2)
    fill(inbox)
    nursery.start_soon(inbox.tell, 2)
    await wait_all_tasks_blocked()
    with inbox.receiver() as messages:
        assert [0, 1, 2] == [await messages.receive() for _ in range(3)]


async def test_cancelled_tell_queued_nothing(autojump_clock: MockClock) -> None:
    """A tell that is cancelled while it waits leaves no message behind."""
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
    """A reply that outlives trio has nobody left to tell."""

    async def main() -> list[Reply[str]]:
        await trio.lowlevel.checkpoint()
        return [Reply(Answer[str]("over"))]

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


# ---- the end of an incarnation


async def test_crash_fails_taken_questions_at_once(autojump_clock: MockClock) -> None:
    """A crash fails the question its incarnation held, though the traceback keeps it alive."""
    inbox = Mailbox[Question]("crashing", 4)
    async with asking(inbox) as asker:
        with pytest.raises(RuntimeError) as crash, inbox.receiver() as messages:  # noqa: PT012
            question = await messages.receive()
            raise RuntimeError(question.text)
        await wait_all_tasks_blocked()
        assert ("ActorGone", AT_ONCE_S) == asker.outcome
    assert crash.value.__traceback__ is not None


async def test_queued_messages_outlive_a_crash(autojump_clock: MockClock) -> None:
    """What the crashed incarnation had not taken is served by the next one."""
    inbox = Mailbox[Question]("reborn", 4)
    async with asking(inbox) as first, asking(inbox) as second:
        with pytest.raises(RuntimeError), inbox.receiver() as messages:  # noqa: PT012 - one life
            async for _ in messages:
                raise RuntimeError
        await wait_all_tasks_blocked()
        with inbox.receiver() as messages:
            (await messages.receive()).reply.put("served")
    assert ["ActorGone", "answer served"] == [first.outcome[0], second.outcome[0]]


async def test_drained_messages_die_with_the_drainer(autojump_clock: MockClock) -> None:
    """A drain takes all there is, so a crash then fails all of it."""
    inbox = Mailbox[Question]("drained", 4)
    async with asking(inbox) as first, asking(inbox) as second:
        with pytest.raises(RuntimeError), inbox.receiver() as messages:  # noqa: PT012 - one life
            await messages.drain()
            raise RuntimeError
    assert ["ActorGone", "ActorGone"] == [first.outcome[0], second.outcome[0]]


async def test_cancelled_receiver_does_not_swallow_an_error(autojump_clock: MockClock) -> None:
    """An exception leaves the receiver's block although its scope is cancelled."""
    inbox = Mailbox[int]("loud", 1)

    async def live() -> None:
        with trio.CancelScope() as scope, inbox.receiver() as messages:
            scope.cancel()
            try:
                await messages.receive()
            finally:
                raise ValueError("loud")

    with pytest.raises(ValueError, match="loud"):
        await live()


def test_second_receiver_is_a_bug() -> None:
    """Two incarnations never read one mailbox at once."""
    inbox = Mailbox[int]("single", 1)
    with inbox.receiver(), pytest.raises(InvariantBroken, match="single"), inbox.receiver():
        pass
    with inbox.receiver():
        pass


# ---- the final stop


async def test_final_stop_fails_everyone_who_waits(autojump_clock: MockClock) -> None:
    """Closing fails the queued asker, and those still waiting for room, at once."""
    inbox = Mailbox[Question]("closing", 1)
    async with asking(inbox) as queued, asking(inbox) as waiting:
        inbox.close()
    assert [("ActorGone", AT_ONCE_S)] * 2 == [queued.outcome, waiting.outcome]
    assert ["closing has stopped for good"] * 2 == [str(queued.error), str(waiting.error)]


async def test_final_stop_fails_a_waiting_tell(autojump_clock: MockClock) -> None:
    """A writer that waits for room hears of the final stop."""
    inbox = Mailbox[int]("closing", 1)
    fill(inbox)
    with pytest.RaisesGroup(ActorGone):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.tell, 9)
            await wait_all_tasks_blocked()
            inbox.close()


async def test_nothing_is_accepted_after_the_final_stop(autojump_clock: MockClock) -> None:
    """Every way of writing to a closed mailbox says that the actor is gone."""
    inbox = Mailbox[Question]("closed", 1)
    inbox.close()
    inbox.close()  # a second time changes nothing
    async with asking(inbox) as asker:
        pass
    question = Question("?", Reply(Answer(inbox.name)))
    with pytest.raises(ActorGone, match="closed has stopped for good"):
        inbox.offer(question)
    with pytest.raises(ActorGone, match="closed has stopped for good"):
        await inbox.tell(question)
    assert "ActorGone" == asker.outcome[0]
    question.reply.put("done with")


async def test_final_stop_ends_the_loop_of_a_living_receiver(autojump_clock: MockClock) -> None:
    """An incarnation that still receives sees the end of the channel."""
    inbox = Mailbox[int]("closing", 4)
    with inbox.receiver() as messages:
        inbox.offer(1)
        assert 1 == await anext(messages)
        inbox.close()
        assert [] == [message async for message in messages]
        with pytest.raises(trio.EndOfChannel):
            await messages.drain()


# ---- Stop


async def test_stop_lets_the_loop_finish_what_was_queued(autojump_clock: MockClock) -> None:
    """Iteration hands out what was queued before the Stop and then ends, with the reason."""
    inbox = Mailbox[int]("draining", 8)
    with inbox.receiver() as messages:
        inbox.offer(1)
        inbox.offer(2)
        assert await inbox.stop("the daemon ends")
        inbox.offer(3)
        assert [1, 2] == [message async for message in messages]
        assert "the daemon ends" == messages.stop_reason
    assert 1 == inbox.depth


async def test_stop_reads_as_the_end_of_the_channel(autojump_clock: MockClock) -> None:
    """After a Stop drain gives what came before it, then both reads raise EndOfChannel."""
    inbox = Mailbox[int]("draining", 8)
    with inbox.receiver() as messages:
        inbox.offer(1)
        await inbox.stop("enough")
        inbox.offer(2)
        assert [1] == await messages.drain()
        for read in (messages.drain, messages.receive):
            with pytest.raises(trio.EndOfChannel):
                await read()


async def test_stop_wakes_an_idle_receiver(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A receiver that waits for its first message hears a Stop."""
    inbox = Mailbox[int]("idle", 8)

    async def loop() -> None:
        with inbox.receiver() as messages:
            async for _ in messages:
                pass
        nursery.cancel_scope.cancel()

    nursery.start_soon(loop)
    await wait_all_tasks_blocked()
    assert await inbox.stop("enough")


@pytest.mark.parametrize("read", ["receive", "drain", "iterate"])
async def test_stop_is_for_one_incarnation(read: Literal["receive", "drain", "iterate"]) -> None:
    """A Stop that its incarnation did not live to read is not read by the next one."""
    inbox = Mailbox[int]("reborn", 8)
    with inbox.receiver():
        await inbox.stop("for the first one")
    inbox.offer(1)
    inbox.offer(2)
    with inbox.receiver() as messages:
        expected = {"receive": [1], "drain": [1, 2], "iterate": [1]}[read]
        assert expected == await read_once(messages, read)
        assert messages.stop_reason is None


async def test_stale_stop_in_the_middle_is_passed_over(autojump_clock: MockClock) -> None:
    """A stale Stop between two messages interrupts neither a batch nor an iteration."""
    inbox = Mailbox[int]("reborn", 8)
    for _ in range(2):
        with inbox.receiver() as first:
            inbox.offer(1)
            await inbox.stop("for the first one")
        inbox.offer(2)
    with inbox.receiver() as messages:
        assert 1 == await anext(messages)
        assert 2 == await anext(messages)
        assert [1, 2] == await messages.drain()
    assert first.stop_reason is None


async def read_once(
    messages: Receiver[int], read: Literal["receive", "drain", "iterate"]
) -> list[int]:
    if read == "drain":
        return await messages.drain()
    return [await (messages.receive() if read == "receive" else anext(messages))]


async def test_stop_waits_for_room(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A Stop to a full mailbox gets in as soon as the actor takes a message."""
    inbox = Mailbox[int]("full", 1)
    with inbox.receiver() as messages:
        fill(inbox)
        nursery.start_soon(inbox.stop, "enough")
        await wait_all_tasks_blocked()
        assert [0] == [message async for message in messages]


async def test_stop_without_a_listener_is_not_heard(autojump_clock: MockClock) -> None:
    """When nobody receives there is nobody to ask, and nothing is queued."""
    inbox = Mailbox[int]("asleep", 1)
    assert not await inbox.stop("enough")
    assert 0 == inbox.depth


async def test_stop_after_the_final_stop_is_superfluous(autojump_clock: MockClock) -> None:
    """A closed mailbox has told its receiver already."""
    inbox = Mailbox[int]("closed", 1)
    with inbox.receiver() as messages:
        inbox.close()
        assert await inbox.stop("enough")
        assert [] == [message async for message in messages]


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


async def test_iteration_hears_a_cancel_within_a_batch(autojump_clock: MockClock) -> None:
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
    """A mailbox under a script, and beside it what ought to have become of each question."""

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
