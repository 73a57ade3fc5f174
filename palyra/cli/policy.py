"""`palyra policy`: what the rules say."""

from typing import Any

import click
import msgspec

from palyra.cli.screen import print_json, say
from palyra.cli.shell import Options, shared_options, talk

COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.group()
def policy() -> None:
    """Explain what would happen to a call."""


@policy.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@click.option("--agent", help="Who proposes it; else the default agent.")
@shared_options
def explain(options: Options, tool: str, arguments: str, agent: str | None) -> None:
    """Say what the rules answer to TOOL with ARGUMENTS (a JSON object), and why."""
    given = _parse(arguments)
    decision = talk(options, lambda client: client.explain_policy(tool, given, agent=agent))
    if options.as_json:
        print_json(decision)
        return
    say(f"{decision.answer} ({decision.reason_code})", fg=COLOURS[decision.answer], bold=True)
    say(decision.reason)
    say(f"rules: {', '.join(decision.policies) or 'none'}; version {decision.version}", dim=True)


def _parse(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"ARGUMENTS is no JSON object: {error}") from None
