"""One answer to one question: the asker holds the `PendingReply`, the answerer the `Reply`.

There are two objects so that the asker does not keep the answerer's side alive: a `Reply` that is
dropped without an answer is garbage-collected, and its finalizer fails the question with ActorGone.
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
        self.is_abandoned = False  # the asker was cancelled or timed out

    def settle(self, value: T | None, error: PalyraError | None) -> None:
        if not self.is_settled:
            self.is_settled = True
            self._value, self._error = value, error
            if self._asker is not None:
                trio.lowlevel.reschedule(self._asker)

    def settle_gone(self) -> None:
        self.settle(None, ActorGone(f"{self._name} accepted the request and ended without a reply"))

    def settle_gone_soon(self) -> None:
        """The same from any thread, as the garbage collector may run in any thread."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.settle_gone)

    async def wait(self) -> T:
        """Wait for the answer.

        Cancellation: the question is abandoned at once; an answer that is already set wins.
        """
        if self.is_settled:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            self._asker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        """Abandon the question at the cancel, before the asker runs again."""
        self.is_settled = self.is_abandoned = True
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Generic[T]):
    """The answerer's side of one question: one answer, never blocks; late answers are ignored."""

    __slots__ = ("_answer",)

    def __init__(self, answer: PendingReply[T]) -> None:
        self._answer = answer

    @property
    def is_abandoned(self) -> bool:
        """True if the asker gave up; it may ask again, so the request should not be carried out."""
        return self._answer.is_abandoned

    def put(self, value: T) -> None:
        """Answer; a second or late answer changes nothing."""
        self._answer.settle(value, None)

    def fail(self, error: PalyraError) -> None:
        """Answer with an error, which the asker raises."""
        self._answer.settle(None, error)

    def close(self) -> None:
        """End without an answer: the asker gets ActorGone at once."""
        self._answer.settle_gone()

    def __del__(self) -> None:
        if not self._answer.is_settled:
            self._answer.settle_gone_soon()
