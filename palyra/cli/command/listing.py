"""Options that listings share: `--since` and `--watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from palyra.cli.command.errors import INTERRUPTED, CommandFailed
from palyra.cli.command.output import clear_screen, now_ms
from palyra.errors import Unavailable

P = TypeVar("P", bound=msgspec.Struct)
Command = Callable[..., Any]

WATCH_EVERY_S = 2.0
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Span(click.ParamType[int]):
    """A length of time such as 30s, 15m, 2h or 1d, in milliseconds."""

    name = "span"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert the value; fail for one without a unit."""
        if isinstance(value, int):
            return value
        number, unit = value[:-1], value[-1:]
        if unit not in _UNITS_MS or not number.isascii() or not number.isdigit():
            self.fail(f"{value!r}: write a number and s, m, h or d, such as 15m", param, ctx)
        return int(number) * _UNITS_MS[unit]


since_option = click.option(
    "--since", "since_ms", type=Span(), help="Only of this last time, such as 15m or 2d."
)


def newer(page: P, rows: str, at: str, since_ms: int | None) -> P:
    """Return a page, newest first, without the rows whose member `at` is older than `since_ms`.

    A page that lost a row has no next page: later rows are older still.
    """
    if since_ms is None:
        return page
    after_ms = now_ms() - since_ms
    every = getattr(page, rows)
    kept = [row for row in every if getattr(row, at) >= after_ms]
    if len(kept) == len(every):
        return page
    return msgspec.structs.replace(page, **{rows: kept, "next_cursor": None})


def watchable(command: Command) -> Command:
    """Add --watch to a listing: show it again every two seconds until Ctrl-C."""

    @click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
    @wraps(command)
    def watched(*args: Any, watch: bool, **given: Any) -> None:  # noqa: ANN401 - as click calls it
        if not watch:
            command(*args, **given)
            return
        if not sys.stdout.isatty():
            raise click.UsageError("--watch needs a terminal")
        try:
            while True:
                clear_screen()
                _show(command, *args, **given)
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return
        except CommandFailed as failed:
            if failed.exit_code != INTERRUPTED:
                raise

    return watched


def _show(command: Command, *args: Any, **given: Any) -> None:  # noqa: ANN401 - as click calls it
    """Show a listing; without a daemon, say so in its place."""
    try:
        command(*args, **given)
    except CommandFailed as failed:
        if failed.kind != Unavailable.code:
            raise
        failed.show()
