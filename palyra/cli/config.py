"""`palyra config`: print the configuration, its schema and a template."""

from pathlib import Path

import click
import msgspec

from palyra.cli.command import GivenPath, load_config, shared_options
from palyra.cli.output import print_json, print_table, say
from palyra.cli.talk import Options
from palyra.config.load import first_file, refuse_secrets
from palyra.config.load import schema as config_schema
from palyra.config.sections import SECTIONS
from palyra.core.redaction.redactor import Redactor


@click.group()
def config() -> None:
    """Show the configuration and its schema."""


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
def schema() -> None:
    """Print the JSON Schema of palyra.toml."""
    print_json(config_schema())


@config.command()
def template() -> None:
    """Print a palyra.toml with every key, its meaning and its default."""
    click.echo(first_file(), nl=False)
