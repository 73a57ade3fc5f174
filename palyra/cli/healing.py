"""`palyra healing`: show and set the modes of self-healing."""

from typing import get_args

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table
from palyra.cli.command.talk import Options, talk
from palyra.core.healing.rules import HealingMode
from palyra.core.journal.records import IncidentDomain
from palyra.net.protocol.results import HealingModesView


@click.group()
def healing() -> None:
    """Show and set the modes of self-healing."""


@healing.command()
@shared_options
def show(options: Options) -> None:
    """Show the mode of each domain."""
    _print(options, talk(options, lambda client: client.healing_mode()))


@healing.command("mode")
@click.argument("mode", type=click.Choice(get_args(HealingMode)))
@click.option("--domain", type=click.Choice(get_args(IncidentDomain)), help="Only this domain.")
@shared_options
def set_mode(options: Options, mode: HealingMode, domain: IncidentDomain | None) -> None:
    """Set the mode, until the daemon stops; `[healing]` in the configuration is for good."""
    _print(options, talk(options, lambda client: client.healing_mode(mode, domain)))


def _print(options: Options, found: HealingModesView) -> None:
    if options.as_json:
        print_json(found)
    else:
        print_table(("DOMAIN", "MODE"), list(found.modes.items()), empty="")
