"""What every command shares: its options, and a client to talk with.

trio and the client are imported only once a command talks: `--help` must be instant.

The configuration as a command sees it: loaded, or a usage error with the remedy.

Text of an option, as it stands or read from a file; and files that a command writes.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, Any, TypeVar

import click

from palyra.cli.errors import INTERRUPTED, USAGE, CommandFailed, stop_for
from palyra.config.load import HOME_VARIABLE, Config, load
from palyra.errors import InvalidParams, PalyraError

if TYPE_CHECKING:
    from palyra.client import Client


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


class GivenPath(click.Path):
    """A path as an option or argument names it, which an empty text does not.

    An empty variable of a shell would otherwise name the current directory.
    """

    def __init__(self, **wanted: Any) -> None:  # noqa: ANN401 - click's own keywords
        super().__init__(path_type=Path, **wanted)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """As click does; fails for a text without a name in it."""
        if not os.fspath(value).strip():
            self.fail(f"it is empty: name a {self.name}, or leave it out", param, ctx)
        return super().convert(value, param, ctx)


_SHARED = (
    click.option("--home", type=GivenPath(), help="The daemon's directory."),
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
    from palyra.client import connect  # noqa: PLC0415 - see above

    async with connect(
        options.url, home=options.home, name="palyra-cli", patience_s=PATIENCE_S
    ) as client:
        return await work(client)


def verdict(group: BaseExceptionGroup[BaseException]) -> Exception:
    """The one error that the command ends with; Ctrl-C before all others."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return CommandFailed("interrupted", code=INTERRUPTED)
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


def load_config(
    home: Path | None, file: Path | None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration, with what the command line says on top; None there says nothing."""
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    try:
        return load(file, home=home, overrides=given)
    except InvalidParams as error:
        remedy = "`palyra config schema` says what is allowed"
        if error.field == HOME_VARIABLE:
            remedy = "or name a directory with --home"
        elif error.field is None:  # it is about the file, not about what stands in it
            remedy = "mend the file, or name another one with --config"
        raise CommandFailed(
            error.message, remedy, code=USAGE, kind=error.code, field=error.field
        ) from None


def read_text(value: str) -> str:
    """The text, or with `@FILE` what the file holds.  Raises Stop for a file that cannot be read."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{value[1:]}: {error}", "name a readable file of UTF-8 text") from None


def replace_file(path: Path, content: bytes) -> None:
    """Make that the file's content, at once: what was there stays until all of it is written.

    It keeps its permissions.  A device or a pipe is written to as it is.  Raises Stop.
    """
    target = path.resolve()  # of a link the file that it leads to is replaced
    is_other = target.exists() and not target.is_file()
    try:
        target.write_bytes(content) if is_other else _replace(target, content)
    except OSError as error:
        raise CommandFailed(
            f"{path}: {error.strerror}", "name a file that can be written"
        ) from None


def _replace(target: Path, content: bytes) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            if target.exists():
                draft.chmod(S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            with suppress(OSError):  # a file system that cannot
                os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
