"""`palyra suspend`, `resume` and `drain`: whether the daemon takes new runs, and its end."""

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.core.suspension import Suspension
from palyra.core.text.visible import visible


@click.command()
@click.option("--reason", default="", help="Shown to those who are refused.")
@shared_options
def suspend(options: Options, reason: str) -> None:
    """Refuse new runs and start no task or schedule, until `palyra resume`.

    Accepted runs go on.  A restart changes nothing.
    """
    found = talk(options, lambda client: client.suspend(reason))
    if options.as_json:
        print_json(found)
        return
    say(describe_suspension(found.suspension))


@click.command()
@shared_options
def resume(options: Options) -> None:
    """Take new runs again; missed instants of schedules follow their policy."""
    found = talk(options, lambda client: client.resume())
    if options.as_json:
        print_json(found)
        return
    say("new runs are taken")


@click.command()
@shared_options
def drain(options: Options) -> None:
    """End the daemon: refuse new runs, finish those that make progress, exit with 0."""
    found = talk(options, lambda client: client.drain())
    if options.as_json:
        print_json(found)
        return
    say(f"draining; it ends within {found.close_after_ms / 1000:g} s")


def describe_suspension(suspension: Suspension | None) -> str:
    """Return the suspension in words; "no" without one."""
    return "no" if suspension is None else visible(suspension.describe())
