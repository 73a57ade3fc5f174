"""The configuration: the sources of values, and the errors about invalid ones."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import platformdirs
import pytest

from palyra.config.file import ConfigFile
from palyra.config.load import (
    Config,
    allowed_values,
    first_file,
    load,
    parse_value,
    refuse_secrets,
    schema,
)
from palyra.config.paths import find_paths
from palyra.config.sections import SECTIONS
from palyra.core.configuration import ConfigChange
from palyra.core.redaction.redactor import Redactor
from palyra.core.usage import dollars
from palyra.errors import InvalidParams
from tests.rows import every_row


def write(home: Path, text: str) -> Path:
    path = home / "palyra.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(
    home: Path,
    environ: Mapping[str, str] = MappingProxyType({}),
    overrides: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the error of loading, without the directory."""
    with pytest.raises(InvalidParams) as caught:
        load(home=home, environ=environ, overrides=overrides)
    assert caught.value.field is not None
    return caught.value.message.removeprefix(f"{home}/")


# --- Where values come from ----------------------------------------------------------------------


def test_without_anything_there_are_defaults(tmp_path: Path) -> None:
    """No file, no environment, no option: every key has its default."""
    assert Config(paths=find_paths(tmp_path)) == load(home=tmp_path, environ={})


def test_later_sources_win(tmp_path: Path) -> None:
    """The command line beats the environment, which beats the file; keys are independent."""
    write(tmp_path, "[server]\nport = 1\nmax_inflight = 1\nrequests_per_s = 1\n[runs]\n")
    environ = {"PALYRA_SERVER__MAX_INFLIGHT": "2", "PALYRA_SERVER__REQUESTS_PER_S": "2"}
    server = load(home=tmp_path, environ=environ, overrides={"server.requests_per_s": 3}).server
    assert (1, 2, 3, 256) == (
        server.port,
        server.max_inflight,
        server.requests_per_s,
        server.max_subscriptions,
    )


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    """Numbers, texts, choices and lists are read from file, environment and command line alike."""
    expected = ((0, "::1"), "normal", ("a.example", "b.example"))

    def found(config: Config) -> object:
        server, journal = config.server, config.journal
        return (server.port, server.host), journal.synchronous, server.allowed_hosts

    texts = {
        "server.port": "0",
        "server.host": "::1",
        "journal.synchronous": "normal",
        "server.allowed_hosts": " a.example,b.example,",
    }
    environ = {f"PALYRA_{k.replace('.', '__').upper()}": value for k, value in texts.items()}
    assert expected == found(load(home=tmp_path, environ=environ))
    assert expected == found(load(home=tmp_path, environ={}, overrides=texts))
    write(
        tmp_path,
        '[server]\nport = 0\nhost = "::1"\nallowed_hosts = ["a.example", "b.example"]\n'
        '[journal]\nsynchronous = "normal"\n',
    )
    assert expected == found(load(home=tmp_path, environ={}))


def test_other_variables_are_not_ours(tmp_path: Path) -> None:
    """Variables without a section in their name say nothing about keys."""
    environ = {"PALYRA_TOKEN": "x", "OTHER__KEY": "x", "PALYRA_HOME": str(tmp_path)}
    assert Config(paths=find_paths(tmp_path)) == load(environ=environ)


# --- Where things lie ----------------------------------------------------------------------------


def test_home_moves_everything(tmp_path: Path) -> None:
    """`home`, else $PALYRA_HOME, holds configuration and data together."""
    environ = {"PALYRA_HOME": str(tmp_path / "variable")}
    for home, expected in ((tmp_path / "option", "option"), (None, "variable")):
        paths = load(home=home, environ=environ).paths
        directory = tmp_path / expected
        assert (directory / "palyra.toml", directory) == (paths.config_file, paths.data_dir)
        assert (directory, directory / "policies") == (paths.config_dir, paths.policies)


def test_without_home_the_platform_decides() -> None:
    """Configuration and data lie where the platform keeps such things."""
    paths = find_paths(None, {})
    assert platformdirs.user_config_path("palyra") / "palyra.toml" == paths.config_file
    assert platformdirs.user_data_path("palyra") == paths.data_dir


def test_another_file_moves_the_configuration_alone(tmp_path: Path) -> None:
    """A file given by name is read instead; the data stay where they are."""
    other = tmp_path / "other"
    other.mkdir()
    path = write(other, "[server]\nport = 9\n")
    config = load(path, home=tmp_path, environ={})
    assert (9, path, tmp_path) == (
        config.server.port,
        config.paths.config_file,
        config.paths.data_dir,
    )


