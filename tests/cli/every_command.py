"""Every command of the command line, with arguments that it takes."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from palyra.cli.main import cli


class EveryCommand(NamedTuple):
    """A command that does something itself: its words, and the parameters that it requires."""

    words: tuple[str, ...]
    required: tuple[click.Parameter, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Its words with a value for each required parameter, by the parameter's name."""
        given = list(self.words)
        for parameter in self.required:
            kind = parameter.type
            value = (
                kind.choices[0] if isinstance(kind, click.Choice) else values[parameter.name or ""]
            )
            option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
            given += [*option, str(value)]
        return given


def every_command() -> Iterator[EveryCommand]:
    """All of them, in the order of the help."""
    yield from _below(cli, click.Context(cli, info_name="palyra"), ())


def _below(
    command: click.Command, context: click.Context, words: tuple[str, ...]
) -> Iterator[EveryCommand]:
    is_group = isinstance(command, click.Group) and not command.invoke_without_command
    if words and not is_group:
        required = tuple(each for each in command.params if each.required)
        yield EveryCommand(words, required)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, click.Context(below, parent=context), (*words, name))
