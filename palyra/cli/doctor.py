"""`palyra doctor`: is this machine fit, is the daemon well?"""

import click

from palyra.cli.checks import Check, run_checks
from palyra.cli.exits import FAILED
from palyra.cli.screen import print_json, say
from palyra.cli.shell import Options, shared_options

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
NAME_CHARS = 12


@click.command()
@shared_options
def doctor(options: Options) -> None:
    """Check this machine and the daemon.

    Exits with 1 if any check fails; a warning is no failure.
    """
    checks = run_checks(options)
    if options.as_json:
        print_json({"checks": checks})
    else:
        for check in checks:
            _print(check)
    if any(check.verdict == "fail" for check in checks):
        raise SystemExit(FAILED)


def _print(check: Check) -> None:
    mark = click.style(f"{check.verdict:<5}", fg=COLOURS[check.verdict], bold=True)
    click.echo(mark, nl=False)
    say(f"{check.name:<{NAME_CHARS}} {check.detail}")
    if check.remedy:
        say(f"{'':5}{'':{NAME_CHARS}} remedy: {check.remedy}", dim=True)
