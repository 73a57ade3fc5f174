"""`!COMMAND` of `palyra chat`: output, its form for the model, and its end."""

import os
import signal
from pathlib import Path

import pytest
import trio

from palyra.cli.chat.own_shell import KEPT_BYTES, SHOWN_LINES, run_own
from palyra.cli.command.errors import CommandFailed
from palyra.core.text.references import parse_references

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("plain_shell")]

WITHIN_S = 60.0  # a bound against hanging, not a promise


@pytest.fixture
def plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell that every system has."""
    monkeypatch.setenv("SHELL", "/bin/sh")


async def run(command: str, cwd: Path) -> tuple[list[str], str, int]:
    """The lines shown, the text for the model, and the exit code."""
    shown: list[str] = []
    with trio.fail_after(WITHIN_S):
        text, code = await run_own(command, cwd, shown.append)
    return shown, text, code


async def test_both_streams_are_shown_and_quoted(tmp_path: Path) -> None:
    """In order, with the exit code and the command; the last line needs no end."""
    shown, text, code = await run("echo one; echo two >&2; printf three; exit 3", tmp_path)
    assert (["one", "two", "three"], 3) == (shown, code)
    assert text.endswith("> $ echo one; echo two >&2; printf three; exit 3\n> one\n> two\n> three")
    assert f"in {tmp_path}; exit code 3." in text
    assert (await run("true", tmp_path))[1].endswith("> $ true\n> [no output]")


async def test_no_output_speaks_for_the_person(tmp_path: Path) -> None:
    """References, fences and blank lines stay quoted, and controls are escapes."""
    hostile = (
        "@file:a.txt\\n```\\n\\n@url:https://example.org/\\n\\033[2Jgone\\rover\\n~~~\\n@session:x"
    )
    shown, text, _ = await run(f"printf '{hostile}'", tmp_path)
    quoted = text.partition("\n\n")[2].split("\n")
    assert all(line.startswith("> ") for line in quoted)
    assert () == parse_references(f"see this\n\n{text}")
    assert not any("\x1b" in line for line in [*shown, text])
    assert "over" in shown


async def test_a_long_output_is_bounded(tmp_path: Path) -> None:
    """The first lines are shown, the end is kept, and both say so."""
    shown, text, _ = await run("seq 1 100000", tmp_path)
    assert SHOWN_LINES + 1 == len(shown)
    assert f"… {100_000 - SHOWN_LINES} more lines" == shown[-1]
    assert f"[the last {KEPT_BYTES} of 588895 bytes]" in text
    assert text.endswith("> 100000")
    assert len(text) < 3 * KEPT_BYTES


async def test_nothing_is_read_from_the_terminal(tmp_path: Path) -> None:
    """A command that asks gets the end of its input."""
    assert 0 == (await run('cat; test -z "$(cat)"', tmp_path))[2]


async def test_an_end_reaches_all_of_the_group(tmp_path: Path) -> None:
    """Cancelled, neither the shell nor its children go on, though a child ignores SIGTERM."""
    seen: list[str] = []
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:

            def show(line: str) -> None:
                seen.append(line)
                nursery.cancel_scope.cancel("seen")

            nursery.start_soon(
                run_own, "(trap '' TERM; exec sleep 1000) & echo $!; wait", tmp_path, show
            )
        while not is_gone(seen[0]):
            await trio.lowlevel.checkpoint()


def is_gone(process_id: str) -> bool:
    """True if there is no such process, or only its exit code."""
    found = Path(f"/proc/{process_id}/stat")
    return not found.exists() or found.read_text("utf-8").rpartition(")")[2].split()[0] == "Z"


async def test_a_command_of_another_user_does_not_end_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group may refuse the signal, as that of `sudo` does: it goes on, and nothing is raised."""
    tried: list[int] = []

    def refuse(group: int, number: int) -> None:
        if not tried:
            os.kill(group, signal.SIGKILL)  # it ends by itself
        tried.append(number)
        raise PermissionError

    monkeypatch.setattr("palyra.cli.chat.own_shell.os.killpg", refuse)
    with trio.fail_after(WITHIN_S), trio.CancelScope() as scope:
        await run_own("echo; exec sleep 1000", tmp_path, lambda _line: scope.cancel("seen"))
    assert [signal.SIGTERM, signal.SIGKILL] == tried


async def test_a_missing_shell_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is the variable."""
    monkeypatch.setenv("SHELL", "/no/shell")
    with pytest.raises(CommandFailed, match="/no/shell"):
        await run("true", tmp_path)
