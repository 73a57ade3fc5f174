"""`palyra completion SHELL`: print the script that completes commands, options and ids."""

import click
from click.shell_completion import get_completion_class

from palyra.cli.command.output import write

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print the script that makes SHELL complete commands, options and ids of `palyra`.

    Ids are read from the running daemon; without one, nothing is offered for them.

    \b
    bash:  palyra completion bash > ~/.local/share/bash-completion/completions/palyra
    zsh:   palyra completion zsh > "${fpath[1]}/_palyra"
    fish:  palyra completion fish > ~/.config/fish/completions/palyra.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has the three shells
    write(made(context.find_root().command, {}, "palyra", "_PALYRA_COMPLETE").source(), nl=True)
