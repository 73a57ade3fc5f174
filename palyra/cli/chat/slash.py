"""Parsing of a line that a person typed into `palyra chat`.  Pure.

A line whose first word is `/` and letters is a command; `//` begins a message with one slash.
`/NAME` of a prompt of an MCP server is a command as well, as `/SERVER.NAME` too, which is needed where
two servers have the name or the conversation has a command of it.  Anything else is a message, so that
a path (`/etc/hosts`) can be asked about.  `/NAME` of a file of the person or the workspace
(`cli.chat.own_commands`) sends its text; such a name comes before one of a prompt.

`!COMMAND` is a command for the person's shell, `!` alone drops the outputs that wait for the next
message, and `!!` begins a message with one exclamation mark.

Arguments of a prompt are words, quoted as in a shell, in the order of the prompt, the last one up to
the end of the line, or NAME=VALUE each.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from palyra.cli.chat.own_commands import OwnCommand
from palyra.core.text.references import MAX_TARGET_CHARS, render_prompt
from palyra.core.tool.mcp import McpPrompt

# Name -> argument in the help, and line of the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "model": ("[NAME]", "List models, or use another one from the next message on."),
    "agent": ("[NAME]", "List agents, or use another one from the next message on."),
    "mode": ("[ask|accept-edits|plan]", "Change what is asked about; Shift-Tab does, too."),
    "session": ("[new|ID|KEY]", "Show the session, start a new one, or go on with another one."),
    "title": ("TEXT", "Give the session a title."),
    "image": ("FILE", "Show an image to the model with the next message."),
    "undo": ("", "Take back the last exchange: the next message continues before it."),
    "compact": ("", "Replace older messages in later prompts by a summary."),
    "cost": ("", "Show tokens and cost of this session."),
    "why": ("", "Show how the calls of the last run were decided, and its prompt."),
    "diff": ("", "Show what the runs of this conversation changed in files."),
    "export": ("[FILE]", "Write the conversation to a new Markdown file."),
    "init": ("[save]", "Have the model draft an AGENTS.md; `save` writes its last answer there."),
    "help": ("", "Show these commands."),
    "quit": ("", "Leave; the session stays."),
}
WITHOUT_ARGUMENT = frozenset(name for name, (argument, _) in COMMANDS.items() if not argument)
ONLY = {"init": "save"}  # the one argument that a command takes
NEEDS = {"image": "the name of a file", "title": "a text"}
_PROMPT = re.compile(r"/([A-Za-z][A-Za-z0-9_.-]*)(?:[ \t]+(.*))?\Z", re.DOTALL)
_COMMAND = re.compile(r"/([a-z]+)(?:[ \t]+(.*))?\Z", re.DOTALL)


class Message(NamedTuple):
    """Text for the model; blank: nothing to send."""

    text: str


class SlashCommand(NamedTuple):
    """A command of the conversation."""

    name: str
    argument: str


class PromptCommand(NamedTuple):
    """A message that uses a prompt of an MCP server, or is the text of an own command."""

    name: str
    text: str  # with the reference of the prompt


class ShellCommand(NamedTuple):
    """A command for the person's shell; blank: drop the outputs that wait."""

    command: str


class Mistake(NamedTuple):
    """A line that is neither, and what would help."""

    text: str


def is_command(line: str) -> bool:
    """True if the line may be a command."""
    return line.lstrip().startswith("/") and not line.lstrip().startswith("//")


def parse_line(
    line: str, prompts: Sequence[McpPrompt] = (), own: Sequence[OwnCommand] = ()
) -> Message | SlashCommand | PromptCommand | ShellCommand | Mistake:
    """Return the message, command or mistake in a typed line."""
    text = line.strip()
    if text.startswith(("//", "!!")):
        return Message(text[1:])
    if text.startswith("!"):
        return ShellCommand(text[1:].strip())
    typed = _PROMPT.match(text)
    mine = next((each for each in own if typed is not None and each.name == typed[1]), None)
    if typed is not None and mine is not None:
        return PromptCommand(mine.name, mine.expand((typed[2] or "").strip()))
    named = _name_prompts(prompts)
    if typed is not None and typed[1] in named and typed[1] not in COMMANDS:
        return _use_prompt(typed[1], named[typed[1]], (typed[2] or "").strip())
    match = _COMMAND.match(text)
    if match is None:
        return Message(text)
    name, argument = match[1], (match[2] or "").strip()
    mistake = _find_mistake(name, argument, [*COMMANDS, *(each.name for each in own), *named])
    return Mistake(mistake) if mistake else SlashCommand(name, argument)