def test_directories_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workspace and policies are found from where the daemon starts, with ~ for the home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somebody")
    config = load(home=tmp_path / "home", environ={})
    assert (tmp_path, tmp_path / "home" / "policies") == (config.workspace, config.policy_dir)
    overrides = {"tools.workspace": "~/work", "policy.dir": "rules"}
    config = load(home=tmp_path / "home", environ={}, overrides=overrides)
    assert (Path("/somebody/work"), tmp_path / "rules") == (config.workspace, config.policy_dir)


# --- Errors --------------------------------------------------------------------------------------


MONEY = f"expected a whole number from 0 to {10**12} or a text: {dollars.WORDS}"
HOSTS = "expected a list of host names, such as palyra.example or a.example:8443"
BUDGET = '[[usage.budgets]]\nid = "day"\nhard = 9\n'


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("palyra.toml: there is no section [sever]; did you mean server?", "[sever]\nport = 1"),
        ("palyra.toml: there is no section [sever]; did you mean server?", "[sever]"),
        (
            "palyra.toml: there is no key server.prot; did you mean server.port?",
            "[server]\nprot = 1",
        ),
        ("palyra.toml: there is no key journal.x; there are synchronous", "[journal]\nx = 1"),
        ("palyra.toml: port is outside of a section", "port = 1"),
        (
            "palyra.toml: server.port = 70000: expected a whole number from 0 to 65535",
            "[server]\nport = 70000",
        ),
        (
            "palyra.toml: server.port = '80': expected a whole number from 0 to 65535",
            '[server]\nport = "80"',
        ),
        (
            "palyra.toml: logging.level = 'loud': expected one of debug, error, info, warning",
            '[logging]\nlevel = "loud"',
        ),
        (f"palyra.toml: server.allowed_hosts = 'a': {HOSTS}", '[server]\nallowed_hosts = "a"'),
        (
            f"palyra.toml: server.allowed_hosts = ['https://a.example']: {HOSTS}",
            '[server]\nallowed_hosts = ["https://a.example"]',
        ),
        (
            (
                "palyra.toml: server.allowed_origins = ['a.example']: expected a list of origins, "
                "such as https://palyra.example, without a path"
            ),
            '[server]\nallowed_origins = ["a.example"]',
        ),
        ("palyra.toml: server.host = 1: expected a string", "[server]\nhost = 1"),
        (
            (
                'palyra.toml: usage.budgets[1].scope: expected "agent", "global", "principal", '
                '"run" or "session"'
            ),
            f'{BUDGET}{BUDGET}scope = "princpal"',
        ),
        (
            "palyra.toml: usage.budgets[0].scop: there is no such key; did you mean scope?",
            f'{BUDGET}scop = "principal"',
        ),
        (
            f"palyra.toml: usage.prices[0].input: {MONEY}",
            '[[usage.prices]]\nmodel = "x/*"\ninput = "sk-secret"\noutput = 1',
        ),
        (
            'palyra.toml: usage.prices[0].output: missing field "[0].output"',
            '[[usage.prices]]\nmodel = "x/*"\ninput = 1',
        ),
        ("palyra.toml: usage.budgets[0]: expected an object", "[usage]\nbudgets = [7]"),
    ],
)
def test_bad_file_is_explained(expected: str, text: str, tmp_path: Path) -> None:
    """File, key, value and what is allowed are named; a near miss gets a suggestion."""
    write(tmp_path, text)
    assert expected == complaint(tmp_path)


@every_row("text", ["a.example,[::1]:8443", '["a.example", "[::1]:8443"]'])
def test_a_list_in_the_environment_is_divided_by_commas_or_json(text: str) -> None:
    """Both forms mean the same; text that looks like one and is neither is refused."""
    config = load(environ={"PALYRA_SERVER__ALLOWED_HOSTS": text})
    assert ("a.example", "[::1]:8443") == config.server.allowed_hosts
    with pytest.raises(InvalidParams, match=HOSTS):
        load(environ={"PALYRA_SERVER__ALLOWED_HOSTS": text[:-1] + '"'})


@pytest.mark.parametrize(
    ("expected", "environ"),
    [
        (
            "PALYRA_SERVER__PORT: server.port = 'x': expected a whole number from 0 to 65535",
            {"PALYRA_SERVER__PORT": "x"},
        ),
        (
            "PALYRA_SERVER__PROT: there is no key server.prot; did you mean server.port?",
            {"PALYRA_SERVER__PROT": "1"},
        ),
        (
            "PALYRA_RUN__WALL_MS: there is no section [run]; did you mean runs?",
            {"PALYRA_RUN__WALL_MS": "1"},
        ),
    ],
)
def test_bad_variable_is_explained(expected: str, environ: dict[str, str], tmp_path: Path) -> None:
    """The variable is named as it was set."""
    assert expected == complaint(tmp_path, environ)


