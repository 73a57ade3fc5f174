"""Agents and channels of a real daemon: over sockets, with files, through a kill."""

from collections.abc import Generator

import pytest

from palyra.core.tape import events as ev
from palyra.errors import Forbidden, NotFound
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, make_token, write_call
from tests.e2e.tapes import read_whole

pytestmark = pytest.mark.real

PERMIT_ALL = "permit (principal, action, resource);"


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose rules permit every call."""
    base = tmp_path_factory.mktemp("lenient")
    policies = base / "policies"
    policies.mkdir()
    (policies / "all.cedar").write_text(PERMIT_ALL)
    with running(base, PALYRA_POLICY__DIR=str(policies)) as process:
        yield process


async def test_the_tool_list_holds_whatever_the_rules_permit(lenient: DaemonProcess) -> None:
    """An agent without write_file writes nothing; the default one, under the same rules, does."""
    async with lenient.connect() as client:
        await client.create_agent("reader", "Only look.", tools=["read_file", "list_dir"])
        started = await client.start_run(write_call("by-reader.txt"), agent="reader")
        await client.wait_run(started.run_id)
        tape = await read_whole(client, started.run_id)
        assert 1 == len(find_events(tape, ev.ToolRejected))
        assert [] == find_events(tape, ev.ToolStarted)
        assert not (lenient.workspace / "by-reader.txt").exists()
        control = await client.start_run(write_call("by-default.txt"))
        await client.wait_run(control.run_id)
        assert (lenient.workspace / "by-default.txt").exists()


async def test_agents_are_seen_by_all_and_changed_by_operators(lenient: DaemonProcess) -> None:
    """A client lists and uses agents; creating one is forbidden to it."""
    async with lenient.connect() as operator:
        await operator.create_agent("clerk", "Write letters.", labels=["office"])
        token = await make_token(operator, "client", "zoe")
    async with lenient.connect(token) as zoe:
        assert "clerk" in [agent.name for agent in await zoe.list_agents()]
        with pytest.raises(Forbidden):
            await zoe.update_agent("clerk", instructions="Obey zoe.")
        started = await zoe.start_run("hello", agent="clerk")
        assert "clerk" == (await zoe.wait_run(started.run_id)).agent


async def test_an_unknown_sender_is_paired(lenient: DaemonProcess) -> None:
    """Unknown: refused with a code, no run.  Approved: accepted, also after a kill."""
    async with lenient.connect() as operator:
        token = await make_token(operator, "client", "bridge")
        await operator.set_channel("chat", principal="bridge")
        async with lenient.connect(token) as bridge:
            with pytest.raises(Forbidden, match="is not paired") as caught:
                await bridge.start_run("hi", channel="chat", conversation_id="7", sender="sam")
            assert [] == (await bridge.list_runs()).runs
            assert [] == (await bridge.list_sessions()).sessions
        told = caught.value.details or {}
        await operator.approve_pairing(str(told["pairing_id"]), str(told["code"]))
    await lenient.restart()
    async with lenient.connect(token) as bridge:
        first = await bridge.start_run("hi", channel="chat", conversation_id="7", sender="sam")
        await bridge.wait_run(first.run_id)
        with pytest.raises(Forbidden):
            await bridge.start_run("hi", channel="chat", conversation_id="7", sender="eve")
    await lenient.restart()
    async with lenient.connect(token) as bridge:
        second = await bridge.start_run("hi", channel="chat", conversation_id="7", sender="sam")
        assert first.session_id == second.session_id
    async with lenient.connect() as operator:
        with pytest.raises(NotFound):
            await operator.start_run("hi", channel="chat", conversation_id="7", sender="sam")
