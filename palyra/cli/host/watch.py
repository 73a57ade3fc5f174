"""`palyra watch`: the overview of the daemon, live in the terminal.

Every notification of the daemon, and the second hand, let it be read again; a run's own progress has
no notification and is found by the second hand.  While no answer comes, the last figures stay, with
their age.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click
import trio

from palyra.cli.command.errors import INTERRUPTED, CommandFailed
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import moves_cursor, now_ms, paint, print_json, say, span, write
from palyra.cli.command.talk import Options, talk
from palyra.cli.host.overview import Line, Overview, fit, read, render
from palyra.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator

    from palyra.client import Client, Inbox

TICK_S = 1.0
LEAST_S = 0.2  # between two readings, however many notifications there are
PATIENCE_S = 5.0  # for one reading; the screen then says how old it is
_OPEN, _CLOSE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"


@click.command()
@click.option("--once", is_flag=True, help="Show it once, whole, and exit.")
@shared_options
def watch(options: Options, *, once: bool) -> None:
    """Show live what waits for a person, runs and went wrong.

    Ctrl-C or q leaves.  Into a pipe, at a dumb terminal and with --json, it is shown once.
    """
    if options.as_json:
        print_json(talk(options, lambda client: read(client, now_ms())))
    elif once or not (sys.stdin.isatty() and moves_cursor()):
        found = talk(options, lambda client: read(client, now_ms()))
        for line in render(found, now_ms()):
            say(line.text, fg=line.fg, bold=line.bold, dim=line.dim)
    else:
        try:
            talk(options, _watch, patience_s=math.inf)
        except CommandFailed as failed:
            if failed.exit_code != INTERRUPTED:
                raise


async def _watch(client: Client) -> None:
    """Redraw until a person leaves.  Cancellation: the terminal is as it was before."""
    send, receive = trio.open_memory_channel[None](1)
    async with client.notices() as inbox, trio.open_nursery() as nursery:
        with _own_screen():
            nursery.start_soon(_pass_on, inbox, send)
            nursery.start_soon(_leave_on_key, nursery.cancel_scope)
            await _draw_for_ever(client, receive)


async def _pass_on(inbox: Inbox, changes: trio.MemorySendChannel[None]) -> None:
    async for _ in inbox:
        with suppress(trio.WouldBlock):  # one that waits is enough
            changes.send_nowait(None)


async def _draw_for_ever(client: Client, changes: trio.MemoryReceiveChannel[None]) -> None:
    found: Overview | None = None
    while True:
        # Down, draining or starting: the figures stay, with their age.
        with suppress(Unavailable, Overloaded), trio.move_on_after(PATIENCE_S):
            found = await read(client, now_ms(), found)
        draw(found)
        await trio.sleep(LEAST_S)
        with trio.move_on_after(TICK_S - LEAST_S):
            await changes.receive()


def draw(overview: Overview | None) -> None:
    """Draw the overview on the whole terminal, without flicker."""
    width, height = shutil.get_terminal_size()
    at_ms = now_ms()
    if overview is None:
        lines = [Line("the daemon does not answer", fg="red")]
    else:
        lines = render(overview, at_ms)
        if at_ms - overview.at_ms >= PATIENCE_S * 1_000:
            old = span(at_ms - overview.at_ms)
            lines.insert(0, Line(f"no answer for {old}: these figures are old", fg="red"))
    shown = [
        paint(line.text, fg=line.fg, bold=line.bold or None, dim=line.dim or None)
        for line in fit(lines, width, height)
    ]
    ended = f"{_TO_END_OF_LINE}\r\n".join(shown)
    write(f"{_HOME}{ended}{_TO_END_OF_LINE}{_TO_END}")


@contextmanager
def _own_screen() -> Generator[None]:
    """A screen of its own, and keys that are read one by one; as before after the block."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    write(_OPEN)
    try:
        yield
    finally:
        write(_CLOSE)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _leave_on_key(scope: trio.CancelScope) -> None:
    number = sys.stdin.fileno()
    while True:
        await trio.lowlevel.wait_readable(number)
        typed = os.read(number, 1_024)
        if not typed or b"q" in typed:
            scope.cancel("the person left")
            return
