"""Modes of a session with a real daemon: the whole catalogue, the commands, a restart."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palyra.client import Client
from palyra.core.policy.modes import ACCEPT_EDITS, PLAN_MODE, PROPOSE_PLAN
from palyra.core.tape import events as ev
from palyra.errors import Forbidden, InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, make_token, write_call
from tests.e2e.tapes import read_whole
from tests.e2e.test_policies import ARGUMENTS

pytestmark = pytest.mark.real

READING = {  # tools that change nothing, with every argument of theirs
    "echo", "sleep", "update_todos", "ask_user", "read_file", "list_dir", "glob", "search_text", "artifact_read",
    "memory_search", "session_search", "process_status", "process_output", "http_fetch",
}  # fmt: skip
ELSEWHERE = {
    "write_file": [{"path": "../b.txt", "content": "x"}, {"path": ".git/config", "content": "x"}]
}

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"answer": {"days": 1.5}}, "answer.days"),
    ({"answer": [1]}, "answer"),
    ({"answer": {"days": 1, "why": "x" * 20_000}}, "answer"),
    ({"answer": {"days": 1}, "reason": "both"}, "answer"),
    ({}, "answer"),
)


async def decide(client: Client, session_id: str, tool: str, arguments: dict[str, Any]) -> str:
    """The reason code, or the answer, that the daemon predicts in a session."""
    try:
        found = await client.explain_policy(tool, arguments, session_id=session_id)
    except InvalidParams:
        return "refused"
    return found.reason_code if found.reason_code in {PLAN_MODE, ACCEPT_EDITS} else found.answer


async def test_modes_of_a_real_daemon(tmp_path: Path) -> None:
    """Plan mode refuses each tool with an effect; a plan is accepted; edits pass, and nothing else."""
    with running(tmp_path) as daemon:
        (daemon.workspace / "a.txt").write_text("x")
        async with daemon.connect() as client:
            session = await client.resolve_session(session_key="work")
            await client.set_session_mode(session.session_id, "plan")
            await see_catalogue(client, session.session_id)
            await plan(client, session.session_id, daemon)
            owner = (await client.get_session(session.session_id)).principal
            client_token = await make_token(client, "client", owner)
        async with daemon.connect(client_token) as program:
            with pytest.raises(Forbidden):
                await program.set_session_mode(session.session_id, "ask")
            with pytest.raises(Forbidden):
                await program.start_run("hello", mode="accept_edits")
        await daemon.restart()
        async with daemon.connect() as client:
            await see_edits(client, session.session_id, daemon)


async def see_catalogue(client: Client, session_id: str) -> None:
    """Ask about every tool in plan mode."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools <= ARGUMENTS.keys()
    assert PROPOSE_PLAN not in tools
    for tool in sorted(tools):
        found = {await decide(client, session_id, tool, given) for given in ARGUMENTS[tool]}
        if tool in READING:
            assert PLAN_MODE not in found, tool
        else:
            assert PLAN_MODE in found, tool
            assert found <= {PLAN_MODE, "deny", "refused", "allow", "ask"}, tool
            assert ("ask" in found) is (tool == "shell"), tool  # `true` only reads
            assert ("allow" in found) is (tool == "apply_patch"), tool  # its dry run


async def plan(client: Client, session_id: str, daemon: DaemonProcess) -> None:
    """A write is refused, a plan is proposed and accepted, and the mode is the one before."""
    proposal = json.dumps({"plan": "write b.txt"})
    text = f"{write_call('b.txt')}\n/then\n/call {PROPOSE_PLAN} {proposal}"
    started = await client.start_run(text, session_id=session_id)
    await client.wait_run(started.run_id, until="attention")
    (asked,) = await client.list_approvals(pending_only=True)
    assert (asked.tool, asked.scopes) == (PROPOSE_PLAN, ("once",))
    await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    await client.wait_run(started.run_id)
    tape = await read_whole(client, started.run_id)
    first = find_events(tape, ev.ToolDecided)[0]
    assert isinstance(first, ev.ToolDecided)
    assert (first.reason_code, (daemon.workspace / "b.txt").exists()) == (PLAN_MODE, False)
    assert (await client.get_session(session_id)).mode == "ask"
    shown = await palyra("sessions", "mode", session_id, "accept-edits", home=daemon.home)
    assert "is in the mode accept-edits" in shown.out
    described = await palyra("sessions", "show", session_id, home=daemon.home)
    assert "accept-edits by" in described.out