def _find_mistake(name: str, argument: str, known: Sequence[str]) -> str:
    """Return the mistake in a command; "" for none."""
    if name not in COMMANDS:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean /{near[0]}? " if near else ""
        return f"no command /{name}; {hint}/help lists them, // begins a message with a slash"
    if argument and name in WITHOUT_ARGUMENT:
        return f"/{name} takes no argument"
    if name in NEEDS and not argument:
        return f"/{name} needs {NEEDS[name]}"
    if name in ONLY and argument not in {"", ONLY[name]}:
        return f"/{name} takes no argument but {ONLY[name]}"
    return ""


def help_lines(prompts: Sequence[McpPrompt] = (), own: Sequence[OwnCommand] = ()) -> list[str]:
    """Return the list of commands and keys."""
    rows = [(f"/{name} {argument}", text) for name, (argument, text) in COMMANDS.items()]
    rows += [(f"/{each.name}", f"{each.description} ({each.path})") for each in own]
    rows += [
        (_usage(name, prompt), f"{prompt.server}: {prompt.description}")
        for name, prompt in zip(prompt_names(prompts), prompts, strict=True)
    ]
    width = max(len(usage) for usage, _ in rows[: len(COMMANDS)])
    lines = [f"{usage:<{width}}  {text}".rstrip() for usage, text in rows]
    return [
        *lines,
        "@file:NAME adds a file; Tab completes names and shows what they cost.",
        "!COMMAND runs a command of yours here; its output goes with your next message.",
        "A message that is typed while the run works steers it.",
        "Ctrl-C cancels the run, and leaves if pressed again.  Ctrl-D leaves.",
    ]


# --- prompts ---------------------------------------------------------------------------------------


def _name_prompts(prompts: Sequence[McpPrompt]) -> Mapping[str, list[McpPrompt]]:
    """Return the prompts by each name they may be typed as."""
    whole = {f"{each.server}.{each.name}": [each] for each in prompts}
    short: dict[str, list[McpPrompt]] = {}
    for each in prompts:
        short.setdefault(each.name, []).append(each)
    return short | whole  # a prompt may be called as another one is with its server


def prompt_names(prompts: Sequence[McpPrompt]) -> list[str]:
    """Return the shortest command of each prompt, without its slash."""
    named = _name_prompts(prompts)
    return [
        each.name
        if each.name not in COMMANDS and named.get(each.name) == [each]
        else f"{each.server}.{each.name}"
        for each in prompts
    ]


def _use_prompt(name: str, found: Sequence[McpPrompt], typed: str) -> PromptCommand | Mistake:
    if len(found) > 1:
        names = ", ".join(f"/{each.server}.{each.name}" for each in found)
        return Mistake(f"more than one server has a prompt {name}: {names}")
    (prompt,) = found
    arguments = _read_arguments(prompt, typed)
    usage = _usage(name, prompt)
    if isinstance(arguments, str):
        return Mistake(f"{arguments}; usage: {usage}")
    missing = [
        each.name for each in prompt.arguments if each.is_required and each.name not in arguments
    ]
    if missing:
        return Mistake(f"/{name} needs {', '.join(missing)}; usage: {usage}")
    reference = render_prompt(prompt.server, prompt.name, arguments)
    if len(reference) > MAX_TARGET_CHARS:
        return Mistake(f"the arguments of /{name} are too long: put the text into a file")
    return PromptCommand(name, f"Follow this prompt: {reference}")


def _read_arguments(prompt: McpPrompt, typed: str) -> dict[str, str] | str:
    """Return the arguments in a typed text, or the mistake in it."""
    names = [each.name for each in prompt.arguments]
    is_named = typed.partition("=")[0] in names
    if len(names) == 1 and typed and not is_named:
        return {names[0]: typed}
    try:
        words = shlex.split(typed)
    except ValueError:
        return "a quotation mark is not closed"
    if is_named:
        pairs = [word.partition("=") for word in words]
        wrong = next((name for name, mark, _ in pairs if not mark or name not in names), None)
        return (
            f"no argument {wrong!r}" if wrong is not None else {n: value for n, _, value in pairs}
        )
    if words and not names:
        return f"/{prompt.name} takes no argument"
    if len(words) > len(names):
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))


def _usage(name: str, prompt: McpPrompt) -> str:
    arguments = [
        each.name.upper() if each.is_required else f"[{each.name.upper()}]"
        for each in prompt.arguments
    ]
    return " ".join([f"/{name}", *arguments])
