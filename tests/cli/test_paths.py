"""Directories and files as the command line names them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from palyra.cli.main import cli
from palyra.config.paths import find_paths
from palyra.errors import InvalidParams
from palyra.net.protocol.discovery import find_home
from tests.cli.command import palyra


@pytest.mark.parametrize("empty", ["", " ", "\t"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--home", "{}", "up"], "--home"),
        (["up", "--home", "{}"], "--home"),
        (["serve", "--home", "{}"], "--home"),
        (["up", "--config", "{}"], "--config"),
        (["up", "--workspace", "{}"], "--workspace"),
        (["config", "show", "--home", "{}"], "--home"),
        (["config", "show", "--config", "{}"], "--config"),
        (["runs", "list", "--home", "{}"], "--home"),
        (["policy", "check", "{}"], "FOLDER"),
        (["tape", "export", "run_1", "-o", "{}"], "--output"),
    ],
)
def test_an_empty_path_is_refused_by_its_name(
    arguments: list[str], named: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would name the current directory, in which nothing is written."""
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli, [empty if word == "{}" else word for word in arguments])
    assert 2 == ended.exit_code
    assert named in ended.output
    assert "empty" in ended.output
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [["up"], ["serve"], ["config", "show"], ["doctor"], ["runs", "list"], ["env"]]
)
def test_an_empty_variable_is_refused_by_its_name(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command says so, and none takes another place instead."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PALYRA_HOME", "")
    ended = CliRunner().invoke(cli, arguments)
    assert ended.exit_code in {1, 2} if arguments == ["doctor"] else ended.exit_code == 2
    assert "PALYRA_HOME is empty" in ended.output
    assert [] == list(tmp_path.iterdir())


def test_an_empty_variable_does_not_matter_where_the_option_names_a_home(tmp_path: Path) -> None:
    """The control: the option wins, and the current directory may be named as such."""
    environ = {"PALYRA_HOME": ""}
    assert tmp_path == find_paths(tmp_path, environ).data_dir
    assert Path.cwd() == find_paths(Path(), environ).data_dir
    assert tmp_path == find_paths(None, {"PALYRA_HOME": str(tmp_path)}).data_dir


def test_a_client_refuses_an_empty_home() -> None:
    """The library does not fall back to another daemon's directory either."""
    with pytest.raises(InvalidParams, match="home is empty"):
        find_home("")


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    """A loop of links and an unknown user are errors of the value, not of the program."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop / "x", Path("~no-such-user-here/x")):
        with pytest.raises(InvalidParams, match="not a usable path"):
            find_paths(path)


@pytest.mark.real
@pytest.mark.parametrize("command", ["up", "serve"])
async def test_a_home_that_cannot_be_used_exits_69(command: str, tmp_path: Path) -> None:
    """It cannot be made, or is a file: one error that names it, and nothing else."""
    (tmp_path / "file").touch()
    for home in (Path("/proc/x"), tmp_path / "file", tmp_path / "file" / "below"):
        ended = await palyra("--home", str(home), command, "--port", "0", home=tmp_path / "other")
        assert 69 == ended.code, (home, ended)
        assert str(home) in ended.err
        assert "Traceback" not in ended.err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "arguments", [["--home", "{}", "status"], ["status", "--home", "{}"]], ids=["before", "behind"]
)
def test_a_named_directory_outranks_the_address_of_a_variable(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a shell that took `palyra env` of one daemon would talk to it in the name of another."""
    monkeypatch.setenv("PALYRA_URL", "ws://127.0.0.1:9/v1/ws")
    monkeypatch.setenv("PALYRA_TOKEN", "any")
    words = [str(tmp_path) if word == "{}" else word for word in arguments]
    ended = CliRunner().invoke(cli, words)
    assert (69, True) == (ended.exit_code, f"no daemon is running in {tmp_path}" in ended.output)
    for others in ([*words, "--url", "ws://127.0.0.1:8"], ["status"]):
        assert "is not reachable" in CliRunner().invoke(cli, others).output


def test_a_missing_token_has_one_remedy(tmp_path: Path) -> None:
    """The message names the file, the variable and the option already."""
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), "--url", "127.0.0.1:9", "status"])
    assert (77, 1) == (ended.exit_code, ended.output.count("PALYRA_TOKEN"))