def test_bad_option_is_explained(tmp_path: Path) -> None:
    """An error in a command-line option says that the value came from the command line."""
    expected = "the command line: runs.wall_ms = 1: expected a whole number from 100 to 604800000"
    assert expected == complaint(tmp_path, overrides={"runs.wall_ms": 1})


def test_bad_value_is_shown_short_and_redacted(tmp_path: Path) -> None:
    """A secret in the wrong place is not repeated, nor is a long text."""
    key = "sk-" + "ant-" + "aB3xK9qLm2ZtR7wYc5NvP8sD4fGh6JkE1uHoTbXi0VrQ"
    message = complaint(tmp_path, overrides={"server.port": key})
    assert "server.port = '[redacted:anthropic]': expected" in message
    assert len(complaint(tmp_path, overrides={"server.port": "x" * 1000})) < 200


@pytest.mark.parametrize("content", [b"[server", b"a = '\xff'"])
def test_unreadable_file_is_explained(content: bytes, tmp_path: Path) -> None:
    """A file that is not TOML in UTF-8 is refused, and the error names the file."""
    (tmp_path / "palyra.toml").write_bytes(content)
    with pytest.raises(InvalidParams, match=r"palyra\.toml: cannot be read"):
        load(home=tmp_path, environ={})


def test_missing_file_matters_only_when_named(tmp_path: Path) -> None:
    """The default file may be missing, one given by name may not."""
    with pytest.raises(InvalidParams, match=r"mine\.toml: the file does not exist"):
        load(tmp_path / "mine.toml", home=tmp_path, environ={})


# --- What describes it ---------------------------------------------------------------------------


def test_first_file_holds_the_defaults(tmp_path: Path) -> None:
    """The first file changes nothing; with its keys uncommented it equals the defaults."""
    write(tmp_path, first_file())
    assert Config(paths=find_paths(tmp_path)) == load(home=tmp_path, environ={})
    lines = first_file().splitlines()
    uncommented = "\n".join(
        line.removeprefix("# ") for line in lines if " = " in line or "[" in line
    )
    write(tmp_path, uncommented)
    loaded = load(home=tmp_path, environ={})
    assert Config(paths=find_paths(tmp_path), sources=loaded.sources) == loaded
    assert {"file"} == set(loaded.sources.values())
    written = {name: set(keys) for name, keys in tomllib.loads(uncommented).items()}
    assert {name: set(kind.__struct_fields__) for name, kind in SECTIONS.items()} == written


def test_schema_covers_the_file() -> None:
    """Sections refer to definitions of the same document, and nothing unknown is allowed."""
    found = schema()
    references = {name: f"#/$defs/{kind.__name__}" for name, kind in SECTIONS.items()}
    assert {name: {"$ref": target} for name, target in references.items()} == found["properties"]
    for kind in SECTIONS.values():
        definition = found["$defs"][kind.__name__]
        assert set(kind.__struct_fields__) == set(definition["properties"])
        assert (False, []) == (definition["additionalProperties"], definition["required"])
    assert False is found["additionalProperties"]


def test_every_key_is_explained() -> None:
    """No section is without a doc line, no key without one, a default and a range in words."""
    for name, kind in SECTIONS.items():
        assert kind.__doc__, name
        for key, described in schema()["$defs"][kind.__name__]["properties"].items():
            assert described["description"].endswith("."), f"{name}.{key}"
            assert "default" in described, f"{name}.{key}"


def test_range_in_words() -> None:
    """allowed_values describes each type and range in words."""
    assert "a string" == allowed_values(str)
    assert "a list of strings" == allowed_values(tuple[str, ...])


def test_a_table_is_not_shown(tmp_path: Path) -> None:
    """An error about a table hides its content, which may be a secret instead of a reference."""
    path = tmp_path / "palyra.toml"
    path.write_text('[[fetch.credentials]]\nname = "a"\nsekret = "hunter2"\n', encoding="utf-8")
    with pytest.raises(
        InvalidParams, match=r"fetch\.credentials\[0\]\.sekret: there is no such key"
    ) as caught:
        load(path)
    assert "hunter2" not in caught.value.message


