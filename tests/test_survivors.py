"""The check at the end of the suite finds what tests leave behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def check(code: str) -> tuple[int, str]:
    """Exit code and errors of the check as `make test` runs it."""
    words = [sys.executable, "-m", "tests.survivors", sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_orphan_that_has_ended_is_no_survivor() -> None:
    """It is reaped like any other, as init would."""
    code = (
        "import subprocess; "
        "child = subprocess.Popen(['sh', '-c', 'sleep 0 & exit 0'], stdout=subprocess.PIPE); "
        "child.stdout.read()"  # its end is the end of both
    )
    assert (0, "") == check(code)


def test_a_leak_that_would_end_by_itself_is_reported() -> None:
    """The look is taken at once: a process that has seconds left to live is a survivor."""
    code, said = check("import subprocess; subprocess.Popen(['sleep', '15'])")
    assert 1 == code
    assert "sleep 15" in said


def test_the_servers_of_multiprocessing_end_with_the_command() -> None:
    """They outlive the command by the moment in which their pipe closes, and are no survivors."""
    code = (
        "from multiprocessing import forkserver, resource_tracker; "
        "forkserver.ensure_running(); resource_tracker.ensure_running()"
    )
    assert (0, "") == check(code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_command_and_what_it_started(number: signal.Signals) -> None:
    """A signal to the check reaches the command; the processes that it leaves are killed."""
    code = (
        "import subprocess, time; "
        "print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); "
        "time.sleep(600)"
    )
    words = [sys.executable, "-m", "tests.survivors", sys.executable, "-c", code]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().decode().strip()
        process.send_signal(number)
        process.communicate()
    assert 128 + number == process.returncode
    assert not Path("/proc", pid).exists()


def test_a_second_signal_kills_a_command_that_ignores_the_first() -> None:
    """A command that shields itself cannot hold the check up."""
    code = (
        # written by os: a handler that prints while `print` is under way raises
        "import os, signal, time; "
        "signal.signal(signal.SIGHUP, lambda *_: os.write(1, b'heard\\n')); "
        "os.write(1, b'ready\\n')\nwhile True: time.sleep(600)"
    )
    words = [sys.executable, "-m", "tests.survivors", sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in (b"ready\n", b"heard\n"):
            assert line == process.stdout.readline()
            process.send_signal(signal.SIGHUP)
        process.communicate()
    assert 128 + signal.SIGKILL == process.returncode


def test_a_signal_before_the_command_is_known_is_not_lost() -> None:
    """It is passed on as soon as the command has a pid."""
    program = """
import os, signal, subprocess, sys
from tests import survivors

def start(command):
    os.kill(os.getpid(), signal.SIGTERM)
    return subprocess.Popen(command)

sys.exit(survivors.main(["sleep", "600"], start=start))
"""
    words = [sys.executable, "-c", program]
    assert 128 + signal.SIGTERM == subprocess.run(words, cwd=ROOT, check=False).returncode


def test_a_command_that_is_not_there_is_named() -> None:
    """The code is a shell's."""
    words = [sys.executable, "-m", "tests.survivors", "/nonexistent/command"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (127, "/nonexistent/command: No such file or directory\n") == (
        done.returncode,
        done.stderr,
    )
