"""A daemon as a child process that speaks the protocol on its standard input and output."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


def ask(process: subprocess.Popen[str], method: str, **params: object) -> None:
    """One request line."""
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> Any:
    """One line of the daemon's."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_a_parent_process_is_a_client_on_stdio(tmp_path: Path) -> None:
    """hello, connect, a run to its end; closing the input drains the daemon, exit code 0.

    What was asked before is answered.
    """
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    command = [sys.executable, "-m", "palyra", "serve", "--stdio", "--home", str(tmp_path / "home")]
    with subprocess.Popen(
        [*command, "--workspace", str(workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert hear(process)["method"] == "hello"
        ask(process, "connect", client={"name": "parent", "version": "1"})
        assert hear(process)["result"]["role"] == "operator"
        ask(process, "run.start", text="hello", subscribe=True)
        kinds: list[str] = []
        while "run.done" not in kinds:
            kinds.append(hear(process).get("params", {}).get("kind", ""))
        ask(process, "run.list")
        ask(process, "system.status")
        rest, _ = process.communicate()  # ends the input behind the questions
        replies = [json.loads(line) for line in rest.splitlines()]
        assert {"run.list", "system.status"} == {
            reply["id"] for reply in replies if "result" in reply
        }
        assert process.returncode == 0
    assert not (tmp_path / "home" / "daemon.json").exists()
