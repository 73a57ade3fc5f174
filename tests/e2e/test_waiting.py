"""What a command waits for is said, and without a terminal it does not wait for a person."""

from collections.abc import Generator

import pytest

from palyra.client import Client
from palyra.core.session.commands import Started
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, write_call

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon for all tests of this file."""
    with running(tmp_path_factory.mktemp("waiting")) as process:
        yield process


async def ask_in(client: Client, key: str) -> tuple[Started, str]:
    """Start a run that asks, in the session of that key; return it and its approval."""
    started = await client.start_run(write_call(f"{key}.txt"), session_key=key)
    await client.wait_run(started.run_id, until="attention")
    (asked,) = await client.list_approvals(run_id=started.run_id, pending_only=True)
    return started, asked.approval_id


@pytest.mark.parametrize(
    "options", [("--session", "KEY"), ("--session", "KEY", "--approve", "deny"), ("--continue",)]
)
@pytest.mark.parametrize("newest", ["asking", "queued", "cancelled"])
async def test_a_run_behind_a_question_exits_6(
    process: DaemonProcess, options: tuple[str, ...], newest: str
) -> None:
    """Whatever the newest run of the session is, the command names the wait and exits with 6."""
    key = f"{newest}{len(options)}"
    async with process.connect() as client:
        asking, approval_id = await ask_in(client, key)
        if newest != "asking":
            later = await client.start_run("/say later", session_key=key)
            if newest == "cancelled":
                await client.cancel(later.run_id)
        given = [key if each == "KEY" else each for each in options]
        ran = await palyra("run", *given, "/say next", home=process.home)
        assert 6 == ran.code, ran.err
        assert (approval_id if "--session" in given else asking.run_id) in ran.err
        await client.cancel(asking.run_id)
        for run in (
            await client.list_runs(session_id=asking.session_id, states=("accepted",))
        ).runs:
            await client.cancel(run.run_id)


async def test_a_question_asked_later_ends_the_wait(process: DaemonProcess) -> None:
    """A run queued behind a working one is said to wait for a person once that one asks."""
    async with process.connect() as client:
        text = f"/delay 1500 1\n/say first\n{write_call('later.txt')}"
        active = await client.start_run(text, session_key="later")
        ran = await palyra("run", "--session", "later", "/say x", home=process.home)
        assert 6 == ran.code, ran.err
        assert f"queued behind {active.run_id}" in ran.err
        assert "palyra approvals show apr_" in ran.err
        await client.cancel(active.run_id)


async def test_runs_wait_names_the_question_and_the_queue(process: DaemonProcess) -> None:
    """`runs wait` exits with 6 for a run that asks, one behind it and one in a paused queue."""
    async with process.connect() as client:
        asking, approval_id = await ask_in(client, "wait")
        behind = await client.start_run("/say x", session_key="wait")
        own = await palyra("runs", "wait", asking.run_id, home=process.home)
        assert (6, True) == (own.code, asking.run_id in own.err)
        queued = await palyra("runs", "wait", behind.run_id, home=process.home)
        assert (6, True) == (queued.code, approval_id in queued.err)
        view = await client.get_run(behind.run_id)
        assert view.behind is not None
        assert (asking.run_id, "awaiting_approval") == (view.behind.run_id, view.behind.phase)
        await client.queue(asking.session_id, paused=True)
        await client.cancel(asking.run_id)
        paused = await palyra("runs", "wait", behind.run_id, home=process.home)
        assert (6, True) == (paused.code, "the queue is paused" in paused.err)
        await client.queue(asking.session_id, paused=False)
        assert 0 == (await palyra("runs", "wait", behind.run_id, home=process.home)).code


async def test_an_approval_that_is_listed_after_a_restart_takes_its_answer(
    process: DaemonProcess,
) -> None:
    """The first answer right after a restart is held until the run is recovered."""
    async with process.connect() as client:
        asked = await ask_for(client, write_call("again.txt"))
    await process.restart()
    async with process.connect() as client:
        answer = await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        assert answer.won
        assert "done" == (await client.wait_run(asked.run_id)).state
