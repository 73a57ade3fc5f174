"""Standard streams that the caller closed, and locales without most characters."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.e2e.daemon_process import PALYRA, running

pytestmark = pytest.mark.real

USE = "import sys; kept = open({path!r}, 'w'); print('said', sys.stdout.isatty()); kept.close()"
OPEN = "from palyra.cli.command.streams import open_closed_streams; open_closed_streams(); "


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


# A locale of ASCII, and no help from Python.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def start(
    *arguments: str | bytes, home: Path, stdin: bytes = b"", **more: str
) -> tuple[int, bytes]:
    """Exit code and output of `palyra`, started as from a shell in a locale of ASCII."""
    done = subprocess.run(
        [*PALYRA, *arguments],
        input=stdin, env=environment(home) | ASCII | more, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_texts_and_paths_are_whole_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """An argument, standard input, a file and a path arrive as they were typed, and are printed so."""
    with running(tmp_path / "Größe") as daemon:
        home, text = daemon.home, tmp_path / "für.txt"
        text.write_text("Grüße aus der Datei", encoding="utf-8")
        said = start("run", "/say grüße 😀", home=home)
        read = start("run", "-", home=home, stdin="/say Straße".encode())
        added = start("memory", "add", f"@{text}", home=home)
        listed = start("memory", "list", "--json", home=home)
        refused = start("run", b"/say x\xff", home=home)
    assert (0, True) == (said[0], "grüße 😀".encode() in said[1])
    assert (0, True) == (read[0], "Straße".encode() in read[1])
    assert (0, 0, True) == (added[0], listed[0], "Grüße aus der Datei".encode() in listed[1])
    assert (2, True) == (refused[0], b"encode the text as UTF-8" in refused[1])


def test_an_output_without_a_character_escapes_it(tmp_path: Path) -> None:
    """What a terminal of Latin 1 cannot show is an escape of JSON; what it can show is not."""
    name = tmp_path / "Größe…😀"
    code, output = start("--home", str(name), "status", home=tmp_path, PYTHONIOENCODING="latin-1")
    assert (69, True) == (code, rb"Gr\u00f6" not in output)
    assert "Größe".encode("latin-1") + rb"\u2026\ud83d\ude00" in output


def test_control_python_alone_loses_the_text() -> None:
    """Without the mode the argument is no text in that locale."""
    script = "import sys; print(sys.argv[1].isprintable())"
    done = subprocess.run(
        [sys.executable, "-c", script, "grüße"], env=ASCII, capture_output=True, check=False
    )
    assert b"False" == done.stdout.strip()
