"""Lines of `palyra chat`: messages, commands and mistakes."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.chat.slash import (
    COMMANDS,
    Message,
    Mistake,
    PromptCommand,
    ShellCommand,
    SlashCommand,
    help_lines,
    parse_line,
    prompt_names,
)
from palyra.core.text.references import MAX_TARGET_CHARS, parse_prompt, parse_references
from palyra.core.tool.mcp import McpArgument, McpPrompt
from tests.rows import every_row


@every_row(
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


@every_row(
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
    """Every line is exactly one of these; a message keeps its words."""
    match parse_line(line):
        case Message(text):
            assert text in line
        case SlashCommand(name, argument):
            assert name in COMMANDS
            assert argument in line
        case ShellCommand(command):
            assert command in line
        case Mistake(text):
            assert text
        case PromptCommand():
            raise AssertionError("there is no prompt")


def test_help_names_every_command() -> None:
    """The help has a line for each command."""
    shown = "\n".join(help_lines())
    assert [] == [name for name in COMMANDS if f"/{name}" not in shown]


def prompt(server: str, name: str, *arguments: str) -> McpPrompt:
    """A prompt whose arguments are required unless they begin with `?`."""
    return McpPrompt(
        server=server,
        name=name,
        arguments=tuple(
            McpArgument(name=each.removeprefix("?"), is_required=not each.startswith("?"))
            for each in arguments
        ),
    )


PROMPTS = [
    prompt("docs", "re-view", "code", "?style"),
    prompt("docs", "ask", "question"),
    prompt("docs", "hello"),
    prompt("docs", "quit"),
    prompt("git", "log"),
    prompt("svn", "log"),
    prompt("svn", "docs.ask"),
]


@every_row(
    ("line", "expected"),
    [
        ("/hello", ("docs", "hello", {})),
        ("/docs.hello", ("docs", "hello", {})),
        ("/re-view x.py", ("docs", "re-view", {"code": "x.py"})),
        ("/re-view 'a b' be brief", ("docs", "re-view", {"code": "a b", "style": "be brief"})),
        (
            "/re-view style=long code='a=b c'",
            ("docs", "re-view", {"style": "long", "code": "a=b c"}),
        ),
        ("/re-view @file:a&b=1", ("docs", "re-view", {"code": "@file:a&b=1"})),
        ("/ask don't you know?", ("docs", "ask", {"question": "don't you know?"})),
        ('/ask question="\u00e4 b"', ("docs", "ask", {"question": "\u00e4 b"})),
        ("/ask a\nb", ("docs", "ask", {"question": "a\nb"})),
        ("/docs.quit", ("docs", "quit", {})),
        ("/svn.log", ("svn", "log", {})),
        ("/docs.ask x", ("docs", "ask", {"question": "x"})),
        ("/svn.docs.ask", ("svn", "docs.ask", {})),
    ],
)
def test_a_prompt_is_a_command(line: str, expected: tuple[str, str, dict[str, str]]) -> None:
    """Its message has exactly one reference, which has server, name and arguments."""
    found = parse_line(line, PROMPTS)
    assert isinstance(found, PromptCommand)
    (reference,) = parse_references(found.text)
    assert ("prompt", expected) == (reference.kind, parse_prompt(reference.target))


@every_row(
    ("line", "words"),
    [
        ("/re-view", "needs code; usage: /re-view CODE [STYLE]"),
        ("/re-view style=x", "needs code"),
        ("/re-view code=x colour=red", "no argument 'colour'"),
        ("/re-view code=x loose", "no argument 'loose'"),
        ("/re-view 'x", "a quotation mark is not closed"),
        ("/hello you", "takes no argument"),
        ("/log", "/git.log, /svn.log"),
        ("/helo", "did you mean /hello?"),
        (f"/ask {'x' * MAX_TARGET_CHARS}", "too long"),
    ],
)
def test_a_mistake_in_a_prompt_is_not_sent(line: str, words: str) -> None:
    """The mistake has the value and the form that would be right."""
    found = parse_line(line, PROMPTS)
    assert isinstance(found, Mistake)
    assert words in found.text


def test_a_prompt_never_replaces_a_command_or_a_path() -> None:
    """A server cannot name a prompt so that a command of the conversation becomes it."""
    assert SlashCommand("quit", "") == parse_line("/quit", PROMPTS)
    assert Message("/etc/hosts") == parse_line("/etc/hosts", [prompt("a", "etc")])
    assert Message("/hello") == parse_line("//hello", PROMPTS)


def test_prompts_are_listed_by_names_that_work() -> None:
    """Each name in the help and of the completion is the command of its own prompt."""
    names = prompt_names(PROMPTS)
    assert ["re-view", "ask", "hello", "docs.quit", "git.log", "svn.log", "svn.docs.ask"] == names
    shown = help_lines(PROMPTS)
    assert any(line.startswith("/re-view CODE [STYLE]") for line in shown)


@given(st.text())
def test_arguments_never_break_out_of_their_reference(text: str) -> None:
    """Whatever is typed behind a prompt, the message names that prompt and nothing else."""
    found = parse_line(f"/ask {text}", PROMPTS)
    if isinstance(found, PromptCommand):
        assert [("prompt", "docs/ask")] == [
            (each.kind, each.target.partition("?")[0]) for each in parse_references(found.text)
        ]
