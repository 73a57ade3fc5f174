"""`palyra mcp`: servers of the Model Context Protocol, their resources and their prompts."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.in_force import change_list, say_in_force
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.text.visible import pluralize, visible
from palyra.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palyra.client import Client
    from palyra.core.configuration import ConfigChanged
    from palyra.core.tool.mcp import McpPrompt, McpServerView

_KEY = "mcp.servers"


@click.group()
def mcp() -> None:
    """Add, remove, test and list MCP servers, their resources and their prompts.

    Their tools are in `palyra tools`; [mcp] in the configuration has more settings of them.
    """


@mcp.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--address", default="", help="Address of a server that runs elsewhere.")
@click.option("--token", default="", help="Reference to its bearer token, such as vault:NAME.")
@click.option("--env", "environment", multiple=True, help="NAME=TEXT or NAME=vault:KEY; again.")
@click.option("--folder", "folders", multiple=True, help="Folder readable in the jail; again.")
@click.option("--host", "hosts", multiple=True, help="Host that the program may reach; again.")
@click.option("--workspace", type=click.Choice(["none", "read", "write"]), default="none",
    show_default=True, help="Access of the program to the workspace.")  # fmt: skip
@click.option("--no-jail", is_flag=True, help="Run the program with all rights of the daemon.")
@shared_options
def add(
    options: Options,
    name: str,
    command: tuple[str, ...],
    *,
    no_jail: bool,
    **given: Any,  # noqa: ANN401 - as click calls it
) -> None:
    """Add the server NAME: `palyra mcp add NAME -- COMMAND ARGUMENTS`, or with --address URL.

    The running daemon starts it at once; `palyra mcp test NAME` shows what it offers.
    """
    is_here = options.url is None  # the daemon's machine is this one
    program = (find_program(command[0]) if is_here else command[0], *command[1:]) if command else ()
    given["url"] = given.pop("address")
    entry = {
        key: value
        for key, value in given.items()
        if value and (key, value) != ("workspace", "none")
    }
    entry |= {"name": name, "command": list(program)} if program else {"name": name}
    entry |= {"sandbox": "none"} if no_jail else {}

    def with_entry(servers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(each["name"] == name for each in servers):
            raise Conflict(
                f"there is a server {name} already: `palyra mcp remove {shlex.quote(name)}` first",
                field="name",
            )
        return [*map(without_defaults, servers), entry]

    changed = talk(options, lambda client: change_list(client, _KEY, with_entry))
    _say_changed(options, changed, f"server {name} is added")
    if hint := "" if options.as_json else _show_hidden(entry):
        say(f"the jail hides folders of it: {hint}", dim=True)


def find_program(program: str) -> str:
    """Return the absolute path of a program.  Raises CommandFailed if there is none to run."""
    found = shutil.which(program)
    if found is not None:
        return str(Path(found).absolute())
    path = Path(program)
    if path.name != program and path.exists():
        remedy = (
            "it is a folder: name a program in it"
            if path.is_dir()
            else f"`chmod +x {shlex.quote(program)}` if it is a program"
        )
        raise CommandFailed(f"{visible(program)} cannot be run", remedy, kind="invalid_params")
    folders = os.environ.get("PATH", os.defpath)
    where = (
        f"looked in {visible(folders)}: name its absolute path, or install it"
        if path.name == program
        else f"looked for {visible(str(path.absolute()))}: correct the path, or install it"
    )
    raise CommandFailed(f"no program {visible(program)}", where, kind="not_found")


@mcp.command()
@click.argument("name")
@shared_options
def remove(options: Options, name: str) -> None:
    """Remove a server from the configuration; the running daemon stops it at once."""

    def without(servers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        left = [without_defaults(each) for each in servers if each["name"] != name]
        if len(left) == len(servers):
            raise _unknown(name, [each["name"] for each in servers])
        return left

    changed = talk(options, lambda client: change_list(client, _KEY, without))
    _say_changed(options, changed, f"server {name} is removed")


@mcp.command()
@click.argument("name")
@shared_options
def test(options: Options, name: str) -> None:
    """Connect the server now, unless it is; list its tools, or show the errors of this attempt."""

    async def look(client: Client) -> tuple[McpServerView, list[str], list[str]]:
        found, tools = await client.retry_mcp_server(name), (await client.list_tools()).tools
        problems = [each for each in (await client.status()).problems if f"server {name}:" in each]
        return (
            found,
            [each.name for each in tools if each.name.startswith(f"mcp:{name}.")],
            problems,
        )

    found, tools, problems = talk(options, look)
    if found.problem:
        shown = "; ".join(problems) or found.problem
        entries = talk(options, lambda client: client.get_config(_KEY)).entries[0].next_value
        entry = next((each for each in entries if each["name"] == name), {"name": name})
        other = f"correct its entry in palyra.toml, which `palyra config get {_KEY}` shows"
        raise CommandFailed(visible(shown), _show_hidden(entry) or other)
    if options.as_json:
        print_json({"server": found, "tools": tools})
        return
    say(f"{name} is connected: {visible(found.title)}, {pluralize(len(tools), 'tool')}")
    for each in tools:
        say(f"  {visible(each)}")
    for each in problems:
        say(visible(each), fg="yellow")


def _show_hidden(entry: Mapping[str, Any]) -> str:
    """Return the command that shows a jailed server what its words name; "" if it sees all of it.

    Folders are looked for on this machine.
    """
    from palyra.tools.sandbox.toolchains import Toolchains  # noqa: PLC0415 - help must be instant

    program, *words = entry.get("command") or [""]
    found = shutil.which(program)
    if found is None or entry.get("sandbox") == "none":
        return ""
    folders = tuple(entry.get("folders", ()))
    hidden = find_hidden_folders(found, words, Toolchains(folders).visible)
    if not hidden:
        return ""
    flags = shlex.join(part for each in (*folders, *hidden) for part in ("--folder", each))
    again = f"palyra mcp add {entry['name']} {flags} -- {shlex.join([program, *words])}"
    more = ", with its other options" if _has_more(entry) else ""
    return f"`palyra mcp remove {entry['name']} && {again}`{more} shows them"


def find_hidden_folders(program: str, words: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the folders of a program, links followed, and of its words that are none of the seen ones."""
    from palyra.core.tool.toolchains import (  # noqa: PLC0415 - help must be instant
        find_toolchain,
        is_below,
        is_outermost,
    )

    found = [*find_toolchain(program, os.path.realpath(program), str(Path.home()), seen).folders]
    for word in words:
        if word.startswith("/") and Path(word).exists() and not is_below(word, [*seen, *found]):
            found.append(word if Path(word).is_dir() else str(Path(word).parent))
    return [each for each in dict.fromkeys(found) if is_outermost(each, found)]


