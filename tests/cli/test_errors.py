"""The text of an error, and the exit code of the program."""

import errno
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from palyra import errors
from palyra.cli.command.errors import CommandFailed, find_exit_code, stop_for, stop_for_start
from palyra.cli.command.options import load_config, read_text
from palyra.cli.command.talk import verdict
from palyra.cli.main import cli
from palyra.client.frames import ErrorBody, WireFault, to_exception
from palyra.net.protocol.discovery import get_discovery
from tests.rows import every_row


def failing(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


def abort(cause: BaseException) -> click.Abort:
    error = click.Abort()
    error.__cause__ = cause
    return error


@every_row("group", ["mcp", "workspaces", "secrets", "agents"])
def test_a_missing_name_has_the_list_of_its_own_group(group: str) -> None:
    """The remedy for a name that is not there lists that kind of thing, not another one."""
    command = cli.get_command(click.Context(cli), group)
    assert isinstance(command, click.Group)
    parent = click.Context(command, info_name=group, parent=click.Context(cli))
    with click.Context(command.commands["list"], parent=parent):
        stop = stop_for(errors.NotFound("no such thing", field="name"))
    assert f"`palyra {group} list` shows which there are" == stop.remedy


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            CommandFailed("no", "do that"),
            1,
            {"kind": "failed", "message": "no", "remedy": "do that"},
        ),
        (
            CommandFailed("no", code=2, field="x"),
            2,
            {"kind": "usage", "message": "no", "field": "x"},
        ),
        (
            stop_for(errors.InvalidParams("bad `palyra x`", field="text")),
            2,
            {"kind": "invalid_params", "message": "bad `palyra x`", "field": "text"},
        ),
        (stop_for(errors.IllegalState("no")), 1, {"kind": "illegal_state", "message": "no"}),
        (abort(EOFError()), 1, {"kind": "failed", "message": "the input has ended"}),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            {"kind": "io_error", "message": "the output: No space left on device"},
        ),
        (
            OSError(errno.EACCES, "Permission denied", "a.txt"),
            1,
            {"kind": "io_error", "message": "a.txt: Permission denied"},
        ),
    ],
)
def test_errors_for_programs(
    error: Exception, code: int, told: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json an error is one JSON object on standard error, and nothing else anywhere."""
    assert code == find_exit_code(failing(error), as_json=True)
    out, err = capsys.readouterr()
    assert ("", {"error": told}) == (out, msgspec.json.decode(err))


@every_row(
    ("error", "remedy"),
    [
        (errors.Unavailable("journal: opening: file is not a database"), "from a backup"),
        (errors.Unavailable("cannot listen on x:1: taken; choose a port with --port"), None),
        (errors.Unavailable("cannot listen on x:1: unknown; name an address with --host"), None),
        (errors.DiskFull("journal: opening: full"), "free disk space"),
    ],
)
def test_the_remedy_of_a_failed_start_needs_no_daemon(
    error: errors.PalyraError, remedy: str | None
) -> None:
    """The remedy works without a daemon, and does not repeat the message."""
    failed = stop_for_start(error)
    assert (75 if isinstance(error, errors.DiskFull) else 69) == failed.exit_code
    assert (remedy or "") in (failed.remedy or "")
    assert (failed.remedy is None) == (remedy is None)
    assert "doctor" not in (failed.remedy or "")


def test_no_daemon_is_not_a_daemon_in_trouble(tmp_path: Path) -> None:
    """Without an answer the exit code is 69; a daemon with a full disk has another one."""
    full = to_exception(ErrorBody(code=-32000, data=WireFault(code="unavailable", message="full")))
    stop = stop_for(full)
    assert (1, True) == (stop.exit_code, "palyra doctor" in (stop.remedy or ""))
    with pytest.raises(errors.Unreachable) as caught:
        get_discovery(tmp_path)
    assert 69 == stop_for(caught.value).exit_code


def test_the_remedy_of_a_configuration_error_fits(tmp_path: Path) -> None:
    """For the file itself it names --config, for a key the schema."""
    with pytest.raises(CommandFailed) as missing:
        load_config(tmp_path, tmp_path / "nope.toml")
    assert "--config" in (missing.value.remedy or "")
    with pytest.raises(CommandFailed) as unknown:
        load_config(tmp_path, None, {"server.prot": 1})
    assert "config schema" in (unknown.value.remedy or "")


def test_interrupts_of_both_kinds_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever Ctrl-C finds the program, it ends with 130, and later ones change nothing."""
    ignored: list[object] = []
    monkeypatch.setattr("signal.signal", lambda number, handler: ignored.append((number, handler)))
    stopped = CommandFailed("interrupted", code=130)
    for error in (KeyboardInterrupt(), abort(KeyboardInterrupt()), stopped):
        assert 130 == find_exit_code(failing(error), as_json=False)
    assert 3 == len(ignored)


def test_an_interrupt_while_an_error_is_printed_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts like any other interrupt."""
    monkeypatch.setattr("signal.signal", lambda _number, _handler: None)
    stop = CommandFailed("no")
    monkeypatch.setattr(stop, "show", failing(KeyboardInterrupt()))
    assert 130 == find_exit_code(failing(stop), as_json=False)


def test_an_interrupt_counts_before_other_errors() -> None:
    """Of a group with several errors one is shown."""
    both = BaseExceptionGroup("", [errors.Unavailable("gone"), KeyboardInterrupt()])
    found = verdict(both)
    assert isinstance(found, CommandFailed)
    assert 130 == found.exit_code
    nested = BaseExceptionGroup("", [ExceptionGroup("", [OSError(28, "full")])])
    assert isinstance(verdict(nested), OSError)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("runs", "list", "--json", "--limit", "0"), "limit"),
        (("--json", "bench", "run", "README.md", "--out", "x", "--deadline", "nan"), "deadline_s"),
    ],
)
def test_wrong_usage_for_programs(arguments: tuple[str, ...], field: str) -> None:
    """With --json wrong usage is an object with the option's name."""
    ended = CliRunner().invoke(cli, arguments)
    error = msgspec.json.decode(ended.stderr)["error"]
    assert (2, "usage", field) == (ended.exit_code, error["kind"], error["field"])


def test_a_text_may_look_like_the_option() -> None:
    """A text after -- is not an option."""
    ended = CliRunner().invoke(cli, ["runs", "list", "--limit", "0", "--", "--json"])
    assert (2, True) == (ended.exit_code, ended.stderr.startswith("error: "))


@pytest.mark.parametrize("arguments", [("runs", "list", "--loud"), ("runs", "show"), ("rnus",),
                                       ("runs", "list", "--limit", "x")])  # fmt: skip
def test_wrong_usage_has_the_form_of_all_errors(arguments: tuple[str, ...]) -> None:
    """One line with the error, one with the remedy, which names the command's own help."""
    ended = CliRunner().invoke(cli, arguments)
    error, remedy = ended.stderr.splitlines()
    assert (2, True, True) == (
        ended.exit_code, error.startswith("error: "), remedy.startswith("remedy: `")
    )  # fmt: skip
    assert "--help` shows the usage" in remedy


@every_row(
    ("line", "message"),
    [
        ("run --budget x hi", "--budget: 'x': write an amount"),
        ("run --timeout 0 hi", "--timeout: '0': write a number"),
        ("runs list --limit 0", "--limit: 0 is not in the range"),
        ("runs wait", "missing argument 'RUN_ID'"),
        ("runs nosuch", "no command 'nosuch'"),
        ("run --nosuch hi", "no option '--nosuch'"),
        ("run --approve", "option '--approve' requires an argument"),
        ("runs show a b", "got unexpected extra argument (b)"),
    ],
)
def test_wrong_usage_is_said_in_one_style(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors of the parser begin in lower case, name the option bare and end without a full stop."""
    assert 2 == find_exit_code(
        lambda: cli.main(line.split(), prog_name="palyra", standalone_mode=False), as_json=False
    )
    first, remedy = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {message}")
    assert not first.endswith(".")
    assert remedy.startswith("remedy: `palyra ")


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    """`@FILE` says why it was not read, without the number of the error."""
    missing = tmp_path / "missing"
    with pytest.raises(CommandFailed) as failed:
        read_text(f"@{missing}")
    assert f"{missing}: No such file or directory" == str(failed.value)
