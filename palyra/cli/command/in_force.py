"""Keys of the configuration file that a running daemon uses, and its restart for the others."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.output import say
from palyra.cli.command.talk import Options, is_daemon_needed, talk
from palyra.core.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from palyra.client import Client
    from palyra.core.configuration import ConfigChanged, ConfigView

    Entries = list[dict[str, Any]]


def say_in_force(options: Options, *keys: str) -> None:
    """Make the running daemon take up these keys of its file, and print whether it has.

    Prints nothing where no daemon runs.
    """
    if not is_daemon_needed(options):
        return
    view: ConfigView = talk(options, lambda client: client.get_config())
    entries = [each for each in view.entries if each.key in keys]
    if view.problem:
        say(f"the running daemon does not use it yet: {visible(view.problem)}", err=True)
    elif any(each.source in {"environment", "command_line"} for each in entries):
        say("the running daemon has another value from its start, which comes first", err=True)
    elif all(each.value == each.next_value for each in entries):
        say("the running daemon uses it now", dim=True)
    else:
        say(f"the running daemon uses it after a restart: {describe_restart(options)}")


async def change_list(
    client: Client, key: str, change: Callable[[Entries], Entries]
) -> ConfigChanged:
    """Write the entries of a key as `change` makes them of those in the file; a running daemon takes them up.

    Raises Conflict for a file that changed meanwhile.  Cancellation: the file may have been written.
    """
    view = await client.get_config(key)
    entries = change([*view.entries[0].next_value])
    return await client.set_config(key, entries, digest=view.digest)


def describe_restart(options: Options) -> str:
    """Return the commands that restart the running daemon; "" if none runs here.

    The new one works in the same default workspace, wherever it is started.
    """
    if options.url is not None or not is_daemon_needed(options):
        return "" if options.url is None else "`palyra drain`, then start it again on its machine"
    home = () if options.home is None else ("--home", str(options.home))
    root: tuple[str, ...] = ()
    with suppress(CommandFailed):
        root = ("--workspace", talk(options, _find_root))
    drain, up = ("palyra", "drain", *home), ("palyra", "up", *home, *root)
    return f"`{shlex.join(drain)} && {shlex.join(up)}`"


async def _find_root(client: Client) -> str:
    return (await client.list_workspaces())[0].path
