"""Notices of waiting questions, in virtual time: when they are sent, what they say, how they fail."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.notices import ATTEMPTS, BACKOFF, Addressee, Notices
from palyra.core.access import Caller
from palyra.core.notice import NoticeSent, QuestionNotice
from palyra.errors import Forbidden, PalyraError, Rejected, Unavailable

AFTER_S = 5.0
CONSOLE = "http://127.0.0.1:7467/"
OPERATOR = Caller(principal="operator", role="operator", token_id="t")
LONG_S = 10_000.0


class Person:
    """The questions that wait, and the address that is told of them."""

    def __init__(self, *fails: PalyraError | None) -> None:
        self.waiting: list[str] = []
        self.got: list[tuple[float, QuestionNotice]] = []
        self.fails = list(fails)
        self.tried: list[float] = []
        self.began_s = trio.current_time()
        self.addressee = Addressee(
            "notify.webhook", self._post, lambda: list(self.waiting), lambda: CONSOLE, lambda: 1.0
        )
        self.addressee.configure("https://there.example/x", AFTER_S)

    async def _post(self, address: str, notice: QuestionNotice) -> None:
        assert address == "https://there.example/x"
        await trio.lowlevel.checkpoint()
        now_s = trio.current_time() - self.began_s
        self.tried.append(now_s)
        failure = self.fails.pop(0) if self.fails else None
        if failure is not None:
            raise failure
        self.got.append((now_s, notice))

    def ask(self, approval_id: str) -> None:
        """A question begins to wait."""
        self.waiting.append(approval_id)
        self.addressee.wake()

    @property
    def told(self) -> list[tuple[float, str, int, str]]:
        """When each notice came, and what it said."""
        return [
            (at_s, got.text, got.count, got.url.removeprefix(CONSOLE)) for at_s, got in self.got
        ]


@asynccontextmanager
async def away(*fails: PalyraError | None) -> AsyncGenerator[Person]:
    """A person whose address is told inside the block."""
    person = Person(*fails)
    async with trio.open_nursery() as nursery:
        await nursery.start(person.addressee.run)
        try:
            yield person
        finally:
            nursery.cancel_scope.cancel()


async def test_a_question_that_waits_is_sent_once(autojump_clock: MockClock) -> None:
    """After the configured time, with the number of questions and a link to the oldest."""
    async with away() as person:
        person.ask("apr_1")
        await trio.sleep(AFTER_S / 2)
        person.ask("apr_2")
        await trio.sleep(LONG_S)
        assert [(AFTER_S, "2 questions wait", 2, "#/inbox/apr_1")] == person.told
        person.waiting.remove("apr_1")
        began_s = trio.current_time() - person.began_s
        person.ask("apr_3")
        await trio.sleep(LONG_S)
    assert (began_s + AFTER_S, "2 questions wait", 2, "#/inbox/apr_3") == person.told[1]
    assert len(person.told) == 2


async def test_an_answered_question_is_not_sent(autojump_clock: MockClock) -> None:
    """One that is answered in time leaves no notice, and no timer for the next."""
    async with away() as person:
        person.ask("apr_1")
        await trio.sleep(AFTER_S - 1)
        person.waiting.clear()
        person.ask("apr_2")
        await trio.sleep(LONG_S)
    assert [(2 * AFTER_S - 1, "a question waits", 1, "#/inbox/apr_2")] == person.told


async def test_nothing_is_sent_without_an_address(autojump_clock: MockClock) -> None:
    """Until one is set, which covers what waits already."""
    async with away() as person:
        person.addressee.configure("", AFTER_S)
        person.ask("apr_1")
        await trio.sleep(LONG_S)
        assert not person.tried
        person.addressee.configure("https://there.example/x", 1)
        await trio.sleep(LONG_S)
    assert [(LONG_S + 1, "a question waits", 1, "#/inbox/apr_1")] == person.told


async def test_a_failed_attempt_is_repeated(autojump_clock: MockClock) -> None:
    """With growing waits; each failure is one line of the log, and the problem ends with success."""
    with capture_logs() as lines:
        async with away(Unavailable("down"), Unavailable("down")) as person:
            person.ask("apr_1")
            await trio.sleep(AFTER_S + 1)
            assert person.addressee.problem == "notify.webhook: down"
            await trio.sleep(LONG_S)
            assert not person.addressee.problem
    assert [AFTER_S, AFTER_S + 2, AFTER_S + 6] == person.tried
    assert ["down", "down"] == [each["problem"] for each in lines]


FAILURES: tuple[tuple[Callable[[str], PalyraError], int], ...] = (
    (Unavailable, ATTEMPTS),
    (Rejected, 1),
)


@pytest.mark.parametrize(("kind", "attempts"), FAILURES)
async def test_attempts_are_bounded(
    kind: Callable[[str], PalyraError], attempts: int, autojump_clock: MockClock
) -> None:
    """A failure that may pass gets so many, one that stays a single one; the next question gets its own."""
    async with away(*(kind("no") for _ in range(attempts))) as person:
        person.ask("apr_1")
        await trio.sleep(LONG_S)
        assert attempts == len(person.tried)
        assert person.tried[-1] <= AFTER_S + ATTEMPTS * BACKOFF.cap_s
        assert person.addressee.problem == "notify.webhook: no"
        person.ask("apr_2")
        await trio.sleep(LONG_S)
    assert [(2, "#/inbox/apr_2")] == [(count, url) for _, _, count, url in person.told]


async def test_an_answer_ends_the_attempts(autojump_clock: MockClock) -> None:
    """Nobody is told of a question that was answered while its address was down."""
    async with away(Unavailable("down")) as person:
        person.ask("apr_1")
        await trio.sleep(AFTER_S + 1)
        person.waiting.clear()
        await trio.sleep(LONG_S)
    assert [AFTER_S] == person.tried


async def test_a_trial_has_a_result_for_each_address(autojump_clock: MockClock) -> None:
    """It says that it is a test, and has the problem; an address that is not set has none."""
    works, fails, unset = Person(), Person(Rejected("no")), Person()
    unset.addressee.configure("", AFTER_S)
    notices = Notices([each.addressee for each in (works, fails, unset)])
    sent = [NoticeSent(address="notify.webhook", problem=why) for why in ("", "no")]
    assert sent == await notices.try_out(OPERATOR)
    assert [(0.0, "a test: no question waits", 0, "#/inbox")] == works.told
    assert ["notify.webhook: no"] == notices.problems


async def test_a_trial_is_for_operators() -> None:
    """Others cannot make the daemon send."""
    with pytest.raises(Forbidden):
        await Notices([]).try_out(Caller(principal="p", role="person", token_id="t"))


async def test_another_address_gets_the_questions_that_wait(autojump_clock: MockClock) -> None:
    """Also if the first one got them, or has an attempt under way whose failure is its own."""
    posted: list[str] = []
    gate = trio.Event()

    async def post(address: str, _notice: QuestionNotice) -> None:
        posted.append(address)
        if address == "https://slow.example":
            await gate.wait()
            raise Rejected("no")

    waiting = ["apr_1"]
    addressee = Addressee("notify.webhook", post, lambda: waiting, lambda: CONSOLE, lambda: 1.0)
    async with trio.open_nursery() as nursery:
        for address in ("https://a.example", "https://slow.example", "https://b.example"):
            addressee.configure(address, AFTER_S)
            if len(posted) == 0:
                await nursery.start(addressee.run)
            await trio.sleep(LONG_S)
        gate.set()
        await trio.sleep(LONG_S)
        nursery.cancel_scope.cancel()
    assert ["https://a.example", "https://slow.example", "https://b.example"] == posted
    assert not addressee.problem