def _has_more(entry: Mapping[str, Any]) -> bool:
    return bool(set(without_defaults(dict(entry))) - {"name", "command", "folders"})


def _unknown(name: str, known: list[str]) -> NotFound:
    return NotFound(
        f"no MCP server {name!r}; configured: {', '.join(known) or 'none'}", field="name"
    )


def without_defaults(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of an entry that are no defaults."""
    import msgspec  # noqa: PLC0415 - help must be instant

    from palyra.config.sections import McpServerConfig  # noqa: PLC0415 - likewise

    plain = msgspec.json.decode(msgspec.json.encode(McpServerConfig(name="")))
    return {key: value for key, value in entry.items() if value != plain.get(key)}


def _say_changed(options: Options, changed: ConfigChanged, words: str) -> None:
    if options.as_json:
        print_json(changed)
        return
    say(f"{words} in {visible(changed.config_file)}")
    say_in_force(options, _KEY)


@mcp.command("list")
@shared_options
def list_(options: Options) -> None:
    """List the configured servers with their state."""
    found = talk(options, lambda client: client.list_mcp_servers())
    if options.as_json:
        print_json(found)
        return
    rows = [
        (
            each.name,
            "down" if each.problem else "connected",
            str(each.tools),
            str(each.resources),
            str(each.prompts),
            each.problem or each.title,
        )
        for each in found.servers
    ]
    head = ("SERVER", "STATE", "TOOLS", "RESOURCES", "PROMPTS", "ABOUT")
    print_table(head, rows, empty="no MCP servers: see [mcp] in docs/configuration.md")
    for line in _left_out(found.servers):
        say(line, dim=True)


@mcp.command()
@click.argument("server")
@shared_options
def resources(options: Options, server: str) -> None:
    """List the resources of a server.

    `@mcp:SERVER/URI` in a message adds a resource.  A template becomes a URI when its {parts} are
    filled in.
    """
    found = talk(options, lambda client: client.list_mcp_resources(server))
    if options.as_json:
        print_json(found)
        return
    rows = [
        (
            f"{each.uri} (template)" if each.is_template else each.uri,
            each.mime_type,
            "" if each.size is None else str(each.size),
            each.name,
            each.description,
        )
        for each in found.resources
    ]
    print_table(("URI", "TYPE", "BYTES", "NAME", "DESCRIPTION"), rows, empty="no resources")


@mcp.command()
@click.argument("server", required=False)
@shared_options
def prompts(options: Options, server: str | None) -> None:
    """List the prompts of a server, or of all.

    `/PROMPT ARGUMENTS` in `palyra chat` uses one; `@prompt:SERVER/PROMPT?NAME=VALUE` does in any
    message.
    """
    found = talk(options, lambda client: client.list_mcp_prompts(server))
    if options.as_json:
        print_json(found)
        return
    rows = [
        (each.server, each.name, describe_arguments(each), each.description)
        for each in found.prompts
    ]
    print_table(("SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"), rows, empty="no prompts")


def describe_arguments(prompt: McpPrompt) -> str:
    """Return the names of the arguments, optional ones in brackets."""
    return " ".join(
        each.name if each.is_required else f"[{each.name}]" for each in prompt.arguments
    )


def _left_out(servers: list[McpServerView]) -> list[str]:
    return [
        f"{each.name}: {name} is left out: {reason}"
        for each in servers
        for name, reason in each.left_out.items()
    ]
