"""Countdown at a terminal while a run waits to ask its model again."""

import math
from typing import Protocol

import click
import trio

LEAST_MS = 2_000  # a shorter wait is over before it is read
TICK_S = 1.0
_CLEAR = "\r\x1b[K"  # to the start of the line, and erase it


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
    while not items.has_item and (left_s := ends_s - trio.current_time()) > 0:
        text = f"  asking again in {math.ceil(left_s)} s (Ctrl-C cancels the run)"
        click.echo(f"{_CLEAR}{text}", err=True, nl=False)
        with trio.move_on_after(min(TICK_S, left_s)):
            await items.wait_item()
            break
    click.echo(_CLEAR, err=True, nl=False)
