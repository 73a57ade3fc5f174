"""Pause of a run whose failed model is not asked again yet: wait, count down, or cancel."""

import math
import sys
from dataclasses import dataclass
from typing import Literal, Protocol

import trio

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.output import ProgressLine
from palyra.client import Client, TapeEvent
from palyra.core.tape.events import TurnFailed

LEAST_MS = 2_000  # a shorter wait is over before it is read
TICK_S = 1.0


class Items(Protocol):
    """The part of a subscription that a countdown needs."""

    @property
    def has_item(self) -> bool:
        """True if an item is buffered."""

    async def wait_item(self) -> None:
        """Wait until an item is buffered, or the subscription ended."""


async def count_down(items: Items, delay_ms: int) -> None:
    """Show the seconds that are left on standard error, until an item arrives or they are over.

    Returns at once for a short delay.  Cancellation: the line stays as it is.
    """
    if delay_ms < LEAST_MS:
        return
    ends_s = trio.current_time() + delay_ms / 1_000
    line = ProgressLine()
    while not items.has_item and (left_s := ends_s - trio.current_time()) > 0:
        line.show(f"  asking again in {math.ceil(left_s)} s (Ctrl-C cancels the run)")
        with trio.move_on_after(min(TICK_S, left_s)):
            await items.wait_item()
            break
    line.clear()


@dataclass(slots=True)
class ModelPause:
    """Treatment of the pauses after which the same model is asked again."""

    client: Client
    treatment: Literal["wait", "count down", "cancel"]
    _failure: TurnFailed | None = None  # the run was cancelled for it

    async def apply(self, item: TapeEvent, items: Items) -> None:
        """Treat the pause that begins with the item, if any; a countdown needs a terminal.

        Cancellation: a cancellation of the run that was being sent may have been recorded.
        """
        failed = item.event
        if not (isinstance(failed, TurnFailed) and failed.retry and failed.delay_ms > 0):
            return
        if self.treatment == "cancel" and self._failure is None:
            self._failure = failed
            await self.client.cancel(item.run_id, f"--fail-fast: {failed.failure_class}")
        elif self.treatment == "count down" and sys.stderr.isatty():
            await count_down(items, failed.delay_ms)

    def check(self) -> None:
        """Raise CommandFailed if the run was cancelled for a failure."""
        if self._failure is not None:
            raise CommandFailed(
                f"the model failed: {self._failure.failure_class}: {self._failure.detail}",
                "see `palyra models`, or run it without --fail-fast to wait",
                kind=self._failure.failure_class,
            )
