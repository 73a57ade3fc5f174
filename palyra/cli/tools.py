"""`palyra tools`: what a model could call."""

import click

from palyra.cli.screen import print_json, print_table
from palyra.cli.shell import Options, shared_options, talk


@click.command()
@shared_options
def tools(options: Options) -> None:
    """List what a model could call."""
    found = talk(options, lambda client: client.list_tools())
    if options.as_json:
        print_json(found)
        return
    rows = [(tool.name, tool.tool_class, tool.risk, tool.description) for tool in found.tools]
    print_table(("TOOL", "CLASS", "RISK", "DESCRIPTION"), rows, empty="no tools")
