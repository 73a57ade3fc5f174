"""Lines of `palyra chat`: messages, commands and mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.slash import COMMANDS, Message, Mistake, SlashCommand, help_lines, parse_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", Message("hello")),
        ("  hello \n", Message("hello")),
        ("", Message("")),
        ("//say x", Message("/say x")),
        ("/etc/hosts is what?", Message("/etc/hosts is what?")),
        ("/1 x", Message("/1 x")),
        ("/model", SlashCommand("model", "")),
        (" /model  scripted ", SlashCommand("model", "scripted")),
        ("/image my plan.png", SlashCommand("image", "my plan.png")),
        ("/quit", SlashCommand("quit", "")),
    ],
)
def test_line_is_a_message_or_a_command(line: str, expected: object) -> None:
    """A slash and letters are a command, two slashes and all else are a message."""
    assert expected == parse_line(line)


@pytest.mark.parametrize(
    ("line", "hint"),
    [("/qiut", "/quit"), ("/zzz", "/help"), ("/undo all", "no argument"), ("/image", "a file")],
)
def test_mistake_says_what_would_help(line: str, hint: str) -> None:
    """An unknown command, and one with a wrong argument, is never sent to the model."""
    found = parse_line(line)
    assert isinstance(found, Mistake)
    assert hint in found.text


@given(st.text())
def test_no_line_is_lost(line: str) -> None:
    """Every line is exactly one of the three; a message keeps its words."""
    match parse_line(line):
        case Message(text):
            assert text in line
        case SlashCommand(name, argument):
            assert name in COMMANDS
            assert argument in line
        case Mistake(text):
            assert text


def test_help_names_every_command() -> None:
    """The help has a line for each command."""
    shown = "\n".join(help_lines())
    assert [] == [name for name in COMMANDS if f"/{name}" not in shown]