async def see_edits(client: Client, session_id: str, daemon: DaemonProcess) -> None:
    """After the restart an edit passes; every other tool is decided as without the mode."""
    started = await client.start_run(write_call("b.txt"), session_id=session_id)
    assert (await client.wait_run(started.run_id, until="attention")).state == "done"
    assert (daemon.workspace / "b.txt").read_text() == "written"
    other = (await client.resolve_session(session_key="other")).session_id
    tools = {tool.name for tool in (await client.list_tools()).tools}
    for tool in sorted(tools):
        for given in [*ARGUMENTS[tool], *ELSEWHERE.get(tool, [])]:
            found = await decide(client, session_id, tool, given)
            without = await decide(client, other, tool, given)
            assert found == without or (found, without) == (ACCEPT_EDITS, "ask"), (tool, given)
            assert found != ACCEPT_EDITS or tool in {"write_file", "apply_patch"}, (tool, given)


async def test_a_question_is_answered_by_a_command(tmp_path: Path) -> None:
    """A wrong choice is refused with the possible ones; the right one reaches the model."""
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            question = json.dumps({"question": "Which?", "choices": ["left", "right"]})
            started = await client.start_run(f"/call ask_user {question}")
            await client.wait_run(started.run_id, until="attention")
            (asked,) = await client.list_approvals(pending_only=True)
            wrong = await palyra("approvals", "answer", asked.approval_id, "up", home=daemon.home)
            assert wrong.code
            assert "left, right" in wrong.err
            right = await palyra(
                "approvals", "answer", asked.approval_id, "right", home=daemon.home
            )
            assert not right.code
            assert (await client.wait_run(started.run_id)).state == "done"
            tape = await read_whole(client, started.run_id)
            (done,) = find_events(tape, ev.ToolCompleted)
            assert isinstance(done, ev.ToolCompleted)
            assert done.output.endswith("answers: right")
            described = await palyra("runs", "show", started.run_id, home=daemon.home)
            assert not described.code


async def refused_field(resolve: Callable[..., Awaitable[object]], given: dict[str, Any]) -> str:
    """The field that a refused answer names."""
    with pytest.raises(InvalidParams) as refused:
        await resolve(**given)
    return refused.value.field or ""


async def test_a_form_is_answered_by_a_command_and_by_a_client(tmp_path: Path) -> None:
    """Both give its JSON; a wrong value is named with its field, and a call that is no question takes none."""
    properties = {"days": {"type": "integer", "minimum": 1}, "why": {"type": "string"}}
    form = {"type": "object", "properties": properties, "required": ["days"]}
    question = json.dumps({"question": "How long?", "form": form})
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            started = await client.start_run(
                f"/call ask_user {question}\n/call ask_user {question[:-1]} }}"
            )
            await client.wait_run(started.run_id, until="attention")
            (asked,) = await client.list_approvals(pending_only=True)
            answer = ("approvals", "answer", asked.approval_id)
            wrong = await palyra(*answer, '{"days": 0}', home=daemon.home)
            assert "days: 0 is not a whole number (at least 1)" in wrong.err
            resolve = partial(client.resolve_approval, asked.approval_id, "allow", asked.digest)
            for given, field in WRONG:
                assert await refused_field(resolve, given) == field
            assert not (await palyra(*answer, '{"days": 2}', home=daemon.home)).code
            assert (await client.wait_run(started.run_id)).state == "done"
            tape = await read_whole(client, started.run_id)
            outputs = [done.output for done in find_events(tape, ev.ToolCompleted)]  # type: ignore[attr-defined]
            assert [output.partition(": ")[2] for output in outputs] == ['{"days": 2}'] * 2


async def test_only_a_question_takes_an_answer(tmp_path: Path) -> None:
    """A call that asks is refused one, and an answer may be longer than a reason."""
    question = json.dumps({"question": "Why?"})
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            long = "because " * 500
            started = await client.start_run(
                f"{write_call('a.txt', 'x')}\n/call ask_user {question}"
            )
            await client.wait_run(started.run_id, until="attention")
            (write,) = await client.list_approvals(pending_only=True)
            deny = partial(client.resolve_approval, write.approval_id, digest=write.digest)
            with pytest.raises(InvalidParams, match="no question"):
                await deny(decision="allow", answer="yes")
            await deny(decision="deny")
            await client.wait_run(started.run_id, until="attention")
            (asked,) = await client.list_approvals(pending_only=True)
            await client.resolve_approval(asked.approval_id, "allow", asked.digest, answer=long)
            assert (await client.wait_run(started.run_id)).state == "done"
            kept = await client.get_approval(asked.approval_id)
            assert kept.reason == long
