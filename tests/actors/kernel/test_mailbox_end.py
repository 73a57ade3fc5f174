"""The end of an incarnation, the drain, and the final stop."""

from typing import Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.mailbox import Mailbox, Receiver
from palyra.actors.kernel.reply import PendingReply, Reply
from palyra.errors import ActorGone, InvariantBroken
from tests.actors.kernel.asker import AT_ONCE_S, Question, asking, fill

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
    """The next incarnation gets the messages that the crashed one had not taken."""
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
    assert ["closing has stopped"] * 2 == [str(queued.error), str(waiting.error)]


async def test_final_stop_fails_a_waiting_tell(autojump_clock: MockClock) -> None:
    """A tell that waits for room fails at the final stop."""
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
    question = Question("?", Reply(PendingReply(inbox.name)))
    with pytest.raises(ActorGone, match="closed has stopped"):
        inbox.offer(question)
    with pytest.raises(ActorGone, match="closed has stopped"):
        await inbox.tell(question)
    assert "ActorGone" == asker.outcome[0]
    question.reply.put("done with")


async def test_another_incarnation_opens_the_mailbox_again(autojump_clock: MockClock) -> None:
    """A closed mailbox that is received from once more works as a new one."""
    inbox = Mailbox[int]("revived", 1)
    inbox.offer(1)
    inbox.close()
    with inbox.receiver() as messages:
        inbox.offer(2)
        assert [2] == await messages.drain()


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
    """A receiver that waits for its first message receives a Stop."""
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


async def test_stop_without_a_receiver_queues_nothing(autojump_clock: MockClock) -> None:
    """Without a receiver a Stop is not queued."""
    inbox = Mailbox[int]("asleep", 1)
    assert not await inbox.stop("enough")
    assert 0 == inbox.depth


async def test_stop_after_the_final_stop_does_nothing(autojump_clock: MockClock) -> None:
    """A closed mailbox has already notified its receiver."""
    inbox = Mailbox[int]("closed", 1)
    with inbox.receiver() as messages:
        inbox.close()
        assert await inbox.stop("enough")
        assert [] == [message async for message in messages]
