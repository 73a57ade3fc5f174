"""`palyra secrets`: manage the daemon's vault.

The commands open the vault file in the data directory themselves, with or without a running
daemon, so that no secret is sent over a connection.  A value is read from standard input or a
hidden prompt.  It is never a command-line argument, because other users can see those and shells
save them.  No value is ever printed.
"""

import sys
from collections.abc import Iterator

import click

from palyra.cli.command.errors import CommandFailed, stop_for
from palyra.cli.command.options import load_config, shared_options
from palyra.cli.command.output import age, now_ms, print_json, print_table, say
from palyra.cli.command.talk import Options
from palyra.config.load import Config
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.errors import InvalidParams, PalyraError
from palyra.models.presets import key_of
from palyra.secrets.resolver import Resolver


@click.group()
def secrets() -> None:
    """Keep secrets in the daemon's vault, and test references."""


@secrets.command("set")
@click.argument("name")
@shared_options
def set_(options: Options, name: str) -> None:
    """Store a secret as vault:NAME; its value comes from standard input or a hidden prompt."""
    try:
        parse_reference(f"vault:{name}")
        value = read_value(name)
        _open(options).put(name, value, now_ms())
    except PalyraError as error:
        raise stop_for(error) from None
    say(f"vault:{name} is set")


def read_value(name: str) -> str:
    """Return a secret from a hidden prompt or standard input."""
    if sys.stdin.isatty():
        value: str = click.prompt(f"value of {name}", hide_input=True, confirmation_prompt=True)
    else:
        try:
            value = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            why = "the value is not text in UTF-8: encode it, for example with base64"
            raise InvalidParams(why) from None
        value = value.removesuffix("\n").removesuffix("\r")
    return value


@secrets.command("list")
@shared_options
def list_(options: Options) -> None:
    """List the names in the vault, never the values."""
    try:
        found = _open(options).vault.read()
    except PalyraError as error:
        raise stop_for(error) from None
    if options.as_json:
        rows = [{"name": name, "set_ms": entry.set_ms} for name, entry in sorted(found.items())]
        print_json({"secrets": rows})
        return
    table = [(f"vault:{name}", age(entry.set_ms)) for name, entry in sorted(found.items())]
    print_table(("REFERENCE", "AGE"), table, empty="no secrets")


@secrets.command()
@click.argument("name")
@shared_options
def remove(options: Options, name: str) -> None:
    """Remove a secret from the vault."""
    try:
        was_there = _open(options).vault.remove(name)
    except PalyraError as error:
        raise stop_for(error) from None
    if not was_there:
        raise CommandFailed(
            f"the vault holds no {name!r}", "look for the name with `palyra secrets list`"
        )
    say(f"vault:{name} is removed")


@secrets.command()
@click.argument("references", nargs=-1)
@shared_options
def test(options: Options, references: tuple[str, ...]) -> None:
    """Check that references resolve to a secret; without any, check those of the configuration.

    Environment variables are those of this command, not of the daemon.
    """
    config = load_config(options.home, None)
    try:
        resolver = open_resolver(config)
    except PalyraError as error:
        raise stop_for(error) from None
    results = [_try(resolver, text) for text in references or tuple(configured(config))]
    if options.as_json:
        print_json({"secrets": results})
    else:
        table = [(row["reference"], row["problem"] or "ok") for row in results]
        print_table(("REFERENCE", "STATE"), table, empty="the configuration references no secrets")
    if any(row["problem"] for row in results):
        raise SystemExit(1)


def configured(config: Config) -> Iterator[str]:
    """Yield every secret reference of the configuration."""
    if config.secrets.passphrase:
        yield config.secrets.passphrase
    yield from (credential.secret for credential in config.fetch.credentials)
    for provider in config.models.providers:
        given = (key_of(provider), provider.key_id, provider.session)
        yield from (text for text in given if is_reference(text))
    notified = (config.notify.webhook, config.notify.topic)
    yield from (text for text in notified if is_reference(text))
    for server in config.mcp.servers:
        values = (each.partition("=")[2] for each in server.environment)
        yield from (text for text in (server.token, *values) if is_reference(text))


def _try(resolver: Resolver, text: str) -> dict[str, str]:
    """Resolve one reference and return a row with the reference and the problem, or "".

    A text that is no reference is shown as "?", because it may be a secret itself.
    """
    try:
        shown = parse_reference(text).text
    except InvalidParams as error:
        return {"reference": "?", "problem": error.message}
    try:
        resolver.resolve(text)
    except PalyraError as error:
        return {"reference": shown, "problem": error.message}
    return {"reference": shown, "problem": ""}


def open_resolver(config: Config) -> Resolver:
    """Return the resolver of the configuration.  Raises PalyraError for an invalid setting."""
    data = config.paths.data_dir
    return Resolver(
        data,
        data / "keys",
        passphrase=config.secrets.passphrase,
        owner="this command",
        find_words=_find_words,
    )


def _find_words() -> str:
    from palyra.net.api.words import protocol_words  # noqa: PLC0415 - help must be instant

    return protocol_words()


def _open(options: Options) -> Resolver:
    return open_resolver(load_config(options.home, None))
