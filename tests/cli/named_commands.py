"""Every `palyra …` command that a message or a page names, and what the command line makes of it."""

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import click

from palyra.cli.main import cli

ROOT = Path(__file__).parents[2]
VALUE = "X"  # for what is only known when a message is made
SPAN = re.compile(r"`palyra ([^`]+)`")
PROMPT = re.compile(r"^\s*\$ palyra (.*)$|\$\(palyra ([^)]*)\)", re.MULTILINE)
SHELL_SIGNS = frozenset("();<>|&")


class Named(NamedTuple):
    """A command as it is written, and where."""

    place: str
    text: str


def in_messages() -> Iterator[Named]:
    """Commands between backquotes in the strings of the package, docstrings included."""
    for path in sorted((ROOT / "palyra").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "`palyra" not in source:
            continue  # most of them: a tree costs milliseconds
        tree = ast.parse(source)
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
                 for part in node.values}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in inner:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield from (Named(place, found) for found in SPAN.findall(_text(node)))


def _text(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_text(part) if isinstance(part, ast.Constant) else VALUE for part in node.values)


def in_pages() -> Iterator[Named]:
    """Commands between backquotes, and those after a prompt, in every page."""
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        if path.name == "CHANGELOG.md":
            continue  # what earlier versions were called stays there
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        prompted = (first or second for first, second in PROMPT.findall(text))
        for found in (*SPAN.findall(text), *prompted):
            yield Named(str(path.relative_to(ROOT)), found)


def find_fault(text: str) -> str | None:
    """Why the command line would not take it; None when it would, once its arguments are given."""
    words = _without_shared(_split(text))
    command: click.Command = cli
    context = click.Context(cli, info_name="palyra")
    while isinstance(command, click.Group) and words and words[0][:1].islower():
        below = command.get_command(context, words[0])
        if below is None:
            return f"no command {words[0]!r} in {context.command_path!r}"
        command, words = below, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        _, left, _ = command.make_parser(context).parse_args(args=words)
    except click.UsageError as error:
        return error.format_message()
    if left and not isinstance(command, click.Group):  # "NOUN VERB"
        return f"{context.command_path!r} takes no {left[0]!r}"
    return None


def _split(text: str) -> list[str]:
    """The words of the first command of the line."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(takewhile(lambda word: not set(word) <= SHELL_SIGNS, lexer))


def _without_shared(words: list[str]) -> list[str]:
    """The words after the shared options in front of the command's name."""
    while words and words[0].startswith("--") and words[0] not in {"--help", "--version"}:
        words = words[1 if words[0] == "--json" or "=" in words[0] else 2 :]
    return words
