"""`palyra serve`: the daemon, for a service manager or a parent process."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import msgspec

from palyra.cli.exits import stop_for
from palyra.cli.settings import load_config
from palyra.cli.shell import Command, Options
from palyra.config import Config
from palyra.errors import PalyraError
from palyra.net.discovery import Discovery

_OPTIONS = (
    click.option(
        "--home", type=click.Path(path_type=Path), help="Configuration and data together."
    ),
    click.option("--config", "file", type=click.Path(path_type=Path), help="Another palyra.toml."),
    click.option("--host", help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one."),
    click.option(
        "--workspace",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The directory tools work in.",
    ),
)


def daemon_options(command: Command) -> Command:
    """Add what a command that runs the daemon takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def make_config(
    home: Path | None, file: Path | None, workspace: Path | None, **server: str | int | None
) -> Config:
    """The configuration, with these options on top."""
    base = click.get_current_context().find_object(Options) or Options()
    overrides = {f"server.{key}": value for key, value in server.items()}
    if workspace is not None:
        overrides["tools.workspace"] = str(workspace.resolve())
    return load_config(home or base.home, file, overrides)


def run_daemon(config: Config, ready: Callable[[Discovery], None]) -> int:
    """Its exit code, once it has drained.  Raises Stop when it cannot start."""
    import trio  # noqa: PLC0415 - help must be instant

    from palyra.serve import serve as serve_daemon  # noqa: PLC0415 - imports every library

    try:
        return trio.run(partial(serve_daemon, config, ready=ready))
    except PalyraError as error:
        raise stop_for(error) from None


@click.command()
@daemon_options
def serve(
    home: Path | None, file: Path | None, workspace: Path | None, **server: str | int | None
) -> None:
    """Run the daemon for a service manager or a parent process.

    Once it is ready it prints where it listens, as one line of JSON.  SIGTERM drains it, a second
    one cuts that short.
    """
    config = make_config(home, file, workspace, **server)
    raise SystemExit(run_daemon(config, _announce))


def _announce(discovery: Discovery) -> None:
    click.echo(msgspec.json.encode(discovery))
