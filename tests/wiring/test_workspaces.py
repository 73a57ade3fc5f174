"""Workspaces of the configuration: their names and folders."""

from pathlib import Path

import pytest

from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import ToolsConfig, WorkspaceConfig
from palyra.errors import InvalidParams
from palyra.wiring.tools import check_workspaces
from tests.rows import every_row


def configured(name: str, path: str) -> Config:
    """A configuration with that workspace besides the default one."""
    nowhere = Path("/nonexistent")
    return Config(
        paths=Paths(config_file=nowhere / "palyra.toml", data_dir=nowhere),
        tools=ToolsConfig(workspaces=(WorkspaceConfig(name=name, path=path),)),
    )


def test_a_folder_may_be_named_from_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the command line of a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    config = configured("site", "~/site")
    check_workspaces(config)
    assert tmp_path / "site" == config.workspaces["site"]


@every_row(
    ("name", "path", "why"),
    [
        ("site", "site", "not an absolute path"),
        ("site", "", "not an absolute path"),
        ("default", "/srv/site", "that is not 'default'"),
        ("Site", "/srv/site", "lowercase letters"),
        ("", "/srv/site", "lowercase letters"),
    ],
)
def test_others_are_refused(name: str, path: str, why: str) -> None:
    """The error names the workspace."""
    with pytest.raises(InvalidParams, match=why):
        check_workspaces(configured(name, path))
