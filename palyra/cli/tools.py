"""`palyra tools`: what a model could call."""

import click

from palyra.cli.screen import print_json, print_table
from palyra.cli.shell import Options, shared_options, talk


@click.command()
@click.option("--agent", help="Whose; else the default agent's, which are all there are.")
@shared_options
def tools(options: Options, agent: str | None) -> None:
    """List what a model could call."""
    found = talk(options, lambda client: client.list_tools(agent))
    if options.as_json:
        print_json(found)
        return
    rows = [(tool.name, tool.tool_class, tool.risk, tool.description) for tool in found.tools]
    print_table(("TOOL", "CLASS", "RISK", "DESCRIPTION"), rows, empty="no tools")
