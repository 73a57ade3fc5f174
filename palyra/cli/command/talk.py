"""Connection of a command to the daemon.

`talk` runs a function with a connected client and converts its errors.  trio and the client are
imported only when a command connects, so that `--help` starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from palyra.cli.command.errors import INTERRUPTED, CommandFailed, stop_for
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import click

    from palyra.client import Client

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

PATIENCE_S = 20.0  # to connect: long enough for a restart of the daemon


@dataclass(frozen=True, slots=True)
class Options:
    """Shared options of a command: the daemon to connect to and the output format."""

    home: Path | None = None
    url: str | None = None
    as_json: bool = False


def find_options(context: click.Context) -> Options:
    """Return the shared options for a completion, before any command is called."""
    root, own = context.find_root().params, context.params
    return Options(home=own.get("home") or root.get("home"), url=own.get("url") or root.get("url"))


def is_daemon_needed(options: Options) -> bool:
    """True if the command must ask a daemon: a URL is given, or a daemon runs in this home."""
    from palyra.net.protocol import discovery  # noqa: PLC0415 - help must be instant

    found = discovery.find_discovery(discovery.find_home(options.home))
    return options.url is not None or (found is not None and found.is_alive)


def talk(
    options: Options, work: Callable[[Client], Awaitable[T]], *, patience_s: float = PATIENCE_S
) -> T:
    """Run `work` with a connected client and return its result.

    Connecting may take `patience_s`.  Raises CommandFailed for an interrupt and for a PalyraError, and
    the OSError if only the output failed.
    """
    import trio  # noqa: PLC0415 - help must be instant

    results: list[T] = []
    try:
        # Deliver Ctrl-C at checkpoints only: raised inside a destructor it would be lost.
        talk_on = partial(trio.run, restrict_keyboard_interrupt_to_checkpoints=True)
        results.append(talk_on(_talk, options, work, patience_s))
    except* (KeyboardInterrupt, PalyraError, OSError) as group:
        raise verdict(group) from None
    return results[0]


async def _talk(options: Options, work: Callable[[Client], Awaitable[T]], patience_s: float) -> T:
    from palyra.client import connect  # noqa: PLC0415 - help must be instant

    async with connect(
        options.url, home=options.home, name="palyra-cli", patience_s=patience_s
    ) as client:
        return await work(client)


def verdict(group: BaseExceptionGroup[BaseException]) -> Exception:
    """Select the one error to end the command with: Ctrl-C, then PalyraError, then OSError."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return CommandFailed("interrupted", code=INTERRUPTED)
    expected = group.subgroup(PalyraError)
    if expected is not None:
        return stop_for(first_error(expected))
    output = group.subgroup(OSError)  # of the output: failures to reach the daemon are PalyraErrors
    assert output is not None  # noqa: S101 - the callers catch these three classes only
    return first_error(output)


def first_error(group: BaseExceptionGroup[E]) -> E:
    """Return the first error in the group that is not a group itself."""
    inner = group.exceptions[0]
    return first_error(inner) if isinstance(inner, BaseExceptionGroup) else inner
