"""`palyra channels` and `palyra pairings`: channels of inbound messages and their senders."""

from typing import get_args

import click

from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.client import Channel, Pairing
from palyra.core.journal.records import ChannelAudience, PairingMode, PairingState

_PRINCIPAL = click.option("--principal", help="Owner of the channel; default: you.")
_CONVERSATION = click.option(
    "--conversation",
    "conversation_id",
    help="One conversation; default: all that have no channel of their own.",
)


@click.group()
def channels() -> None:
    """List, set and delete channels for incoming messages."""


@channels.command("list")
@click.option("--principal", help="Owner of the channels; default: all owners.")
@shared_options
def list_(options: Options, principal: str | None) -> None:
    """List channels and the agents that answer them."""
    found = talk(options, lambda client: client.list_channels(principal))
    if options.as_json:
        print_json({"channels": found})
        return
    columns = ("PRINCIPAL", "CHANNEL", "CONVERSATION", "AGENT", "PAIRING", "AUDIENCE", "CHANGED")
    print_table(columns, [_row(channel) for channel in found], empty="no channels")


def _row(channel: Channel) -> tuple[object, ...]:
    return (
        channel.principal,
        channel.channel,
        channel.conversation_id or "all",
        channel.agent,
        channel.pairing,
        channel.audience,
        age(channel.updated_ms),
    )


def _refuse_reach(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("--reach is called --audience now")


@channels.command("set")
@click.argument("channel")
@_PRINCIPAL
@_CONVERSATION
@click.option("--agent", help="Agent that answers; default: the default agent.")
@click.option("--pairing", type=click.Choice(get_args(PairingMode)), help="Default: required.")
@click.option(
    "--audience",
    type=click.Choice(get_args(ChannelAudience)),
    help="How far memory, references and learning go; default: the conversation alone.",
)
@click.option("--reach", hidden=True, callback=_refuse_reach, expose_value=False)
@shared_options
def set_(  # noqa: PLR0913 - one for each option
    options: Options,
    channel: str,
    *,
    principal: str | None,
    conversation_id: str | None,
    agent: str | None,
    pairing: PairingMode | None,
    audience: ChannelAudience | None,
) -> None:
    """Set the agent that answers CHANNEL, and whether senders must be paired first."""
    done = talk(
        options,
        lambda client: client.set_channel(
            channel,
            principal=principal,
            conversation_id=conversation_id,
            agent=agent,
            pairing=pairing,
            audience=audience,
        ),
    )
    _print_channel(
        options,
        done,
        f"is answered by {done.agent}, pairing {done.pairing}, audience {done.audience}",
    )


@channels.command()
@click.argument("channel")
@_PRINCIPAL
@_CONVERSATION
@shared_options
def delete(
    options: Options, channel: str, *, principal: str | None, conversation_id: str | None
) -> None:
    """Delete a channel; it accepts no more messages."""
    gone = talk(
        options,
        lambda client: client.delete_channel(
            channel, principal=principal, conversation_id=conversation_id
        ),
    )
    _print_channel(options, gone, "is deleted")


def _print_channel(options: Options, channel: Channel, what: str) -> None:
    if options.as_json:
        print_json(channel)
    else:
        say(f"{channel.channel} of {channel.principal} {what}")


@click.group()
def pairings() -> None:
    """List, approve and revoke senders."""


@pairings.command("list")
@click.option("--principal", help="Whose channels.")
@click.option("--channel", help="One channel.")
@click.option(
    "--state", type=click.Choice(get_args(PairingState)), help="Only those in this state."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="PAIRING_ID", help="Go on after this one.")
@shared_options
def list_pairings(
    options: Options,
    *,
    principal: str | None,
    channel: str | None,
    state: PairingState | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List senders, newest first, without their pairing codes."""
    page = talk(
        options,
        lambda client: client.list_pairings(
            principal=principal, channel=channel, state=state, limit=limit, cursor=cursor
        ),
    )
    if options.as_json:
        print_json(page)
        return
    columns = ("PAIRING", "PRINCIPAL", "CHANNEL", "STATE", "AGE", "SENDER")
    rows = [
        (
            pairing.pairing_id,
            pairing.principal,
            pairing.channel,
            pairing.state,
            age(pairing.requested_ms),
            pairing.sender,
        )
        for pairing in page.pairings
    ]
    print_table(columns, rows, empty="no senders")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


@pairings.command()
@id_argument("pairing_id", latest=False)
@click.argument("code")
@shared_options
def approve(options: Options, pairing_id: str, code: str) -> None:
    """Approve a sender who has given you CODE."""
    paired = talk(options, lambda client: client.approve_pairing(pairing_id, code))
    _print_pairing(options, paired, "may send")


@pairings.command()
@id_argument("pairing_id", latest=False)
@shared_options
def revoke(options: Options, pairing_id: str) -> None:
    """Revoke a sender; runs that were already started continue."""
    revoked = talk(options, lambda client: client.revoke_pairing(pairing_id))
    _print_pairing(options, revoked, "may no longer send")


def _print_pairing(options: Options, pairing: Pairing, what: str) -> None:
    if options.as_json:
        print_json(pairing)
    else:
        say(f"{pairing.sender} {what} to {pairing.channel} of {pairing.principal}")