def test_lists_of_numbers_and_tables(tmp_path: Path) -> None:
    """From the file as they are, from the environment divided by commas."""
    path = tmp_path / "palyra.toml"
    path.write_text(
        '[[fetch.credentials]]\nname = "a"\nsecret = "env:A"\nhost = "e.example"\n',
        encoding="utf-8",
    )
    found = load(path, environ={"PALYRA_FETCH__PORTS": "80, 8080"}).fetch
    assert (80, 8080) == found.ports
    assert ("a", "env:A", "e.example") == (
        found.credentials[0].name, found.credentials[0].secret, found.credentials[0].host,
    )  # fmt: skip
    with pytest.raises(InvalidParams, match="a list of numbers"):
        load(path, environ={"PALYRA_FETCH__PORTS": "http"})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('[secrets]\npassphrase = "SECRET"', "secrets.passphrase"),
        ('[fetch]\ncredentials = [{ name = "g", host = "h", secret = "SECRET" }]', "fetch.credentials"),
        ('[models]\nproviders = [{ name = "a", key = "SECRET" }]', "models.providers"),
        ('[mcp]\nservers = [{ name = "a", url = "https://h/", token = "SECRET" }]', "mcp.servers"),
    ],
)  # fmt: skip
def test_a_secret_in_place_of_a_reference_is_refused(tmp_path: Path, given: str, key: str) -> None:
    """However it looks; the message has the remedy and not the value, and a reference is fine."""
    for secret in ("correct horse battery", "$hunter2", "passphrase"):
        (tmp_path / "palyra.toml").write_text(given.replace("SECRET", secret), encoding="utf-8")
        with pytest.raises(InvalidParams, match=r"no reference to a secret.*vault:NAME") as refused:
            load(home=tmp_path, environ={})
        assert secret not in refused.value.message.replace("secrets.passphrase", "")
        assert key == refused.value.field
    (tmp_path / "palyra.toml").write_text(given.replace("SECRET", "env:NAME"), encoding="utf-8")
    load(home=tmp_path, environ={})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('[mcp]\nservers = [{ name = "a", command = ["x"], environment = ["A=SECRET"] }]', "mcp.servers"),
        ('[mcp]\nservers = [{ name = "a", command = ["x", "--key", "SECRET"] }]', "mcp.servers"),
        ('[models]\nproviders = [{ name = "a", base_url = "https://u:h4nter22@h/v1" }]', "models.providers"),
    ],
)  # fmt: skip
def test_a_secret_in_a_setting_is_refused_unrepeated(tmp_path: Path, given: str, key: str) -> None:
    """The key and the remedy are named; a reference in its place is fine."""
    secret, redact = "ghp_" + "Canary0123456789abcdefghijABCDEFGHIJ", Redactor([]).redact_text
    for text in (secret, "vault:GITHUB_TOKEN"):
        (tmp_path / "palyra.toml").write_text(given.replace("SECRET", text), encoding="utf-8")
        found = load(home=tmp_path, environ={})
        if text == secret or "h4nter22" in given:
            with pytest.raises(InvalidParams, match=f"{key} holds .*vault:NAME") as refused:
                refuse_secrets(found, redact)
            assert not any(part in refused.value.message for part in (secret[4:], "h4nter22"))
        else:
            refuse_secrets(found, redact)


KEYS = ["artifacts_days", "artifacts_mib", "checkpoints_days", "checkpoints_mib"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["file", "environment", "command line"])
def test_the_old_name_of_a_bound_is_read(tmp_path: Path, key: str, place: str) -> None:
    """With a note that names the new one; a bound that is given by both names has its new one."""
    text = f"[files]\n{key} = 7\n" if place == "file" else ""
    environ = {f"PALYRA_FILES__{key.upper()}": "7"} if place == "environment" else {}
    overrides = {f"files.{key}": 7} if place == "command line" else {}
    found = load(home=tmp_path, environ=environ, overrides=overrides, text=text)
    assert 7 == getattr(found.retention, key)
    assert f"retention.{key}" in found.sources
    (note,) = found.notes
    assert f"files.{key} is retention.{key} now" in note
    newer = {**environ, f"PALYRA_RETENTION__{key.upper()}": "9"}
    both = load(home=tmp_path, environ=newer, overrides=overrides, text=text)
    assert (9, 1) == (getattr(both.retention, key), len(both.notes))
    assert () == load(home=tmp_path, environ={}, text="[files]\n").notes


@pytest.mark.parametrize("key", KEYS)
def test_the_old_name_of_a_bound_is_not_written(tmp_path: Path, key: str) -> None:
    """It can be removed, and a value is refused with the new name."""
    with pytest.raises(InvalidParams, match=f"files.{key} is retention.{key} now"):
        parse_value(f"files.{key}", "7")
    path = tmp_path / "palyra.toml"
    path.write_text(f"[files]\n{key} = 7\n", encoding="utf-8")
    file = ConfigFile(load(path, environ={}), Redactor([]).redact_text, lambda _: None)
    with pytest.raises(InvalidParams, match=f"retention.{key}"):
        file.change(ConfigChange(key=f"files.{key}", value=7))
    file.change(ConfigChange(key=f"files.{key}", value=None))
    assert () == load(path, environ={}).notes
