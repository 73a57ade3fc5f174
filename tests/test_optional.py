"""Skipped tests are reported by reason: one line for each program that is missing."""

import re

import pytest

from tests.optional import REMEDIES, fold_skips, is_installed, needs, reason_without

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


@pytest.mark.parametrize("program", REMEDIES)
def test_every_remedy_is_a_command(program: str) -> None:
    """Every missing thing is named with a command, or with the variable that names its directory."""
    remedy = r"\b(apt|npm|pip) install |`make test`|`palyra models install |^[A-Z_]+=DIRECTORY"
    assert re.search(remedy, REMEDIES[program])
