"""`palyra workspaces`, and the choice of the workspace for a new conversation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from palyra.cli.command import shared_options
from palyra.cli.output import print_json, print_table, say
from palyra.cli.talk import Options, talk
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.text.visible import visible
from palyra.errors import Forbidden, InvalidParams, NotFound

if TYPE_CHECKING:
    from palyra.client import Client

_HERE = frozenset({None, "", "localhost", "127.0.0.1", "::1"})
workspace_option = click.option(
    "--workspace", help="Name of the workspace (`palyra workspaces`); the default one if left out."
)


@click.command(short_help="List the folders that sessions can work in.")
@shared_options
def workspaces(options: Options) -> None:
    """List the folders that sessions can work in.

    A session keeps the workspace that it was started in.  tools.workspaces adds folders.
    """
    found = talk(options, lambda client: client.list_workspaces())
    if options.as_json:
        print_json({"workspaces": found})
        return
    print_table(
        ("WORKSPACE", "FOLDER", "PROBLEM"),
        [(each.name, visible(each.path), visible(each.problem) or "-") for each in found],
        empty="no workspaces",
    )


async def find_here(client: Client, options: Options) -> str | None:
    """Return the workspace that the current directory lies in; None outside of all of them.

    None as well for a daemon on another machine, whose folders are not those of this one, for one that
    has the default workspace alone, and for a token that may not list them.
    """
    if options.url is not None and urlsplit(options.url).hostname not in _HERE:
        return None
    try:
        found = await client.list_workspaces()
    except (NotFound, Forbidden):  # NotFound: a daemon of an earlier version
        return None
    if len(found) == 1:
        return None
    here = Path.cwd()
    inside = (each.name for each in found if here.is_relative_to(each.path))
    return next(inside, None)


async def choose_workspace(
    client: Client, options: Options, *, session_key: str | None = None
) -> str | None:
    """Return the workspace of a new session where none was named, and say which one it is.

    It is that of the current directory.  A session of that key that exists keeps its own.
    """
    name = await find_here(client, options)
    if name is None:
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
