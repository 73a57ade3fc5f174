"""`palyra mcp`: servers of the Model Context Protocol, their resources and their prompts."""

import click

from palyra.cli.command import shared_options
from palyra.cli.output import print_json, print_table, say
from palyra.cli.talk import Options, talk
from palyra.core.tool.mcp import McpPrompt, McpServerView


@click.group()
def mcp() -> None:
    """List MCP servers, their resources and their prompts.

    Servers are configured in [mcp]; their tools are in `palyra tools`.
    """


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
