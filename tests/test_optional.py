"""Skipped tests are reported by reason: one line for each program that is missing."""

import re
from pathlib import Path

import pytest

from tests.optional import REMEDIES, fold_skips, is_installed, needs, reason_without
from tests.rows import every_row

ROOT_ONLY = "only root can show this"


def test_each_missing_program_is_one_line() -> None:
    """However many tests need it; programs come before other reasons, which are folded too."""
    missing = [f"Skipped: {reason_without(name)}" for name in ("git", "bubblewrap", "git")]
    expected = [
        "MISSING [1] bubblewrap is missing: apt install bubblewrap",
        "MISSING [2] git is missing: apt install git",
        f"SKIPPED [2] {ROOT_ONLY}",
    ]
    assert expected == fold_skips([ROOT_ONLY, *missing, f"Skipped: {ROOT_ONLY}"])
    assert [] == fold_skips([])


def test_a_program_off_path_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark skips exactly then, unless the caller knows better."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert not is_installed("bubblewrap")
    assert [(True,), (False,)] == [
        needs("bubblewrap").args,
        needs("bubblewrap", is_found=True).args,
    ]


@every_row(("said", "is_enough"), [("v22.0.0", True), ("v20.20.2", False), ("", False)])
def test_an_old_program_is_missing(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_enough: bool
) -> None:
    """Node is asked for its version; one that says none does not count."""
    program = tmp_path / said / "node"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho {said}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert is_enough == is_installed("node")


@pytest.mark.parametrize("program", REMEDIES)
def test_every_remedy_is_a_command(program: str) -> None:
    """Every missing thing is named with a command, or with the variable that names its directory."""
    remedy = r"\b(apt|npm|pip|pyenv) install |`make test`|^make browser$|`palyra models install |^[A-Z_]+=DIRECTORY"
    assert re.search(remedy, REMEDIES[program])
