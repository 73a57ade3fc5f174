"""The configuration file of a running daemon: sources of values, and changes that never break it."""

import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from palyra.config.file import ConfigFile, replace_text
from palyra.config.load import Config, first_file, load, parse_value
from palyra.config.sections import SECTIONS
from palyra.core.configuration import ConfigChange, ConfigEntry
from palyra.core.redaction.redactor import Redactor
from palyra.errors import Conflict, InvalidParams
from tests.rows import every_row

KNOWN = "the-daemons-own-token-0123456789"
TEXT = "# mine\n[server]\nport = 1234  # chosen\n"


def open_file(home: Path, text: str | None = TEXT, **given: Any) -> ConfigFile:
    """The file of a daemon that started with this text."""
    file = home / "palyra.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    environ: dict[str, str] = given.get("environ", {})
    running = load(home=home, overrides=given.get("overrides"), environ=environ)
    check = given.get("check", lambda _config: None)
    return ConfigFile(running, Redactor([KNOWN]).redact_text, check, environ=environ)


def entry(file: ConfigFile, key: str) -> ConfigEntry:
    """One key as it is shown."""
    (found,) = [each for each in file.read().entries if key == each.key]
    return found


def test_each_value_has_its_source(tmp_path: Path) -> None:
    """Default, file, environment and command line; the highest one counts."""
    file = open_file(
        tmp_path,
        environ={"PALYRA_RUNS__MAX_OPEN": "7"},
        overrides={"server.host": "::1"},
    )
    shown = {
        key: (found.value, found.source)
        for key in ("server.port", "runs.max_open", "server.host", "logging.level")
        for found in [entry(file, key)]
    }
    assert shown == {
        "server.port": (1234, "file"),
        "runs.max_open": (7, "environment"),
        "server.host": ("::1", "command_line"),
        "logging.level": ("info", "default"),
    }


def test_a_change_keeps_comments_and_waits_for_the_next_start(tmp_path: Path) -> None:
    """The running value stays; the next one is shown beside it."""
    file = open_file(tmp_path)
    changed = file.change(ConfigChange(key="server.port", value=4321))
    assert ("restart", "file", 4321) == (changed.effect, changed.source, changed.value)
    assert TEXT.replace("1234", "4321") == file.path.read_text(encoding="utf-8")
    found = entry(file, "server.port")
    assert (1234, 4321) == (found.value, found.next_value)
    assert changed.digest == file.read().digest


def test_a_removed_key_has_its_default(tmp_path: Path) -> None:
    """Without a value the key is gone, and its section and comments are not."""
    file = open_file(tmp_path)
    changed = file.change(ConfigChange(key="server.port", value=None))
    assert (7467, "default") == (changed.value, changed.source)
    assert "# mine\n[server]\n" == file.path.read_text(encoding="utf-8")


def test_a_daemon_without_a_file_gets_the_first_one(tmp_path: Path) -> None:
    """The file that a change creates has the descriptions, and only its owner reads it."""
    file = open_file(tmp_path, None)
    assert not file.read().digest
    file.change(ConfigChange(key="server.port", value=4321))
    assert first_file().replace("# port = 7467", "port = 4321") == file.path.read_text("utf-8")
    assert 0o600 == file.path.stat().st_mode & 0o777


def test_what_is_overridden_says_so(tmp_path: Path) -> None:
    """A value that the environment or the command line has is written, and has no effect."""
    file = open_file(
        tmp_path, environ={"PALYRA_RUNS__MAX_OPEN": "7"}, overrides={"server.host": "::1"}
    )
    effects = [
        file.change(ConfigChange(key=key, value=value)).effect
        for key, value in (("runs.max_open", 9), ("server.host", "127.0.0.1"), ("server.port", 1))
    ]
    assert ["overridden", "overridden", "restart"] == effects
    assert (7, "::1") == tuple(
        entry(file, key).next_value for key in ("runs.max_open", "server.host")
    )


BUDGET = {"id": "day", "scope": "global", "metric": "tokens", "window": "day", "hard": 9}


@pytest.mark.parametrize("text", ["", "[usage]\n", first_file(), "[[usage.budgets]]\nid = 'x'\n"])
def test_budgets_take_effect_at_once(tmp_path: Path, text: str) -> None:
    """A list of tables is written in whatever form the file has, and read again while it runs."""
    file = open_file(tmp_path, text)
    changed = file.change(ConfigChange(key="usage.budgets", value=[BUDGET]))
    assert "now" == changed.effect
    found = entry(file, "usage.budgets")
    assert "day" == found.value[0]["id"]
    assert 1 == len(found.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.prot", 1),
        ("sever.port", 1),
        ("server.port", 70_000),
        ("server.port", "1"),
        ("logging.level", "loud"),
        ("models.default", KNOWN),
        ("models.default", "sk-ant-api03-" + "a1B2c3D4" * 12),
    ],
)
def test_what_the_loader_refuses_is_not_written(tmp_path: Path, key: str, value: object) -> None:
    """Unknown keys, bad values and secrets leave the file as it is, and no error repeats a secret."""
    file = open_file(tmp_path)
    with pytest.raises(InvalidParams) as caught:
        file.change(ConfigChange(key=key, value=value))
    assert str(value) not in caught.value.message or len(str(value)) < 8
    assert TEXT == file.path.read_text(encoding="utf-8")


