"""`palyra notify`: the addresses that learn that a question waits."""

import click

from palyra.cli.command.errors import FAILED, CommandFailed
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.core.text.visible import visible


@click.group()
def notify() -> None:
    """Try the addresses that learn that a question waits.

    [notify] in the configuration names them.
    """


@notify.command()
@shared_options
def test(options: Options) -> None:
    """Send a test to each address; the exit code is 1 if one does not take it."""
    sent = talk(options, lambda client: client.try_notices())
    if not sent:
        raise CommandFailed(
            "no address is set",
            "`palyra config set notify.webhook URL` or `notify.topic` names one",
        )
    if options.as_json:
        print_json({"sent": sent})
    else:
        for each in sent:
            say(f"{each.address}: {visible(each.problem) or 'sent'}")
    if any(each.problem for each in sent):
        raise SystemExit(FAILED)
