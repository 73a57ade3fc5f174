"""A session's queue through the wire, the command line and a kill."""

import json
from collections.abc import Generator

import pytest
import trio

from palyra.client import Client
from palyra.core.tape import events as ev
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events
from tests.e2e.tapes import check_tape, read_whole
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon to be killed; every test leaves it running."""
    with running(tmp_path_factory.mktemp("mortal")) as process:
        yield process


async def texts(client: Client, run_id: str) -> list[str]:
    """The messages of a run that has come to its good end."""
    with trio.fail_after(WITHIN_S):
        assert "done" == (await client.wait_run(run_id)).state
    tape = await read_whole(client, run_id)
    check_tape(tape)
    messages = find_events(tape, ev.MessageReceived)
    return [message.text for message in messages if isinstance(message, ev.MessageReceived)]


async def test_collected_messages_and_order_survive_a_kill(mortal: DaemonProcess) -> None:
    """The arranged order holds after the kill, with every message once."""
    async with mortal.connect() as client:
        busy = await client.start_run("/delay 3600000 1\n/say busy", session_key="k")
        first = await client.start_run("/say first", session_key="k")
        one = await client.start_run("/say one", session_key="k", queue_mode="collect")
        two = await client.start_run("and two", session_key="k", queue_mode="collect")
        word = await client.start_run("a word", session_key="k", queue_mode="steer")
        assert ("merged", one.run_id) == (two.disposition, two.run_id)
        assert ("steered", busy.run_id) == (word.disposition, word.run_id)
        await mortal.reach(busy.run_id, "turn.started")
        before = await client.queue(busy.session_id, order=[one.run_id], paused=True, mode="steer")
    await mortal.restart()
    async with mortal.connect() as client:
        await texts(client, busy.run_id)
        after = await client.queue(busy.session_id)
        assert ([one.run_id, first.run_id], 3) == (after.waiting, after.messages)
        assert (before.mode, before.paused) == (after.mode, after.paused) == ("steer", True)
        await client.queue(busy.session_id, paused=False)
        assert ["/say first"] == await texts(client, first.run_id)
        assert ["/say one", "and two"] == await texts(client, one.run_id)
        tapes = [await read_whole(client, each.run_id) for each in (one, first)]
        assert tapes[0][-1].at_ms <= tapes[1][-1].at_ms
        steered = find_events(await read_whole(client, busy.run_id), ev.SteerReceived)
        assert 1 == len(steered)


async def test_the_command_line_arranges_a_queue(mortal: DaemonProcess) -> None:
    """Pause, look, drop and resume."""
    async with mortal.connect() as client:
        session = await client.resolve_session(session_key="cli")
        queue = ("sessions", "queue", session.session_id)
        assert "paused" in await show(mortal, *queue, "--pause")
        waits = await client.start_run("hello", session_key="cli")
        assert waits.run_id in await show(mortal, *queue)
        assert "0 of 20 messages waiting" in await show(mortal, *queue, "--drop", waits.run_id)
        assert "cancelled" == (await client.get_run(waits.run_id)).state
        assert not json.loads(await show(mortal, *queue, "--resume", "--json"))["paused"]


async def show(daemon: DaemonProcess, *command: str) -> str:
    """The output of a command on this daemon's home."""
    ended = await palyra(*command, home=daemon.home)
    assert 0 == ended.code, ended.err
    return ended.out
