"""A daemon without the optional parts, in an interpreter that does not find their modules."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from palyra.client import blocking
from palyra.client.blocking import BlockingClient
from palyra.config.extras import EXTRAS
from palyra.net.protocol.discovery import Discovery
from tests.cli.command import environment

pytestmark = pytest.mark.real

WITHIN_S = 60.0
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Without if each is PathFinder else each for each in sys.meta_path]
from palyra.__main__ import main
main()
"""
HIDDEN = {module for extra in EXTRAS.values() for module in extra.modules}


def without_extras(*arguments: str) -> list[str]:
    """The command line of `palyra` without the modules of any extra."""
    return [sys.executable, "-c", WITHOUT.replace("{hidden!r}", repr(HIDDEN)), *arguments]


@contextmanager
def daemon_without_extras(home: Path, workspace: Path) -> Generator[BlockingClient]:
    """A client of a daemon in such an interpreter, which must drain and exit with 0 at the end."""
    workspace.mkdir()
    serve = ("serve", "--home", str(home), "--workspace", str(workspace), "--port", "0")
    with subprocess.Popen(
        without_extras(*serve), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as daemon:
        try:
            assert daemon.stdout is not None
            found = msgspec.json.decode(daemon.stdout.readline(), type=Discovery)
            token = (home / "keys" / "operator.token").read_text(encoding="ascii").strip()
            with blocking.connect(found.ws_url, token=token, timeout_s=WITHIN_S) as client:
                yield client
        finally:
            daemon.terminate()
            assert 0 == daemon.wait(WITHIN_S)


def test_a_daemon_without_extras_works_and_names_what_is_missing(tmp_path: Path) -> None:
    """Runs answer, memory is found by its words; each missing feature is an error with its remedy."""
    with daemon_without_extras(tmp_path / "home", tmp_path / "workspace") as client:
        assert () == client.status().problems
        client.add_memory("The staging port is 8080")
        hits = client.search_memories("staging port")
        assert ("lexical", 1) == (hits.mode, len(hits.hits))
        assert "pip install 'palyra[vectors]'" in (hits.degraded or "")
        started = client.start_run('/call session_search {"query": "hello"}')
        assert "done" == client.wait_run(started.run_id).state
        assert "pip install 'palyra[vectors]'" in str(client.read_tape(started.run_id))


def test_doctor_names_the_missing_parts(tmp_path: Path) -> None:
    """With their features; an installation without them is sound.  The control has them."""
    asked = ("doctor", "--json", "--home", str(tmp_path / "home"))

    def extras_of(command: list[str]) -> dict[str, str]:
        done = subprocess.run(command, capture_output=True, check=False, env=environment())
        checks: list[dict[str, str]] = json.loads(done.stdout)["checks"]
        return next(each for each in checks if each["name"] == "extras")

    check = extras_of(without_extras(*asked))
    assert "ok" == check["verdict"]
    assert all(f"{name} ({each.feature})" in check["detail"] for name, each in EXTRAS.items())
    assert "pip install 'palyra[vectors,wasm,mcp,keyring]'" in check["remedy"]
    whole = extras_of([sys.executable, "-m", "palyra", *asked])
    assert "wasm" not in (whole["remedy"] or "")


def test_a_skill_is_not_built_without_its_compiler(tmp_path: Path) -> None:
    """The text of a module needs one; the error says how to get it."""
    folder = str(tmp_path / "skill")
    subprocess.run(without_extras("skills", "init", folder, "--template", "wat"), check=True)
    done = subprocess.run(
        without_extras("skills", "build", folder),
        capture_output=True, check=False, env=environment(), text=True,
    )  # fmt: skip
    assert 0 != done.returncode
    assert "pip install 'palyra[wasm]'" in done.stderr
