"""One answer to one question: the asker holds the `Answer`, the answerer the `Reply`.

Two objects, because the asker must not keep alive what tells it that nobody can answer any more:
a reply that is thrown away unanswered is collected, and says so on its way.
"""

from contextlib import suppress
from typing import Generic, TypeVar, cast

import trio

from palyra.errors import ActorGone, PalyraError

T = TypeVar("T")


class PendingReply(Generic[T]):
    """The asker's side of one question: written once, read once."""

    __slots__ = ("_asker", "_error", "_name", "_token", "_value", "is_abandoned", "is_settled")

    def __init__(self, name: str) -> None:
        self._name = name
        self._asker: trio.lowlevel.Task | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._value: T | None = None
        self._error: PalyraError | None = None
        self.is_settled = False
        self.is_abandoned = False  # the asker left without it

    def settle(self, value: T | None, error: PalyraError | None) -> None:
        if not self.is_settled:
            self.is_settled = True
            self._value, self._error = value, error
            if self._asker is not None:
                trio.lowlevel.reschedule(self._asker)

    def settle_gone(self) -> None:
        self.settle(None, ActorGone(f"{self._name} took the question and ended without an answer"))

    def settle_gone_soon(self) -> None:
        """The same from any thread, which is where the garbage collector may run."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.settle_gone)

    async def wait(self) -> T:
        """The answer.  Cancellation: it is abandoned from that very step; one that is there wins."""
        if self.is_settled:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            self._asker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        """Between an asker's cancel and its next step nobody may act on the question any more."""
        self.is_settled = self.is_abandoned = True
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Generic[T]):
    """The answerer's side of one question: one answer, never blocks, late ones are ignored."""

    __slots__ = ("_answer",)

    def __init__(self, answer: PendingReply[T]) -> None:
        self._answer = answer

    @property
    def is_abandoned(self) -> bool:
        """Whether the asker gave up: it may ask again, so what it asked for should not happen."""
        return self._answer.is_abandoned

    def put(self, value: T) -> None:
        """Answer; a second or late answer changes nothing."""
        self._answer.settle(value, None)

    def fail(self, error: PalyraError) -> None:
        """Let the asker raise `error`."""
        self._answer.settle(None, error)

    def close(self) -> None:
        """Give up: an asker without an answer gets ActorGone at once."""
        self._answer.settle_gone()

    def __del__(self) -> None:
        if not self._answer.is_settled:
            self._answer.settle_gone_soon()
