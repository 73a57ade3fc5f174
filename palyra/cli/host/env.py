"""`palyra env`: print the address and token of the running daemon as shell variables.

The variables of provider SDKs are printed only with --sdk.  A daemon started from a shell with
OPENAI_API_KEY set would use Palyra's own token as the provider's key and send it to the provider.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, say, write
from palyra.cli.command.talk import Options, talk
from palyra.net.protocol.discovery import Endpoint, find_endpoint, http_address

if TYPE_CHECKING:
    from palyra.client import Client


SDKS = ("openai", "anthropic", "claude-code")
DEFAULT_MODEL = "agent/default"
# Claude Code asks for Anthropic's models by name unless these variables name others.
CLAUDE_CODE_MODELS = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)
HOW = {"sh": 'eval "$(palyra env)"', "fish": "palyra env --shell fish | source"}


@click.command()
@click.option(
    "--sdk",
    type=click.Choice(SDKS),
    multiple=True,
    help="Also print the variables that this SDK or program reads.",
)
@click.option(
    "--shell",
    type=click.Choice(tuple(HOW)),
    default="sh",
    show_default=True,
    help="Shell that will read the output.",
)
@shared_options
def env(options: Options, sdk: tuple[str, ...], shell: str) -> None:
    """Print the daemon's address and token as shell variables.

    Use it as eval "$(palyra env)".  The token is the operator's unless PALYRA_TOKEN is set.
    """
    found = variables(talk(options, partial(_find, options)), sdk)
    if options.as_json:
        print_json(found)
        return
    if sys.stdout.isatty():
        say(f"This shows a token. Without showing it:  {HOW[shell]}", err=True)
    for name, value in found.items():
        write(WRITERS[shell](name, value), nl=True)


async def _find(options: Options, client: "Client") -> Endpoint:
    """Return the address of the daemon and the accepted token, after one successful request."""
    await client.status()
    return find_endpoint(options.url, home=options.home)


def variables(endpoint: Endpoint, sdks: Sequence[str]) -> dict[str, str]:
    """Return the shell variables for an endpoint, including those of the named SDKs."""
    url, token = http_address(endpoint.ws_url), endpoint.token
    found = {"PALYRA_URL": url, "PALYRA_WS_URL": endpoint.ws_url, "PALYRA_TOKEN": token}
    if "openai" in sdks:
        found |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": token}
    if "anthropic" in sdks:
        found |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": token}
    if "claude-code" in sdks:
        found |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": token}
        found |= dict.fromkeys(CLAUDE_CODE_MODELS, DEFAULT_MODEL)
    return found


def write_posix(name: str, value: str) -> str:
    """Format an exported variable for POSIX shells (sh, bash, zsh)."""
    return f"export {name}={shlex.quote(value)}"


def write_fish(name: str, value: str) -> str:
    """Format an exported variable for fish; its single quotes escape the backslash and the quote."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{escaped}'"


WRITERS: dict[str, Callable[[str, str], str]] = {"sh": write_posix, "fish": write_fish}
