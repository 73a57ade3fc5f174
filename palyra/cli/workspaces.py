"""`palyra workspaces`, and the choice of the workspace for a new conversation."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from palyra.cli.command import shared_options
from palyra.cli.errors import CommandFailed
from palyra.cli.output import print_json, print_table, say
from palyra.cli.talk import Options, is_daemon_needed, talk
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.text.visible import visible
from palyra.errors import Forbidden, InvalidParams, NotFound, PalyraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palyra.client import Client
    from palyra.core.configuration import ConfigChanged
    from palyra.net.protocol.results import WorkspaceView

_NAME_CHARS = 48
_HERE = frozenset({None, "", "localhost", "127.0.0.1", "::1"})
workspace_option = click.option(
    "--workspace", help="Name of the workspace (`palyra workspaces`); the default one if left out."
)


_KEY = "tools.workspaces"


@click.group(
    invoke_without_command=True,
    short_help="List, add and remove the folders that sessions can work in.",
)
@shared_options
def workspaces(options: Options) -> None:
    """List, add and remove the folders that sessions can work in.

    A session keeps the workspace that it was started in.
    """
    context = click.get_current_context()
    context.obj = options
    if context.invoked_subcommand is None:
        _list(options)


@workspaces.command(name="list")
@shared_options
def list_(options: Options) -> None:
    """List the folders that sessions can work in."""
    _list(options)


def _list(options: Options) -> None:
    found = talk(options, lambda client: client.list_workspaces())
    if options.as_json:
        print_json({"workspaces": found})
        return
    print_table(
        ("WORKSPACE", "FOLDER", "PROBLEM"),
        [(each.name, visible(each.path), visible(each.problem) or "-") for each in found],
        empty="no workspaces",
    )


@workspaces.command()
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="Name of the workspace; made of the folder's name if left out.")
@shared_options
def add(options: Options, path: Path, name: str | None) -> None:
    """Make a folder of the daemon's machine a workspace; PATH is the current one if left out.

    The daemon checks the folder as at its start, and uses it after a restart.
    """
    folder = path.resolve()

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = {DEFAULT_WORKSPACE, *(each["name"] for each in entries)}
        return [*entries, {"name": name or _name_of(folder, names), "path": str(folder)}]

    _change(options, change)


@workspaces.command()
@click.argument("name")
@shared_options
def remove(options: Options, name: str) -> None:
    """Remove a workspace from the configuration; its files stay.

    The daemon lets go of it with a restart.
    """

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        left = [each for each in entries if each["name"] != name]
        if len(left) == len(entries):
            known = ", ".join(each["name"] for each in entries) or "none"
            raise NotFound(f"no workspace {name!r} in {_KEY}; known: {known}", field="name")
        return left

    _change(options, change)


def _change(
    options: Options, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    """Write changed workspaces, and print the command that makes a running daemon use them."""

    async def write(client: Client) -> ConfigChanged:
        view = await client.get_config(_KEY)
        now = view.entries[0].next_value
        return await client.set_config(_KEY, change(list(now)), digest=view.digest)

    changed = talk(options, write)
    if options.as_json:
        print_json(changed)
        return
    for each in changed.value:
        say(f"workspace {each['name']}: {visible(each['path'])}")
    if changed.effect == "overridden":
        source = changed.source.replace("_", " ")
        say(f"it has no effect: the {source} has another value, which comes first", dim=True)
    else:
        say(f"the daemon uses it after a restart: {describe_restart(options)}")


def _name_of(folder: Path, taken: set[str]) -> str:
    """Return a name that is not taken, made of the folder's name."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:_NAME_CHARS]
    name = plain if plain[:1].isalpha() else f"folder-{plain}".rstrip("-")
    return next(
        each
        for each in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        if each not in taken
    )


def describe_restart(options: Options) -> str:
    """Return the commands that restart the running daemon; "" if none runs here.

    The new one works in the same default workspace, wherever it is started.
    """
    if options.url is not None or not is_daemon_needed(options):
        return "" if options.url is None else "`palyra drain`, then start it again on its machine"
    home = () if options.home is None else ("--home", str(options.home))
    root: tuple[str, ...] = ()
    with suppress(CommandFailed):
        found = talk(options, lambda client: client.list_workspaces())
        root = ("--workspace", found[0].path)
    drain, up = ("palyra", "drain", *home), ("palyra", "up", *home, *root)
    return f"`{shlex.join(drain)} && {shlex.join(up)}`"


async def find_here(client: Client, options: Options) -> str | None:
    """Return the workspace that the current directory lies in; None outside of all of them.

    None as well where `_list_local` returns none, and for a daemon that has the default workspace
    alone.
    """
    found = await _list_local(client, options)
    return None if len(found) == 1 else _find_inside(found)


async def _list_local(client: Client, options: Options) -> Sequence[WorkspaceView]:
    """Return the workspaces, the default one first, if their folders are those of this machine.

    None for a daemon on another machine, and for a token that may not list them.
    """
    if options.url is not None and urlsplit(options.url).hostname not in _HERE:
        return ()
    try:
        return await client.list_workspaces()
    except (NotFound, Forbidden):  # NotFound: a daemon of an earlier version
        return ()


def _find_inside(found: Sequence[WorkspaceView]) -> str | None:
    here = Path.cwd()
    return next((each.name for each in found if here.is_relative_to(each.path)), None)


async def choose_workspace(
    client: Client, options: Options, *, session_key: str | None = None
) -> str | None:
    """Return the workspace of a new session where none was named, and say which one it is.

    It is that of the current directory.  A session of that key that exists keeps its own.
    """
    found = await _list_local(client, options)
    name = _find_inside(found)
    if not found:
        return None
    if name is None:
        used = DEFAULT_WORKSPACE
        if session_key is not None and len(found) > 1:
            with suppress(PalyraError):  # the token may not: the run itself says what is wrong
                used = (await client.resolve_session(session_key=session_key)).workspace
        _say_elsewhere(found, used, options)
        return None
    if len(found) == 1:
        return None
    if session_key is not None:
        try:
            await client.resolve_session(session_key=session_key, workspace=name)
        except InvalidParams as error:
            if error.field != "workspace":
                raise
            return None
    if name != DEFAULT_WORKSPACE:
        say(f"workspace {name}, which this directory lies in", err=True, dim=True)
    return name


def _say_elsewhere(found: Sequence[WorkspaceView], name: str, options: Options) -> None:
    """Say that the current directory is no workspace, and where the run works instead."""
    path = next((each.path for each in found if each.name == name), None)
    if path is None or options.as_json:
        return
    home = str(Path.home())
    shown = f"~{path.removeprefix(home)}" if f"{path}/".startswith(f"{home}/") else path
    say(
        f"this folder is not a workspace of the daemon; working in {visible(shown)} "
        "(`palyra workspaces add .` makes it one)",
        err=True,
        dim=True,
    )
