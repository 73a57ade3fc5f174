"""`palyra console`: print a link that opens the web console of the running daemon, logged in."""

from typing import get_args

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.core.journal.records import ConsoleRole

MIN_TTL_S, MAX_TTL_S = 60, 7 * 86_400


@click.command()
@click.option(
    "--role",
    type=click.Choice(get_args(ConsoleRole)),
    default="operator",
    show_default=True,
    help="What the login may do.",
)
@click.option("--principal", help="Principal of the login; default: your own.")
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(MIN_TTL_S, MAX_TTL_S),
    help="Seconds after the last use at which the login ends; default: 12 hours.",
)
@shared_options
def console(options: Options, role: ConsoleRole, principal: str | None, ttl_s: int | None) -> None:
    """Print a link that opens the web console, logged in.

    The link works once, within two minutes.  `palyra tokens list` shows the login that it makes, and
    `palyra tokens revoke` ends it.
    """
    ttl_ms = None if ttl_s is None else ttl_s * 1000
    made = talk(
        options,
        lambda client: client.make_console_link(role=role, principal=principal, ttl_ms=ttl_ms),
    )
    if options.as_json:
        print_json(made)
        return
    say(made.url)
    say(f"logs in {made.principal} as {made.role}, once, within two minutes", err=True)
