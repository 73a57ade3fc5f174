"""`palyra models`: list the models, their abilities and the state of their providers."""

import click

from palyra.cli.command import Options, shared_options, talk
from palyra.cli.output import print_json, print_table, say
from palyra.core.model.views import ModelView

COLUMNS = ("MODEL", "API", "CAN", "WINDOW", "TIER", "BREAKER", "CALLS", "USD/M IN", "USD/M OUT")
MILLION = 1_000_000


@click.command()
@shared_options
def models(options: Options) -> None:
    """List models, their capabilities and their providers' health."""
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
