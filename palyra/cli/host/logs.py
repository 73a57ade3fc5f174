"""`palyra logs`: the daemon's own log."""

import math
from typing import TYPE_CHECKING, get_args

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_json_line, say
from palyra.cli.command.talk import PATIENCE_S, Options, talk
from palyra.core.log_lines import LogLevel, LogLine
from palyra.core.text.visible import exact

if TYPE_CHECKING:
    from palyra.client import Client

WAIT_MS = 20_000


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "--level", type=click.Choice(get_args(LogLevel)), default="debug", help="This level and above."
)
@click.option("-n", "--lines", type=click.IntRange(1, 500), default=50, show_default=True)
@shared_options
def logs(options: Options, follow: bool, level: LogLevel, lines: int) -> None:  # noqa: FBT001 - as click calls it
    """Show the newest lines of the daemon's log; it keeps some thousand.

    `logging.level` of the configuration decides what is logged at all.
    """

    async def show(client: "Client") -> None:
        page = await client.tail_log(level=level, limit=lines)
        if options.as_json and not follow:
            print_json(page)
            return
        while True:
            if page.dropped:
                say(f"{page.dropped} lines are no longer kept", dim=True, err=True)
            for line in page.lines:
                _print(line, as_json=options.as_json)
            if not follow:
                return
            source = client.hello.instance_id
            page = await client.tail_log(page.next_after, level=level, wait_ms=WAIT_MS)
            if client.hello.instance_id != source:  # another daemon counts its lines from the start
                page = await client.tail_log(level=level, limit=lines)

    talk(options, show, patience_s=math.inf if follow else PATIENCE_S)


def _print(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        print_json_line(line)
        return
    for each in line.text.splitlines():
        say(exact(each))
