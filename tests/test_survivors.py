"""The check at the end of the suite finds what tests leave behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import survivors

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[1]
# A daemon of the worst kind: its parent is gone, session and environment are its own.
ORPHAN = """
import os, subprocess, sys
print(subprocess.Popen(["sleep", "600"], start_new_session=True, env={}, cwd="/").pid, flush=True)
sys.exit(int(sys.argv[1]))
"""
GRANDPARENT = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {ORPHAN!r}, sys.argv[1]]))"


def watch(code: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the check, with no patience."""
    program = "import sys; from tests import survivors; sys.exit(survivors.main(sys.argv[1:], 0.0))"
    words = [sys.executable, "-c", program, sys.executable, "-c", code, *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("code", [ORPHAN, GRANDPARENT], ids=["child", "grandchild"])
def test_a_process_left_behind_is_named_and_ended(code: str) -> None:
    """The control: a detached process fails a run that succeeded, and is dead afterwards."""
    exit_code, pid, said = watch(code, "0")
    assert 1 == exit_code
    assert f"SURVIVOR {pid.strip()}: sleep 600 (in /)" in said
    assert not Path("/proc", pid.strip()).exists()


def test_a_failure_keeps_its_code() -> None:
    """Survivors do not hide how the command itself ended."""
    assert 5 == watch(ORPHAN, "5")[0]


@pytest.mark.parametrize("code", [0, 3])
def test_a_clean_run_passes_through(code: int) -> None:
    """Nothing left behind: the command's own exit code, and no word."""
    assert (code, "", "") == watch(f"raise SystemExit({code})")


def test_a_signal_is_told_as_a_shell_does() -> None:
    """A command that was killed has 128 and the signal's number."""
    assert 128 + 9 == watch("import os; os.kill(os.getpid(), 9)")[0]


def test_an_orphan_that_has_ended_is_no_survivor() -> None:
    """It is reaped like any other, as init would."""
    code = "import subprocess; subprocess.Popen(['sh', '-c', 'sleep 0 & exit 0'])"
    program = "import sys; from tests import survivors; sys.exit(survivors.main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    assert survivors.GRACE_S > 0
