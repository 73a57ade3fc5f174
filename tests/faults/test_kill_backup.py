"""kill -9 of a command that makes or restores a backup: nothing that looks whole and is not."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from palyra.store.backup import draft
from palyra.store.backup.verify import verify_backup
from tests.cli.command import environment
from tests.forked import run_forked
from tests.store.backup.kit import EVENTS, back_up, living, opened

pytestmark = pytest.mark.real
WITHIN_S = 120.0  # a bound against hanging, not a promise


def arm(name: str, nth: int) -> None:
    """Make this process kill itself at the n-th call of one of the steps of a draft."""
    owner = {"rename": Path, "replace": Path, "sync_directory": draft}.get(name, draft.BackupDraft)
    real = getattr(owner, name)
    left = nth

    def step(*args: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)

    setattr(owner, name, step)


def run(*arguments: str, name: str, nth: int) -> int:
    """Run the command with one armed step; return its exit code."""

    async def main() -> int:
        with trio.fail_after(WITHIN_S):
            ended = await run_forked(arguments, environment(), before=partial(arm, name, nth))
            return ended.code

    return trio.run(main)


@pytest.mark.parametrize(
    ("name", "kills"), [("new_file", (1, 2, 5)), ("publish", (1,)), ("rename", (1,))]
)
def test_a_killed_backup_is_none(tmp_path: Path, name: str, kills: tuple[int, ...]) -> None:
    """Whatever step it dies at, there is no folder; the next one removes the rest and is whole."""
    home, target = tmp_path / "home", tmp_path / "out" / "backup"
    target.parent.mkdir()
    with living(home):
        pass
    arguments = ("--home", str(home), "backup", "create", str(target))
    for nth in kills:
        assert -signal.SIGKILL == run(*arguments, name=name, nth=nth)
        assert not target.exists()
        assert 1 == len(draft.find_abandoned(target.parent))
    assert 0 == run(*arguments, name=name, nth=1_000)
    assert ["backup"] == os.listdir(target.parent)  # noqa: PTH208 - names
    assert verify_backup(target).is_intact
    assert opened(home).verification.first_break is None


@pytest.mark.parametrize(
    ("name", "kills"),
    [("new_file", (1, 4)), ("replace", (1, 5)), ("publish", (1,)), ("rename", (1,))],
)
def test_a_killed_restore_is_none(tmp_path: Path, name: str, kills: tuple[int, ...]) -> None:
    """Whatever step it dies at, there is no home; the next one removes the rest and is whole."""
    home, backup, target = tmp_path / "home", tmp_path / "backup", tmp_path / "out" / "home"
    target.parent.mkdir()
    with living(home) as store:
        back_up(store, backup)
    arguments = ("backup", "restore", str(backup), str(target))
    for nth in kills:
        assert -signal.SIGKILL == run(*arguments, name=name, nth=nth)
        assert not target.exists()
    assert 0 == run(*arguments, name=name, nth=1_000)
    assert ["home"] == os.listdir(target.parent)  # noqa: PTH208 - names
    report = opened(target)
    assert (None, EVENTS) == (report.verification.first_break, report.head_position)
    assert report.restored is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new_file", "sync_directory"])
def test_a_backup_is_whole_or_none_after_a_kill_at_each_step(tmp_path: Path, name: str) -> None:
    """Each visit of the steps, until one run gets to its end."""
    home, target = tmp_path / "home", tmp_path / "out" / "backup"
    target.parent.mkdir()
    with living(home):
        pass
    for nth in range(1, 200):
        arguments = ("--home", str(home), "backup", "create", str(target))
        code = run(*arguments, name=name, nth=nth)
        if target.exists():
            assert verify_backup(target).is_intact
            return
        assert -signal.SIGKILL == code
    pytest.fail("it never got to its end")
