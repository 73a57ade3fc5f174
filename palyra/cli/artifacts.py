"""`palyra artifacts`: print complete outputs of tool calls; the tape holds only an excerpt."""

import sys

import click

from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import say, write
from palyra.cli.command.talk import Options, talk
from palyra.client import Client


@click.group()
def artifacts() -> None:
    """Print tool outputs that are too long for the tape."""


@artifacts.command("print")
@id_argument("session_id")
@click.argument("artifact")
@shared_options
def print_(options: Options, session_id: str, artifact: str) -> None:
    """Print one artifact; its name is `artifact` in the call's tool.completed.

    It is printed unchanged, but for terminal controls, which a terminal shows as escapes.
    """

    async def print_all(client: Client) -> None:
        async for text in client.artifact_pages(session_id, artifact):
            say(text, nl=False) if sys.stdout.isatty() else write(text)

    talk(options, print_all)
