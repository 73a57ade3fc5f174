"""One writer: only `palyra.cli.command.output` styles a text, prints it, or names a terminal escape."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITER = "palyra/cli/command/output.py"
CLICKS = frozenset({"clear", "echo", "echo_via_pager", "progressbar", "secho", "style"})
STREAMS = frozenset({"stdout", "stderr"})
# Each names escapes for a reason of its own.
NAMES_ESCAPES = {
    WRITER,
    "palyra/cli/host/watch.py",  # draws only where `moves_cursor`
    "palyra/core/preview/spelling.py",  # has a name for the character
}
# Programs of their own, whose output is read by a program.
PROGRAMS = {"palyra/models/table.py", "palyra/tools/policy/probe.py"}
READS_ENVIRONMENT = "palyra/core/text/escapes.py"


def find_writers(source: str) -> Iterator[str]:
    """What a module writes with, beside the writer."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in CLICKS:
                yield f"click.{name}"
            case ast.ImportFrom(module="click", names=names):
                yield from (f"click.{each.name}" for each in names if each.name in CLICKS)
            case ast.Call(func=ast.Name(id="print" | "Console" as name)):
                yield name
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="sys"), attr=stream), attr=name
            ) if stream in STREAMS and name in {"write", "writelines", "buffer"}:
                yield f"sys.{stream}.{name}"
            case _:
                pass


def find_escapes(source: str) -> Iterator[str]:
    """The strings of a module that hold an escape character."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and "\x1b" in str(node.value):
            yield repr(node.value)


HINTS = re.compile(r"click|print\(|Console|std(out|err)|\\x1b|\\033|\x1b|NO_COLOR|TERM")


def modules() -> Iterator[tuple[str, str]]:
    """Name and source of those that may matter; a tree costs milliseconds."""
    for path in sorted((ROOT / "palyra").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if HINTS.search(source):
            yield str(path.relative_to(ROOT)), source


def test_one_module_writes() -> None:
    """Nothing else prints or styles, so no command can forget NO_COLOR or a dumb terminal."""
    found = {name: [*find_writers(source)] for name, source in modules()}
    assert {WRITER, *PROGRAMS} == {name for name, what in found.items() if what}


def test_escapes_are_named_in_one_place() -> None:
    """No string of another module holds an escape, and nothing else reads the variables."""
    for name, source in modules():
        assert name in NAMES_ESCAPES or not [*find_escapes(source)], name
        assert name == READS_ENVIRONMENT or not {"NO_COLOR", "TERM"} & _asked(source), name


def _asked(source: str) -> set[str]:
    """The names that it asks a mapping for."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"get", "getenv"} and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }


@pytest.mark.parametrize(
    "source",
    [
        "click.echo('x', color=False)",
        "say(click.style('x'))",
        "from click import secho",
        "Console(highlight=False)",
        "print('x')",
        "sys.stderr.write('x')",
        "write = sys.stdout.buffer.write",
    ],
)
def test_control_each_way_round_the_writer_is_found(source: str) -> None:
    """The rule sees every way of printing that the package has ever used."""
    assert 1 == len([*find_writers(source)])


def test_control_an_escape_is_found() -> None:
    """However the character is spelled."""
    assert 2 == len([*find_escapes(r"a = '\x1b[K' + f'\033[{1}m'")])
