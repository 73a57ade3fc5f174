"""Settings are checked by the code that a start runs, so what is written can be started with."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.config.file import ConfigFile
from palyra.config.load import load
from palyra.config.sections import SECTIONS
from palyra.core.configuration import ConfigChange
from palyra.core.redaction.redactor import Redactor
from palyra.daemon import check_start
from palyra.errors import PalyraError

pytestmark = pytest.mark.real
TEXTS = [
    "not a host", "8.8.8.8", "/nonexistent/x", "/", "a\x00b", "x" * 300, "\ud800", "http://[::1", "env:NOPE",
    "vault:x", "file:/nope", "*", "[", "\n", "plain words", "user:pw@host", "=x",
]  # fmt: skip
NUMBERS = [-1, 2**31, 2**63, 2**70, 1.5, True]
LISTS = [
    ["a", "a"], [""], [None], [{}], [{"name": "a"}], [{"name": "a", "path": "/"}], [{"name": "p", "base_url": "no url"}],
    [{"name": "x y", "command": ["/bin/true"]}], [{"name": "c", "secret": "plain", "host": "x"}], [[1]], [0, 70_000],
]  # fmt: skip
VALUES: list[object] = [*TEXTS, *NUMBERS, *LISTS, None, {}, {"a": 1}, *([text] for text in TEXTS)]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigFile:
    """The file of a home, with the checks of a start; the current folder is a workspace."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "home").mkdir()
    config = load(home=tmp_path / "home", environ={}, overrides={"server.port": 0})
    return ConfigFile(config, Redactor([]).redact_text, check_start, environ={})


def written(file: ConfigFile, keys: Iterator[tuple[str, object]]) -> Iterator[str]:
    """Write each value; yield the text of the file for each that is taken."""
    for key, value in keys:
        file.path.unlink(missing_ok=True)
        try:
            file.change(ConfigChange(key=key, value=value))
        except PalyraError:
            assert not file.path.exists()
        else:
            yield file.path.read_text(encoding="utf-8")


def hostile(step: int) -> Iterator[tuple[str, object]]:
    keys = [f"{name}.{key}" for name, kind in SECTIONS.items() for key in kind.__struct_fields__]
    pairs = [(key, value) for key in keys for value in VALUES]
    yield from pairs[::step]


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_written_can_be_started_with(file: ConfigFile, step: int) -> None:
    """Whatever a key gets: it is refused as an error of the setting, or a daemon is built with it."""
    for text in written(file, hostile(step)):
        check_start(load(file.path, environ={}, text=text, overrides={"server.port": 0}))


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("server.host", "not a host", "server.host"),
        ("server.host", "8.8.8.8", "server.host"),
        ("tools.workspace", "/nonexistent/x", "workspace"),
        ("secrets.passphrase", "correct horse battery", "no reference"),
        ("secrets.passphrase", "vault:x", "vault"),
        ("models.default", "nobody/nothing", "nobody"),
        ("fetch.private", ["localhost:99999"], "fetch.private"),
        ("policy.dir", "/nonexistent/x", "/nonexistent/x"),
        ("fetch.ca_file", "/nonexistent/x", "/nonexistent/x"),
        ("tools.workspace", "a\x00b", ""),
        ("models.default", "\ud800", ""),
    ],
)  # fmt: skip
def test_a_setting_that_stops_a_start_is_not_written(
    file: ConfigFile, key: str, value: object, named: str
) -> None:
    """The message names what to change; without the check of a start most of them pass the loader."""
    with pytest.raises(PalyraError) as refused:
        file.change(ConfigChange(key=key, value=value))
    assert named in refused.value.message
    assert not file.path.exists()
    if key == "secrets.passphrase":
        assert json.dumps(value) not in json.dumps(refused.value.message)


def open_descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def test_a_check_leaves_nothing_open(file: ConfigFile) -> None:
    """Nothing is written beside the file, and descriptors do not add up."""
    file.change(ConfigChange(key="runs.max_turns", value=9))
    before = len(open_descriptors())
    for turns in range(10, 13):
        file.change(ConfigChange(key="runs.max_turns", value=turns))
    assert len(open_descriptors()) <= before + 3  # what the collector has not seen yet
    assert [file.path] == list(file.path.parent.iterdir())
