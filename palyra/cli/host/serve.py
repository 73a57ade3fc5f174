"""`palyra serve`: run the daemon for a service manager or a parent process."""

import gc
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import msgspec

from palyra.cli.command.errors import give_up_output, stop_for_start
from palyra.cli.command.options import Command, GivenPath, load_config
from palyra.cli.command.output import write
from palyra.cli.command.talk import Options
from palyra.config.load import Config
from palyra.errors import PalyraError
from palyra.net.protocol.discovery import Discovery

_OPTIONS = (
    click.option("--home", type=GivenPath(), help="Directory for configuration and data."),
    click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml."),
    click.option("--host", help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one."),
    click.option(
        "--workspace",
        type=GivenPath(exists=True, file_okay=False),
        help="Directory that tools work in.",
    ),
)


def daemon_options(command: Command) -> Command:
    """Add the options of a command that runs the daemon."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def make_config(
    home: Path | None, file: Path | None, workspace: Path | None, **server: str | int | None
) -> Config:
    """Load the configuration and override it with the options of the command.

    Raises CommandFailed for an invalid configuration.
    """
    base = click.get_current_context().find_object(Options) or Options()
    overrides = {f"server.{key}": value for key, value in server.items()}
    if workspace is not None:
        overrides["tools.workspace"] = str(workspace.resolve())
    return load_config(home or base.home, file, overrides)


def forbid_blas_threads() -> None:
    """Make numpy compute in the calling thread alone; must come before numpy is imported.

    OpenBLAS stops its threads before a fork.  If another thread is inside a matrix product then,
    product and fork wait for ever, the fork with the interpreter lock.  A daemon that runs as root
    forks for each program, since a child that changes its user cannot be started by vfork.  Products
    of a few short texts are not slower for it.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def run_daemon(
    config: Config,
    ready: Callable[[Discovery, Callable[[], str]], None],
    *,
    is_stdio: bool = False,
    holds_log: bool = False,
    report: Callable[[PalyraError], None] | None = None,
) -> int:
    """Run the daemon until it has drained and return its exit code.

    `ready` is called when the daemon accepts connections; its second argument makes a link to the
    console.  With `holds_log` the log of a quick start comes after that.  `report` is called with the
    error that ends the daemon; by default that error is logged.  Raises CommandFailed when it cannot start.
    """
    forbid_blas_threads()
    with _nothing_collected():
        import trio  # noqa: PLC0415 - help must be instant

        from palyra.process import log_end, make_clock  # noqa: PLC0415 - imports every library
        from palyra.process import serve as serve_daemon  # noqa: PLC0415

    try:
        serving = partial(
            serve_daemon,
            config,
            ready=ready,
            is_stdio=is_stdio,
            holds_log=holds_log,
            report=report or log_end,
        )
        code = trio.run(serving, clock=make_clock())
    except PalyraError as error:
        raise stop_for_start(error) from None
    try:
        sys.stdout.flush()
    except OSError:  # reported by now
        give_up_output()
    return code


@contextmanager
def _nothing_collected() -> Generator[None]:
    """Disable garbage collection during imports, then exclude the imported objects from it.

    Modules live as long as the process.  Collecting during imports takes a tenth of the start, and
    scanning the modules later would lengthen the pauses of the event loop.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@click.command()
@daemon_options
@click.option(
    "--stdio",
    "is_stdio",
    is_flag=True,
    help="Also serve the protocol on standard input and output; without --port take a free port.",
)
def serve(
    home: Path | None,
    file: Path | None,
    workspace: Path | None,
    *,
    is_stdio: bool,
    **server: str | int | None,
) -> None:
    """Run the daemon for a service manager or a parent process.

    Once ready, the daemon prints its address as one line of JSON; with --stdio the first line is
    the protocol's hello instead.  SIGTERM drains the daemon; a second SIGTERM ends the drain early.
    """
    if is_stdio and server.get("port") is None:
        server["port"] = 0
    config = make_config(home, file, workspace, **server)
    ready = _keep_quiet if is_stdio else _announce
    raise SystemExit(run_daemon(config, ready, is_stdio=is_stdio))


def _keep_quiet(_: Discovery, _make_link: Callable[[], str]) -> None:
    """Print nothing: standard output carries the protocol."""


def _announce(discovery: Discovery, _make_link: Callable[[], str]) -> None:
    write(msgspec.json.encode(discovery), nl=True)
