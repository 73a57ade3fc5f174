"""Notices of waiting questions: one task for each address.

Owns: which questions an address knows of.  Talks to: the open questions, the address (`Post`).
Never: delays a question or its run (a question only sets an event), or sends what it is about.
Restart: permanent; the questions that an address knows of outlive the incarnation.  A start of the
daemon asks its open questions again, so each of them is sent once more.

A notice is sent when a question has waited `after_s`, and covers all questions that wait then.  An
attempt that may succeed later is repeated with backoff, at most `ATTEMPTS` times and only while one
of the questions waits; each failed attempt is a line of the log, and the last one a problem.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.core.access import Caller
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.notice import NoticeSent, QuestionNotice, make_notice, make_trial
from palyra.errors import PalyraError, Unavailable

log = structlog.get_logger("palyra.notify")
ATTEMPTS = 6
BACKOFF = Backoff(base_s=2.0, cap_s=60.0)

# Sends to a setting's address.  Raises Unavailable for what may succeed later, else PalyraError.
Post = Callable[[str, QuestionNotice], Awaitable[None]]
ListWaiting = Callable[[], Sequence[str]]  # ids of the questions that wait for a person


class Addressee:
    """One address, what it knows of, and the problem of the last attempt."""

    def __init__(
        self,
        name: str,
        post: Post,
        list_waiting: ListWaiting,
        find_console: Callable[[], str],
        rng: Callable[[], float],
    ) -> None:
        """`name` is the setting; `find_console` returns the console's address with a last slash."""
        self.name = name
        self.address = ""  # "": nothing is sent
        self.after_s = 0.0
        self.problem = ""
        self._post = post
        self._list_waiting = list_waiting
        self._find_console = find_console
        self._rng = rng
        self._since: dict[str, float] = {}  # when each waiting question was seen first
        self._sent: set[str] = set()
        self._wake = trio.Event()

    def configure(self, address: str, after_s: float) -> None:
        """Take up the settings; another address has no problem yet, and knows of no question."""
        if address != self.address:
            self.problem = ""
            self._sent.clear()
        self.address, self.after_s = address, after_s
        self.wake()

    def wake(self) -> None:
        """Look at the questions again: one was asked.  Never waits."""
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send notices until cancelled.  Cancellation: a notice may have been sent."""
        task_status.started()
        while True:
            self._wake = trio.Event()
            due_s = self._find_due()
            with trio.move_on_at(due_s) as pause:
                await self._wake.wait()
            if pause.cancelled_caught:
                await self._announce()

    def _find_due(self) -> float:
        """Return when the next notice is due, infinity for none."""
        now_s, waiting = trio.current_time(), self._list_waiting() if self.address else ()
        self._since = {each: self._since.get(each, now_s) for each in waiting}
        self._sent &= self._since.keys()
        return min(
            (
                since_s + self.after_s
                for each, since_s in self._since.items()
                if each not in self._sent
            ),
            default=float("inf"),
        )

    async def _announce(self) -> None:
        """Send one notice of all questions that wait, repeatedly while it fails and one still waits."""
        for failures in range(1, ATTEMPTS + 1):
            waiting, address = self._list_waiting(), self.address
            news = [each for each in waiting if each not in self._sent]
            if not news or not address:
                return
            may_retry = await self._attempt(
                make_notice(self._find_console(), len(waiting), news[0])
            )
            if address != self.address:
                return  # the new one knows of none
            if not may_retry or failures == ATTEMPTS:
                self._sent.update(waiting)
                return
            await trio.sleep(compute_delay_s(BACKOFF, failures, self._rng))

    async def _attempt(self, notice: QuestionNotice) -> bool:
        """Send the notice and note the problem; return True if a further attempt may succeed."""
        address, problem, may_retry = self.address, "", False
        try:
            await self._post(address, notice)
        except PalyraError as error:
            problem, may_retry = f"{self.name}: {error.message}", isinstance(error, Unavailable)
            log.warning("a notice was not sent", address=self.name, problem=error.message)
        if address == self.address:
            self.problem = problem
        return may_retry

    async def try_out(self) -> NoticeSent:
        """Send a notice that says it is a test.  Cancellation: it may have been sent."""
        await self._attempt(make_trial(self._find_console()))
        return NoticeSent(address=self.name, problem=self.problem.removeprefix(f"{self.name}: "))


class Notices:
    """All addresses."""

    def __init__(self, addressees: Sequence[Addressee]) -> None:
        self.addressees = addressees

    def wake(self) -> None:
        """A question has begun to wait.  Never waits."""
        for each in self.addressees:
            each.wake()

    @property
    def problems(self) -> list[str]:
        """Reasons of failed attempts, one for each address whose last attempt failed."""
        return [each.problem for each in self.addressees if each.problem]

    async def try_out(self, caller: Caller) -> list[NoticeSent]:
        """Send a test to each configured address.  Raises Forbidden."""
        caller.require("config:write")
        return [await each.try_out() for each in self.addressees if each.address]

    def child_specs(self) -> list[ChildSpec]:
        """Return a permanent child for each address; without one it sleeps."""
        return [ChildSpec(each.name, partial(each.run)) for each in self.addressees]
