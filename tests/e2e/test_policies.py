"""Rules and grants of a real daemon: what it explains happens, what changes takes effect."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from palyra.actors.config_watch import POLL_S
from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, find_events, see, write_call
from tests.e2e.tapes import read_whole

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-x\n+y\n*** End Patch\n"
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "echo": [{"text": "hi"}, {"text": 5}],
    "update_todos": [{"todos": [{"text": "look", "state": "pending"}]}, {"todos": [{"text": ""}]}],
    "ask_user": [{"question": "which?"}, {"question": "which?", "choices": ["one"]}],
    "sleep": [{"seconds": 0}],
    "read_file": [{"path": "a.txt"}, {"path": "../a"}, {"path": ".env"}, {}],
    "list_dir": [{"path": ""}, {"path": ".ssh"}],
    "glob": [{"pattern": "*"}],
    "search_text": [{"query": "x"}],
    "write_file": [{"path": "b.txt", "content": "x"}, {"path": ".git/config", "content": "x"}],
    "apply_patch": [{"patch": PATCH}, {"patch": PATCH, "dry_run": True}],
    "artifact_read": [{"artifact": "0" * 64}],
    "memory_search": [{"query": "x"}],
    "memory_retain": [{"text": "x"}, {}],
    "memory_forget": [{"memory_ids": ["mem_x"]}],
    "session_search": [{"query": "x"}],
    "process_status": [{}],
    "process_output": [{"process": "proc_x"}],
    "process_stop": [{"process": "proc_x"}],
    "http_send": [{"url": "https://example.org/", "body": "x"}, {"url": "ftp://x/", "body": "x"}],
    "delegate": [{"task": "look"}, {"task": ""}],
    "http_fetch": [{"url": "http://169.254.169.254/"}, {"url": "https://example.org/"}],
    "shell": [{"argv": ["true"]}, {"argv": ["cat", "/home/x/.ssh/id_rsa"]}, {"argv": ["no-such"]}],
    "process_start": [{"argv": ["true"]}],
}
PROGRAMS = {tool for tool in ARGUMENTS if tool.startswith(("shell", "process_"))}  # need a sandbox
BROKEN = {  # and what is said of it; the first would be the end of a parser in the daemon
    f"permit (principal, action, resource) when {{ {'(' * 700}true{')' * 700} }};": "nested deeper",
    "permit (principal": "all.cedar:1: unexpected end of input",
}


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """The folder of the user policies."""
    folder = tmp_path / "policies"
    folder.mkdir()
    return folder


@pytest.fixture
def daemon(tmp_path: Path, policies: Path) -> Generator[DaemonProcess]:
    """A daemon of one test, with that folder."""
    with running(tmp_path, PALYRA_POLICY__DIR=str(policies)) as process:
        yield process


async def happened(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """The outcome of a call: allow, deny, ask or refused."""
    call = msgspec.json.encode(arguments).decode()
    started = await client.start_run(f"/call {tool} {call}")
    await client.wait_run(started.run_id, until="attention")
    tape = await read_whole(client, started.run_id)
    if find_events(tape, ev.ToolRejected):
        return "refused"
    if find_events(tape, ev.ApprovalRequested):
        await client.cancel(started.run_id)
        return "ask"
    (decided,) = find_events(tape, ev.ToolDecided)
    assert isinstance(decided, ev.ToolDecided)
    return decided.verdict


async def explained(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """The outcome that the daemon predicts."""
    try:
        return (await client.explain_policy(tool, arguments)).answer
    except InvalidParams:
        return "refused"


async def test_an_explanation_predicts_the_outcome(daemon: DaemonProcess) -> None:
    """For every tool, with valid, invalid and forbidden arguments."""
    (daemon.workspace / "a.txt").write_text("x")
    async with daemon.connect() as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert ARGUMENTS.keys() - PROGRAMS <= tools <= ARGUMENTS.keys()
        calls = [(tool, given) for tool in sorted(tools) for given in ARGUMENTS[tool]]
        told = [await explained(client, *call) for call in calls]
        seen = [await happened(client, *call) for call in calls]
    assert list(zip(calls, told, strict=True)) == list(zip(calls, seen, strict=True))
    assert {"allow", "deny", "ask", "refused"} == set(seen)


async def test_a_changed_policy_answers_an_open_approval(
    daemon: DaemonProcess, policies: Path
) -> None:
    """A permit that is saved during an approval lets the call run without a restart."""
    async with daemon.connect() as client:
        asked = await ask_for(client, write_call("b.txt"))
        async with client.events(asked.run_id) as items:
            (policies / "all.cedar").write_text("permit (principal, action, resource);")
            with trio.fail_after(WITHIN_S):
                resolved = (await see(items, "approval.resolved")).event
                await see(items, "tool.completed")
        assert isinstance(resolved, ev.ApprovalResolved)
        assert (resolved.decision, resolved.by) == ("abort", "rules")
        assert (daemon.workspace / "b.txt").exists()


async def see_problem(client: Client, complaint: str) -> None:
    """Wait until the daemon complains so."""
    with trio.fail_after(WITHIN_S):
        while complaint not in "".join((await client.status()).problems):  # noqa: ASYNC110 - no news of it
            await trio.sleep(POLL_S / 4)


async def test_an_invalid_file_changes_nothing_and_is_reported(
    daemon: DaemonProcess, policies: Path
) -> None:
    """The last valid policies stay, and status, doctor and the log name the file."""
    (policies / "all.cedar").write_text("permit (principal, action, resource);")
    async with daemon.connect() as client:
        asked = await ask_for(client, write_call("a.txt"))  # asked until the file is read
        with trio.fail_after(WITHIN_S):
            await client.wait_run(asked.run_id)
        version = (await client.explain_policy("echo", {"text": "x"})).version
        for text, complaint in BROKEN.items():
            (policies / "all.cedar").write_text(text)
            await see_problem(client, complaint)
        assert (await client.explain_policy("echo", {"text": "x"})).version == version
        assert await happened(client, "write_file", {"path": "c.txt", "content": "x"}) == "allow"
    doctor = await palyra("doctor", home=daemon.home)
    assert (doctor.code, "all.cedar:1: unexpected end" in " ".join(doctor.out.split())) == (1, True)
    assert "the last valid ones stay" in daemon.said


async def test_without_a_good_set_what_matters_is_denied(tmp_path: Path, policies: Path) -> None:
    """A daemon that starts with a broken file denies everything sensitive, and says why."""
    (policies / "all.cedar").write_text("permit (principal")
    with running(tmp_path, PALYRA_POLICY__DIR=str(policies)) as daemon:
        async with daemon.connect() as client:
            told = await client.explain_policy("write_file", {"path": "a", "content": "x"})
            assert (told.answer, told.reason_code) == ("deny", "policy_broken")
            assert (await client.explain_policy("echo", {"text": "x"})).answer == "allow"


async def test_a_session_grant_over_the_wire(daemon: DaemonProcess) -> None:
    """A file is asked once in a session, another file of its folder again; a grant is listed and ended."""
    async with daemon.connect() as client:
        first = await client.start_run(write_call("notes/a.txt"), session_key="work")
        await client.wait_run(first.run_id, until="attention")
        (asked,) = await client.list_approvals(run_id=first.run_id)
        assert asked.grant_key == "notes/a.txt"
        await client.resolve_approval(asked.approval_id, "allow", asked.digest, scope="session")
        await client.wait_run(first.run_id)
        second = await client.start_run(write_call("notes/a.txt"), session_key="work")
        await client.wait_run(second.run_id)
        assert await client.list_approvals(run_id=second.run_id) == []
        (grant,) = await client.list_grants()
        shown = await palyra("approvals", "grants", home=daemon.home)
        ended = await palyra("approvals", "revoke", grant.grant_id, home=daemon.home)
        assert (grant.grant_id in shown.out, "notes/a.txt" in shown.out, ended.code) == (
            True,
            True,
            0,
        )
        for path in ("notes/a.txt", "notes/b.txt"):  # ended, and never given
            third = await client.start_run(write_call(path), session_key="work")
            await client.wait_run(third.run_id, until="attention")
            assert len(await client.list_approvals(run_id=third.run_id)) == 1
            await client.cancel(third.run_id)
            await client.wait_run(third.run_id)
