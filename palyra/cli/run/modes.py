"""Modes of a session as the command line and `palyra chat` spell them."""

from typing import Any, get_args

import click

from palyra.core.journal.records import SessionMode

MODES: tuple[SessionMode, ...] = get_args(SessionMode)  # in the order of the key in `palyra chat`


def spell_mode(mode: SessionMode) -> str:
    """Return the name for a person."""
    return mode.replace("_", "-")


def find_mode(name: str) -> SessionMode | None:
    """Return the mode of that name, with - or _; None for another name."""
    return next((mode for mode in MODES if mode == name.replace("-", "_")), None)


def next_mode(mode: SessionMode) -> SessionMode:
    """Return the mode after this one, in a circle."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)]


class ModeType(click.Choice[str]):
    """Click type of a mode."""

    def __init__(self) -> None:
        super().__init__([spell_mode(mode) for mode in MODES])

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's signature
        """Convert a name to the mode."""
        found = find_mode(str(value))
        return found or super().convert(value, param, ctx)


mode_option = click.option(
    "--mode",
    type=ModeType(),
    help="Mode of the session from now on: ask, accept-edits (changes of files in the workspace need no "
    "answer) or plan (only reading, until you accept a plan).",
)
