"""Daily work with the preset `coding`: how many answers an ordinary fix takes."""

import json
import subprocess
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.journal.records import ApprovalScope
from palyra.core.tape import events as ev
from palyra.net.protocol.results import RunWaited
from palyra.tools.policy.presets import write_preset
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, wait_tool
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
FIRST_TRY = """*** Begin Patch
*** Update File: src/calc.py
@@
-    return a - b
+    return a * b
*** End Patch
"""
# Of another size, so that no compiled file of the first try is used.
SECOND_TRY = """*** Begin Patch
*** Update File: src/calc.py
@@
-    return a * b
+    return sum((a, b))
*** End Patch
"""
Script = list[tuple[str, dict[str, object]]]
RUN_TESTS: tuple[str, dict[str, object]] = (
    "shell",
    {"argv": ["python3", "-m", "unittest", "-q"], "cwd": "src"},
)
FIX: Script = [
    ("read_file", {"path": "src/calc.py"}),
    ("search_text", {"query": "add"}),
    ("read_file", {"path": "src/test_calc.py"}),
    ("apply_patch", {"patch": FIRST_TRY}),
    RUN_TESTS,
    ("apply_patch", {"patch": SECOND_TRY}),
    RUN_TESTS,
    ("shell", {"argv": ["git", "diff", "--stat"]}),
]
# The same with a model that reads by programs, as those trained on other agents do.
FIX_BY_PROGRAMS: Script = [
    ("shell", {"command": "ls -la && cat src/calc.py"}),
    ("shell", {"command": "grep -rn 'def add' src | head -20"}),
    ("shell", {"command": "sed -n 1,40p src/test_calc.py"}),
    FIX[3],
    ("shell", {"command": "cd src && python3 -m unittest -q"}),
    FIX[5],
    ("shell", {"command": "cd src && python3 -m unittest -q 2>&1 | tail -20"}),
    ("shell", {"command": "git status --short; git diff --stat"}),
]
STATUSES = ["succeeded"] * 4 + ["failed"] + ["succeeded"] * 3


def make_project(folder: Path) -> None:
    """A repository with a bug and the test that shows it."""
    source = folder / "src"
    source.mkdir(parents=True)
    (source / "calc.py").write_text(BROKEN, "utf-8")
    (source / "test_calc.py").write_text(TEST, "utf-8")
    me = ["-c", "user.name=e2e", "-c", "user.email=e2e@example.org"]
    for command in (["init", "-q"], ["add", "."], [*me, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)


async def fix(daemon: DaemonProcess, script: Script) -> tuple[int, list[str]]:
    """Run the calls; return the number of answers given, and the status of each call."""
    make_project(daemon.workspace)
    answers = 0
    async with daemon.connect() as client:
        await wait_tool(client, "shell")
        lines = (f"/call {tool} {json.dumps(given)}" for tool, given in script)
        started = await client.start_run("\n/then\n".join(lines))
        with trio.fail_after(4 * WITHIN_S):
            while not is_over(await client.wait_run(started.run_id, until="attention")):
                answers += await allow_pending(client, started.run_id)
        tape = await read_whole(client, started.run_id)
    check_tape(tape)
    completed = find_events(tape, ev.ToolCompleted)
    return answers, [each.status for each in completed if isinstance(each, ev.ToolCompleted)]


async def allow_pending(client: Client, run_id: str) -> int:
    """Allow what is asked, for the session where that is offered; return the number of answers."""
    pending = await client.list_approvals(run_id=run_id, pending_only=True)
    for asked in pending:
        scope: ApprovalScope = "session" if "session" in asked.scopes else "once"
        await client.resolve_approval(asked.approval_id, "allow", asked.digest, scope=scope)
    return len(pending)


def is_over(view: RunWaited) -> bool:
    """True for a run that has ended."""
    return view.state in {"done", "failed", "cancelled"}


async def test_a_fix_of_eight_calls_takes_one_answer(tmp_path: Path) -> None:
    """Under the preset only the patches ask, and one answer for the session holds for both."""
    write_preset(tmp_path / "home" / "policies", "coding")
    with running(tmp_path) as daemon:
        assert (1, STATUSES) == await fix(daemon, FIX)


async def test_a_fix_by_programs_takes_one_answer(tmp_path: Path) -> None:
    """Reading by ls, cat, grep, sed and pipes asks no more than the daemon's own tools."""
    write_preset(tmp_path / "home" / "policies", "coding")
    with running(tmp_path) as daemon:
        assert (1, STATUSES) == await fix(daemon, FIX_BY_PROGRAMS)


async def test_without_the_preset_programs_ask(tmp_path: Path) -> None:
    """The same fix takes an answer for each program, too."""
    with running(tmp_path) as daemon:
        answers, statuses = await fix(daemon, FIX)
    assert STATUSES == statuses
    assert 4 == answers


async def test_an_answer_for_the_session_covers_what_was_shown(tmp_path: Path) -> None:
    """A search covers searches, also in a line; no option that runs a program, and no other command."""
    with running(tmp_path) as daemon:
        make_project(daemon.workspace)
        async with daemon.connect() as client:
            await wait_tool(client, "shell")
            first = await client.start_run(
                '/call shell {"argv": ["git", "grep", "add"]}', session_key="work"
            )
            await client.wait_run(first.run_id, until="attention")
            assert 1 == await allow_pending(client, first.run_id)
            await client.wait_run(first.run_id)
            (grant,) = await client.list_grants()
            assert "git grep [any words, listed options]" == grant.key
            for call, answer in (
                ({"argv": ["git", "grep", "-n", "sum"]}, "allow"),
                ({"command": "git grep sum && git grep 'a b' 2>&1"}, "allow"),
                ({"argv": ["git", "grep", "-O/bin/sh -c 'echo x > ran.txt'", "add"]}, "ask"),
                ({"argv": ["git", "log"]}, "ask"),
                ({"command": "git grep sum && touch ran.txt"}, "ask"),
                ({"command": "git grep sum > ran.txt"}, "ask"),
            ):
                told = await client.explain_policy("shell", call, session_id=first.session_id)
                assert (call, answer) == (call, told.answer)


async def test_the_preset_decides_on_each_command_of_a_line(tmp_path: Path) -> None:
    """A line of allowed commands is not asked about; one more that is not listed asks."""
    write_preset(tmp_path / "home" / "policies", "coding")
    with running(tmp_path) as daemon:
        make_project(daemon.workspace)
        async with daemon.connect() as client:
            await wait_tool(client, "shell")
            for line, answer in (
                ("git status && git diff --stat 2>&1", "allow"),
                ("cd src && python3 -m unittest -q; git status", "ask"),  # where is not sure
                ("cd src && python3 -m unittest -q && git status", "allow"),
                ("git status && touch x", "ask"),
                ("git status | sh", "ask"),
            ):
                told = await client.explain_policy("shell", {"command": line})
                assert (line, answer) == (line, told.answer)