def test_what_a_start_would_refuse_is_not_written(tmp_path: Path) -> None:
    """The check sees the whole configuration as it would be; without it the change is written."""

    def refuse(config: Config) -> None:
        raise InvalidParams(f"no port {config.server.port}", field="server.port")

    change = ConfigChange(key="server.port", value=4321)
    with pytest.raises(InvalidParams, match="no port 4321"):
        open_file(tmp_path, check=refuse).change(change)
    assert TEXT == (tmp_path / "palyra.toml").read_text(encoding="utf-8")
    assert 4321 == open_file(tmp_path).change(change).value


def test_a_change_for_another_text_is_refused(tmp_path: Path) -> None:
    """The digest is that of the file that was read; an edit in between is kept."""
    file = open_file(tmp_path)
    digest = file.read().digest
    file.path.write_text("# theirs\n" + TEXT, encoding="utf-8")
    with pytest.raises(Conflict, match="changed meanwhile"):
        file.change(ConfigChange(key="server.port", value=1, digest=digest))
    assert file.path.read_text(encoding="utf-8").startswith("# theirs")
    digest = file.read().digest
    assert 1 == file.change(ConfigChange(key="server.port", value=1, digest=digest)).value


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Whoever wrote it first has it."""
    (tmp_path / "palyra.toml").write_text(TEXT)
    with pytest.raises(Conflict):
        replace_text(tmp_path / "palyra.toml", None, "x = 1\n")
    assert TEXT == (tmp_path / "palyra.toml").read_text()


def test_a_broken_file_is_shown_with_its_problem(tmp_path: Path) -> None:
    """The values in force stay visible, and a change says what is wrong with the file."""
    file = open_file(tmp_path)
    file.path.write_text("[server]\nport = 'x'\n", encoding="utf-8")
    assert "server.port" in file.read().problem
    assert 1234 == entry(file, "server.port").value
    with pytest.raises(InvalidParams, match=r"server\.port"):
        file.change(ConfigChange(key="logging.level", value="debug"))


@every_row(
    ("key", "text", "value"),
    [
        ("server.port", "12", 12),
        ("models.default", "12", "12"),
        ("server.allowed_hosts", "a, b", ["a", "b"]),
        ("server.allowed_hosts", '["a"]', ["a"]),
        ("server.allowed_hosts", "", []),
    ],
)
def test_text_becomes_the_type_of_its_key(key: str, text: str, value: object) -> None:
    """As in the environment; a list may be JSON."""
    assert value == parse_value(key, text)


# A shortest table for each list of tables, as a person types it.
TABLES: dict[str, dict[str, object]] = {
    "tools.workspaces": {"name": "w", "path": "/w"},
    "fetch.credentials": {"name": "api", "host": "e.example", "secret": "env:K"},
    "mcp.servers": {"name": "py", "command": ["/bin/true"]},
    "models.providers": {"name": "ours", "base_url": "http://127.0.0.1:1/v1"},
    "models.routes": {"model": "ours/good"},
    "usage.prices": {"model": "ours/good", "input": 1_000_000, "output": 2_000_000},
    "usage.budgets": {"id": "daily", "hard": 5},
}


def test_tables_are_written_as_given(tmp_path: Path) -> None:
    """Every list of tables of the schema: no default is filled in, a null is left out, comments stay."""
    hints = {
        f"{section}.{key}": msgspec.inspect.type_info(hint)
        for section, kind in SECTIONS.items()
        for key, hint in get_type_hints(kind, include_extras=True).items()
    }
    tables = {
        name: plain.item_type.cls
        for name, hint in hints.items()
        for plain in [hint.type if isinstance(hint, msgspec.inspect.Metadata) else hint]
        if isinstance(plain, msgspec.inspect.VarTupleType)
        and isinstance(plain.item_type, msgspec.inspect.StructType)
    }
    assert tables.keys() == TABLES.keys()
    comments = [
        line for line in first_file().splitlines() if line.startswith("# ") and " = " not in line
    ]
    for name, kind in tables.items():
        given = TABLES[name]
        nulls = {each.name: None for each in msgspec.structs.fields(kind) if each.default is None}
        (tmp_path / "palyra.toml").write_text(first_file(), encoding="utf-8")
        file = open_file(tmp_path, None)
        value = parse_value(name, msgspec.json.encode([{**given, **nulls}]).decode())
        changed = file.change(ConfigChange(key=name, value=value))
        text = file.path.read_text(encoding="utf-8")
        section, _, key = name.partition(".")
        assert [given] == changed.value == tomllib.loads(text)[section][key], name
        assert [line for line in text.splitlines() if line in comments] == comments
