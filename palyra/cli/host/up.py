"""`palyra up`: run the daemon in the foreground of a terminal."""

import errno
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

from palyra.cli.command.errors import DISK_FULL, NO_DAEMON, CommandFailed, stop_for_start
from palyra.cli.command.output import open_console, say
from palyra.cli.host.serve import daemon_options, make_config, run_daemon
from palyra.config.load import Config, first_file
from palyra.net.protocol.discovery import TOKEN_PATH, Discovery

PRIVATE_MODE = 0o700
PRIVATE_FILE_MODE = 0o600
PANEL_FRAME_CHARS = 4


@click.command()
@daemon_options
def up(
    home: Path | None, file: Path | None, workspace: Path | None, **server: str | int | None
) -> None:
    """Start the daemon here, in the foreground.

    The first start creates a configuration file, keys and the operator's token.  At a terminal, the
    daemon prints a link that opens its web console, logged in.  Ctrl-C stops the
    daemon once its runs are at rest.
    """
    config = make_config(home, file, workspace, **server)
    created = _write_first_file(config)

    was_ready = False

    def ready(discovery: Discovery, make_link: Callable[[], str]) -> None:
        nonlocal was_ready
        was_ready = True
        _print_panel(config, discovery, created)
        if sys.stdout.isatty():  # a file or a journal of the system would keep the code
            say(
                f"console    {make_link()}\n           once, within two minutes; palyra console prints another"
            )

    is_seen = sys.stdout.isatty() and sys.stderr.isatty()  # panel and log in one window
    code = run_daemon(
        config, ready, holds_log=is_seen, report=lambda error: stop_for_start(error).show()
    )
    if was_ready:
        say("stopped" if code == 0 else f"stopped with exit code {code}")
    raise SystemExit(code)


def _write_first_file(config: Config) -> Path | None:
    """Create the configuration file if there is none; return its path if it was created.

    Raises CommandFailed if the file cannot be written.
    """
    path, is_made = config.paths.config_file, False
    try:
        path.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            is_made = True
            path.chmod(PRIVATE_FILE_MODE)
            file.write(first_file())
    except FileExistsError:
        return None
    except OSError as error:
        if is_made:
            path.unlink(missing_ok=True)  # do not leave a partial configuration
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            free = f"{shutil.disk_usage(path.parent).free} bytes are free" if is_made else "no room"
            what = f"{path} cannot be written: {error.strerror}: {free}"
            raise CommandFailed(what, "free disk space, then start again", code=DISK_FULL) from None
        what = f"{path} cannot be written: {error.strerror or error}"
        raise CommandFailed(what, "name another place with --home", code=NO_DAEMON) from None
    return path


def _print_panel(config: Config, discovery: Discovery, created: Path | None) -> None:
    from rich.panel import Panel  # noqa: PLC0415 - help must be instant
    from rich.text import Text  # noqa: PLC0415

    lines = _describe(config, discovery)
    if created is not None:
        lines.insert(0, f"created    {created}")
    title = f"Palyra {discovery.version} is ready"
    width = max(len(line) for line in lines) + PANEL_FRAME_CHARS
    console = open_console()
    if console.is_terminal and console.width < width:
        say("\n".join([title, *lines]))
        return
    open_console(width).print(Panel(Text("\n".join(lines)), title=title))


def _describe(config: Config, discovery: Discovery) -> list[str]:
    data = config.paths.data_dir
    return [
        f"address    {discovery.ws_url}",
        f"pid        {discovery.pid}",
        f"data       {data}",
        f"token      {data / TOKEN_PATH} (the operator's, private)",
        f"workspace  {config.workspace}",
        *(f"           {each.name}: {each.path}" for each in config.tools.workspaces),
        f"model      {config.models.default}",
        "",
        "palyra chat              talk to it, from another terminal",
        'palyra run "hello"       one message',
        "palyra models add        connect a model",
        "palyra approvals list    answer pending approvals",
        "palyra console           open the web console",
        "palyra doctor            check everything",
        "Ctrl-C                   stop",
    ]
