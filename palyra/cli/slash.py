"""Parsing of a line that a person typed into `palyra chat`.  Pure.

A line whose first word is `/` and letters is a command; `//` begins a message with one slash.
Anything else is a message, so that a path (`/etc/hosts`) can be asked about.
"""

import re
from difflib import get_close_matches
from typing import NamedTuple

# Name -> argument in the help, and line of the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "model": ("[NAME]", "List models, or use another one from the next message on."),
    "agent": ("[NAME]", "List agents, or use another one from the next message on."),
    "session": ("[new|ID|KEY]", "Show the session, start a new one, or go on with another one."),
    "image": ("FILE", "Show an image to the model with the next message."),
    "undo": ("", "Take back the last exchange: the next message continues before it."),
    "compact": ("", "Replace older messages in later prompts by a summary."),
    "cost": ("", "Show tokens and cost of this session."),
    "why": ("", "Show how the calls of the last run were decided, and its prompt."),
    "help": ("", "Show these commands."),
    "quit": ("", "Leave; the session stays."),
}
WITHOUT_ARGUMENT = frozenset(name for name, (argument, _) in COMMANDS.items() if not argument)
_COMMAND = re.compile(r"/([a-z]+)(?:[ \t]+(.*))?\Z", re.DOTALL)


class Message(NamedTuple):
    """Text for the model; blank: nothing to send."""

    text: str


class SlashCommand(NamedTuple):
    """A command of the conversation."""

    name: str
    argument: str


class Mistake(NamedTuple):
    """A line that is neither, and what would help."""

    text: str


def parse_line(line: str) -> Message | SlashCommand | Mistake:
    """Return the message, command or mistake in a typed line."""
    text = line.strip()
    if text.startswith("//"):
        return Message(text[1:])
    match = _COMMAND.match(text)
    if match is None:
        return Message(text)
    name, argument = match[1], (match[2] or "").strip()
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean /{near[0]}? " if near else ""
        return Mistake(
            f"no command /{name}; {hint}/help lists them, // begins a message with a slash"
        )
    if argument and name in WITHOUT_ARGUMENT:
        return Mistake(f"/{name} takes no argument")
    if name == "image" and not argument:
        return Mistake("/image needs the name of a file")
    return SlashCommand(name, argument)


def help_lines() -> list[str]:
    """Return the list of commands and keys."""
    width = max(len(f"/{name} {argument}") for name, (argument, _) in COMMANDS.items())
    lines = [
        f"{f'/{name} {argument}':<{width}}  {text}" for name, (argument, text) in COMMANDS.items()
    ]
    return [
        *lines,
        "@file:NAME adds a file; Tab completes names and shows what they cost.",
        "A message that is typed while the run works steers it.",
        "Ctrl-C cancels the run, and leaves if pressed again.  Ctrl-D leaves.",
    ]
