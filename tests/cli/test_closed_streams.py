"""Standard streams that the caller closed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

USE = "import sys; kept = open({path!r}, 'w'); print('said', sys.stdout.isatty()); kept.close()"
OPEN = "from palyra.__main__ import open_closed_streams; open_closed_streams(); "


def run(script: str, closed: str) -> int:
    """Return the exit code of a Python script whose caller closed these streams."""
    line = f'exec "$0" -c "$1" {closed}'
    return subprocess.run(["sh", "-c", line, sys.executable, script], check=False).returncode


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_the_null_device(closed: str, tmp_path: Path) -> None:
    """Printing works and is written nowhere, least of all into the next file that is opened."""
    path = tmp_path / "kept"
    assert 0 == run(OPEN + USE.format(path=str(path)), closed)
    assert b"" == path.read_bytes()


def test_control_a_closed_stream_fails(tmp_path: Path) -> None:
    """Without it the same script ends with an error."""
    assert 1 == run(USE.format(path=str(tmp_path / "kept")), "<&- >&-")
