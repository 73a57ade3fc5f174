"""Helpers that all commands share.

- the options --home, --url and --json, as one `Options`, and short names of records;
- `load_config`, which turns a configuration error into a usage error with a remedy;
- reading the text of an option from a file, and replacing an output file atomically.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from palyra.cli.command.errors import USAGE, CommandFailed
from palyra.cli.command.names import find_ids, id_parameters, short_names
from palyra.cli.command.talk import Options, talk
from palyra.config.file import replace_content
from palyra.config.load import Config, load
from palyra.config.paths import HOME_VARIABLE
from palyra.errors import InvalidParams

Command = Callable[..., Any]


class GivenPath(click.Path):
    """Click type of a path that refuses an empty text.

    An empty shell variable would otherwise name the current directory.
    """

    def __init__(self, **wanted: Any) -> None:  # noqa: ANN401 - click's own keywords
        super().__init__(path_type=Path, **wanted)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Convert the value as click does; fail if it is empty or blank."""
        if not os.fspath(value).strip():
            self.fail(f"it is empty: name a {self.name}, or omit the option", param, ctx)
        return super().convert(value, param, ctx)


_SHARED = (
    click.option("--home", type=GivenPath(), help="The daemon's directory."),
    click.option(
        "--url", help="The daemon's address, instead of the one announced in its directory."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def shared_options(command: Command) -> Command:
    """Add --home, --url and --json to a command, which receives them as one `Options`.

    The same options may be given before the name of the command; those given after it win.
    A --home on the command line outranks an address of the environment, which may be another daemon's.
    """

    @click.pass_context
    @wraps(command)
    def merged(context: click.Context, /, **given: Any) -> Any:  # noqa: ANN401 - as click calls it
        base = context.find_object(Options) or Options()
        home, url = given.pop("home"), given.pop("url")
        options = Options(
            home=home or base.home,
            url=url or (None if _outranks_address(context, home) else base.url),
            as_json=given.pop("as_json") or base.as_json,
        )
        return command(options, **_with_ids(context, options, given))

    for option in reversed(_SHARED):
        merged = option(merged)
    return merged


def _with_ids(context: click.Context, options: Options, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with each short name replaced by the id that it means."""
    wanted = short_names(context, given)
    if not wanted:
        return given
    ids = talk(options, lambda client: find_ids(client, wanted))

    def whole(value: Any) -> Any:  # noqa: ANN401 - as click calls it
        return tuple(map(whole, value)) if isinstance(value, tuple) else ids.get(value, value)

    changed = {name: whole(given[name]) for name in id_parameters(context)}
    return {**given, **changed}


def _outranks_address(context: click.Context, home: Path | None) -> bool:
    """True if the command line names a directory, and only a variable names an address."""
    source = context.find_root().get_parameter_source
    is_named = home is not None or source("home") is ParameterSource.COMMANDLINE
    return is_named and source("url") is ParameterSource.ENVIRONMENT


def load_config(
    home: Path | None, file: Path | None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Load the configuration; entries of `overrides` that are not None replace its values.

    Raises CommandFailed with a remedy for an invalid configuration.
    """
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    try:
        return load(file, home=home, overrides=given)
    except InvalidParams as error:
        remedy = "`palyra config schema` says what is allowed"
        if error.field == HOME_VARIABLE:
            remedy = "or name a directory with --home"
        elif error.field is None:  # the file itself cannot be read
            remedy = "repair the file, or name another one with --config"
        raise CommandFailed(
            error.message, remedy, code=USAGE, kind=error.code, field=error.field
        ) from None


def read_text(value: str) -> str:
    """Return the text, or for `@FILE` the content of the file.

    Raises CommandFailed for a file that cannot be read or is not UTF-8.
    """
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandFailed(
            f"{value[1:]}: {reason}", "name a readable file of UTF-8 text"
        ) from None


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically: the old content stays until the new is complete.

    The file keeps its permissions.  A device or a pipe is written to directly.
    Raises CommandFailed if the file cannot be written.
    """
    target = path.resolve()  # replace the target of a link, not the link
    is_other = target.exists() and not target.is_file()
    try:
        target.write_bytes(content) if is_other else replace_content(target, content)
    except OSError as error:
        raise CommandFailed(
            f"{path}: {error.strerror}", "name a file that can be written"
        ) from None


def confirm_loss(
    question: str,
    *,
    is_confirmed: bool,
    is_required: bool = True,
    why: str = "this cannot be undone",
) -> None:
    """Ask on a terminal before something is lost; without a terminal require `--yes`.

    Raises click.Abort for a no.
    """
    if is_confirmed:
        return
    if sys.stdin is not None and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
    elif is_required:
        raise click.UsageError(f"{why}: give --yes to confirm it")
