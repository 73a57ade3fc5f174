"""`palyra tokens`: create, list and revoke bearer tokens."""

from typing import get_args

import click

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, now_ms, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.client import Token
from palyra.core.journal.records import Role


@click.group()
def tokens() -> None:
    """Create, list and revoke bearer tokens."""


@tokens.command()
@click.option(
    "--principal", required=True, help="Principal whose runs the token can start and see."
)
@click.option(
    "--role",
    type=click.Choice(get_args(Role)),
    default="client",
    show_default=True,
    help="What the token may do.",
)
@click.option("--name", required=True, help="Purpose of the token, shown in lists.")
@click.option(
    "--ttl", "ttl_s", type=click.IntRange(1), help="Validity in seconds; default: until revoked."
)
@shared_options
def create(options: Options, principal: str, role: Role, name: str, ttl_s: int | None) -> None:
    """Create a token and print it; it is never shown again."""
    ttl_ms = None if ttl_s is None else ttl_s * 1000
    made = talk(
        options,
        lambda client: client.create_token(
            principal=principal, role=role, name=name, ttl_ms=ttl_ms
        ),
    )
    if made.token is None:
        raise CommandFailed(
            f"the secret of {made.token_id} was lost with the connection",
            f"palyra tokens revoke {made.token_id}, then create another",
        )
    if options.as_json:
        print_json(made)
        return
    say(made.token)
    say(f"{made.token_id}: store the secret now, it is not shown again", err=True)


@tokens.command("list")
@shared_options
def list_(options: Options) -> None:
    """List tokens without their secrets."""
    found = talk(options, lambda client: client.list_tokens())
    if options.as_json:
        print_json({"tokens": found})
        return
    columns = ("TOKEN", "ROLE", "PRINCIPAL", "AGE", "STATE", "NAME")
    print_table(columns, [_row(token) for token in found], empty="no tokens")


def _row(token: Token) -> tuple[object, ...]:
    made = age(token.created_ms)
    return token.token_id, token.role, token.principal, made, _state(token), token.name


def _state(token: Token) -> str:
    if token.revoked_ms is not None:
        return "revoked"
    is_expired = token.expires_ms is not None and token.expires_ms <= now_ms()
    return "expired" if is_expired else "valid"


@tokens.command()
@id_argument("token_id", latest=False)
@shared_options
def revoke(options: Options, token_id: str) -> None:
    """Revoke a token; its connections are closed."""
    revoked = talk(options, lambda client: client.revoke_token(token_id))
    if options.as_json:
        print_json(revoked)
    else:
        say(f"{revoked.token_id} is revoked")
