"""`palyra tools`: list the tools that a model can call."""

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table
from palyra.cli.command.talk import Options, talk
from palyra.core.tool.spec import ToolSpec
from palyra.core.trust.fences import inside_fence


@click.command()
@click.option(
    "--agent", help="Only tools of this agent; default: the default agent, which has all tools."
)
@shared_options
def tools(options: Options, agent: str | None) -> None:
    """List the tools that a model can call.

    RISK is the risk that an approval would show in a run that has read no untrusted content.
    """
    found = talk(options, lambda client: client.list_tools(agent))
    if options.as_json:
        print_json(found)
        return
    rows = [
        (_name(tool), tool.tool_class, tool.risk, inside_fence(tool.description))
        for tool in found.tools
    ]
    print_table(("TOOL", "CLASS", "RISK", "DESCRIPTION"), rows, empty="no tools")


def _name(tool: ToolSpec) -> str:
    """Return the tool's name, followed by the MCP server's own name for it if that differs."""
    return f"{tool.name} ({tool.foreign_name})" if tool.foreign_name else tool.name
