"""`palyra workspaces`, and the choice of the workspace for a new conversation."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from palyra.cli.command.in_force import change_list, say_in_force
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.text.visible import visible
from palyra.errors import Forbidden, InvalidParams, NotFound, PalyraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palyra.client import Client
    from palyra.net.protocol.results import WorkspaceView

_NAME_CHARS = 48
_HERE = frozenset({None, "", "localhost", "127.0.0.1", "::1"})
workspace_option = click.option(
    "--workspace", help="Name of the workspace (`palyra workspaces`); the default one if left out."
)


_KEY = "tools.workspaces"
_SYSTEM = tuple(
    map(Path, ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin",
               "/srv", "/sys", "/usr", "/var"))
)  # fmt: skip


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

    The daemon checks the folder as at its start, and uses it at once.
    """
    folder = path.resolve()

    _change(options, lambda entries: _with(entries, folder, name))


@workspaces.command()
@click.argument("name")
@shared_options
def remove(options: Options, name: str) -> None:
    """Remove a workspace from the configuration; its files stay.

    The daemon refuses while a run works in it; its sessions take no further messages.
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
    """Write changed workspaces, which the running daemon takes up."""
    changed = talk(options, lambda client: change_list(client, _KEY, change))
    if options.as_json:
        print_json(changed)
        return
    for each in changed.value:
        say(f"workspace {each['name']}: {visible(each['path'])}")
    say_in_force(options, _KEY)


def _with(entries: list[dict[str, Any]], folder: Path, name: str | None) -> list[dict[str, Any]]:
    names = {DEFAULT_WORKSPACE, *(each["name"] for each in entries)}
    return [*entries, {"name": name or _name_of(folder, names), "path": str(folder)}]


def _name_of(folder: Path, taken: set[str]) -> str:
    """Return a name that is not taken, made of the folder's name."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:_NAME_CHARS]
    name = plain if plain[:1].isalpha() else f"folder-{plain}".rstrip("-")
    return next(
        each
        for each in (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        if each not in taken
    )


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
        is_asking = session_key is None and _is_asking(options)
        if is_asking and await _offer(client, Path.cwd()):
            return _find_inside(await client.list_workspaces())
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


def _is_asking(options: Options) -> bool:
    """True at a terminal, for a command whose output is read by a person."""
    streams = (sys.stdin, sys.stderr)
    return not options.as_json and all(each is not None and each.isatty() for each in streams)


async def _offer(client: Client, folder: Path) -> bool:
    """Ask whether the folder shall be a workspace, and make it one; True if it is one now.

    Cancellation: the folder may be a workspace.
    """
    from palyra.cli.command.typed_line import wait_line  # noqa: PLC0415 - help must be instant

    if folder in {Path("/"), Path.home()}:
        say(f"{visible(str(folder))} cannot be a workspace: it holds keys and settings", err=True)
        return False
    warning = "a system folder, whose files the runs could then read and change; "
    is_system = any(map(folder.is_relative_to, _SYSTEM)) and not folder.is_relative_to(Path.home())
    question = f"make {visible(str(folder))} a workspace of the daemon ({warning if is_system else ''}y/n)? "
    say(question, err=True, nl=False)
    if (await wait_line()).lower() not in {"y", "yes"}:
        return False
    try:
        await change_list(client, _KEY, lambda entries: _with(entries, folder, None))
    except PalyraError as error:
        say(f"it is no workspace: {visible(error.message)}", err=True)
        return False
    return True


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
