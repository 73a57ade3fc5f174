"""Daily work with the preset `coding`: how many answers an ordinary fix takes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.tools.policy.presets import write_preset
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import wait_tool
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.wire import WITHIN_S
from tests.optional import needs
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = [pytest.mark.real, needs_bubblewrap, needs("git")]

BROKEN = "def add(a, b):\n    return a - b\n"
TEST = """import unittest
from calc import add


class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(5, add(2, 3))
"""
PATCH = """*** Begin Patch
*** Update File: calc.py
@@
-    return a {0} b
+    return a {1} b
*** End Patch
"""
RUN_TESTS = ("shell", {"argv": ["python3", "-m", "unittest", "-q"]})
FIX: list[tuple[str, dict[str, object]]] = [
    ("read_file", {"path": "calc.py"}),
    ("search_text", {"pattern": "add"}),
    ("read_file", {"path": "test_calc.py"}),
    ("apply_patch", {"patch": PATCH.format("-", "*")}),
    RUN_TESTS,
    ("apply_patch", {"patch": PATCH.format("*", "+")}),
    RUN_TESTS,
    ("shell", {"argv": ["git", "diff", "--stat"]}),
]


def make_project(folder: Path) -> None:
    """A repository with a bug and the test that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "src"
    source.mkdir()
    (source / "calc.py").write_text(BROKEN, "utf-8")
    (source / "test_calc.py").write_text(TEST, "utf-8")


async def fix(client: Client, script: list[tuple[str, dict[str, object]]]) -> tuple[int, list[str]]:
    """Run the calls; the number of answers given, and the status of each call."""
    await wait_tool(client, "shell")
    text = "\n/then\n".join(f"/call {tool} {json.dumps(given)}" for tool, given in script)
    started = await client.start_run(text)
    answers = 0
    with trio.fail_after(4 * WITHIN_S):
        while (await client.wait_run(started.run_id, until="attention")).state == "running":
            for asked in await client.list_approvals(run_id=started.run_id, pending_only=True):
                scope = "session" if "session" in asked.scopes else "once"
                await client.resolve_approval(asked.approval_id, "allow", asked.digest, scope=scope)
                answers += 1
    tape = await read_whole(client, started.run_id)
    check_tape(tape)
    found = [item.data["status"] for item in tape if item.kind == "tool.completed"]
    return answers, found
