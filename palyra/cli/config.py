"""`palyra config`: print and change the configuration; its schema and a template."""

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from palyra.cli.command.errors import CommandFailed, stop_for
from palyra.cli.command.in_force import say_in_force
from palyra.cli.command.options import GivenPath, load_config, shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, is_daemon_needed, talk
from palyra.config.file import ConfigFile
from palyra.config.load import Config, first_file, parse_value, refuse_secrets
from palyra.config.load import schema as config_schema
from palyra.config.sections import SECTIONS
from palyra.core.configuration import ConfigChange, ConfigEntry, ConfigView
from palyra.core.redaction.redactor import Redactor
from palyra.core.text.visible import visible
from palyra.errors import PalyraError


@click.group()
def config() -> None:
    """Show and change the configuration; show its schema."""


@config.command()
@click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml.")
@shared_options
def show(options: Options, file: Path | None) -> None:
    """Show the effective value of every key: file, environment and defaults together."""
    found = load_config(options.home, file)
    refuse_secrets(found, Redactor([]).redact_text)
    values = {name: msgspec.structs.asdict(getattr(found, name)) for name in SECTIONS}
    if options.as_json:
        paths = {"config_file": str(found.paths.config_file), "data_dir": str(found.paths.data_dir)}
        print_json(values | {"paths": paths})
        return
    say(f"file {found.paths.config_file}, data {found.paths.data_dir}", dim=True)
    rows = [
        (f"{section}.{key}", msgspec.json.encode(value).decode())
        for section, keys in values.items()
        for key, value in keys.items()
    ]
    print_table(("KEY", "VALUE"), rows, empty="")


@config.command()
@click.argument("key", default="")
@click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml.")
@shared_options
def get(options: Options, key: str, file: Path | None) -> None:
    """Show the values in force with their sources: of KEY (section.key), of a section, or all.

    A running daemon is asked; without one, or with --config, the file is read.
    """
    found = _read(options, key, file)
    if not found.entries:
        raise CommandFailed(f"there is no key or section {key!r}", "`palyra config get` lists them")
    if options.as_json:
        print_json(found)
        return
    say(f"file {visible(found.config_file)}", dim=True)
    rows = [
        (each.key, _shown(each.value), each.source.replace("_", " "), _pending(each))
        for each in found.entries
    ]
    print_table(("KEY", "VALUE", "SOURCE", "NEXT START"), rows, empty="")
    if found.problem:
        say(f"problem: {visible(found.problem)}", err=True)


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml.")
@shared_options
def set_(options: Options, key: str, value: str, file: Path | None) -> None:
    """Write VALUE for KEY (section.key) to palyra.toml; comments and order stay.

    A list is divided by commas, a list of tables is JSON.  The whole configuration is checked first.
    """
    try:
        parsed = parse_value(key, value)
    except PalyraError as error:
        raise stop_for(error) from None
    _change(options, ConfigChange(key=key, value=parsed), file)


@config.command()
@click.argument("key")
@click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml.")
@shared_options
def unset(options: Options, key: str, file: Path | None) -> None:
    """Remove KEY (section.key) from palyra.toml, so that its default applies."""
    _change(options, ConfigChange(key=key, value=None), file)


def _read(options: Options, key: str, file: Path | None) -> ConfigView:
    """Return the keys as the daemon has them; without a daemon, as it would load them."""
    if file is None and is_daemon_needed(options):
        return talk(options, lambda client: client.get_config(key))
    try:
        found = _open(options, file).read()
    except PalyraError as error:
        raise stop_for(error) from None
    wanted = [each for each in found.entries if key in {"", each.key, each.key.partition(".")[0]}]
    return msgspec.structs.replace(found, entries=tuple(wanted))


def _change(options: Options, change: ConfigChange, file: Path | None) -> None:
    if file is None and is_daemon_needed(options):
        changed = talk(options, lambda client: client.set_config(change.key, change.value))
    else:
        try:
            changed = _open(options, file, check=_check_start).change(change)
        except PalyraError as error:
            raise stop_for(error) from None
    if options.as_json:
        print_json(changed)
        return
    say(f"{changed.key} = {_shown(changed.value)} in {visible(changed.config_file)}")
    if changed.effect == "overridden":
        source = changed.source.replace("_", " ")
        say(f"it has no effect: the {source} has another value, which comes first", dim=True)
    elif file is None:
        say_in_force(options, changed.key)


def _check_start(config: Config) -> None:
    """Check as the daemon does.  Raises InvalidParams."""
    from palyra.daemon import check_start  # noqa: PLC0415 - imports every library

    check_start(config)


def _accept(_config: Config) -> None:
    return None


def _open(
    options: Options, file: Path | None, *, check: Callable[[Config], None] = _accept
) -> ConfigFile:
    found = load_config(options.home, file if file is not None and file.exists() else None)
    if file is not None:
        paths = msgspec.structs.replace(found.paths, config_file=file.absolute())
        found = msgspec.structs.replace(found, paths=paths)
    return ConfigFile(found, Redactor([]).redact_text, check)


def _shown(value: object) -> str:
    return visible(msgspec.json.encode(value).decode())


def _pending(entry: ConfigEntry) -> str:
    return "" if entry.value == entry.next_value else _shown(entry.next_value)


@config.command()
def schema() -> None:
    """Print the JSON Schema of palyra.toml."""
    print_json(config_schema())


@config.command()
def template() -> None:
    """Print a palyra.toml with every key, its meaning and its default."""
    say(first_file(), nl=False)
