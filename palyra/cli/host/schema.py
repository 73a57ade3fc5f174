"""`palyra schema`: print the protocol as JSON Schema, AsyncAPI or TypeScript, without a daemon."""

import click
import msgspec

from palyra import __version__
from palyra.cli.command.output import print_json, say
from palyra.net.api.asyncapi import render_asyncapi
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import describe_protocol
from palyra.net.api.typescript import render_typescript
from palyra.net.protocol.notifications import PROTOCOL


@click.command()
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonschema", "asyncapi", "typescript"]),
    default="jsonschema",
    show_default=True,
    help="Form of the output.",
)
@click.option("--host", default="127.0.0.1:7467", help="For AsyncAPI: the daemon's host and port.")
def schema(kind: str, host: str) -> None:
    """Print the schemas of the protocol."""
    described = describe_protocol(METHODS)
    if kind == "asyncapi":
        print_json(render_asyncapi(described, version=__version__, host=host))
        return
    if kind == "typescript":
        types = render_typescript(described, name=PROTOCOL, version=__version__)
        say(types, nl=False)
        return
    about = {"protocol": PROTOCOL, "version": __version__}
    print_json(about | msgspec.structs.asdict(described))
