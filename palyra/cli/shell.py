"""What every command shares: its options, and a client to talk with.

trio and the client are imported only once a command talks: `--help` must be instant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from palyra.cli.exits import INTERRUPTED, Stop, stop_for
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from palyra.net.client import Client

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
Command = Callable[..., Any]

PATIENCE_S = 20.0  # a restart of the daemon fits in; longer and a person wants to know


@dataclass(frozen=True, slots=True)
class Options:
    """Which daemon, and how to print."""

    home: Path | None = None
    url: str | None = None
    as_json: bool = False


_SHARED = (
    click.option("--home", type=click.Path(path_type=Path), help="The daemon's directory."),
    click.option("--url", help="The daemon's address, instead of the one announced there."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def shared_options(command: Command) -> Command:
    """Add --home, --url and --json; the command gets them as one `Options`.

    They may also stand before the name of the command.
    """

    @click.pass_context
    @wraps(command)
    def merged(context: click.Context, /, **given: Any) -> Any:  # noqa: ANN401 - as click calls it
        base = context.find_object(Options) or Options()
        options = Options(
            home=given.pop("home") or base.home,
            url=given.pop("url") or base.url,
            as_json=given.pop("as_json") or base.as_json,
        )
        return command(options, **given)

    for option in reversed(_SHARED):
        merged = option(merged)
    return merged


def talk(options: Options, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` returns, given a connected client.  Raises Stop for every expected failure."""
    import trio  # noqa: PLC0415 - see above

    results: list[T] = []
    try:
        # At checkpoints only: raised in the middle of a destructor Ctrl-C would be lost.
        talk_on = partial(trio.run, restrict_keyboard_interrupt_to_checkpoints=True)
        results.append(talk_on(_talk, options, work))
    except* (KeyboardInterrupt, PalyraError, OSError) as group:
        raise verdict(group) from None
    return results[0]


async def _talk(options: Options, work: Callable[[Client], Awaitable[T]]) -> T:
    from palyra.net.client import connect  # noqa: PLC0415 - see above

    async with connect(
        options.url, home=options.home, name="palyra-cli", patience_s=PATIENCE_S
    ) as client:
        return await work(client)


def verdict(group: BaseExceptionGroup[BaseException]) -> Exception:
    """The one error that the command ends with; Ctrl-C before all others."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return Stop("interrupted", code=INTERRUPTED)
    expected = group.subgroup(PalyraError)
    if expected is not None:
        return stop_for(first_error(expected))
    output = group.subgroup(OSError)  # what concerns the daemon has a class of its own
    assert output is not None  # noqa: S101 - there was nothing else to be caught
    return first_error(output)


def first_error(group: BaseExceptionGroup[E]) -> E:
    """The first error in the group that is no group itself."""
    inner = group.exceptions[0]
    return first_error(inner) if isinstance(inner, BaseExceptionGroup) else inner
